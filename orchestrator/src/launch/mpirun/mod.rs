//! The mpirun launcher: one mpirun (or mpiexec) starts all ranks.
//!
//! | file | subject |
//! |---|---|
//! | `dialect` | recognises an mpirun |
//! | `find` | finds mpirun |
//! | `start`, `openmpi`, `hydra` | options and files of each family |
//! | `messages` | messages of mpirun, and the meaning of its end |
//! | [`rank`] | the parent process of a rank |
//! | [`remote_shell`] | starts mpirun's daemons on a node |
//!
//! The host file places each rank on its node, line by line; down nodes are not in it. Our own remote shell
//! ([`remote_shell`]) starts mpirun's daemons, as overlapping steps or over ssh, so that mpirun never waits for a
//! resource manager that has not detected a dead node. The parents of the ranks ([`rank`]) report how they end.

mod dialect;
mod find;
mod hydra;
pub(super) mod messages;
mod openmpi;
pub mod rank;
pub mod remote_shell;
mod start;

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use dialect::Recognised;
pub use find::FindError;
use find::find;
use holdfast_wire::environment;
use serde::{Deserialize, Serialize};

pub(crate) use dialect::Dialect;
pub(crate) use find::dialect_of;
pub(super) use messages::labels;

use super::command::{self, LauncherCommand};
use super::error::LaunchError;
use super::labels::LineLabels;
use super::launcher::{LaunchRequest, Launcher, LauncherContext, LauncherEntry, PlainLaunch, SCR_ENABLE};
use super::named_files;
use super::plan::StepPlan;
use super::step::{Step, Supervision};
use crate::allocation::registry as managers;
use crate::host::program;
use crate::spec::{Allocation, KeyFacts, LauncherFacts, RunSpec, Suits};
use holdfast_core::state_files;
use messages::MpirunMessages;
use remote_shell::{REACH_FILE, RemoteShells};
use start::Start;

/// The file with the node of each rank.
const HOST_FILE: &str = "hosts";
/// Prefixes of SCR's and our own variables, which are passed to the ranks.
const OURS: [&str; 2] = ["SCR_", "HOLDFAST_"];
/// Variables that an outer launcher sets for its own ranks. With them, mpirun would behave as one of those ranks, or
/// pass them on. The variables of ranks ([`environment::RANK_VARIABLES`]) are removed too.
const OF_AN_OUTER_LAUNCHER: [&str; 18] = [
    // Options of a site for ssh, which our remote shell does not support.
    "HYDRA_LAUNCHER_EXTRA_ARGS",
    "PMI_FD",
    "PMI_PORT",
    "PMI_ID",
    "PMI_JOBID",
    "PMI_SPAWNED",
    "PMIX_NAMESPACE",
    "PMIX_ID",
    "PMIX_SERVER_URI",
    "PMIX_SERVER_URI2",
    "PMIX_SERVER_URI21",
    "PMIX_SERVER_URI3",
    "PMIX_SERVER_URI4",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_NODE_RANK",
    "OMPI_UNIVERSE_SIZE",
    "HYDI_CONTROL_FD",
    "MPI_LOCALRANKID",
];

pub static ENTRY: LauncherEntry = LauncherEntry {
    facts: LauncherFacts {
        name: "mpirun",
        doc: "Open MPI or MPICH under Slurm, Flux or PBS, over ssh or on virtual nodes; docs/mpirun.md",
        suits: Suits::RemoteShells,
        keys: KeyFacts {
            takes: &[
                (
                    "launcher_program",
                    "it sets the program of `launcher: mpirun`: write that launcher, or leave the key out",
                ),
                ("launcher_options", ""),
            ],
            without: &[],
        },
    },
    open: |context| Ok(Box::new(MpirunLauncher::open(context)?)),
    supervision: |plan| Ok(Box::new(MpirunSupervision { step: plan.details()? })),
};

/// The plan's details for the supervision.
#[derive(Debug, Serialize, Deserialize)]
struct MpirunStep {
    dialect: Dialect,
    command: LauncherCommand,
}

/// An mpirun that was found and recognised.
#[derive(Clone, Debug)]
struct MpirunLauncher {
    program: PathBuf,
    dialect: Dialect,
    /// The executable of the remote shells: our own.
    holdfast: PathBuf,
    /// Its path on the nodes, where it is the parent of the ranks.
    on_nodes: PathBuf,
    /// Names of the variables of this process.
    variables: BTreeSet<String>,
    /// The usable machines of the ssh manager.
    hosts: Vec<String>,
}

