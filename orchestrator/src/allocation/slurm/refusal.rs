//! What it means when Slurm does not start a step, read from the words of `srun`.
//!
//! A controller that is restarted, or replaced by its backup, does not answer for seconds or minutes; and after that it
//! refuses every step on nodes that have not registered with it yet, for reasons that have nothing to do with it
//! ("Memory required by task is not available", measured with 22.05: four seconds). That is nobody's failure: the nodes
//! are well, and so are the ranks that run. Whoever wants a step waits.

use std::time::{Duration, Instant};

/// A controller is waited for so long.
const CONTROLLER: Duration = Duration::from_secs(15 * 60);
/// And its word that there is no room for a step, where nothing of ours can be in the way.
const SETTLING: Duration = Duration::from_secs(60);
/// Between two attempts at first, and at the most.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Words of one that does not answer.
const SILENT: [&str; 8] = [
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Connection timed out",
    "Communication connection failure",
    "Zero Bytes were transmitted",
    "Slurm backup controller in standby mode",
    "Transport endpoint is not connected",
];
/// Words of one that has just begun, or has too much to do.
const BEGINNING: [&str; 8] = [
    "Memory required by task is not available",
    "Requested nodes are busy",
    "Required node not available",
    "Job/step already completing or completed",
    "Slurm temporarily unable to accept job",
    "Job step creation temporarily disabled",
    "Resource temporarily unavailable",
    "Nodes required for job are DOWN, DRAINED",
];

/// Why there is no step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody answers.
    NoController,
    /// The controller answers, but does not know its nodes yet, or is too busy.
    NotYet,
    /// It would say the same again.
    Final,
}

impl Refusal {
    pub fn of(said: &str) -> Self {
        let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
        if says(&SILENT) {
            Refusal::NoController
        } else if says(&BEGINNING) {
            Refusal::NotYet
        } else {
            Refusal::Final
        }
    }
}

/// How long somebody has been trying.
#[derive(Clone, Debug, Default)]
pub struct RetrySchedule {
    silent_since: Option<Instant>,
    refused_since: Option<Instant>,
    attempts: u32,
}

impl RetrySchedule {
    /// After how long to try again; `None`: not any more.
    pub fn next_pause(&mut self, refusal: Refusal, now: Instant) -> Option<Duration> {
        let (since, patience) = match refusal {
            Refusal::NoController => {
                // One that comes back begins anew.
                self.refused_since = None;
                (&mut self.silent_since, CONTROLLER)
            }
            Refusal::NotYet => (&mut self.refused_since, SETTLING),
            Refusal::Final => return None,
        };
        let tried = now.saturating_duration_since(*since.get_or_insert(now));
        let pause = PAUSE.saturating_mul(1 << self.attempts.min(8)).min(LONGEST_PAUSE);
        self.attempts += 1;
        (tried < patience).then_some(pause)
    }

    /// The longest that anybody goes on.
    pub fn at_most() -> Duration {
        CONTROLLER + SETTLING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_told_from_what_does_not() {
        let table = [
            (
                "Unable to confirm allocation for job 4: Unable to contact slurm controller (connect failure)",
                Refusal::NoController,
            ),
            ("Unable to confirm allocation for job 4: Socket timed out on send/recv operation", Refusal::NoController),
            ("Unable to create step for job 22: Memory required by task is not available", Refusal::NotYet),
            ("Unable to create step for job 1: Requested nodes are busy", Refusal::NotYet),
            ("Unable to create step for job 1: Requested node configuration is not available", Refusal::Final),
            ("Unable to create step for job 1: Invalid job id specified", Refusal::Final),
            ("Unable to create step for job 1: More processors requested than permitted", Refusal::Final),
        ];
        for (said, expected) in table {
            assert_eq!(Refusal::of(said), expected, "{said}");
        }
    }

    #[test]
    fn a_controller_is_waited_for_longer_than_its_refusals_which_count_anew_when_it_comes_back() {
        let start = Instant::now();
        let mut retries = RetrySchedule::default();
        assert_eq!(retries.next_pause(Refusal::NotYet, start), Some(PAUSE));
        assert_eq!(retries.next_pause(Refusal::NotYet, start + SETTLING), None);
        assert!(retries.next_pause(Refusal::NoController, start + SETTLING).is_some());
        assert!(retries.next_pause(Refusal::NotYet, start + SETTLING * 2).is_some());
        assert_eq!(retries.next_pause(Refusal::NoController, start + SETTLING + CONTROLLER), None);
        assert_eq!(retries.next_pause(Refusal::Final, start), None);
    }

    #[test]
    fn the_pauses_grow_and_stay_short_enough_to_notice_a_controller_that_is_back() {
        let (start, mut retries) = (Instant::now(), RetrySchedule::default());
        let pauses: Vec<_> = (0..12).filter_map(|_| retries.next_pause(Refusal::NoController, start)).collect();
        assert!(pauses.is_sorted() && pauses[0] == PAUSE && pauses[11] == LONGEST_PAUSE, "{pauses:?}");
    }
}
