//! Queries to Slurm's commands. The controller may be restarting or overloaded, so every query has a time limit, and
//! its callers handle a missing answer.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_core::hostlist;
use holdfast_model::NodeName;

use super::refusal::{self, Refusal};
use super::topology;
use crate::host::external_command::{self, CommandOutput, ExternalCommandError};
use crate::spec::quantity;

/// Time limit of a query. Slurm's commands retry for ten seconds, some of them twice.
pub(super) const WITHIN: Duration = Duration::from_secs(25);
/// Slurm's values for a job without an end.
const NO_END: [&str; 4] = ["NONE", "N/A", "Unknown", "UNLIMITED"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlurmJob {
    pub(super) state: String,
    pub(super) user: String,
    /// When it was started.
    pub(super) started: Option<String>,
    pub(crate) end: Option<SystemTime>,
}

/// State, owner, start and end of a job.
pub(super) async fn job(job_id: &str) -> Result<SlurmJob, QueryError> {
    let text = query("squeue", &["--noheader", "--states=all", "--format=%T|%u|%e|%S", "--jobs", job_id]).await?;
    read_job(&text).ok_or_else(|| QueryError::unparsable("squeue", &text))
}

pub(crate) fn read_job(text: &str) -> Option<SlurmJob> {
    let mut fields = text.lines().next()?.trim().split('|');
    let (state, user, end) = (fields.next()?, fields.next()?, fields.next()?);
    let end = match end.parse::<u64>() {
        Ok(seconds) if seconds <= quantity::LATEST => Some(UNIX_EPOCH + Duration::from_secs(seconds)),
        Ok(_) => return None,
        Err(_) if NO_END.contains(&end) => None,
        Err(_) => return None,
    };
    let started = fields.next().filter(|started| started.parse::<u64>().is_ok()).map(str::to_owned);
    Some(SlurmJob { state: state.to_owned(), user: user.to_owned(), started, end })
}

/// The nodes among these that are down, each with Slurm's state and reason. Draining nodes are not down.
///
/// # Errors
/// No answer that can be read.
pub async fn down(nodes: &[NodeName]) -> Result<Vec<(NodeName, String)>, QueryError> {
    let list = hostlist::compress(nodes);
    let text = query("sinfo", &["--noheader", "--states=down,fail", "--format=%N|%T|%E", "--nodes", &list]).await?;
    Ok(read_down(&text, nodes))
}

pub(crate) fn read_down(text: &str, nodes: &[NodeName]) -> Vec<(NodeName, String)> {
    let mut down = Vec::new();
    for line in text.lines() {
        let mut fields = line.trim().splitn(3, '|');
        let (Some(list), Some(state)) = (fields.next(), fields.next()) else { continue };
        let reason = fields.next().unwrap_or_default().trim();
        // A suffix marks nodes that do not answer.
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

/// The leaf switch of each node; none without a topology plugin.
pub(super) async fn switches() -> Result<BTreeMap<NodeName, String>, QueryError> {
    read_switches(&answer("scontrol", &["show", "topology"]).await?)
}

/// What scontrol prints where no topology plugin is set up.
const NO_TOPOLOGY: &str = "No topology information available";

/// scontrol succeeds although it could not read the controller's answer: in newer versions (26.05), the slurm.conf of
/// its own node must have the same topology plugin.
fn read_switches(answer: &CommandOutput) -> Result<BTreeMap<NodeName, String>, QueryError> {
    let found = topology::read(&answer.output);
    match answer.errors.lines().next() {
        Some(message) if found.is_empty() && !message.contains(NO_TOPOLOGY) => {
            Err(QueryError::Failed { command: "scontrol", message: message.to_owned() })
        }
        _ => Ok(found),
    }
}

async fn query(command: &'static str, arguments: &[&str]) -> Result<String, QueryError> {
    Ok(answer(command, arguments).await?.output)
}

async fn answer(command: &'static str, arguments: &[&str]) -> Result<CommandOutput, QueryError> {
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let answer = tokio::task::spawn_blocking(move || {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        external_command::run(command, &words, &environment(), WITHIN)
    });
    let answer = answer.await.map_err(|error| ExternalCommandError::start(command, io::Error::other(error)))??;
    if !answer.success {
        let message = answer.errors.lines().last().unwrap_or("without a message").to_owned();
        return Err(QueryError::Failed { command, message });
    }
    Ok(answer)
}

/// Times as seconds since the epoch, and default formats, whatever the user or site has set.
pub(super) fn environment() -> BTreeMap<String, Option<String>> {
    let seconds = Some("%s".to_owned());
    [("SLURM_TIME_FORMAT", seconds), ("SQUEUE_FORMAT", None), ("SINFO_FORMAT", None)]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// A query without a usable answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The command did not run to its end.
    #[error(
        "{0}; check that Slurm's commands are in PATH on this node and that its controller is up (`scontrol ping`)"
    )]
    NoAnswer(#[from] ExternalCommandError),
    #[error("{command} failed: {message}; check that Slurm's controller is up (`scontrol ping`)")]
    Failed { command: &'static str, message: String },
    #[error("unexpected output of {command}: {answer:?}; check that this version of Slurm is supported")]
    Unparsable {
        command: &'static str,
        /// The beginning of the output.
        answer: String,
    },
}

impl QueryError {
    pub(super) fn unparsable(command: &'static str, text: &str) -> Self {
        QueryError::Unparsable { command, answer: text.trim().chars().take(200).collect() }
    }

    /// Slurm's words, if they say that the job does not exist.
    pub(super) fn denial(&self) -> Option<String> {
        match self {
            QueryError::Failed { message, .. } if refusal::is_unknown_job(message) => Some(message.clone()),
            _ => None,
        }
    }

    /// The kind of refusal that this error means.
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
        // Slurm 26.05.
        let job = read_job("RUNNING|user1|1796049532|1796049232\n").unwrap();
        assert_eq!((job.end.is_some(), job.started.as_deref()), (true, Some("1796049232")));
        let job = read_job("RUNNING|user1|NONE|1795177430").unwrap();
        assert_eq!((job.end, job.started.as_deref()), (None, Some("1795177430")));
    }

    #[test]
    fn refuses_output_that_is_not_a_job() {
        let too_late = "RUNNING|user1|18446744073709551615";
        let error = "slurm_load_jobs error: Invalid job id";
        for text in ["", "RUNNING", "RUNNING|user1", "RUNNING|user1|soon", too_late, error] {
            assert_eq!(read_job(text), None, "{text:?}");
        }
    }

    #[test]
    fn each_down_node_has_slurm_s_reason_and_nodes_of_others_are_left_out() {
        let nodes = ["n1", "n2", "n3"].map(NodeName::from);
        let text = "n[2-3]|down*|Not responding\nn2|down|again\nn9|down|other\nn1|fail|\nbroken\n";
        let down = read_down(text, &nodes);
        let expected = [("n2", "down: Not responding"), ("n3", "down: Not responding"), ("n1", "fail")];
        assert_eq!(down, expected.map(|(node, reason)| (NodeName::from(node), reason.to_owned())));
    }

    /// What scontrol 26.05.3 printed, with exit status 0, where slurm.conf lacked the plugin of the controller.
    #[test]
    fn a_topology_that_scontrol_cannot_read_is_reported_in_its_words() {
        let errors = "scontrol: error: topology_g_topoinfo_unpack: topology plugin 102 not active\n\
                      slurm_load_topo error: Header lengths are longer than data received\n";
        let answer = |output: &str, errors: &str| CommandOutput {
            success: true,
            output: output.to_owned(),
            errors: errors.to_owned(),
        };
        let message = read_switches(&answer("", errors)).unwrap_err().to_string();
        assert!(message.contains("topology plugin 102 not active"), "{message}");
        // Version 22.05.
        let none = answer("", "scontrol: error: No topology information available\n");
        assert!(read_switches(&none).unwrap().is_empty());
        let warned = answer("SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n", "scontrol: a warning\n");
        assert_eq!(read_switches(&warned).unwrap().len(), 2);
    }

    #[test]
    fn a_silent_controller_is_retried_and_a_missing_command_is_not() {
        let timeout = ExternalCommandError::Timeout { command: "squeue".to_owned(), within: WITHIN };
        assert_eq!(QueryError::from(timeout).refusal(), Refusal::NoController);
        let missing = ExternalCommandError::start("squeue", io::ErrorKind::NotFound.into());
        assert_eq!(QueryError::from(missing).refusal(), Refusal::Final);
        let message = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)".to_owned();
        assert_eq!(QueryError::Failed { command: "squeue", message }.refusal(), Refusal::NoController);
    }
}
