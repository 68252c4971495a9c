//! Heartbeats of copies: how many each has missed, and when that counts as a failure.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_model::Side;

/// A copy whose heartbeats are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    pub incarnation: u64,
    pub period: Duration,
    /// Periods without a heartbeat after which the copy is reported.
    pub misses: u32,
}

/// A copy that missed its heartbeats. It is reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    pub pair: u32,
    pub side: Side,
    pub incarnation: u64,
    pub misses: u32,
    /// The counter, which did not change.
    pub beats: u64,
    /// The last heartbeat was missed by a copy that beats at multiples of its period. Whether it does is not known
    /// here.
    pub early: bool,
}

#[derive(Clone, Copy, Debug)]
struct Heart {
    watched: Watched,
    beats: u64,
    first_beats: u64,
    /// Without a new heartbeat, as far as the watcher itself ran.
    quiet: Duration,
    /// Whole periods in `quiet` that are in `missed`.
    counted: u32,
    missed: u64,
    reported: bool,
    /// It was excused since its last heartbeat.
    excused: bool,
}

/// The heartbeats of all pairs of a node.
///
/// Only time in which the watcher ran counts: after a pause of the watcher (no processor, a suspended machine) the
/// copies may have had the same pause. The time between two observations counts for at most a quarter more than `tick`.
#[derive(Clone, Debug)]
pub struct BeatWatch {
    /// The time between two observations, if nothing delays them.
    tick: Duration,
    observed: Option<Duration>,
    hearts: BTreeMap<(u32, Side), Heart>,
}

impl BeatWatch {
    pub fn new(tick: Duration) -> BeatWatch {
        BeatWatch { tick, observed: None, hearts: BTreeMap::new() }
    }

    /// Watches a copy from now on; `beats` is its counter's present value.
    pub fn watch(&mut self, pair: u32, side: Side, watched: Watched, beats: u64) {
        let heart = Heart {
            watched,
            beats,
            first_beats: beats,
            quiet: Duration::ZERO,
            counted: 0,
            missed: 0,
            reported: false,
            excused: false,
        };
        self.hearts.insert((pair, side), heart);
    }

    pub fn unwatch(&mut self, pair: u32, side: Side) {
        self.hearts.remove(&(pair, side));
    }

