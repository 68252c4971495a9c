//! Why Slurm refuses to start a step, parsed from the messages of srun, and how long to retry.
//!
//! A controller that is restarted, or replaced by its backup, does not answer for seconds or minutes. After that it
//! refuses steps on nodes that have not registered yet, with misleading reasons ("Memory required by task is not
//! available", for four seconds, measured with 22.05). Nodes and running ranks are healthy meanwhile, so the step is
//! retried.

use std::time::{Duration, Instant};

/// Time limit for a controller that does not answer.
const CONTROLLER: Duration = Duration::from_secs(15 * 60);
/// Time limit for temporary refusals.
const SETTLING: Duration = Duration::from_secs(60);
/// First and longest pause between two attempts.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Messages about a controller that does not answer.
const NO_ANSWER: [&str; 8] = [
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Connection timed out",
    "Communication connection failure",
    "Zero Bytes were transmitted",
    "Slurm backup controller in standby mode",
    "Transport endpoint is not connected",
];
/// Messages of a controller that was just started or is overloaded.
const TEMPORARY: [&str; 8] = [
    "Memory required by task is not available",
    "Requested nodes are busy",
    "Required node not available",
    "Job/step already completing or completed",
    "Slurm temporarily unable to accept job",
    "Job step creation temporarily disabled",
    "Resource temporarily unavailable",
    "Nodes required for job are DOWN, DRAINED",
];

/// The message of a controller that does not know the job.
const UNKNOWN_JOB: &str = "Invalid job id";

/// True if a message of one of Slurm's commands says that the job does not exist.
pub fn is_unknown_job(message: &str) -> bool {
    message.contains(UNKNOWN_JOB)
}

/// Why Slurm refused a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The controller does not answer.
    NoController,
    /// The controller answers, but its nodes have not registered yet, or it is overloaded.
    NotYet,
    /// A retry would be refused too.
    Final,
}

impl Refusal {
    pub fn of(message: &str) -> Self {
        let is_one_of = |known: &[&str]| known.iter().any(|text| message.contains(text));
        if is_one_of(&NO_ANSWER) {
            Refusal::NoController
        } else if is_one_of(&TEMPORARY) {
            Refusal::NotYet
        } else {
            Refusal::Final
        }
    }
}

/// Pauses and time limits of the retries of one step.
#[derive(Clone, Debug, Default)]
pub struct RetrySchedule {
    no_answer_since: Option<Instant>,
    refused_since: Option<Instant>,
    attempts: u32,
}

impl RetrySchedule {
    /// The pause before the next attempt; `None` after the time limit.
    pub fn next_pause(&mut self, refusal: Refusal, now: Instant) -> Option<Duration> {
        let (since, patience) = match refusal {
            Refusal::NoController => {
                // When it answers again, its refusals get a new time limit.
                self.refused_since = None;
                (&mut self.no_answer_since, CONTROLLER)
            }
            Refusal::NotYet => (&mut self.refused_since, SETTLING),
            Refusal::Final => return None,
        };
        let tried = now.saturating_duration_since(*since.get_or_insert(now));
        let pause = PAUSE.saturating_mul(1 << self.attempts.min(8)).min(LONGEST_PAUSE);
        self.attempts += 1;
        (tried < patience).then_some(pause)
    }

    /// The maximum time of all retries.
    pub fn at_most() -> Duration {
        CONTROLLER + SETTLING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_refusals_are_distinguished_from_final_ones() {
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
        for (message, expected) in table {
            assert_eq!(Refusal::of(message), expected, "{message}");
        }
    }

    #[test]
    fn a_silent_controller_has_a_longer_limit_than_its_refusals_which_begin_again_afterwards() {
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
    fn pauses_grow_up_to_their_maximum() {
        let (start, mut retries) = (Instant::now(), RetrySchedule::default());
        let pauses: Vec<_> = (0..12).filter_map(|_| retries.next_pause(Refusal::NoController, start)).collect();
        assert!(pauses.is_sorted() && pauses[0] == PAUSE && pauses[11] == LONGEST_PAUSE, "{pauses:?}");
    }
}
