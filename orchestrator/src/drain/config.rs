//! The configuration of a drain.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use holdfast_model::{CheckpointId, ContainerPolicy, NodeName};

/// How long a lost agent is waited for before its node is given up.
pub const LOST_AGENT_WAIT: Duration = Duration::from_secs(5);

/// The nodes of a drain, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainConfig {
    /// The agents that are up, with their addresses.
    pub agents: BTreeMap<NodeName, SocketAddr>,
    /// Nodes whose agents are lost and may be restarted.
    pub lost: BTreeSet<NodeName>,
    /// Nodes without agent that are not waited for: partners copy on their behalf in round 1.
    pub down: BTreeSet<NodeName>,
    /// This dataset instead of the newest that can be completed.
    pub requested: Option<CheckpointId>,
    /// Agents compute checksums while they copy: files that were just copied are not verified again.
    pub crc: bool,
    /// Pack checkpoints into containers.
    pub container: Option<ContainerPolicy>,
    /// Checkpoints of the job that stay in the prefix directory; 0 is all. If older ones are deleted, the files that
    /// were just copied are verified, too.
    pub keep: u32,
    /// Requests that are under way at a time; at least one.
    pub requests_at_once: usize,
    /// How long a lost agent is waited for.
    pub lost_agent_wait: Duration,
    /// End after the plan, as [`DrainEnd::Surveyed`](super::DrainEnd::Surveyed), without changing anything.
    pub survey_only: bool,
}