impl MpirunLauncher {
    /// Finds and recognises mpirun.
    fn open(context: &LauncherContext<'_>) -> Result<Self, LaunchError> {
        let path = env::var_os("PATH");
        let named = context.run.launcher_program.as_deref();
        let (program, Recognised { dialect, name }) = find(named, context.working_directory, path.as_deref())?;
        tracing::info!(program = %program.display(), version = name, "mpirun_found");
        let holdfast = program::ourselves()?;
        let on_nodes = context.allocation.program().map_or_else(|| holdfast.clone(), Path::to_owned);
        let variables = env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
        let hosts = usable_hosts(context.allocation);
        Ok(MpirunLauncher { program, dialect, holdfast, on_nodes, variables, hosts })
    }

    /// Settings of the dialect that the user has not set.
    fn settings(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let settings = match self.dialect {
            Dialect::Hydra => &[],
            other => openmpi::variables(other),
        };
        settings
            .iter()
            .filter(|(name, _)| !self.variables.contains(*name))
            .map(|(name, value)| ((*name).into(), (*value).into()))
    }
}

/// The hosts of the ssh manager that are not excluded.
fn usable_hosts(allocation: &Allocation) -> Vec<String> {
    let usable: Vec<_> = allocation.hosts.iter().filter(|host| !allocation.is_excluded(host)).collect();
    usable.iter().map(ToString::to_string).collect()
}

impl Launcher for MpirunLauncher {
    fn plain(&self, launch: &PlainLaunch<'_>) -> Result<Vec<Command>, LaunchError> {
        let RunSpec { nodes, ranks, ranks_per_node, env, .. } = launch.run;
        let mut options = vec!["-n".to_owned(), ranks.to_string()];
        if !self.hosts.is_empty() {
            // mpirun knows of no allocation, and would start all ranks on this machine.
            let hosts = self.hosts.iter().take(*nodes as usize).map(|host| format!("{host}:{ranks_per_node}"));
            let option = if self.dialect == Dialect::Hydra { "-hosts" } else { "--host" };
            options.extend([option.to_owned(), hosts.collect::<Vec<_>>().join(",")]);
        } else if launch.on_virtual_nodes && self.dialect != Dialect::Hydra {
            // Otherwise it starts as many ranks as there are processors.
            options.extend(["--host".to_owned(), format!("localhost:{ranks}")]);
        }
        if self.dialect != Dialect::Hydra {
            // Open MPI does not pass variables on to other nodes.
            options.extend(openmpi::passing_on(env.keys().map(String::as_str).chain([SCR_ENABLE])));
        }
        let mut command = launch.command(&self.program, &options);
        if launch.on_virtual_nodes {
            // Otherwise version 5 refuses more ranks than there are processors.
            command.envs(self.settings().filter(|(name, _)| !env.contains_key(name)));
        }
        Ok(vec![command])
    }

    fn starts_mpi(&self) -> bool {
        true
    }

    fn dialect(&self) -> Option<Dialect> {
        Some(self.dialect)
    }

