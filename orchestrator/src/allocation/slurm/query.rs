//! Questions to Slurm's commands. The controller may be restarting or overloaded: every question has a time limit, and
//! whoever asks has an answer for "nobody knows".

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_core::hostlist;
use holdfast_model::NodeName;

use super::refusal::Refusal;
use crate::host::external_command::{self, ExternalCommandError};

/// Slurm's commands themselves try for ten seconds, some of them twice.
const WITHIN: Duration = Duration::from_secs(25);
/// Slurm's own word for "does not end".
const NO_END: [&str; 4] = ["NONE", "N/A", "Unknown", "UNLIMITED"];

/// A job as Slurm knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlurmJob {
    pub(super) state: String,
    pub(super) user: String,
    pub(super) end: Option<SystemTime>,
}

/// State, owner and end of a job.
pub(super) async fn job(job_id: &str) -> Result<SlurmJob, QueryError> {
    let text = query("squeue", &["--noheader", "--states=all", "--format=%T|%u|%e", "--jobs", job_id]).await?;
    read_job(&text).ok_or_else(|| QueryError::unparsable("squeue", &text))
}

fn read_job(text: &str) -> Option<SlurmJob> {
    let mut fields = text.lines().next()?.trim().split('|');
    let (state, user, end) = (fields.next()?, fields.next()?, fields.next()?);
    let end = match end.parse::<u64>() {
        Ok(seconds) => Some(UNIX_EPOCH + Duration::from_secs(seconds)),
        Err(_) if NO_END.contains(&end) => None,
        Err(_) => return None,
    };
    Some(SlurmJob { state: state.to_owned(), user: user.to_owned(), end })
}

/// The nodes among these that are down, each with Slurm's state and reason. Nodes that are only being drained work on.
pub(super) async fn down(nodes: &[NodeName]) -> Result<Vec<(NodeName, String)>, QueryError> {
    let list = hostlist::compress(nodes);
    let text = query("sinfo", &["--noheader", "--states=down,fail", "--format=%N|%T|%E", "--nodes", &list]).await?;
    Ok(read_down(&text, nodes))
}

fn read_down(text: &str, nodes: &[NodeName]) -> Vec<(NodeName, String)> {
    let mut down = Vec::new();
    for line in text.lines() {
        let mut fields = line.trim().splitn(3, '|');
        let (Some(list), Some(state)) = (fields.next(), fields.next()) else { continue };
        let reason = fields.next().unwrap_or_default().trim();
        // A mark at the end of the state says that the node does not answer.
        let state = state.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
        for node in hostlist::expand(list).unwrap_or_default() {
            let known = down.iter().any(|(other, _)| *other == node);
            if nodes.contains(&node) && !known {
                let text = if reason.is_empty() { state.to_owned() } else { format!("{state}: {reason}") };
                down.push((node, text));
            }
        }
    }
    down
}

async fn query(command: &'static str, arguments: &[&str]) -> Result<String, QueryError> {
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let asked = tokio::task::spawn_blocking(move || {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        external_command::run(command, &words, &environment(), WITHIN)
    });
    let answer = asked.await.map_err(|error| ExternalCommandError::start(command, io::Error::other(error)))??;
    if !answer.success {
        let message = answer.errors.lines().last().unwrap_or("it does not say why").to_owned();
        return Err(QueryError::Failed { command, message });
    }
    Ok(answer.output)
}

/// Times as seconds since the epoch, whatever the user's or the site's habit is.
fn environment() -> BTreeMap<String, Option<String>> {
    let seconds = Some("%s".to_owned());
    [("SLURM_TIME_FORMAT", seconds), ("SQUEUE_FORMAT", None), ("SINFO_FORMAT", None)]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// A question that was not answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The command did not run to its end.
    #[error("{0}; are Slurm's commands in PATH on this node, and is its controller up? (`scontrol ping`)")]
    NoAnswer(#[from] ExternalCommandError),
    #[error("{command} failed: {message}; is Slurm's controller up? (`scontrol ping`)")]
    Failed { command: &'static str, message: String },
    /// Its answer is not understood.
    #[error("{command} answered {answer:?}; is this version of Slurm supported?")]
    Unparsable {
        command: &'static str,
        /// The beginning of its answer.
        answer: String,
    },
}

impl QueryError {
    fn unparsable(command: &'static str, text: &str) -> Self {
        QueryError::Unparsable { command, answer: text.trim().chars().take(200).collect() }
    }

    /// What this tells about the controller.
    pub(super) fn refusal(&self) -> Refusal {
        match self {
            QueryError::NoAnswer(ExternalCommandError::Timeout { .. }) => Refusal::NoController,
            QueryError::NoAnswer(ExternalCommandError::Start { .. }) | QueryError::Unparsable { .. } => Refusal::Final,
            QueryError::Failed { message, .. } => Refusal::of(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_state_owner_and_end() {
        let job = read_job("RUNNING|user1|1795177430\n").unwrap();
        assert_eq!((job.state.as_str(), job.user.as_str()), ("RUNNING", "user1"));
        assert_eq!(job.end, Some(UNIX_EPOCH + Duration::from_secs(1_795_177_430)));
        assert_eq!(read_job("RUNNING|user1|NONE").unwrap().end, None);
    }

    #[test]
    fn an_answer_that_is_none_is_not_taken_for_one() {
        for text in ["", "RUNNING", "RUNNING|user1", "RUNNING|user1|soon", "slurm_load_jobs error: Invalid job id"] {
            assert_eq!(read_job(text), None, "{text:?}");
        }
    }

    #[test]
    fn down_nodes_come_with_slurm_s_reason_once_each_and_strangers_are_left_out() {
        let nodes = ["n1", "n2", "n3"].map(NodeName::from);
        let text = "n[2-3]|down*|Not responding\nn2|down|again\nn9|down|other\nn1|fail|\nbroken\n";
        let down = read_down(text, &nodes);
        let expected = [("n2", "down: Not responding"), ("n3", "down: Not responding"), ("n1", "fail")];
        assert_eq!(down, expected.map(|(node, reason)| (NodeName::from(node), reason.to_owned())));
    }

    #[test]
    fn a_controller_that_does_not_answer_is_waited_for_and_a_missing_command_is_not() {
        let timeout = ExternalCommandError::Timeout { command: "squeue".to_owned(), within: WITHIN };
        assert_eq!(QueryError::from(timeout).refusal(), Refusal::NoController);
        let missing = ExternalCommandError::start("squeue", io::ErrorKind::NotFound.into());
        assert_eq!(QueryError::from(missing).refusal(), Refusal::Final);
        let message = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)".to_owned();
        assert_eq!(QueryError::Failed { command: "squeue", message }.refusal(), Refusal::NoController);
    }
}
