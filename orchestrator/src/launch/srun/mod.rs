//! The srun launcher: all ranks are one Slurm step.
//!
//! A host file with one line a rank (`-m arbitrary`) places each rank on its node, so that survivors stay where their
//! files are, and down nodes are not mentioned. Slurm counts its nodes: since 23.11, srun refuses `--nodes` beside it.
//! `--overlap` lets a step start while an older one still has tasks on a dead node. Without it, the new step would wait
//! until Slurm reports the node as down.

pub(super) mod messages;

use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_core::state_files;
use holdfast_wire::environment;
use messages::SrunMessages;

use super::command::{self, LauncherCommand};
use super::error::LaunchError;
use super::labels::LineLabels;
use super::launcher::{LaunchRequest, Launcher, LauncherEntry, PlainLaunch};
use super::named_files;
use super::plan::StepPlan;
use super::step::{Step, Supervision};
use crate::allocation::slurm::environment::REMOVED;
use crate::spec::{KeyFacts, LauncherFacts, Suits};

pub(super) use messages::LABELS;

/// An option of the batch script that `srun` does not inherit.
const CPUS_PER_TASK: &str = "SLURM_CPUS_PER_TASK";
/// The file with the node of each task.
const HOST_FILE: &str = "hosts";

pub static ENTRY: LauncherEntry = LauncherEntry {
    facts: LauncherFacts {
        name: "srun",
        doc: "",
        suits: Suits::Manager("slurm"),
        keys: KeyFacts { takes: &[("launcher_options", "")], without: &[] },
    },
    open: |_| Ok(Box::new(SrunLauncher::of_environment())),
    supervision: |plan| Ok(Box::new(SrunSupervision { command: plan.details()? })),
};

/// One Slurm step.
#[derive(Clone, Debug, Default)]
struct SrunLauncher {
    /// Processors of a rank, as requested by the batch script.
    cpus_per_task: Option<String>,
}

impl SrunLauncher {
    /// The launcher in this process's environment.
    fn of_environment() -> Self {
        SrunLauncher { cpus_per_task: std::env::var(CPUS_PER_TASK).ok().filter(|count| !count.is_empty()) }
    }
}

impl Launcher for SrunLauncher {
    fn plain(&self, launch: &PlainLaunch<'_>) -> Result<Vec<Command>, LaunchError> {
        let mut options = vec![format!("--nodes={}", launch.run.nodes), format!("--ntasks={}", launch.run.ranks)];
        options.extend(self.cpus_per_task.iter().map(|count| format!("--cpus-per-task={count}")));
        Ok(vec![launch.command(Path::new("srun"), &options)])
    }

    fn starts_mpi(&self) -> bool {
        true
    }

    fn plan(&self, request: LaunchRequest<'_>) -> Result<StepPlan, LaunchError> {
        let homes = request.homes();
        let files = named_files::directory_for(request.directory, request.job_id)?;
        let host_file = files.path.join(HOST_FILE);
        let hosts: String = homes.values().map(|node| format!("{node}\n")).collect();
        state_files::replace(&host_file, hosts.as_bytes())?;

        let mut plan = request.plan();
        plan.environment.extend([
            (environment::SOCKET.to_owned(), request.common_socket()?.to_string_lossy().into_owned()),
            ("SLURM_HOSTFILE".to_owned(), host_file.to_string_lossy().into_owned()),
        ]);
        let command = LauncherCommand {
            program: PathBuf::from("srun"),
            options: self.options(&request, homes.len()),
            without: REMOVED.map(str::to_owned).to_vec(),
            ranks: homes,
        };
        plan.private_directory = files.into_plan();
        plan.with_details(ENTRY.facts.name, &command)
    }
}

impl SrunLauncher {
    fn options(&self, request: &LaunchRequest<'_>, ranks: usize) -> Vec<String> {
        let mut words: Vec<String> = [
            "--overlap",
            // The orchestrator decides what happens to the others when a node or a rank is lost.
            "--no-kill",
            "--kill-on-bad-exit=0",
            "--wait=0",
            // All ranks share one stream.
            "--label",
            "--export=ALL",
            "--distribution=arbitrary",
            "--job-name=holdfast-run",
        ]
        .map(str::to_owned)
        .to_vec();
        words.push(format!("--ntasks={ranks}"));
        words.extend(self.cpus_per_task.iter().map(|count| format!("--cpus-per-task={count}")));
        let usual = request.run.ranks_per_node as usize;
        if request.placement.used().any(|node| node.ranks.len() > usual) {
            // The nodes have also the ranks of lost ones; Slurm refuses more tasks than processors otherwise.
            words.push("--overcommit".to_owned());
        }
        words.extend(request.run.launcher_options.iter().cloned());
        words
    }
}

