//! What a drain is given at its beginning.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use holdfast_model::{CheckpointId, NodeName};

/// An agent that dies during a drain gets so long to be restarted before its node is given up.
pub const LOST_AGENT_WAIT: Duration = Duration::from_secs(5);

/// What is to be drained, and from which nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainConfig {
    /// The agents that are up, and where they listen.
    pub agents: BTreeMap<NodeName, SocketAddr>,
    /// Nodes whose agents are lost and may come back in time.
    pub lost: BTreeSet<NodeName>,
    /// Nodes without agent that are not waited for: partners copy on their behalf in round 1.
    pub down: BTreeSet<NodeName>,
    /// This dataset instead of the newest that can be completed.
    pub requested: Option<CheckpointId>,
    /// ReachableAgents compare what they copy with its checksums: what was just copied is not verified again.
    pub crc: bool,
    /// Requests that are under way at a time; at least one.
    pub requests_at_once: usize,
    /// How long a lost agent is waited for.
    pub lost_agent_wait: Duration,
    /// End after the plan, as [`DrainEnd::Surveyed`](super::DrainEnd::Surveyed): nothing is changed.
    pub survey_only: bool,
}
