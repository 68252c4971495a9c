//! The mpirun launcher: one mpirun (or mpiexec) is the whole run.
//!
//! | file | subject |
//! |---|---|
//! | `dialect` | which mpirun it is |
//! | `find` | where it is, and asking it |
//! | `openmpi`, `hydra` | the options and files of each family |
//! | `messages` | what an mpirun says, and what its end means |
//! | [`rank`] | the parent of a rank |
//! | [`remote_shell`] | how mpirun's daemons get onto a node |
//!
//! Each rank stands on its node because the host file says so, line by line; a down node is not in it. The daemons that
//! mpirun needs on the nodes are started by our own remote shell ([`remote_shell`]), as steps that overlap or over
//! ssh, so that it never waits for a resource manager that has not noticed a dead node. How ranks end is told by their
//! parents ([`rank`]).

mod dialect;
mod find;
mod hydra;
mod messages;
mod openmpi;
pub mod rank;
pub mod remote_shell;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::PathBuf;

use holdfast_core::durable;
use holdfast_model::{NodeName, Rank};
use holdfast_wire::environment;
use serde::{Deserialize, Serialize};

use dialect::Recognised;
pub use find::FindError;
use find::find;

pub(super) use dialect::Dialect;
pub(super) use messages::labels;

use super::command::{self, LauncherCommand};
use super::{
    LaunchError, LaunchRequest, Launcher, LauncherContext, LauncherEntry, LineLabels, Step, StepPlan, Supervision,
};
use crate::allocation::slurm;
use crate::host::program;
use crate::spec::{KeyFacts, LauncherFacts};
use messages::MpirunMessages;
use remote_shell::{REACH_FILE, RemoteShells};

/// The file that says where each rank goes.
const HOST_FILE: &str = "hosts";
/// Parameters of SCR and of our own, which ranks read.
const OURS: [&str; 2] = ["SCR_", "HOLDFAST_"];
/// What an outer launcher has left for the processes that it started. An mpirun that finds it takes itself for one of them,
/// or hands it to the ranks, which are others. The variables of ranks ([`environment::RANK_VARIABLES`]) come beside.
const OF_AN_OUTER_LAUNCHER: [&str; 20] = [
    // Options of a site for ssh, which our remote shell is not.
    "HYDRA_LAUNCHER_EXTRA_ARGS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
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

/// The line of the registry.
pub static ENTRY: LauncherEntry = LauncherEntry {
    facts: LauncherFacts {
        name: "mpirun",
        doc: "Open MPI or MPICH under Slurm or over ssh; docs/mpirun.md",
        managers: &["slurm", "ssh"],
        keys: KeyFacts {
            takes: &[
                ("launcher_program", "it names the mpirun of `launcher: mpirun`; write that, or leave it out"),
                ("launcher_options", ""),
            ],
            without: &[],
        },
    },
    open: |context| Ok(Box::new(MpirunLauncher::open(context)?)),
    supervision: |plan| Ok(Box::new(MpirunSupervision { step: plan.details()? })),
};

/// What the supervision has to know of a run.
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
    /// The program that remote shells are: ourselves.
    holdfast: PathBuf,
    /// The same on the nodes, where it is the ranks' parent.
    on_nodes: PathBuf,
    /// Names of the variables of this process.
    variables: BTreeSet<String>,
}

/// What a dialect has to know of a run.
#[derive(Clone, Copy, Debug)]
struct Start<'a> {
    homes: &'a BTreeMap<Rank, NodeName>,
    host_file: &'a str,
    /// The path of the remote shell.
    shell: &'a str,
    /// Names of variables that ranks must get.
    variables: &'a [String],
}

impl MpirunLauncher {
    /// Finds the mpirun that is to be used, and asks it what it is.
    fn open(context: &LauncherContext<'_>) -> Result<Self, LaunchError> {
        let path = env::var_os("PATH");
        let named = context.run.launcher_program.as_deref();
        let (program, Recognised { dialect, name }) = find(named, context.working_directory, path.as_deref())?;
        tracing::info!(program = %program.display(), version = name, "mpirun_found");
        let holdfast = program::ourselves()?;
        let on_nodes = context.allocation.ssh.program.clone().unwrap_or_else(|| holdfast.clone());
        let variables = env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
        Ok(MpirunLauncher { program, dialect, holdfast, on_nodes, variables })
    }

