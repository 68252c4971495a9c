//! When checkpoints of programs are due for which rank processes make the calls.

use std::time::Duration;

use holdfast_wire::run::CheckpointSchedule;

use super::source::SourcePolicy;

/// Before a halt, a checkpoint that was dropped is tried again after this time.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Not kept when the leader's process is restarted: the interval then begins again.
#[derive(Debug)]
pub struct WaitingPolicy {
    schedule: CheckpointSchedule,
    /// The end of the last checkpoint, or the beginning of the run.
    last: Duration,
    /// The last checkpoint was dropped.
    dropped: bool,
}

impl WaitingPolicy {
    pub fn new(schedule: CheckpointSchedule) -> Self {
        WaitingPolicy { schedule, last: Duration::ZERO, dropped: false }
    }

    fn ended(&mut self, now: Duration, dropped: bool) {
        (self.last, self.dropped) = (now, dropped);
    }
}

impl SourcePolicy for WaitingPolicy {
    fn computing_begins(&mut self, now: Duration) {
        self.ended(now, false);
    }

    fn is_due(&mut self, now: Duration, halting: bool) -> bool {
        self.due_at(halting).is_some_and(|due| now >= due)
    }

    fn refuses_requests(&self) -> Option<&'static str> {
        match self.schedule {
            CheckpointSchedule::Every(_) => None,
            CheckpointSchedule::WhenReady => {
                Some("the job has `checkpoint: {watch: …}`: its programs decide when they write their files")
            }
        }
    }

    fn checkpoint_complete(&mut self, now: Duration) {
        self.ended(now, false);
    }

    fn checkpoint_dropped(&mut self, now: Duration) {
        self.ended(now, true);
    }

    fn is_due_for_waiting(&mut self, now: Duration, halting: bool, ready: bool) -> bool {
        match self.schedule {
            CheckpointSchedule::Every(_) => self.is_due(now, halting),
            CheckpointSchedule::WhenReady => ready,
        }
    }

    fn due_at(&self, halting: bool) -> Option<Duration> {
        let CheckpointSchedule::Every(every) = self.schedule else { return None };
        let pause = match (halting, self.dropped) {
            (true, false) => Duration::ZERO,
            (true, true) => every.min(RETRY_AFTER),
            (false, _) => every,
        };
        Some(self.last.saturating_add(pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_checkpoint_is_due_after_the_interval_and_before_a_halt() {
        let mut policy = WaitingPolicy::new(CheckpointSchedule::Every(AT(60)));
        policy.computing_begins(AT(10));
        assert!(!policy.is_due_for_waiting(AT(69), false, true));
        assert_eq!(policy.due_at(false), Some(AT(70)));
        assert!(policy.is_due_for_waiting(AT(70), false, false));
        assert!(policy.is_due_for_waiting(AT(11), true, false));
        policy.checkpoint_complete(AT(75));
        assert_eq!(policy.due_at(false), Some(AT(135)));
    }

    #[test]
    fn a_dropped_checkpoint_is_tried_again_sooner_before_a_halt_and_not_at_once() {
        let mut policy = WaitingPolicy::new(CheckpointSchedule::Every(AT(60)));
        policy.checkpoint_dropped(AT(100));
        assert_eq!((policy.due_at(false), policy.due_at(true)), (Some(AT(160)), Some(AT(105))));
        let mut policy = WaitingPolicy::new(CheckpointSchedule::Every(AT(1)));
        policy.checkpoint_dropped(AT(100));
        assert_eq!(policy.due_at(true), Some(AT(101)));
    }

    #[test]
    fn files_that_a_program_writes_by_itself_are_taken_when_every_program_has_written_them() {
        let mut policy = WaitingPolicy::new(CheckpointSchedule::WhenReady);
        assert_eq!(policy.due_at(true), None);
        assert!(!policy.is_due_for_waiting(AT(1000), true, false));
        assert!(policy.is_due_for_waiting(AT(0), false, true));
    }
}
