//! The application saves its variables through the variables API, which writes one FTI-FF file a rank.

use std::time::Duration;

use holdfast_model::{Level, SnapshotIntervals, interval};
use holdfast_wire::rank::Interface;

use super::schedule::Cost;
use super::source::{SourceEntry, SourcePolicy};

pub static ENTRY: SourceEntry = SourceEntry {
    name: "variables",
    is_library: false,
    has_rank_processes: false,
    interface: Interface::Variables,
    reports_progress: true,
    refuses_calls: None,
    policy: |settings| Box::new(Snapshots::new(settings.variables.snapshots, settings.need.overhead)),
};

/// When a snapshot of each level is due. Not kept when the leader's process is restarted.
#[derive(Debug)]
struct Snapshots {
    intervals: SnapshotIntervals,
    /// The largest percentage of the time that checkpoints may take; 0 is not limited.
    share: f64,
    cost: Cost,
    /// The end of the last checkpoint.
    last: Duration,
    /// When the interval of each level began, in the order of [`Level::ALL`].
    since: [Duration; Level::ALL.len()],
    /// How many flushes of level 4 have failed since one succeeded.
    failures: u32,
    /// When the last one failed.
    failed: Duration,
}

impl Snapshots {
    fn new(intervals: SnapshotIntervals, share: f64) -> Self {
        let since = [Duration::ZERO; Level::ALL.len()];
        let (cost, last) = (Cost::default(), Duration::ZERO);
        Snapshots { intervals, share, cost, last, since, failures: 0, failed: Duration::ZERO }
    }

    /// After a failed flush, level 4 waits for an eighth of its interval, and twice as long after each further one, up
    /// to the interval: a prefix directory that is full would otherwise cost a flush in each step of the program.
    fn is_paused(&self, now: Duration, interval: Duration) -> bool {
        let Some(doubled) = self.failures.checked_sub(1) else { return false };
        now.saturating_sub(self.failed) < (interval / 8).saturating_mul(1 << doubled.min(3))
    }
}

impl SourcePolicy for Snapshots {
    fn computing_begins(&mut self, now: Duration) {
        self.since = [now; Level::ALL.len()];
    }

    fn is_due(&mut self, now: Duration, halting: bool) -> bool {
        self.due_level(now, halting, None).is_some()
    }

    /// The highest level whose interval has passed; at a halt at least the lowest, because the checkpoint is flushed.
    fn due_level(&mut self, now: Duration, halting: bool, own: Option<SnapshotIntervals>) -> Option<Level> {
        if !halting
            && self.share > 0.0
            && now.saturating_sub(self.last) < interval::auto(self.cost.mean(), None, self.share)
        {
            return None;
        }
        let intervals = own.unwrap_or(self.intervals);
        let levels = Level::ALL.into_iter().zip(self.since);
        let due = levels.filter(|(level, since)| {
            let interval = intervals.of(*level);
            let is_paused = *level == Level::Prefix && self.is_paused(now, interval);
            !interval.is_zero() && !is_paused && now.saturating_sub(*since) >= interval
        });
        let due: Vec<Level> = due.map(|(level, _)| level).collect();
        // While flushes fail, level 4 must not replace the levels that survive the loss of a node.
        let first = due.iter().copied().filter(|level| matches!(level, Level::Partner | Level::Parity)).max();
        let first = first.filter(|_| self.failures > 0);
        first.or(due.into_iter().max()).or(halting.then_some(Level::Local))
    }

    fn checkpoint_begins(&mut self, now: Duration) {
        self.cost.begins(now);
    }

    fn ranks_go_on(&mut self, now: Duration) {
        self.cost.ends(now);
        self.last = now;
    }

    /// A checkpoint also serves the lower levels.
    fn level_complete(&mut self, now: Duration, complete: Level) {
        for (level, since) in Level::ALL.into_iter().zip(&mut self.since) {
            if level <= complete {
                *since = now;
            }
        }
        if complete == Level::Prefix {
            self.failures = 0;
        }
    }

