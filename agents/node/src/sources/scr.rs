//! The application writes and reads its checkpoints itself, through the checkpoint API (`SCR manual §11.4–11.9`).

use std::time::Duration;

use holdfast_core::control::need::Need;
use holdfast_model::{NeedPolicy, interval};
use holdfast_wire::rank::Interface;

use super::schedule::Cost;
use super::source::{SourceEntry, SourcePolicy};

pub static ENTRY: SourceEntry = SourceEntry {
    name: "scr",
    is_library: false,
    has_rank_processes: false,
    interface: Interface::Files,
    reports_progress: true,
    refuses_calls: None,
    policy: |settings| Box::new(Schedule::new(settings.need, settings.mtbf)),
};

/// When a checkpoint is due, and the cost of the last ones. Not kept when the leader's process is restarted.
#[derive(Debug)]
struct Schedule {
    policy: NeedPolicy,
    /// The mean time between failures: checkpoints are not closer than is best for it.
    mtbf: Option<Duration>,
    need: Need,
    cost: Cost,
    /// When the ranks began to compute, last after a checkpoint.
    computes_since: Duration,
    /// When the open checkpoint was started.
    started: Option<Duration>,
    /// When the last one was complete, while the ranks wait for its flush.
    complete: Option<Duration>,
}

impl Schedule {
    fn new(policy: NeedPolicy, mtbf: Option<Duration>) -> Self {
        let (need, cost) = (Need::new(policy, Duration::ZERO), Cost::default());
        Schedule { policy, mtbf, need, cost, computes_since: Duration::ZERO, started: None, complete: None }
    }
}

impl SourcePolicy for Schedule {
    fn computing_begins(&mut self, now: Duration) {
        self.need = Need::new(self.policy, now);
        self.computes_since = now;
    }

    fn is_due(&mut self, now: Duration, halting: bool) -> bool {
        // It counts its calls, whatever follows.
        let needed = self.need.ask(now, halting).is_some();
        let too_soon = |mtbf: Duration| now < self.computes_since + interval::daly(self.cost.mean(), mtbf);
        needed && (halting || !self.mtbf.is_some_and(too_soon))
    }

    fn checkpoint_begins(&mut self, now: Duration) {
        self.started = Some(now);
        self.cost.begins(now);
    }

    fn checkpoint_complete(&mut self, now: Duration) {
        let started = self.started.take().unwrap_or(now);
        self.need.checkpoint_taken(started, now);
        self.complete = Some(now);
    }

    fn ranks_go_on(&mut self, now: Duration) {
        if let Some(complete) = self.complete.take() {
            self.need.flush_waited_for(now.saturating_sub(complete));
        }
        self.cost.ends(now);
        self.computes_since = now;
    }
}

#[cfg(test)]
mod tests {
    use holdfast_model::Dataset;

    use super::*;

    #[test]
    fn a_checkpoint_is_due_after_its_interval_and_at_a_halt() {
        let at = Duration::from_secs;
        let mut schedule = Schedule::new(NeedPolicy { interval: 0, time: at(60), overhead: 0.0 }, None);
        schedule.computing_begins(at(10));
        assert!(!schedule.is_due(at(69), false));
        assert!(schedule.is_due(at(69), true), "the last one before a halt");
        assert!(schedule.is_due(at(70), false));
        schedule.checkpoint_begins(at(71));
        schedule.checkpoint_complete(at(80));
        assert!(!schedule.is_due(at(139), false));
        assert!(schedule.is_due(at(140), false));
    }

    #[test]
    fn with_a_mean_time_between_failures_checkpoints_are_as_far_apart_as_is_best() {
        let at = Duration::from_secs;
        let mut schedule = Schedule::new(NeedPolicy { overhead: 5.0, ..NeedPolicy::default() }, Some(at(86_400)));
        schedule.computing_begins(at(0));
        assert!(schedule.is_due(at(1), false), "what one takes is not known");
        schedule.checkpoint_begins(at(10));
        schedule.checkpoint_complete(at(12));
        schedule.ranks_go_on(at(12));
        assert!(!schedule.is_due(at(597), false));
        assert!(schedule.is_due(at(597), true), "the last one before a halt");
        assert!(schedule.is_due(at(599), false));
    }

    #[test]
    fn output_is_no_progress() {
        let schedule = Schedule::new(NeedPolicy::default(), None);
        assert!(schedule.is_progress(&Dataset::default()));
        assert!(!schedule.is_progress(&Dataset { checkpoint: false, output: true, ..Dataset::default() }));
    }
}
