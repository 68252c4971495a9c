//! The step of srun that starts agents.
//!
//! It survives the loss of nodes (`--no-kill`).

use std::path::Path;

use holdfast_core::hostlist;
use holdfast_model::NodeName;
use holdfast_wire::run::{Lookup, SharedStart};
use tokio::process::Command;

use super::environment::{LAUNCHER_ADDRESS, OWN_NODE, REMOVED};
use crate::allocation::agents::shared_step::{StepCommand, StepMessages};

/// The prefix of error messages of srun.
const SRUN_ERROR: &str = "srun: error: ";
/// The beginning of the error message if srun could not create the step.
const NO_STEP: &str = "Unable to ";

/// `srun` with one task a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Srun;

impl StepCommand for Srun {
    fn name(&self) -> &'static str {
        "srun"
    }

    fn shared_start(&self, logs: &Path) -> SharedStart {
        SharedStart {
            node: Lookup::Variable(OWN_NODE.to_owned()),
            toward: Lookup::Variable(LAUNCHER_ADDRESS.to_owned()),
            // Not with srun's `--error`: if one node lacks the directory, no agent would start.
            logs: logs.to_owned(),
            // Slurm sends SIGTERM to every process of a job that is cancelled or at its time limit.
            is_signalled_with_job: true,
        }
    }

    fn command(&self, nodes: &[NodeName]) -> Command {
        let mut command = Command::new("srun");
        command.args(arguments(nodes));
        for name in REMOVED {
            command.env_remove(name);
        }
        command
    }

    fn messages(&self, text: &str) -> StepMessages {
        let lines = || text.lines().map(str::trim);
        let errors = || lines().filter_map(|line| line.strip_prefix(SRUN_ERROR));
        let is_failure = |line: &&str| line.contains("launch failed") || line.starts_with("Task launch for");
        let of_tasks = |line: &str| hostlist::expand(line.split_once(": task")?.0).ok();
        StepMessages {
            refused: errors().rfind(|line| line.starts_with(NO_STEP)).map(str::to_owned),
            // A task could not be launched; srun then forwards its input to none of them.
            failed: errors().find(is_failure).map(str::to_owned),
            not_launched: errors().filter_map(not_launched).flatten().collect(),
            ended: errors().filter_map(of_tasks).flatten().collect(),
            explanation: lines().rfind(|line| line.contains("error") && !line.contains(": task ")).map(str::to_owned),
        }
    }
}

/// The options of srun for the step.
fn arguments(nodes: &[NodeName]) -> Vec<String> {
    let mut words: Vec<String> = [
        // Shares processors and memory with the application.
        "--overlap",
        "--mem=0",
        // The other agents survive the loss of a node or of an agent.
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--mpi=none",
        "--cpu-bind=none",
        "--export=ALL",
        "--job-name=holdfast-agents",
    ]
    .map(str::to_owned)
    .to_vec();
    words.push(format!("--nodes={}", nodes.len()));
    words.push(format!("--ntasks={}", nodes.len()));
    words.push("--ntasks-per-node=1".to_owned());
    words.push(format!("--nodelist={}", hostlist::compress(nodes)));
    words
}

/// The nodes of a message that the step could not be launched: a node that was lost, and whose loss Slurm has not
/// detected yet. srun then ends the step on all nodes.
fn not_launched(line: &str) -> Option<Vec<NodeName>> {
    let node = line.strip_prefix("Task launch for ")?.split_once(" failed on node ")?.1.split(':').next()?;
    hostlist::expand(node.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_has_one_agent_a_node_and_survives_their_loss() {
        let nodes = ["n1", "n2", "n4"].map(NodeName::from);
        let words = arguments(&nodes);
        for expected in ["--overlap", "--no-kill", "--nodes=3", "--ntasks=3", "--ntasks-per-node=1"] {
            assert!(words.iter().any(|option| option == expected), "{expected}: {words:?}");
        }
        assert!(words.contains(&"--nodelist=n[1-2,4]".to_owned()), "{words:?}");
    }

    #[test]
    fn messages_of_srun_about_ended_agents_name_their_nodes() {
        let messages = "srun: cluster configuration lacks support for cpu binding\n\
                    srun: error: n2: task 1: Exited with exit code 69\n\
                    srun: error: n[4-5]: tasks 3-4: Killed\n";
        let read = Srun.messages(messages);
        assert_eq!(read.ended, ["n2", "n4", "n5"].map(NodeName::from));
        assert_eq!((read.refused, read.failed, read.not_launched), (None, None, Vec::new()));
        let lost = "srun: error: Task launch for StepId=142.4 failed on node n3: Communication connection failure\n\
                    srun: error: Application launch failed: Communication connection failure\n";
        let read = Srun.messages(lost);
        assert!(read.failed.unwrap().starts_with("Task launch for StepId=142.4"));
        assert_eq!(read.not_launched, [NodeName::from("n3")]);
        assert!(read.explanation.unwrap().contains("Application launch failed"));
        let read = Srun.messages("srun: error: task 2 launch failed: Slurmd could not connect IO\n");
        assert!(read.failed.unwrap().contains("could not connect"));
    }

    #[test]
    fn a_step_that_srun_could_not_create_was_refused() {
        let text = "srun: error: Unable to create step for job 1: Requested nodes are busy\n";
        let refused = Srun.messages(text).refused;
        assert_eq!(refused.as_deref(), Some("Unable to create step for job 1: Requested nodes are busy"));
    }
}
