//! What all tasks of the agent share, and what works on all of it: `inventory` (what the node holds, for restarts and
//! drains), `forget` (removes what finished steps of the job left), `fault_injection`.

pub mod fault_injection;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod forget;
pub mod inventory;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use holdfast_core::temporary;
use holdfast_wire::agent::StopRequest;
use holdfast_wire::run::AgentStart;
use tokio::sync::{Notify, watch};

use crate::directories::paths::Paths;
use crate::pairs::Pairs;
use crate::prefix::job_prefixes::JobPrefixes;
use crate::ranks::Ranks;
use crate::report::contact::Contact;
use crate::report::events::{EventLog, ProgressBoard};
use crate::report::health::HealthMonitor;
use crate::state::halt::HaltKeeper;
use crate::store::{Store, StoreError};
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
    pub streams: Arc<Streams>,
    pub pairs: Arc<Pairs>,
    /// Unauthenticated connections since the start.
    pub unauthenticated: AtomicU64,
    /// Set when an injected loss of the node begins: a node that fails reports nothing.
    pub failing: AtomicBool,
    /// Nothing is at the path of the ranks' socket any more.
    pub socket_removed: Notify,
    /// Set once, when the agent is to end.
    pub stop: watch::Sender<Option<StopRequest>>,
}

impl Agent {
    /// The state at the start, with these cache bases; nothing is served yet. Blocks.
    pub(crate) fn new(start: AgentStart, paths: Paths, bases: Vec<String>) -> Result<Self, StoreError> {
        remove_leftovers(&paths, &bases);
        let store = Store::open(paths.clone(), bases)?;
        for fault in store.faults() {
            tracing::warn!(fault, "control_file_damaged");
        }
        // The standard library's hash keys are random: 64 bits of them distinguish agents.
        let instance = RandomState::new().build_hasher().finish();
        let prefixes = JobPrefixes::new(start.prefixes.clone());
        let (events, streams): (Arc<EventLog>, _) = (Arc::default(), Arc::new(Streams::new(start.clone())));
        let pairs = Pairs::new(paths.clone(), prefixes.clone(), instance, events.clone(), streams.clone());
        Ok(Agent {
            halt: HaltKeeper::new(&paths),
            health: HealthMonitor::new(&start, &paths),
            contact: Contact::default(),
            store,
            instance,
            events,
            progress: Arc::default(),
            ranks: Arc::new(Ranks::new(&start)),
            watchdog: Arc::default(),
            streams,
            pairs: Arc::new(pairs),
            unauthenticated: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            socket_removed: Notify::new(),
            stop: watch::Sender::new(None),
            prefixes,
            paths,
            start,
        })
    }
}

/// Removes the temporary files that an earlier agent, which was killed, left in the job's directories.
fn remove_leftovers(paths: &Paths, bases: &[String]) {
    let caches = bases.iter().filter_map(|base| paths.real(&paths.cache_node_path(base)).ok());
    for directory in [paths.control()].into_iter().chain(caches) {
        if let Err(error) = temporary::remove_abandoned_below(&directory) {
            tracing::warn!(directory = %directory.display(), %error, "temporary_files_not_removed");
        }
    }
}