struct SrunSupervision {
    command: LauncherCommand,
}

impl Supervision for SrunSupervision {
    fn run(&mut self, step: &mut Step) -> Result<(), LaunchError> {
        command::supervise(step, &self.command, &mut SrunMessages::default())
    }

    fn labels(&self) -> Option<&'static LineLabels> {
        Some(&LABELS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::fixtures::{details, launch, node};
    use crate::spec::JobSpec;
    use holdfast_model::Rank;
    use std::path::Path;

    fn plan(directory: &Path, sockets: &[(&str, &str)]) -> Result<StepPlan, LaunchError> {
        let spec = JobSpec::of_test("run: {command: [./app]}\n");
        let nodes = vec![node("n2", &[1, 3]), node("n4", &[]), node("n5", &[0, 2])];
        let launcher = SrunLauncher { cpus_per_task: Some("4".to_owned()) };
        launch(&launcher, &spec.steps[0].run, nodes, sockets, directory)
    }

    #[test]
    fn each_rank_is_placed_on_its_node_and_nodes_without_ranks_are_not_mentioned() {
        let base = tempfile::tempdir().unwrap();
        let plan = plan(base.path(), &[("n2", "/t/agent.sock"), ("n5", "/t/agent.sock")]).unwrap();
        let hosts = std::fs::read_to_string(&plan.environment["SLURM_HOSTFILE"]).unwrap();
        assert_eq!(hosts, "n5\nn2\nn5\nn2\n");
        assert_eq!(plan.environment["HOLDFAST_SOCKET"], "/t/agent.sock");
        assert_eq!(plan.environment["HOLDFAST_RANKS"], "4");
        assert!(!plan.environment.contains_key("HOLDFAST_RANK"));
        let launcher: LauncherCommand = details(&plan);
        for expected in ["--overlap", "--no-kill", "--ntasks=4", "--distribution=arbitrary", "--cpus-per-task=4"] {
            assert!(launcher.options.iter().any(|option| option == expected), "{expected}: {:?}", launcher.options);
        }
        // Slurm 26.05: "srun: error: --nodes is incompatible with --distribution=arbitrary".
        assert!(!launcher.options.iter().any(|option| option.starts_with("--nodes")), "{:?}", launcher.options);
        // The spec has one rank a node.
        assert!(launcher.options.iter().any(|option| option == "--overcommit"), "{:?}", launcher.options);
        assert_eq!(launcher.ranks[&Rank(0)], "n5".into());
        assert!(launcher.without.contains(&"SLURM_NTASKS_PER_NODE".to_owned()));
    }

    #[test]
    fn nodes_with_their_usual_number_of_ranks_are_not_overcommitted() {
        let base = tempfile::tempdir().unwrap();
        let spec = JobSpec::of_test("run: {command: [./app]}\n");
        let nodes = vec![node("n2", &[0]), node("n5", &[1])];
        let sockets = [("n2", "/t/agent.sock"), ("n5", "/t/agent.sock")];
        let plan = launch(&SrunLauncher::default(), &spec.steps[0].run, nodes, &sockets, base.path()).unwrap();
        let launcher: LauncherCommand = details(&plan);
        assert!(!launcher.options.iter().any(|option| option == "--overcommit"), "{:?}", launcher.options);
    }

    #[test]
    fn different_socket_paths_are_refused_with_a_remedy() {
        let base = tempfile::tempdir().unwrap();
        let error = plan(base.path(), &[("n2", "/t/n2/agent.sock"), ("n5", "/t/n5/agent.sock")]).unwrap_err();
        assert!(error.to_string().contains("control"), "{error}");
        let error = plan(base.path(), &[("n2", "/t/agent.sock")]).unwrap_err();
        assert!(error.to_string().contains("n5"), "{error}");
    }
}