    /// Changes the periods without a heartbeat after which the copy is reported, if it is watched.
    pub fn set_misses(&mut self, pair: u32, side: Side, misses: u32) {
        if let Some(heart) = self.hearts.get_mut(&(pair, side)) {
            heart.watched.misses = misses;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.hearts.is_empty()
    }

    /// The shortest period of a copy of which one more missed heartbeat is reported. If it beats at multiples of its
    /// period, an observation just after the next one, within `tick / 2`, reports it earlier than the next regular one.
    pub fn suspected(&self) -> Option<Duration> {
        let suspected = self.hearts.values().filter(|heart| {
            !heart.reported && !heart.excused && heart.counted > 0 && heart.counted + 1 == heart.watched.misses
        });
        suspected.map(|heart| heart.watched.period).min()
    }

    /// Reads all counters; returns the copies that have missed their heartbeats.
    pub fn observe(&mut self, now: Duration, mut beats: impl FnMut(u32, Side) -> u64) -> Vec<Missed> {
        let gap =
            self.observed.map_or(Duration::ZERO, |before| now.saturating_sub(before)).min(self.tick + self.tick / 4);
        self.observed = Some(now);
        let mut missed = Vec::new();
        for ((pair, side), heart) in &mut self.hearts {
            let count = beats(*pair, *side);
            if count != heart.beats {
                heart.beats = count;
                heart.quiet = Duration::ZERO;
                heart.counted = 0;
                heart.reported = false;
                heart.excused = false;
                continue;
            }
            heart.quiet += gap;
            let Watched { incarnation, period, misses } = heart.watched;
            // An observation that was a little early counts as one in time: otherwise a miss would often be a tick
            // late.
            let periods = (heart.quiet + self.tick / 4).as_nanos() / period.as_nanos().max(1);
            let periods = u32::try_from(periods).unwrap_or(u32::MAX);
            heart.missed += u64::from(periods.saturating_sub(heart.counted));
            heart.counted = heart.counted.max(periods);
            // Half a tick lies between a heartbeat and the observation from which on it counts: if all heartbeats are
            // at multiples of the period, this one was due.
            let due = (heart.quiet + self.tick * 9 / 20).as_nanos() / period.as_nanos().max(1);
            let due = u32::try_from(due).unwrap_or(u32::MAX);
            if due >= misses && !heart.reported && !(heart.excused && periods < misses) {
                heart.reported = true;
                let early = periods < misses;
                heart.missed += u64::from(due - periods);
                heart.counted = due;
                missed.push(Missed { pair: *pair, side: *side, incarnation, misses: due, beats: count, early });
            }
        }
        missed
    }

    /// The copy was reported early, and does not beat at multiples of its period: it is reported again at the next
    /// observation, unless it has a heartbeat until then.
    pub fn wait(&mut self, pair: u32, side: Side) {
        if let Some(heart) = self.hearts.get_mut(&(pair, side)) {
            heart.reported = false;
            // The heartbeat that was due is not missed yet.
            heart.missed = heart.missed.saturating_sub(1);
            heart.counted = heart.counted.saturating_sub(1);
        }
    }

    /// The reported copy is known to be ready to run, but has no processor. It is reported again after another period,
    /// and from then on after as many as before: to find out costs time, which a busy machine does not have.
    pub fn excuse(&mut self, pair: u32, side: Side) {
        if let Some(heart) = self.hearts.get_mut(&(pair, side)) {
            let Watched { period, misses, .. } = heart.watched;
            let periods = if heart.excused { 0 } else { misses.saturating_sub(1) };
            heart.quiet = period * periods;
            heart.counted = periods;
            heart.reported = false;
            heart.excused = true;
        }
    }

    /// Heartbeats and missed periods since the copy is watched.
    pub fn counts(&self, pair: u32, side: Side) -> (u64, u64) {
        self.hearts
            .get(&(pair, side))
            .map_or((0, 0), |heart| (heart.beats.wrapping_sub(heart.first_beats), heart.missed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const WATCHED: Watched = Watched { incarnation: 4, period: MS, misses: 3 };

    fn watch() -> BeatWatch {
        let mut watch = BeatWatch::new(MS);
        watch.watch(7, Side::Main, WATCHED, 100);
        watch
    }

    #[test]
    fn reports_a_copy_once_after_its_misses() {
        let mut watch = watch();
        for at in 0..3 {
            assert_eq!(watch.observe(MS * at, |_, _| 100), []);
        }
        let missed = Missed { pair: 7, side: Side::Main, incarnation: 4, misses: 3, beats: 100, early: false };
        assert_eq!(watch.observe(MS * 3, |_, _| 100), [missed]);
        assert_eq!(watch.observe(MS * 4, |_, _| 100), []);
        assert_eq!(watch.counts(7, Side::Main), (0, 4));
    }

    #[test]
    fn copy_is_suspected_before_its_last_miss_and_reported_just_after_that_was_due() {
        let mut watch = watch();
        let mut suspected = Vec::new();
        for at in 0..3 {
            suspected.push(watch.suspected());
            assert_eq!(watch.observe(MS * at, |_, _| 100), []);
        }
        assert_eq!((suspected, watch.suspected()), (vec![None; 3], Some(MS)));
        // Observations are half a period after the heartbeats.
        assert_eq!(watch.observe(MS * 2 + MS / 2, |_, _| 100), []);
        let missed = Missed { pair: 7, side: Side::Main, incarnation: 4, misses: 3, beats: 100, early: true };
        assert_eq!(watch.observe(MS * 2 + MS * 6 / 10, |_, _| 100), [missed]);
        assert_eq!(watch.suspected(), None);
        assert_eq!(watch.counts(7, Side::Main), (0, 3), "what is reported is counted");
        watch.wait(7, Side::Main);
        assert_eq!(watch.counts(7, Side::Main), (0, 2), "it is not half a period late");
        assert_eq!(watch.observe(MS * 3, |_, _| 100), [Missed { early: false, ..missed }]);
        assert_eq!(watch.counts(7, Side::Main), (0, 3));
    }

    #[test]
    fn an_excused_copy_is_not_reported_early() {
        let mut watch = watch();
        for at in 0..4 {
            watch.observe(MS * at, |_, _| 100);
        }
        watch.excuse(7, Side::Main);
        assert_eq!(watch.suspected(), None);
        assert_eq!(watch.observe(MS * 3 + MS * 6 / 10, |_, _| 100), []);
        assert_eq!(watch.observe(MS * 4, |_, _| 100).len(), 1);
    }

    #[test]
    fn another_number_of_misses_counts_at_once() {
        let mut watch = watch();
        for at in 0..3 {
            watch.observe(MS * at, |_, _| 100);
        }
        watch.set_misses(7, Side::Main, 5);
        assert_eq!([3, 4].map(|at| watch.observe(MS * at, |_, _| 100).len()), [0, 0]);
        assert_eq!(watch.observe(MS * 5, |_, _| 100)[0].misses, 5);
    }

    #[test]
    fn a_heartbeat_starts_the_count_again() {
        let mut watch = watch();
        for at in 0..100 {
            assert_eq!(watch.observe(MS * at, |_, _| 100 + u64::from(at / 3)), []);
        }
        assert_eq!(watch.counts(7, Side::Main), (33, 66));
    }

    #[test]
    fn time_in_which_the_watcher_did_not_run_does_not_count() {
        let mut watch = watch();
        for at in [0, 50, 400] {
            assert_eq!(watch.observe(MS * at, |_, _| 100), []);
        }
        assert_eq!(watch.observe(MS * 401, |_, _| 100).len(), 1);
    }

    #[test]
    fn an_excused_copy_has_its_time_again_and_an_unwatched_one_is_not_reported() {
        let mut watch = watch();
        for at in 0..3 {
            watch.observe(MS * at, |_, _| 100);
        }
        assert_eq!(watch.observe(MS * 3, |_, _| 100).len(), 1);
        watch.excuse(7, Side::Main);
        assert_eq!(watch.observe(MS * 4, |_, _| 100).len(), 1);
        watch.excuse(7, Side::Main);
        assert_eq!(watch.observe(MS * 5, |_, _| 100), []);
        assert_eq!(watch.observe(MS * 6, |_, _| 100), []);
        assert_eq!(watch.observe(MS * 7, |_, _| 100).len(), 1);
        watch.excuse(7, Side::Main);
        watch.unwatch(7, Side::Main);
        assert_eq!(watch.observe(MS * 90, |_, _| 100), []);
        assert!(watch.is_empty());
    }
}
