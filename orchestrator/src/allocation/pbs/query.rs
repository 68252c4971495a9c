//! Queries to PBS's commands: the job (`qstat`) and its nodes (`pbsnodes`), as JSON. The server may be restarting, so
//! every query has a time limit, and its callers handle a missing answer.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, SystemTime};

use chrono::NaiveDateTime;
use holdfast_model::NodeName;
use serde::Deserialize;

use crate::host::external_command::{self, ExternalCommandError};

/// Time limit of a query.
const WITHIN: Duration = Duration::from_secs(25);
/// Answers that the job does not exist (any more). The second one if the server keeps a history of jobs.
const UNKNOWN_JOB: [&str; 2] = ["Unknown Job Id", "Job has finished"];
/// The message of a command that does not reach the server.
const NO_SERVER: &str = "cannot connect to server";
/// The format of times, in the time zone of the command.
const TIME: &str = "%a %b %e %H:%M:%S %Y";
/// States of a node on which nothing runs any more. `offline` is not one of them: PBS starts no new jobs there.
const DOWN: [&str; 2] = ["down", "unresolvable"];

/// True for a message of one of PBS's commands that the job does not exist.
pub(super) fn is_unknown_job(message: &str) -> bool {
    UNKNOWN_JOB.iter().any(|text| message.contains(text))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PbsJob {
    /// `R`: running.
    pub(super) state: String,
    /// The start and the limit of the wall time.
    pub(crate) end: Option<SystemTime>,
    /// PBS may start it again (`qsub -r y`, the default).
    pub(super) may_be_rerun: bool,
    /// The names by which `pbsnodes` knows its nodes: not those of the file of the nodes.
    pub(super) vnodes: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct JobAnswer {
    #[serde(rename = "Jobs")]
    jobs: BTreeMap<String, JobFields>,
}

#[derive(Debug, Deserialize)]
struct JobFields {
    job_state: String,
    #[serde(rename = "Rerunable")]
    rerunable: Option<String>,
    stime: Option<String>,
    exec_vnode: Option<String>,
    #[serde(rename = "Resource_List", default)]
    resources: JobResources,
}

#[derive(Debug, Default, Deserialize)]
struct JobResources {
    walltime: Option<String>,
}

/// State, end and nodes of a job.
pub(super) async fn job(job: &str) -> Result<PbsJob, QueryError> {
    blocking(job_arguments(job)).await.and_then(|text| understood_job(&text))
}

/// The same for callers without a runtime.
pub(super) fn job_now(job: &str) -> Result<PbsJob, QueryError> {
    query(&job_arguments(job)).and_then(|text| understood_job(&text))
}

fn job_arguments(job: &str) -> Vec<String> {
    ["qstat", "-f", "-F", "json", job].map(str::to_owned).to_vec()
}

fn understood_job(text: &str) -> Result<PbsJob, QueryError> {
    read_job(text).ok_or_else(|| QueryError::unparsable("qstat", text))
}

pub(crate) fn read_job(text: &str) -> Option<PbsJob> {
    let answer: JobAnswer = serde_json::from_str(text).ok()?;
    let job = answer.jobs.into_values().next()?;
    let start = match &job.stime {
        None => None,
        Some(start) => Some(NaiveDateTime::parse_from_str(start, TIME).ok()?.and_utc()),
    };
    let limit = match &job.resources.walltime {
        None => None,
        Some(limit) => Some(read_duration(limit)?),
    };
    let end = start.zip(limit).and_then(|(start, limit)| SystemTime::from(start).checked_add(limit));
    let vnodes = job.exec_vnode.as_deref().map(read_vnodes).unwrap_or_default();
    Some(PbsJob { state: job.job_state, end, may_be_rerun: job.rerunable.as_deref() != Some("False"), vnodes })
}

/// `HH:MM:SS`.
fn read_duration(text: &str) -> Option<Duration> {
    let numbers = text.split(':').map(|number| number.parse::<u32>().ok()).collect::<Option<Vec<_>>>()?;
    let [hours, minutes, seconds] = numbers[..] else { return None };
    Some(Duration::from_secs(u64::from(hours) * 3600 + u64::from(minutes) * 60 + u64::from(seconds)))
}

/// The names in `(n1:ncpus=2)+(n2[0]:ncpus=1+n2[1]:ncpus=1)`.
fn read_vnodes(text: &str) -> Vec<String> {
    let mut vnodes: Vec<String> = Vec::new();
    for part in text.split(['+', '(', ')']).filter(|part| !part.is_empty()) {
        let name = part.split(':').next().unwrap_or_default();
        if !vnodes.iter().any(|known| known == name) {
            vnodes.push(name.to_owned());
        }
    }
    vnodes
}

#[derive(Debug, Deserialize)]
struct NodesAnswer {
    nodes: BTreeMap<String, NodeFields>,
}

#[derive(Debug, Deserialize)]
struct NodeFields {
    /// The host name of its daemon, or several.
    #[serde(rename = "Mom", default)]
    mom: String,
    state: String,
    comment: Option<String>,
    #[serde(default)]
    resources_available: NodeResources,
}

#[derive(Debug, Default, Deserialize)]
struct NodeResources {
    host: Option<String>,
}

impl NodeFields {
    /// True if this is (a part of) the node that the file of the nodes names so.
    fn is_of(&self, node: &NodeName) -> bool {
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let mut moms = self.mom.split(',').map(str::trim);
        moms.any(|mom| mom == node.as_str())
            || self.resources_available.host.as_deref().is_some_and(|host| short(host) == short(node.as_str()))
    }
}

/// The nodes among `nodes` that are down, each with PBS's state and comment. `vnodes` are PBS's names of all nodes of
/// the job.
pub(super) async fn down(vnodes: &[String], nodes: &[NodeName]) -> Result<Vec<(NodeName, String)>, QueryError> {
    let words = ["pbsnodes", "-F", "json", "-v"].map(str::to_owned).into_iter().chain(vnodes.iter().cloned());
    let text = blocking(words.collect()).await?;
    read_down(&text, nodes).ok_or_else(|| QueryError::unparsable("pbsnodes", &text))
}

pub(crate) fn read_down(text: &str, nodes: &[NodeName]) -> Option<Vec<(NodeName, String)>> {
    let answer: NodesAnswer = serde_json::from_str(text).ok()?;
    let is_down = |fields: &&NodeFields| fields.state.split(',').any(|state| DOWN.contains(&state.trim()));
    let down: Vec<NodeFields> = answer.nodes.into_values().filter(|fields| is_down(&fields)).collect();
    let reason = |fields: &NodeFields| match fields.comment.as_deref().map(str::trim) {
        Some(comment) if !comment.is_empty() => format!("{}: {comment}", fields.state),
        _ => fields.state.clone(),
    };
    let of_node = |node: &NodeName| Some((node.clone(), reason(down.iter().find(|fields| fields.is_of(node))?)));
    Some(nodes.iter().filter_map(of_node).collect())
}

async fn blocking(words: Vec<String>) -> Result<String, QueryError> {
    let command = words.first().cloned().unwrap_or_default();
    let answer = tokio::task::spawn_blocking(move || query(&words)).await;
    answer.unwrap_or_else(|error| Err(ExternalCommandError::start(command, io::Error::other(error)).into()))
}

fn query(words: &[String]) -> Result<String, QueryError> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (command, arguments) = words.split_first().map_or(("", &[][..]), |(first, rest)| (*first, rest));
    // Times in the time zone in which they are read.
    let environment = [("TZ".to_owned(), Some("UTC".to_owned()))].into();
    let answer = external_command::run(command, arguments, &environment, WITHIN)?;
    if !answer.success {
        let message = answer.errors.lines().last().unwrap_or("without a message").to_owned();
        return Err(QueryError::Failed { command: command.to_owned(), message });
    }
    Ok(answer.output)
}

/// A query without a usable answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The command did not run to its end.
    #[error("{0}; check that PBS's commands are in PATH on this node and that its server is up (`qstat -B`)")]
    NoAnswer(#[from] ExternalCommandError),
    #[error("{command} failed: {message}; check that PBS's server is up (`qstat -B`)")]
    Failed { command: String, message: String },
    #[error("unexpected output of {command}: {answer:?}; check that this version of PBS is supported (docs/pbs.md)")]
    Unparsable {
        command: &'static str,
        /// The beginning of the output.
        answer: String,
    },
}

impl QueryError {
    fn unparsable(command: &'static str, text: &str) -> Self {
        QueryError::Unparsable { command, answer: text.trim().chars().take(200).collect() }
    }

    /// PBS's words, if they say that the job does not exist.
    pub(super) fn denial(&self) -> Option<String> {
        match self {
            QueryError::Failed { message, .. } if is_unknown_job(message) => Some(message.clone()),
            _ => None,
        }
    }

    /// True if the server does not answer.
    pub(super) fn is_silence(&self) -> bool {
        match self {
            QueryError::NoAnswer(error) => matches!(error, ExternalCommandError::Timeout { .. }),
            QueryError::Failed { message, .. } => message.contains(NO_SERVER),
            QueryError::Unparsable { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    /// Answers of OpenPBS 23.06.06, with other names.
    const JOB: &str = include_str!("../../../../tests/fixtures/pbs/qstat.json");
    const NODES: &str = include_str!("../../../../tests/fixtures/pbs/pbsnodes-lost.json");

    #[test]
    fn a_job_has_state_end_and_nodes() {
        let job = read_job(JOB).unwrap();
        assert_eq!((job.state.as_str(), job.may_be_rerun), ("R", true));
        assert_eq!(job.vnodes, ["n1", "n2", "n3"]);
        // Mon Nov 30 11:17:39 2026, and ten minutes.
        assert_eq!(job.end, Some(UNIX_EPOCH + Duration::from_secs(1_796_037_459 + 600)));
        assert_eq!(read_job(&JOB.replace("\"walltime\"", "\"cput\"")).unwrap().end, None);
        assert!(!read_job(&JOB.replace("\"True\"", "\"False\"")).unwrap().may_be_rerun);
    }

    #[test]
    fn refuses_output_that_is_not_a_job() {
        let without = r#"{"timestamp":1796037480,"pbs_version":"23.06.06","pbs_server":"head"}"#;
        let cut = &JOB[..JOB.len() / 2];
        for text in ["", "{}", without, cut, &JOB.replace("Mon Nov 30 11:17:39 2026", "soon")] {
            assert_eq!(read_job(text), None, "{text:?}");
        }
        assert_eq!(read_job(&JOB.replace("00:10:00", "long")), None);
    }

    #[test]
    fn vnodes_of_one_host_are_listed_once_each() {
        assert_eq!(read_vnodes("(n2[0]:ncpus=1+n2[1]:ncpus=1)+(n3:ncpus=2)+(n3:ncpus=2)"), ["n2[0]", "n2[1]", "n3"]);
    }

    #[test]
    fn a_down_node_is_found_by_the_name_of_its_daemon_and_has_pbs_s_comment() {
        let nodes = ["n1.site", "n2.site", "n3.site"].map(NodeName::from);
        let expected = vec![("n3.site".into(), "down: node down: communication closed".to_owned())];
        assert_eq!(read_down(NODES, &nodes), Some(expected));
        let short = ["n1", "n3"].map(NodeName::from);
        assert_eq!(read_down(NODES, &short).unwrap().len(), 1);
        let closed = NODES.replace("\"down\"", "\"offline,job-exclusive\"");
        assert_eq!(read_down(&closed, &nodes), Some(Vec::new()));
        assert_eq!(read_down("pbsnodes: Unknown node", &nodes), None);
    }

    #[test]
    fn an_unknown_job_is_a_denial_and_a_silent_server_is_none() {
        let failed = |message: &str| QueryError::Failed { command: "qstat".to_owned(), message: message.to_owned() };
        let unknown = "qstat: Unknown Job Id 99999.head";
        assert_eq!(failed(unknown).denial().as_deref(), Some(unknown));
        let silent = failed("qstat: cannot connect to server head (errno=15010)");
        assert!(silent.denial().is_none() && silent.is_silence());
        assert!(!failed(unknown).is_silence());
    }
}
