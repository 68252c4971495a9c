//! What all tasks of the agent share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use holdfast_wire::agent::StopRequest;
use holdfast_wire::run::AgentStart;
use tokio::sync::watch;

use crate::contact::Contact;
use crate::events::{EventLog, ProgressBoard};
use crate::halt::HaltKeeper;
use crate::health::HealthMonitor;
use crate::paths::Paths;
use crate::ranks::Ranks;
use crate::store::Store;
use crate::stream::Streams;
use crate::watchdog::Watchdog;

/// The agent of one node.
#[derive(Debug)]
pub struct Agent {
    /// Who this is, as the orchestrator said.
    pub start: AgentStart,
    /// Its directories.
    pub paths: Paths,
    /// Its checkpoint files.
    pub store: Store,
    /// Its halt file.
    pub halt: HaltKeeper,
    /// What is known of its health.
    pub health: HealthMonitor,
    /// When the orchestrator was last heard of.
    pub contact: Contact,
    /// Chosen at random at start; a poller sees by it that the agent was restarted.
    pub instance: u64,
    /// What the orchestrator is told.
    pub events: Arc<EventLog>,
    /// The long work under way.
    pub progress: Arc<ProgressBoard>,
    /// The ranks on this node.
    pub ranks: Arc<Ranks>,
    /// How long nothing has moved in them.
    pub watchdog: Arc<Watchdog>,
    /// Connections to and from peers.
    pub streams: Streams,
    /// Connections refused.
    pub strangers: AtomicU64,
    /// Set once: the agent is to end.
    pub stop: watch::Sender<Option<StopRequest>>,
}
