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
use crate::pairs::Pairs;
use crate::paths::Paths;
use crate::prefix::JobPrefixes;
use crate::ranks::Ranks;
use crate::store::Store;
use crate::stream::Streams;
use crate::watchdog::Watchdog;

#[derive(Debug)]
pub struct Agent {
    /// The orchestrator's start message.
    pub start: AgentStart,
    pub paths: Paths,
    pub prefixes: JobPrefixes,
    pub store: Store,
    pub halt: HaltKeeper,
    pub health: HealthMonitor,
    pub contact: Contact,
    /// Chosen at random at start. Another value in a poll's answer means that the agent was restarted.
    pub instance: u64,
    pub events: Arc<EventLog>,
    pub progress: Arc<ProgressBoard>,
    pub ranks: Arc<Ranks>,
    pub watchdog: Arc<Watchdog>,
    pub streams: Streams,
    pub pairs: Arc<Pairs>,
    /// Unauthenticated connections since the start.
    pub unauthenticated: AtomicU64,
    /// Set once, when the agent is to end.
    pub stop: watch::Sender<Option<StopRequest>>,
}