    fn plan(&self, request: LaunchRequest<'_>) -> Result<StepPlan, LaunchError> {
        let LaunchRequest { job_id, generation, placement, run, directory, .. } = request;
        let homes = request.homes();
        let mut shells = Vec::new();
        for node in placement.used() {
            let shell = request.reach.get(&node.name).cloned();
            let mut shell = shell.ok_or_else(|| LaunchError::NoWay { node: node.name.clone() })?;
            if let Some(of_node) = request.node_variables.get(&node.name) {
                let socket = request.socket(&node.name)?.to_string_lossy().into_owned();
                let root = of_node.get(environment::NODE_ROOT).filter(|_| self.dialect != Dialect::Hydra);
                let of_daemon = root.into_iter().flat_map(|root| openmpi::on_virtual_node(root));
                let of_node = of_node.iter().map(|(name, value)| format!("{name}={value}"));
                let set = of_node.chain(of_daemon).chain([format!("{}={socket}", environment::SOCKET)]);
                shell.words.splice(0..0, std::iter::once("env".to_owned()).chain(set));
            }
            shells.push((&node.name, shell));
        }
        let reach_file = RemoteShells::new(job_id, generation, shells.into_iter()).write(directory)?;
        let files = named_files::directory_for(directory, job_id)?;
        let host_file = files.path.join(HOST_FILE);
        let hosts = match self.dialect {
            Dialect::Hydra => hydra::host_file(&homes),
            _ => openmpi::host_file(&homes),
        };
        state_files::replace(&host_file, hosts.as_bytes())?;

        // The built-in examples are in the `holdfast` executable on the nodes.
        let program = if request.program == self.holdfast { &self.on_nodes } else { request.program };
        let mut plan = LaunchRequest { program, ..request }.plan();
        if request.node_variables.is_empty() {
            let socket = request.common_socket()?.to_string_lossy().into_owned();
            plan.environment.insert(environment::SOCKET.to_owned(), socket);
        }
        let mut passed_on: BTreeSet<String> = plan.environment.keys().cloned().collect();
        passed_on.extend(self.variables.iter().filter(|name| OURS.iter().any(|own| name.starts_with(own))).cloned());
        passed_on.remove(REACH_FILE);
        // For mpirun, not for the ranks.
        plan.environment.extend(self.settings().filter(|(name, _)| !run.env.contains_key(name)));
        plan.environment.insert(REACH_FILE.to_owned(), reach_file.to_string_lossy().into_owned());

        let host_file = host_file.to_string_lossy();
        // The daemons of Open MPI check that the remote shell exists on their nodes too, where a private link does not.
        let (shell, words) = match files.is_private && self.dialect != Dialect::Hydra {
            true => (self.holdfast.clone(), " remote-shell"),
            false => (remote_shell::link(&files.path, &self.holdfast)?, ""),
        };
        // mpirun splits it at blanks, without any quoting.
        if shell.to_string_lossy().contains([' ', '\t', ':']) {
            return Err(LaunchError::Blank { path: shell });
        }
        let shell = format!("{}{words}", shell.display());
        let variables: Vec<String> = passed_on.into_iter().collect();
        let start = Start { homes: &homes, host_file: &host_file, shell: &shell, variables: &variables };
        let mut options = match self.dialect {
            Dialect::Hydra => hydra::options(&start),
            dialect => openmpi::options(dialect, &start),
        };
        options.extend(run.launcher_options.iter().cloned());
        let on_nodes = self.on_nodes.to_string_lossy().into_owned();
        options.extend([on_nodes, "rank".to_owned(), "--".to_owned()]);
        let of_ranks = environment::RANK_VARIABLES.iter().filter(|variables| variables.has_parents);
        let of_ranks = of_ranks.flat_map(|variables| std::iter::once(&variables.rank).chain(variables.ranks));
        // Of all managers: mpirun looks for any of them.
        let of_managers = managers::managers().flat_map(|manager| manager.facts.variables.removed);
        let without: BTreeSet<&str> = of_managers.chain(&OF_AN_OUTER_LAUNCHER).chain(of_ranks).copied().collect();
        let without = without.into_iter().map(str::to_owned).collect();
        let command = LauncherCommand { program: self.program.clone(), options, without, ranks: homes };
        plan.private_directory = files.into_plan();
        plan.with_details(ENTRY.facts.name, &MpirunStep { dialect: self.dialect, command })
    }
}

struct MpirunSupervision {
    step: MpirunStep,
}

impl Supervision for MpirunSupervision {
    fn run(&mut self, step: &mut Step) -> Result<(), LaunchError> {
        command::supervise(step, &self.step.command, &mut MpirunMessages::new(self.step.dialect))
    }

    fn labels(&self) -> Option<&'static LineLabels> {
        Some(labels(self.step.dialect))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::fixtures::{details, launch, node};
    use crate::spec::JobSpec;
    use std::path::Path;

    fn plan(dialect: Dialect, holdfast: &str, directory: &Path) -> Result<StepPlan, LaunchError> {
        let mut spec = JobSpec::of_test("run: {command: [./app, -x]}\n");
        spec.steps[0].run.launcher_options = vec!["--verbose".to_owned()];
        spec.steps[0].run.env.insert("TOKEN".to_owned(), "secret".to_owned());
        let nodes = vec![node("n2", &[1, 3]), node("n4", &[]), node("n5", &[0, 2])];
        let variables = ["SCR_FLUSH", "HOME"].map(str::to_owned).into();
        let (program, holdfast, on_nodes) = ("/opt/mpi/bin/mpirun".into(), holdfast.into(), holdfast.into());
        let launcher = MpirunLauncher { program, dialect, holdfast, on_nodes, variables, hosts: Vec::new() };
        let sockets = [("n2", "/t/agent.sock"), ("n5", "/t/agent.sock")];
        launch(&launcher, &spec.steps[0].run, nodes, &sockets, directory)
    }

