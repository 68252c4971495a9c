//! Disturbances: series of node losses and refused launches that follow each other within a short time, for instance
//! while a resource manager cleans up an earlier job, or is restarted.
//!
//! The cause is outside of the application, and often over after some seconds. So the launches of a series are spaced,
//! from its second end on, and a series counts once for the limits of relaunches. Both have bounds: a series that
//! outlasts its pauses counts with each further end, and so does each end of the fourth series.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An end later than this after the one before begins another series.
pub(super) const WITHIN: Duration = Duration::from_secs(30);
/// The pauses after the second end of a series and the following ones; the last one is repeated.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15)];
/// Series that count once, in an allocation.
const SERIES: u32 = 3;

/// The disturbances of an allocation so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Disturbances {
    /// When the last end of a series was.
    last: Option<Duration>,
    /// The ends of the series under way.
    pub ends: u32,
    /// Series of more than one end.
    series: u32,
    /// The pause before the next launch; none after an end of another kind.
    pub pause: Duration,
}

impl Disturbances {
    /// Another end of this kind. Returns whether it counts for the limits of relaunches.
    pub fn add(&mut self, now: Duration) -> bool {
        let continues = self.last.is_some_and(|last| now.saturating_sub(last) <= WITHIN);
        self.ends = if continues { self.ends.saturating_add(1) } else { 1 };
        self.last = Some(now);
        self.series += u32::from(self.ends == 2);
        let Some(second) = self.ends.checked_sub(2) else {
            self.pause = Duration::ZERO;
            return true;
        };
        let at = second as usize;
        self.pause = PAUSES[at.min(PAUSES.len() - 1)];
        at >= PAUSES.len() || self.series > SERIES
    }

    /// True if there was none.
    pub fn is_none(&self) -> bool {
        *self == Disturbances::default()
    }

    /// A generation ended for a reason of its own: the next launch does not wait.
    pub fn other_end(&mut self) {
        self.pause = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Ends at these seconds: the pause after each, and whether it counts.
    fn after(disturbances: &mut Disturbances, ends: &[u64]) -> Vec<(u64, bool)> {
        let each = |end: &u64| {
            let counts = disturbances.add(seconds(*end));
            (disturbances.pause.as_secs(), counts)
        };
        ends.iter().map(each).collect()
    }

    #[test]
    fn a_series_counts_once_and_is_spaced_from_its_second_end_on() {
        let found = after(&mut Disturbances::default(), &[0, 0, 1, 7]);
        assert_eq!(found, [(0, true), (1, false), (5, false), (15, false)]);
    }

    #[test]
    fn a_series_that_outlasts_its_pauses_counts_with_each_further_end() {
        let found = after(&mut Disturbances::default(), &[0, 0, 1, 7, 23, 39]);
        assert_eq!(found[4..], [(15, true), (15, true)]);
    }

    #[test]
    fn an_end_later_than_thirty_seconds_begins_another_series() {
        let found = after(&mut Disturbances::default(), &[0, 30, 61]);
        assert_eq!(found, [(0, true), (1, false), (0, true)]);
    }

    #[test]
    fn three_series_of_an_allocation_count_once_and_single_ends_are_none() {
        let mut disturbances = Disturbances::default();
        for begin in [0, 100, 200] {
            assert_eq!(after(&mut disturbances, &[begin]), [(0, true)]);
        }
        for begin in [300, 400, 500] {
            assert_eq!(after(&mut disturbances, &[begin, begin + 1]), [(0, true), (1, false)]);
        }
        assert_eq!(after(&mut disturbances, &[600, 601, 602]), [(0, true), (1, true), (5, true)]);
    }

    #[test]
    fn the_launch_after_an_end_of_another_kind_does_not_wait() {
        let mut disturbances = Disturbances::default();
        after(&mut disturbances, &[0, 1]);
        disturbances.other_end();
        assert_eq!(disturbances.pause, Duration::ZERO);
        assert_eq!(after(&mut disturbances, &[2]), [(5, false)]);
    }
}