    /// Settings of the dialect, where the user has not made his own.
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

impl Launcher for MpirunLauncher {
    fn plan(&self, request: LaunchRequest<'_>) -> Result<StepPlan, LaunchError> {
        let LaunchRequest { job_id, generation, placement, run, directory, .. } = request;
        let homes = request.homes();
        let mut shells = Vec::new();
        for node in placement.used() {
            let shell = request.reach.get(&node.name).cloned();
            shells.push((&node.name, shell.ok_or_else(|| LaunchError::NoWay { node: node.name.clone() })?));
        }
        let reach_file = RemoteShells::new(job_id, generation, shells.into_iter()).write(directory)?;
        let host_file = directory.join(HOST_FILE);
        let hosts = match self.dialect {
            Dialect::Hydra => hydra::host_file(&homes),
            _ => openmpi::host_file(&homes),
        };
        durable::replace(&host_file, hosts.as_bytes())?;

        // The built-in examples are where `holdfast` is there.
        let program = if request.program == self.holdfast { &self.on_nodes } else { request.program };
        let mut plan = LaunchRequest { program, ..request }.plan();
        let socket = request.common_socket()?.to_string_lossy().into_owned();
        plan.environment.insert(environment::SOCKET.to_owned(), socket);
        let mut passed_on: BTreeSet<String> = plan.environment.keys().cloned().collect();
        passed_on.extend(self.variables.iter().filter(|name| OURS.iter().any(|own| name.starts_with(own))).cloned());
        passed_on.remove(REACH_FILE);
        // Not of the ranks: of mpirun.
        plan.environment.extend(self.settings().filter(|(name, _)| !run.env.contains_key(name)));
        plan.environment.insert(REACH_FILE.to_owned(), reach_file.to_string_lossy().into_owned());

        let host_file = host_file.to_string_lossy();
        let shell = remote_shell::link(directory, &self.holdfast)?;
        // It is split at blanks, and nothing can be quoted in it.
        if shell.to_string_lossy().contains([' ', '\t', ':']) {
            return Err(LaunchError::Blank { path: shell });
        }
        let shell = shell.to_string_lossy();
        let variables: Vec<String> = passed_on.into_iter().collect();
        let start = Start { homes: &homes, host_file: &host_file, shell: &shell, variables: &variables };
        let mut options = match self.dialect {
            Dialect::Hydra => hydra::options(&start),
            dialect => openmpi::options(dialect, &start),
        };
        options.extend(run.launcher_options.iter().cloned());
        let on_nodes = self.on_nodes.to_string_lossy().into_owned();
        options.extend([on_nodes, "rank".to_owned(), "--".to_owned()]);
        let of_ranks = environment::RANK_VARIABLES.iter().filter(|variables| variables.mpirun);
        let of_ranks = of_ranks.flat_map(|variables| std::iter::once(&variables.rank).chain(variables.ranks));
        let without: BTreeSet<&str> =
            slurm::removed_variables().iter().chain(&OF_AN_OUTER_LAUNCHER).chain(of_ranks).copied().collect();
        let without = without.into_iter().map(str::to_owned).collect();
        let command = LauncherCommand { program: self.program.clone(), options, without, ranks: homes };
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
    use crate::launch::registry::registered;
    use crate::spec::{Environment, JobSpec};
    use std::path::Path;

    fn plan(dialect: Dialect, holdfast: &str, directory: &Path) -> Result<StepPlan, LaunchError> {
        let mut spec =
            JobSpec::from_command(&["./app".to_owned(), "-x".to_owned()], &Environment::empty(registered())).unwrap();
        spec.steps[0].run.launcher_options = vec!["--verbose".to_owned()];
        spec.steps[0].run.env.insert("TOKEN".to_owned(), "secret".to_owned());
        let nodes = vec![node("n2", &[1, 3]), node("n4", &[]), node("n5", &[0, 2])];
        let variables = ["SCR_FLUSH", "HOME"].map(str::to_owned).into();
        let (program, holdfast, on_nodes) = ("/opt/mpi/bin/mpirun".into(), holdfast.into(), holdfast.into());
        let launcher = MpirunLauncher { program, dialect, holdfast, on_nodes, variables };
        let sockets = [("n2", "/t/agent.sock"), ("n5", "/t/agent.sock")];
        launch(&launcher, &spec.steps[0].run, nodes, &sockets, directory)
    }

    fn command(plan: &StepPlan) -> LauncherCommand {
        details::<MpirunStep>(plan).command
    }

    #[test]
    fn nodes_without_ranks_stand_in_no_file() {
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
    fn the_user_s_options_stand_behind_ours_and_in_front_of_the_rank_s_parent() {
        let base = tempfile::tempdir().unwrap();
        for dialect in [Dialect::OpenMpi, Dialect::Prrte, Dialect::Hydra] {
            let launcher = plan(dialect, "/bin/holdfast", base.path()).map(|plan| command(&plan)).unwrap();
            let end = &launcher.options[launcher.options.len() - 4..];
            assert_eq!(end, ["--verbose", "/bin/holdfast", "rank", "--"]);
        }
    }

    #[test]
    fn values_never_stand_on_the_command_line() {
        let base = tempfile::tempdir().unwrap();
        for dialect in [Dialect::OpenMpi, Dialect::Prrte, Dialect::Hydra] {
            let plan = plan(dialect, "/bin/holdfast", base.path()).unwrap();
            let launcher = command(&plan);
            assert_eq!(plan.environment["TOKEN"], "secret");
            assert!(!launcher.options.iter().any(|word| word.contains("secret")), "{:?}", launcher.options);
        }
    }

    #[test]
    fn parameters_of_scr_reach_the_ranks_and_the_outer_launcher_s_numbers_do_not() {
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
    fn a_path_that_the_launcher_would_split_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("my runs");
        std::fs::create_dir(&directory).unwrap();
        let error = plan(Dialect::OpenMpi, "/bin/holdfast", &directory).unwrap_err().to_string();
        assert!(error.contains("my runs"), "{error}");
    }
}
