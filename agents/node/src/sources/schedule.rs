//! When checkpoints of programs are due for which rank processes make the calls.

use std::time::Duration;

use holdfast_model::interval;
use holdfast_wire::run::CheckpointSchedule;

use super::source::SourcePolicy;

/// Before a halt, a checkpoint that was dropped is tried again after this time.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// With a limit on the share of the time: the shortest time between two checkpoints. What the first one takes is known
/// only then.
const SHORTEST_PAUSE: Duration = Duration::from_secs(10);

/// Not kept when the leader's process is restarted: the interval then begins again.
#[derive(Debug)]
pub struct WaitingPolicy {
    schedule: CheckpointSchedule,
    /// The mean time between failures, if it is known.
    mtbf: Option<Duration>,
    cost: Cost,
    /// The end of the last checkpoint, or the beginning of the run.
    last: Duration,
    /// The last checkpoint was dropped.
    dropped: bool,
}

impl WaitingPolicy {
    pub fn new(schedule: CheckpointSchedule, mtbf: Option<Duration>) -> Self {
        WaitingPolicy { schedule, mtbf, cost: Cost::default(), last: Duration::ZERO, dropped: false }
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
            CheckpointSchedule::Every(_) | CheckpointSchedule::Share(_) => None,
            CheckpointSchedule::WhenReady => {
                Some("the job has `checkpoint: {watch: …}`: its programs decide when they write their files")
            }
        }
    }

    fn checkpoint_begins(&mut self, now: Duration) {
        self.cost.begins(now);
    }

    fn ranks_go_on(&mut self, now: Duration) {
        self.cost.ends(now);
        self.last = now;
    }

    fn checkpoint_complete(&mut self, now: Duration) {
        self.ended(now, false);
    }

    fn checkpoint_dropped(&mut self, now: Duration) {
        self.ended(now, true);
    }

    fn is_due_for_waiting(&mut self, now: Duration, halting: bool, ready: bool) -> bool {
        match self.schedule {
            CheckpointSchedule::Every(_) | CheckpointSchedule::Share(_) => self.is_due(now, halting),
            CheckpointSchedule::WhenReady => ready,
        }
    }

    fn due_at(&self, halting: bool) -> Option<Duration> {
        let every = match self.schedule {
            CheckpointSchedule::Every(every) => every,
            CheckpointSchedule::Share(percent) => {
                interval::auto(self.cost.mean(), self.mtbf, percent.into()).max(SHORTEST_PAUSE)
            }
            CheckpointSchedule::WhenReady => return None,
        };
        let pause = match (halting, self.dropped) {
            (true, false) => Duration::ZERO,
            (true, true) => every.min(RETRY_AFTER),
            (false, _) => every,
        };
        Some(self.last.saturating_add(pause))
    }
}

/// How long the checkpoints of this run have blocked the ranks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    began: Option<Duration>,
    checkpoints: u32,
    spent: Duration,
}

impl Cost {
    pub(super) fn begins(&mut self, now: Duration) {
        self.began = Some(now);
    }

    /// The ranks go on, whether the checkpoint is kept or not.
    pub(super) fn ends(&mut self, now: Duration) {
        if let Some(began) = self.began.take() {
            self.checkpoints = self.checkpoints.saturating_add(1);
            self.spent += now.saturating_sub(began);
        }
    }

    /// How long a checkpoint blocks the ranks; zero before the first.
    pub(super) fn mean(&self) -> Duration {
        self.spent.checked_div(self.checkpoints).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_checkpoint_is_due_after_the_interval_and_before_a_halt() {
        let mut policy = WaitingPolicy::new(CheckpointSchedule::Every(AT(60)), None);
        policy.computing_begins(AT(10));
        assert!(!policy.is_due_for_waiting(AT(69), false, true));
        assert_eq!(policy.due_at(false), Some(AT(70)));
        assert!(policy.is_due_for_waiting(AT(70), false, false));
        assert!(policy.is_due_for_waiting(AT(11), true, false));
        policy.checkpoint_complete(AT(75));
        assert_eq!(policy.due_at(false), Some(AT(135)));
    }

    #[test]
    fn with_a_limit_on_their_share_checkpoints_are_as_far_apart_as_they_take_long() {
        let mut policy = WaitingPolicy::new(CheckpointSchedule::Share(5), None);
        policy.computing_begins(AT(0));
        assert_eq!((policy.due_at(false), policy.due_at(true)), (Some(AT(10)), Some(AT(0))));
        for (begins, complete, goes_on, next) in [(10, 12, 14, 14 + 76), (90, 91, 92, 92 + 57)] {
            policy.checkpoint_begins(AT(begins));
            policy.checkpoint_complete(AT(complete));
            // A flush that the ranks wait for counts.
            policy.ranks_go_on(AT(goes_on));
            assert_eq!(policy.due_at(false), Some(AT(next)));
        }
        assert!(!policy.is_due_for_waiting(AT(148), false, false));
        assert!(policy.is_due_for_waiting(AT(149), false, false));
    }

    #[test]
    fn where_failures_are_rare_checkpoints_are_as_far_apart_as_is_best() {
        let next = |mtbf: u64| {
            let mut policy = WaitingPolicy::new(CheckpointSchedule::Share(5), Some(AT(mtbf)));
            policy.computing_begins(AT(0));
            policy.checkpoint_begins(AT(10));
            policy.checkpoint_complete(AT(12));
            policy.ranks_go_on(AT(12));
            policy.due_at(false).unwrap().as_secs() - 12
        };
        assert_eq!((next(86_400), next(100)), (586, 38), "Daly's interval; 5 % of the time");
    }

    #[test]
    fn a_dropped_checkpoint_is_tried_again_sooner_before_a_halt_and_not_at_once() {
        let mut policy = WaitingPolicy::new(CheckpointSchedule::Every(AT(60)), None);
        policy.checkpoint_dropped(AT(100));
        assert_eq!((policy.due_at(false), policy.due_at(true)), (Some(AT(160)), Some(AT(105))));
        let mut policy = WaitingPolicy::new(CheckpointSchedule::Every(AT(1)), None);
        policy.checkpoint_dropped(AT(100));
        assert_eq!(policy.due_at(true), Some(AT(101)));
    }

    #[test]
    fn files_that_a_program_writes_by_itself_are_taken_when_every_program_has_written_them() {
        let mut policy = WaitingPolicy::new(CheckpointSchedule::WhenReady, None);
        assert_eq!(policy.due_at(true), None);
        assert!(!policy.is_due_for_waiting(AT(1000), true, false));
        assert!(policy.is_due_for_waiting(AT(0), false, true));
    }
}