    /// The interval of level 4 goes on: it is tried again after a pause, unless level 2 or 3 is due then.
    fn flush_failed(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.failed = now;
        self.level_complete(now, Level::Local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn with_a_limit_snapshots_are_left_out_while_checkpoints_take_more_of_the_time() {
        let mut limited = Snapshots { share: 5.0, ..snapshots(10, 0, 0, 0) };
        assert_eq!(limited.due_level(at(110), false, None), Some(Level::Local));
        limited.checkpoint_begins(at(110));
        limited.level_complete(at(112), Level::Local);
        limited.ranks_go_on(at(112));
        // Two seconds are 5 % of 40.
        assert_eq!(limited.due_level(at(112 + 37), false, None), None);
        assert_eq!(limited.due_level(at(112 + 37), true, None), Some(Level::Local), "a halt does not wait");
        assert_eq!(limited.due_level(at(112 + 38), false, None), Some(Level::Local));
    }

    fn snapshots(local: u64, partner: u64, parity: u64, prefix: u64) -> Snapshots {
        let [local, partner, parity, prefix] = [local, partner, parity, prefix].map(at);
        let intervals = SnapshotIntervals { local, partner, parity, prefix };
        let mut snapshots = Snapshots::new(intervals, 0.0);
        snapshots.computing_begins(at(100));
        snapshots
    }

    #[test]
    fn the_highest_due_level_is_taken_and_serves_the_lower_ones() {
        let mut snapshots = snapshots(3, 5, 0, 11);
        assert_eq!(snapshots.due_level(at(102), false, None), None);
        assert_eq!(snapshots.due_level(at(103), false, None), Some(Level::Local));
        assert_eq!(snapshots.due_level(at(105), false, None), Some(Level::Partner));
        snapshots.level_complete(at(105), Level::Partner);
        assert_eq!(snapshots.due_level(at(107), false, None), None, "level 1 was served by level 2");
        assert_eq!(snapshots.due_level(at(111), false, None), Some(Level::Prefix));
        snapshots.level_complete(at(111), Level::Prefix);
        assert_eq!(snapshots.due_level(at(113), false, None), None);
    }

    #[test]
    fn a_level_4_that_was_not_flushed_is_due_again_after_the_levels_2_and_3_that_are() {
        let mut snapshots = snapshots(3, 5, 7, 11);
        assert_eq!(snapshots.due_level(at(111), false, None), Some(Level::Prefix));
        snapshots.flush_failed(at(111));
        assert_eq!(snapshots.due_level(at(111), false, None), Some(Level::Parity));
        snapshots.level_complete(at(111), Level::Parity);
        assert_eq!(snapshots.due_level(at(113), false, None), Some(Level::Prefix));
        snapshots.flush_failed(at(113));
        assert_eq!(snapshots.due_level(at(116), false, None), Some(Level::Partner));
        snapshots.level_complete(at(116), Level::Partner);
        snapshots.level_complete(at(117), Level::Prefix);
        assert_eq!(snapshots.due_level(at(119), false, None), None);
        assert_eq!(snapshots.due_level(at(128), false, None), Some(Level::Prefix));
    }

    #[test]
    fn level_4_is_tried_again_after_pauses_that_grow_up_to_its_interval() {
        let mut snapshots = snapshots(0, 0, 0, 80);
        let mut now = at(180);
        for pause in [10, 20, 40, 80, 80] {
            assert_eq!(snapshots.due_level(now, false, None), Some(Level::Prefix));
            snapshots.flush_failed(now);
            assert_eq!(snapshots.due_level(now + at(pause - 1), false, None), None, "{pause}");
            now += at(pause);
        }
        snapshots.level_complete(now, Level::Prefix);
        assert_eq!(snapshots.due_level(now + at(80), false, None), Some(Level::Prefix));
        snapshots.flush_failed(now + at(80));
        assert_eq!(snapshots.due_level(now + at(90), false, None), Some(Level::Prefix), "the first pause again");
    }

    #[test]
    fn the_intervals_of_the_program_replace_those_of_the_job() {
        let mut snapshots = snapshots(3, 0, 0, 0);
        let own = SnapshotIntervals { local: at(0), partner: at(0), parity: at(8), prefix: at(0) };
        assert_eq!(snapshots.due_level(at(107), false, Some(own)), None);
        assert_eq!(snapshots.due_level(at(107), false, None), Some(Level::Local));
        assert_eq!(snapshots.due_level(at(108), false, Some(own)), Some(Level::Parity));
    }

    #[test]
    fn a_halt_condition_makes_a_checkpoint_due_at_once() {
        let mut snapshots = snapshots(0, 0, 0, 0);
        assert_eq!(snapshots.due_level(at(10_000), false, None), None);
        assert_eq!(snapshots.due_level(at(101), true, None), Some(Level::Local));
        assert!(snapshots.is_due(at(101), true));
    }
}
