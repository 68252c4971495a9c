//! What the watcher publishes for requests of the orchestrator.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::pair::{JobStatus, PairStatus};
use holdfast_wire::pairs::PairsReport;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::clock;

#[derive(Debug)]
pub(super) struct Board {
    /// The agent's instance.
    pub instance: u64,
    /// The registry, as a process on this machine opens it.
    pub registry: PathBuf,
    state: Mutex<(Vec<PairStatus>, Vec<JobStatus>)>,
    version: watch::Sender<u64>,
}

impl Board {
    pub fn new(instance: u64, registry: PathBuf) -> Board {
        Board { instance, registry, state: Mutex::default(), version: watch::Sender::new(0) }
    }

    /// `changed`: more than numbers of heartbeats and checkpoints.
    pub fn publish(&self, pairs: Vec<PairStatus>, jobs: Vec<JobStatus>, changed: bool) {
        *self.state.lock() = (pairs, jobs);
        if changed {
            self.version.send_modify(|version| *version += 1);
        }
    }

    /// Returns when there is a later version than `seen`, or after this time.
    pub async fn wait(&self, seen: u64, wait: Duration) {
        let mut version = self.version.subscribe();
        let _ = tokio::time::timeout(wait, version.wait_for(|version| *version > seen)).await;
    }

    pub fn report(&self) -> PairsReport {
        let version = *self.version.borrow();
        let (pairs, jobs) = self.state.lock().clone();
        let clock = u64::try_from(clock::now().as_millis()).unwrap_or(u64::MAX);
        PairsReport { instance: self.instance, clock, version, pairs, jobs }
    }
}
