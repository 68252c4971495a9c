//! Queries to Flux's commands. A broker that waits for a node that does not answer may be slow, so every query has a
//! time limit, and its callers handle a missing answer.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_core::hostlist;
use holdfast_model::NodeName;
use serde::Deserialize;

use super::error::FluxError;
use crate::allocation::error::AllocationError;
use crate::host::external_command::{self, ExternalCommandError};
use crate::spec::quantity;

/// Time limit of a query. Flux's commands in Python take some tenths of a second to start.
const WITHIN: Duration = Duration::from_secs(20);
const FLUX: &str = "flux";
/// The mark of a node whose broker is not connected, after its state.
const OFFLINE: char = '*';

/// The Flux instance of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    /// The nodes; the index of each is the rank of its broker.
    pub(super) nodes: Vec<NodeName>,
    pub(super) own_node: Option<NodeName>,
    /// The address of this node at which the other brokers reach this one.
    pub(super) address: IpAddr,
}

/// The nodes of the instance, and this one.
///
/// # Errors
/// No answer that can be read, or [`FluxError::SharedNode`].
pub(super) async fn instance() -> Result<Instance, AllocationError> {
    let (nodes, rank) = tokio::join!(query(&["getattr", "hostlist"]), query(&["getattr", "rank"]));
    let nodes = hostlist::expand(nodes?.trim())?;
    if let Some(node) = repeated(&nodes) {
        return Err(FluxError::SharedNode { node }.into());
    }
    let own_node = rank?.trim().parse().ok().and_then(|rank: usize| nodes.get(rank).cloned());
    // A single broker needs no address.
    let address = if nodes.len() < 2 {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    } else {
        let endpoint = query(&["getattr", "tbon.endpoint"]).await?;
        read_endpoint(&endpoint).ok_or_else(|| QueryError::unparsable("getattr tbon.endpoint", &endpoint))?
    };
    Ok(Instance { nodes, own_node, address })
}

/// The nodes of the instance, for reading a spec; none without an answer, and then the job is refused later.
pub(super) fn nodes_of_instance() -> Vec<NodeName> {
    let list = run(&["getattr", "hostlist"]);
    list.ok().and_then(|list| hostlist::expand(list.trim()).ok()).unwrap_or_default()
}

fn repeated(nodes: &[NodeName]) -> Option<NodeName> {
    let mut sorted: Vec<&NodeName> = nodes.iter().collect();
    sorted.sort();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone())
}

/// `tcp://[::ffff:10.0.0.1]:45379`.
pub(crate) fn read_endpoint(text: &str) -> Option<IpAddr> {
    let address: SocketAddr = text.trim().strip_prefix("tcp://")?.parse().ok()?;
    Some(address.ip().to_canonical())
}

/// When the allocation began and ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Term {
    /// As Flux writes it.
    pub(super) started: String,
    pub(crate) end: Option<SystemTime>,
}

/// The part of the resource set of the instance that we read (Flux RFC 20).
#[derive(Deserialize)]
struct ResourceSet {
    version: u32,
    execution: Execution,
}

#[derive(Deserialize)]
struct Execution {
    #[serde(default)]
    starttime: f64,
    /// 0: it has no end.
    #[serde(default)]
    expiration: f64,
}

pub(super) async fn term() -> Result<Term, QueryError> {
    let text = query(&["resource", "R"]).await?;
    read_term(&text).ok_or_else(|| QueryError::unparsable("resource R", &text))
}

pub(crate) fn read_term(text: &str) -> Option<Term> {
    let ResourceSet { version: 1, execution } = serde_json::from_str(text).ok()? else { return None };
    let seconds = |value: f64| Duration::try_from_secs_f64(value).ok().filter(|it| it.as_secs() <= quantity::LATEST);
    let end = seconds(execution.expiration)?;
    let started = format!("{:.3}", seconds(execution.starttime)?.as_secs_f64());
    Some(Term { started, end: (!end.is_zero()).then(|| UNIX_EPOCH + end) })
}

/// The nodes among these on which Flux starts nothing, each with its state and reason. A node with a job that is
/// draining is not among them.
///
/// # Errors
/// No answer that can be read.
pub(super) async fn down(nodes: &[NodeName]) -> Result<Vec<(NodeName, String)>, QueryError> {
    let text = query(&["resource", "status", "-n", "-o", "{state}|{nodelist}|{reason}"]).await?;
    Ok(read_down(&text, nodes))
}

pub(crate) fn read_down(text: &str, nodes: &[NodeName]) -> Vec<(NodeName, String)> {
    let mut down: Vec<(NodeName, String)> = Vec::new();
    for line in text.lines() {
        let mut fields = line.trim().splitn(3, '|');
        let (Some(state), Some(list)) = (fields.next(), fields.next()) else { continue };
        let reason = fields.next().unwrap_or_default().trim();
        let (plain, is_offline) = (state.trim_end_matches(|c: char| !c.is_ascii_alphabetic()), state.contains(OFFLINE));
        let what = match plain {
            _ if is_offline => "offline",
            "avail" | "draining" => continue,
            other => other,
        };
        for node in hostlist::expand(list).unwrap_or_default() {
            if nodes.contains(&node) && !down.iter().any(|(other, _)| *other == node) {
                down.push((node, if reason.is_empty() { what.to_owned() } else { format!("{what}: {reason}") }));
            }
        }
    }
    down
}

