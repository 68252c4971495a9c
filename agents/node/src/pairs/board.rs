//! What the watcher publishes for requests of the orchestrator.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::pair::{CopyStatus, JobStatus, PairStatus};
use holdfast_shm::clients;
use holdfast_wire::pairs::PairsReport;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::clock;

/// The state without what changes all the time.
fn plain(status: &PairStatus) -> PairStatus {
    let quiet = |copy: CopyStatus| CopyStatus { beats: 0, missed: 0, ..copy };
    let (main, replica) = (status.main.map(quiet), status.replica.map(quiet));
    PairStatus { main, replica, checkpoint: 0, checkpoint_age_ms: None, missed: 0, ..status.clone() }
}

#[derive(Debug)]
pub(super) struct Board {
    /// Leases are granted to this instance of the agent, not to one that was started later.
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

    /// Enters the pairs at these positions, and all jobs. Begins a new version if more has changed than numbers of
    /// heartbeats and checkpoints: requests wait for it.
    pub fn publish(&self, pairs: Vec<(usize, PairStatus)>, jobs: Vec<JobStatus>) {
        let mut state = self.state.lock();
        let mut changed = *self.version.borrow() == 0 || state.1 != jobs;
        for (at, status) in pairs {
            match state.0.get_mut(at) {
                Some(known) => {
                    changed |= plain(known) != plain(&status);
                    *known = status;
                }
                // All are entered first, in their order.
                None => state.0.push(status),
            }
        }
        state.1 = jobs;
        drop(state);
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
        PairsReport {
            instance: self.instance,
            clock,
            version,
            clients: clients::directory(&self.registry),
            pairs,
            jobs,
        }
    }
}
