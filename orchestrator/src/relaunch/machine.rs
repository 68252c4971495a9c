//! The state machine of the relaunch loop.

use std::time::Duration;

use super::snapshot::RestoreError;
use super::{Action, Config, Event, Snapshot};

/// The relaunch loop.
#[derive(Clone, Debug)]
pub struct Machine {
    config: Config,
    snapshot: Snapshot,
}

impl Machine {
    /// A loop that has done nothing yet; [`begin`](Self::begin) starts it.
    pub fn new(config: Config) -> Self {
        let snapshot = Snapshot {
            version: Snapshot::VERSION,
            started: config.started,
        };
        Machine { config, snapshot }
    }

    /// The loop as it was when the snapshot was taken. `config.started` is replaced by the snapshot's.
    ///
    /// # Errors
    /// If the snapshot is of another version or of another allocation.
    pub fn restore(mut config: Config, snapshot: Snapshot) -> Result<Self, RestoreError> {
        config.started = snapshot.started;
        Ok(Machine { config, snapshot })
    }

    /// The first actions; after [`restore`](Self::restore), whatever was under way, asked for again.
    pub fn begin(&mut self, _now: Duration) -> Vec<Action> {
        Vec::new()
    }

    /// Takes in what happened; returns what is to be done.
    pub fn handle(&mut self, _now: Duration, _event: Event) -> Vec<Action> {
        Vec::new()
    }

    /// When to send [`Event::Tick`] if nothing else happens.
    pub fn deadline(&self) -> Option<Duration> {
        None
    }

    /// Counts up with every change that a successor would have to know: when it changed, write [`snapshot`](Self::snapshot)
    /// to disk *before* performing the actions.
    pub fn revision(&self) -> u64 {
        0
    }

    /// The machine's memory.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// True after [`Action::Finish`].
    pub fn is_finished(&self) -> bool {
        false
    }
}