    fn command(plan: &StepPlan) -> LauncherCommand {
        details::<MpirunStep>(plan).command
    }

    #[test]
    fn plain_mpirun_gets_the_usable_hosts_and_the_variables() {
        let text = "allocation: {hosts: [n1, user@n2, n3], exclude: n2, ssh: {program: /opt/holdfast}}\n\
                    run: {command: [./app], nodes: 2, ranks_per_node: 3, env: {TOKEN: x, OMPI_MCA_btl: self}}\n";
        let spec = JobSpec::of_test(text);
        let options = |dialect| {
            let hosts = usable_hosts(&spec.allocation);
            let (program, holdfast, on_nodes) = ("/bin/mpirun".into(), "/h".into(), "/h".into());
            let launcher = MpirunLauncher { program, dialect, holdfast, on_nodes, variables: BTreeSet::new(), hosts };
            let run = &spec.steps[0].run;
            let plain = PlainLaunch { run, program: Path::new("./app"), on_virtual_nodes: false };
            let commands = launcher.plain(&plain).unwrap();
            let words = commands[0].get_args().map(|word| word.to_string_lossy().into_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(options(Dialect::Hydra), "-n 6 -hosts n1:3,n3:3 ./app");
        assert_eq!(options(Dialect::OpenMpi), "-n 6 --host n1:3,n3:3 -x TOKEN -x SCR_ENABLE ./app");
    }

    #[test]
    fn nodes_without_ranks_are_in_no_file() {
        for (dialect, expected) in
            [(Dialect::OpenMpi, "n5\nn2\nn5\nn2\n"), (Dialect::Hydra, "n5:1\nn2:1\nn5:1\nn2:1\n")]
        {
            let base = tempfile::tempdir().unwrap();
            plan(dialect, "/bin/holdfast", base.path()).unwrap();
            assert_eq!(std::fs::read_to_string(base.path().join(HOST_FILE)).unwrap(), expected);
            assert!(!std::fs::read_to_string(base.path().join("reach.json")).unwrap().contains("n4"));
        }
    }

    #[test]
    fn the_options_of_the_user_are_between_ours_and_the_parent_of_the_rank() {
        let base = tempfile::tempdir().unwrap();
        for dialect in [Dialect::OpenMpi, Dialect::Prrte, Dialect::Hydra] {
            let launcher = plan(dialect, "/bin/holdfast", base.path()).map(|plan| command(&plan)).unwrap();
            let end = &launcher.options[launcher.options.len() - 4..];
            assert_eq!(end, ["--verbose", "/bin/holdfast", "rank", "--"]);
        }
    }

    #[test]
    fn values_are_never_on_the_command_line() {
        let base = tempfile::tempdir().unwrap();
        for dialect in [Dialect::OpenMpi, Dialect::Prrte, Dialect::Hydra] {
            let plan = plan(dialect, "/bin/holdfast", base.path()).unwrap();
            let launcher = command(&plan);
            assert_eq!(plan.environment["TOKEN"], "secret");
            assert!(!launcher.options.iter().any(|option| option.contains("secret")), "{:?}", launcher.options);
        }
    }

    #[test]
    fn parameters_of_scr_reach_the_ranks_and_variables_of_an_outer_launcher_do_not() {
        let base = tempfile::tempdir().unwrap();
        let launcher = plan(Dialect::OpenMpi, "/bin/holdfast", base.path()).map(|plan| command(&plan)).unwrap();
        let has = |name: &str| launcher.options.windows(2).any(|pair| pair == ["-x", name]);
        assert!(has("SCR_FLUSH") && has("HOLDFAST_SOCKET") && has("TOKEN") && !has("HOME"), "{:?}", launcher.options);
        assert!(!has(REACH_FILE) && !has("OMPI_MCA_hwloc_base_binding_policy"), "{:?}", launcher.options);
        for name in ["SLURM_PROCID", "PMIX_RANK", "SLURM_NTASKS_PER_NODE"] {
            assert!(launcher.without.iter().any(|it| it == name), "{name}");
        }
    }

    #[test]
    fn refuses_a_path_that_mpirun_would_split() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("my runs");
        std::fs::create_dir(&directory).unwrap();
        let error = plan(Dialect::OpenMpi, "/bin/holdfast", &directory).unwrap_err().to_string();
        assert!(error.contains("my runs"), "{error}");
    }
}
