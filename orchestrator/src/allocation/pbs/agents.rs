//! The step that starts agents: our own `holdfast pbs-task start`, because PBS has no command that passes the standard
//! input and output of tasks on.

use std::path::Path;

use holdfast_model::NodeName;
use holdfast_wire::run::{Lookup, SharedStart};
use tokio::process::Command;

use super::tasks::{ENDED, Launch, NODE, TMRSH, TOWARD};
use crate::allocation::agents::shared_step::{StepCommand, StepMessages};

/// `holdfast pbs-task start`, for one agent a node.
#[derive(Clone, Debug)]
pub(super) struct TaskStarter {
    pub(super) launch: Launch,
}

impl StepCommand for TaskStarter {
    fn name(&self) -> &'static str {
        "pbs-task"
    }

    fn shared_start(&self, logs: &Path) -> SharedStart {
        SharedStart {
            node: Lookup::Variable(NODE.to_owned()),
            toward: Lookup::Variable(TOWARD.to_owned()),
            logs: logs.to_owned(),
            // `qdel`, and the end of the wall time, send SIGTERM to every process of the job.
            is_signalled_with_job: true,
        }
    }

    fn command(&self, nodes: &[NodeName]) -> Command {
        let words = self.launch.start(nodes);
        let mut command = Command::new(&self.launch.program);
        command.args(words);
        command
    }

    fn messages(&self, text: &str) -> StepMessages {
        read_messages(text)
    }
}

/// The tasks that have ended, and what PBS says about one.
pub(crate) fn read_messages(text: &str) -> StepMessages {
    let lines = || text.lines().map(str::trim);
    StepMessages {
        ended: lines().filter_map(|line| line.strip_prefix(ENDED)?.split(':').next()).map(NodeName::from).collect(),
        explanation: lines().rfind(|line| line.starts_with(TMRSH)).map(str::to_owned),
        ..StepMessages::default()
    }
}

/// True for a message of `pbs_tmrsh` about a node whose daemon PBS has lost: it cannot start anything there any more.
pub(crate) fn is_lost(message: &str, node: &NodeName) -> bool {
    message.contains("not connected") && message.contains(&format!("\"{node}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_pbs_explain_which_agents_have_ended_and_which_node_is_lost() {
        let lost = "pbs_tmrsh: tm_poll(spawn): host \"n3.site\" err not connected (17002) 0";
        let read = read_messages(&format!("{lost}\npbs-task: ended: n3.site: exit status: 255\n"));
        assert_eq!(read.ended, [NodeName::from("n3.site")]);
        assert_eq!(read.explanation.as_deref(), Some(lost));
        assert!(is_lost(lost, &"n3.site".into()) && !is_lost(lost, &"n2.site".into()));
        assert!(!is_lost("pbs_tmrsh: host \"n3.site\" is not a node in job <17.head>", &"n3.site".into()));
    }
}
