//! The application writes and reads its checkpoints itself, through the checkpoint API (`SCR manual §11.4–11.9`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::control::need::Need;
use holdfast_model::{CheckpointId, Dataset, NeedPolicy};
use holdfast_wire::run::Settings;
use parking_lot::Mutex;

use super::files::{FileError, RankFiles};
use super::{CheckpointSource, PutBack, SourceEntry};

/// The line in the registry.
pub const ENTRY: SourceEntry = SourceEntry { name: "scr", open };

/// When a checkpoint is due begins anew with the leader's process, as it may.
#[derive(Debug)]
struct Scr {
    schedule: Mutex<Schedule>,
}

/// When a checkpoint is due, and what the last ones cost.
#[derive(Debug)]
struct Schedule {
    begun: Instant,
    policy: NeedPolicy,
    need: Need,
    /// When the open checkpoint was started.
    started: Option<Duration>,
}

fn open(settings: &Settings) -> Arc<dyn CheckpointSource> {
    Arc::new(Scr::new(settings.need, Instant::now()))
}

impl Scr {
    fn new(policy: NeedPolicy, now: Instant) -> Self {
        let need = Need::new(policy, Duration::ZERO);
        Scr { schedule: Mutex::new(Schedule { begun: now, policy, need, started: None }) }
    }
}

impl CheckpointSource for Scr {
    fn computing_begins(&self, now: Instant) {
        let mut schedule = self.schedule.lock();
        schedule.need = Need::new(schedule.policy, now - schedule.begun);
    }

    fn is_due(&self, now: Instant, halting: bool) -> bool {
        let mut schedule = self.schedule.lock();
        let now = now - schedule.begun;
        schedule.need.ask(now, halting).is_some()
    }

    fn checkpoint_begins(&self, now: Instant) {
        let mut schedule = self.schedule.lock();
        schedule.started = Some(now - schedule.begun);
    }

    fn checkpoint_complete(&self, now: Instant) {
        let mut schedule = self.schedule.lock();
        let end = now - schedule.begun;
        let started = schedule.started.take().unwrap_or(end);
        schedule.need.checkpoint_taken(started, end);
    }

    fn is_progress(&self, dataset: &Dataset) -> bool {
        dataset.checkpoint
    }

    fn make(&self, files: &RankFiles<'_>, checkpoint: CheckpointId, name: &str) -> Result<PathBuf, FileError> {
        files.add(checkpoint, name)
    }

    fn put_back(&self, files: &RankFiles<'_>, checkpoint: CheckpointId) -> Result<PutBack, FileError> {
        files.written(checkpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_so_long_after_the_last_one_and_at_a_halt() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let scr = Scr::new(NeedPolicy { interval: 0, seconds: 60, overhead: 0.0 }, begun);
        scr.computing_begins(after(10));
        assert!(!scr.is_due(after(69), false));
        assert!(scr.is_due(after(69), true), "the last one before a halt");
        assert!(scr.is_due(after(70), false));
        scr.checkpoint_begins(after(71));
        scr.checkpoint_complete(after(80));
        assert!(!scr.is_due(after(139), false));
        assert!(scr.is_due(after(140), false));
    }

    #[test]
    fn output_is_no_progress() {
        let scr = Scr::new(NeedPolicy::default(), Instant::now());
        assert!(scr.is_progress(&Dataset::default()));
        assert!(!scr.is_progress(&Dataset { checkpoint: false, output: true, ..Dataset::default() }));
    }
}