/// Gives a node up that does not answer: Flux ends its jobs there, which would otherwise hold the other nodes.
///
/// # Errors
/// It was not given up, or Flux has lost it already.
pub(super) async fn disconnect(node: &NodeName) -> Result<(), QueryError> {
    query(&["overlay", "disconnect", node.as_str()]).await.map(drop)
}

async fn query(arguments: &[&str]) -> Result<String, QueryError> {
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let answer = tokio::task::spawn_blocking(move || {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        run(&words)
    });
    answer.await.map_err(|error| ExternalCommandError::start(FLUX, io::Error::other(error)))?
}

pub(super) fn run(arguments: &[&str]) -> Result<String, QueryError> {
    let answer = external_command::run(FLUX, arguments, &BTreeMap::new(), WITHIN)?;
    if !answer.success {
        let message = answer.errors.lines().last().unwrap_or("without a message").to_owned();
        return Err(QueryError::Failed { command: arguments.join(" "), message });
    }
    Ok(answer.output)
}

/// A query without a usable answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The command did not run to its end.
    #[error("{0}; check that `flux` is in PATH on this node and that its broker answers (`flux uptime`)")]
    NoAnswer(#[from] ExternalCommandError),
    #[error("flux {command} failed: {message}; check that the broker of this node answers (`flux uptime`)")]
    Failed { command: String, message: String },
    #[error("unexpected output of flux {command}: {answer:?}; check that this version of Flux is supported")]
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
}

/// The answers in these tests are those of Flux 0.88.0, with other names.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_has_a_start_and_perhaps_an_end() {
        let batch = r#"{"version": 1, "execution": {"R_lite": [{"rank": "0-3", "children": {"core": "0-1"}}],
            "starttime": 1796036946.2990587, "expiration": 1796037246.2990587, "nodelist": ["n[1-4]"]}}"#;
        let term = read_term(batch).unwrap();
        assert_eq!(term.started, "1796036946.299");
        let left = term.end.unwrap().duration_since(UNIX_EPOCH + Duration::from_secs(1_796_036_946)).unwrap();
        assert_eq!(left.as_secs(), 300);
        let endless = r#"{"version": 1, "execution": {"R_lite": [{"rank": "0", "children": {"core": "0-1"}}],
            "starttime": 0.0, "expiration": 0.0, "nodelist": ["n1"]}}"#;
        assert_eq!(read_term(endless).unwrap().end, None);
    }

    #[test]
    fn refuses_what_is_no_resource_set() {
        let with = |expiration: &str| format!(r#"{{"version": 1, "execution": {{"expiration": {expiration}}}}}"#);
        assert!(read_term(&with("5")).is_some());
        let (never, negative, second) = (with("1e300"), with("-1"), with("5").replace(": 1,", ": 2,"));
        for text in ["", "{}", "flux-resource: ERROR: no route", &never, &negative, &second] {
            assert_eq!(read_term(text), None, "{text:?}");
        }
    }

    #[test]
    fn nodes_on_which_nothing_can_be_started_have_flux_s_reason() {
        let nodes = ["n1", "n2", "n3", "n4"].map(NodeName::from);
        let text = "avail|n[1-2]|\navail*|n3|\ndrained|n4|bad disk\ndraining|n2|later\nbroken\ndrained|n9|other\n";
        let expected = [("n3", "offline"), ("n4", "drained: bad disk")];
        assert_eq!(read_down(text, &nodes), expected.map(|(node, reason)| (NodeName::from(node), reason.to_owned())));
    }

    #[test]
    fn the_address_of_the_broker_is_in_its_endpoint() {
        assert_eq!(read_endpoint("tcp://[::ffff:10.0.0.1]:45379\n"), Some(Ipv4Addr::new(10, 0, 0, 1).into()));
        assert_eq!(read_endpoint("tcp://10.0.0.1:8050"), Some(Ipv4Addr::new(10, 0, 0, 1).into()));
        assert_eq!(read_endpoint("tcp://[fd00::2]:8050"), Some("fd00::2".parse().unwrap()));
        assert_eq!(read_endpoint("ipc:///tmp/flux-a1/tbon-0"), None);
    }

    #[test]
    fn several_brokers_on_one_node_are_found() {
        let nodes = |list: &str| hostlist::expand(list).unwrap();
        assert_eq!(repeated(&nodes("n1,n1,n1")), Some("n1".into()));
        assert_eq!(repeated(&nodes("n[1-3]")), None);
    }
}
