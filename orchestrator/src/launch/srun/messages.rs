//! The messages of srun about its tasks, and the meaning of its end.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use holdfast_core::hostlist;
use holdfast_model::{Rank, RankEnd};

use crate::allocation::slurm::refusal::{Refusal, RetrySchedule};
use crate::launch::command::rank_ends::{LauncherMessages, RankEnds, is_termination, may_be_consequence};
use crate::launch::labels::LineLabels;
use crate::launch::obstacle::Obstacle;

/// The prefix of error messages of srun itself.
const OWN_MESSAGE: &str = "srun: error: ";
/// The beginning of such a message if srun could not create the step.
const NO_STEP: &str = "Unable to ";
/// srun's message before it ends the ranks of a step that was cancelled, by a user or by an MPI library for
/// `MPI_Abort`.
const CANCELLED: &str = "srun: Job step aborted";

/// srun's labels.
pub(in crate::launch) static LABELS: LineLabels =
    LineLabels { read: |line| label(line).map(|(rank, text)| (rank, Cow::from(text))), is_internal: |_| false };

/// The messages of srun so far.
#[derive(Debug, Default)]
pub(in crate::launch) struct SrunMessages {
    /// Why the step was not created.
    obstacle: Option<String>,
    /// Slurm ends the step, so the ends of its ranks are consequences.
    cancelled: bool,
    retries: RetrySchedule,
}

impl LauncherMessages for SrunMessages {
    fn labels(&self) -> &'static LineLabels {
        &LABELS
    }

    fn read_line(&mut self, rank: Option<Rank>, text: &str, ends: &mut RankEnds) {
        if rank.is_some() {
            return;
        }
        if let Some(obstacle) = text.strip_prefix(OWN_MESSAGE).filter(|message| message.starts_with(NO_STEP)) {
            self.obstacle = Some(obstacle.to_owned());
        }
        self.cancelled |= text.starts_with(CANCELLED);
        let Some((ranks, end)) = rank_ends(text) else { return };
        for rank in ranks {
            // If the step was not cancelled, a signal did not come from Slurm, but for SIGTERM: newer versions (26.05)
            // send it for `MPI_Abort` before srun says anything.
            match end {
                RankEnd::Code(code) if code != 0 => ends.hold(rank, end),
                RankEnd::Signal(_) if is_termination(end) || self.cancelled && may_be_consequence(end) => {
                    ends.hold(rank, end);
                }
                _ => ends.report(rank, end),
            }
        }
    }

    fn is_own_signal(&self, end: RankEnd) -> bool {
        is_termination(end) || self.cancelled && matches!(end, RankEnd::Signal(_))
    }

    fn waits_for_launcher(&self, _end: RankEnd) -> bool {
        false
    }

    fn retry(&mut self, launcher: RankEnd, ends: &RankEnds) -> Option<(String, Duration)> {
        let reason = self.obstacle.clone().filter(|_| ends.none_ended() && matches!(launcher, RankEnd::Code(_)))?;
        let pause = self.retries.next_pause(Refusal::of(&reason), Instant::now())?;
        // Messages of this attempt do not count for the next one.
        (self.obstacle, self.cancelled) = (None, false);
        Some((reason, pause))
    }

    fn finish(&mut self, launcher: RankEnd, ends: &mut RankEnds) {
        if let (Some(reason), RankEnd::Code(_), true) = (&self.obstacle, launcher, ends.none_reported()) {
            ends.refuse(ends.first(), reason.clone(), Obstacle::of_refusal(reason));
        }
    }

    /// srun does not report ranks that succeed. If it fails without naming a rank, the ends are unknown.
    fn end_of_unreported(&self, launcher: RankEnd, ends: &RankEnds) -> RankEnd {
        match launcher {
            RankEnd::Code(0) => RankEnd::SUCCESS,
            RankEnd::Code(_) if !ends.none_reported() => RankEnd::SUCCESS,
            _ => RankEnd::Unknown,
        }
    }
}

/// `12: text`. Blanks pad the numbers to equal width.
fn label(line: &[u8]) -> Option<(Rank, &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let rank = std::str::from_utf8(&line[..colon]).ok()?.trim_start_matches(' ').parse().ok()?;
    let text = &line[colon + 1..];
    Some((Rank(rank), text.strip_prefix(b" ").unwrap_or(text)))
}

/// `srun: error: n[1-2]: tasks 0-1,3: Exited with exit code 3`: ranks and their end.
fn rank_ends(line: &str) -> Option<(Vec<Rank>, RankEnd)> {
    let rest = line.strip_prefix(OWN_MESSAGE)?;
    // The first part is a list of hosts.
    let (_, rest) = rest.split_once(": task")?;
    let (numbers, how) = rest.trim_start_matches('s').split_once(": ")?;
    Some((rank_list(numbers.trim())?, end_of(how.trim())))
}

/// `0-1,3`.
fn rank_list(text: &str) -> Option<Vec<Rank>> {
    // Parsed as a host list.
    let hosts = hostlist::expand(&format!("r[{}]", text.trim_matches(['[', ']']))).ok()?;
    hosts.iter().map(|host| host.as_str().strip_prefix('r')?.parse().ok().map(Rank)).collect()
}

/// srun's text for how a task ended: a code, or the C library's name of a signal.
fn end_of(how: &str) -> RankEnd {
    const SIGNALS: [(&str, i32); 12] = [
        ("Hangup", 1),
        ("Interrupt", 2),
        ("Quit", 3),
        ("Illegal instruction", 4),
        ("Trace/breakpoint trap", 5),
        ("Aborted", 6),
        ("Bus error", 7),
        ("Floating point exception", 8),
        ("Killed", 9),
        ("Segmentation fault", 11),
        ("Broken pipe", 13),
        ("Terminated", 15),
    ];
    if let Some(code) = how.strip_prefix("Exited with exit code ") {
        return code.trim().parse().map_or(RankEnd::Unknown, RankEnd::Code);
    }
    let name = how.strip_suffix("(core dumped)").unwrap_or(how).trim();
    SIGNALS.iter().find(|(known, _)| *known == name).map_or(RankEnd::Unknown, |(_, signal)| RankEnd::Signal(*signal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::StepEvent;
    use crate::launch::command::fixtures::Watched;

    fn ranks(numbers: &[u32]) -> Vec<Rank> {
        numbers.iter().copied().map(Rank).collect()
    }

    fn watched(text: &str) -> Watched<SrunMessages> {
        Watched::new(SrunMessages::default(), text)
    }

    #[test]
    fn reads_its_labels_and_no_others() {
        assert_eq!(label(b" 2: one: two"), Some((Rank(2), b"one: two".as_slice())));
        assert_eq!(label(b"[2] 3: text"), None);
        assert_eq!(label(b"srun: error: n3"), None);
    }

    #[test]
    fn parses_messages_about_tasks() {
        let table = [
            ("srun: error: n3: task 2: Exited with exit code 3", ranks(&[2]), RankEnd::Code(3)),
            ("srun: error: n[1-2]: tasks 0-1,5: Exited with exit code 1", ranks(&[0, 1, 5]), RankEnd::Code(1)),
            ("srun: error: n1: task 3: Killed", ranks(&[3]), RankEnd::Signal(9)),
            ("srun: error: n2: task 1: Segmentation fault (core dumped)", ranks(&[1]), RankEnd::Signal(11)),
            ("srun: error: n2: task 1: Out Of Memory", ranks(&[1]), RankEnd::Unknown),
        ];
        for (line, expected, end) in table {
            assert_eq!(rank_ends(line), Some((expected, end)), "{line}");
        }
        for line in ["", "srun: Force Terminated StepId=1.1", "2: srun: error: n3: task 2: Killed", "task 3: Killed"] {
            assert_eq!(rank_ends(line), None, "{line}");
        }
    }

    #[test]
    fn each_end_is_reported_once_and_unreported_ranks_succeeded() {
        let mut watched = watched("srun: error: n1: task 1: Aborted\nsrun: error: n1: task 1: Killed\nsrun: er");
        let aborted = StepEvent::Exited { rank: Rank(1), end: RankEnd::Signal(6) };
        assert_eq!(watched.poll(), [aborted]);
        let fine = |rank| StepEvent::Exited { rank: Rank(rank), end: RankEnd::SUCCESS };
        assert_eq!(watched.finish(RankEnd::Code(134)), [fine(0), fine(2)]);
    }

    #[test]
    fn a_rank_killed_by_a_signal_is_reported_before_its_consequences() {
        let text = "srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n1: task 1: Segmentation fault\n";
        let mut watched = watched(text);
        let segfault = StepEvent::Exited { rank: Rank(1), end: RankEnd::Signal(11) };
        assert_eq!(watched.poll(), [segfault]);
        let echo = StepEvent::Exited { rank: Rank(0), end: RankEnd::Code(1) };
        let silent = StepEvent::Exited { rank: Rank(2), end: RankEnd::SUCCESS };
        assert_eq!(watched.finish(RankEnd::Code(139)), [echo, silent]);
    }

    #[test]
    fn of_several_errors_the_rarest_is_reported_first() {
        let text = "srun: error: n1: task 0: Exited with exit code 1\n\
                    srun: error: n3: task 2: Exited with exit code 3\n\
                    srun: error: n1: task 1: Exited with exit code 1\n";
        let events = watched(text).finish(RankEnd::Code(3));
        assert_eq!(events[0], StepEvent::Exited { rank: Rank(2), end: RankEnd::Code(3) });
        assert_eq!(events.len(), 3);
    }

    #[test]
    fn after_srun_was_killed_the_ends_of_its_ranks_are_unknown() {
        let events = watched("").finish(RankEnd::Signal(9));
        assert!(events.iter().all(|event| matches!(event, StepEvent::Exited { end: RankEnd::Unknown, .. })));
        assert_eq!(events.len(), 3);
    }

    #[test]
    fn a_refused_step_is_a_failed_launch() {
        let text = "srun: error: Unable to create step for job 1: Requested nodes are busy\n";
        let events = watched(text).finish(RankEnd::Code(1));
        let reason = "Unable to create step for job 1: Requested nodes are busy".to_owned();
        assert_eq!(events[0], StepEvent::Refused { rank: Rank(0), reason, obstacle: Obstacle::Manager });
    }

    #[test]
    fn a_refused_launch_is_retried_without_its_old_messages() {
        let text = "srun: error: Unable to create step for job 1: Memory required by task is not available\n";
        let mut watched = watched(text);
        let reason = watched.retry(RankEnd::Code(1));
        assert_eq!(
            reason.as_deref(),
            Some("Unable to create step for job 1: Memory required by task is not available")
        );
        assert_eq!(watched.retry(RankEnd::Code(0)), None);
        assert!(
            watched
                .finish(RankEnd::Code(0))
                .iter()
                .all(|event| matches!(event, StepEvent::Exited { end: RankEnd::SUCCESS, .. }))
        );
    }

    #[test]
    fn after_a_rank_ran_the_launch_was_not_refused() {
        let text = "srun: error: n1: task 1: Killed\nsrun: error: Unable to confirm allocation\n";
        let mut watched = watched(text);
        assert_eq!(watched.retry(RankEnd::Code(1)), None);
        let killed = StepEvent::Exited { rank: Rank(1), end: RankEnd::Signal(9) };
        assert_eq!(watched.finish(RankEnd::Code(1))[0], killed);
    }

    #[test]
    fn an_abort_is_credited_to_its_rank_when_slurm_kills_the_step() {
        let cancelled = "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n";
        let killed = "srun: error: n1: tasks 0-2: Killed\n";
        let others = "srun: error: n1: tasks 0-1: Killed\n";
        let open_mpi = "2: MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n2: with errorcode 5.\n";
        let mpich = "2: Abort(5) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5)\n";
        let own = "srun: error: n1: task 2: Exited with exit code 5\n";
        let abort = StepEvent::Exited { rank: Rank(2), end: RankEnd::Code(5) };
        for text in [
            [open_mpi, cancelled, others, own],
            [open_mpi, cancelled, killed, ""],
            [mpich, cancelled, killed, ""],
            [cancelled, killed, mpich, ""],
            [cancelled, others, own, ""],
        ] {
            let mut watched = watched(&text.concat());
            assert_eq!(watched.poll(), [], "{text:?}");
            assert_eq!(watched.finish(RankEnd::Code(137)).first(), Some(&abort), "{text:?}");
        }
    }

    /// What Slurm 26.05.3 printed: the step is ended with SIGTERM, and srun does not say that it was aborted.
    #[test]
    fn an_abort_is_credited_to_its_rank_when_newer_slurm_terminates_the_step() {
        let cancelled = "0: [2026-11-30T14:48:00.097] error: *** STEP 70.1 ON n1 CANCELLED AT 2026-11-30T14:48:00 DUE \
                         TO TASK FAILURE ***\n";
        let open_mpi = "2: MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n2: with errorcode 5.\n";
        let mpich = "2: Abort(5) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5) - \
                     process 2\n";
        let own = "srun: error: n3: task 2: Exited with exit code 5\n";
        let others = "srun: error: n1: tasks 0-1: Terminated\nsrun: Force Terminated StepId=70.1\n";
        let abort = StepEvent::Exited { rank: Rank(2), end: RankEnd::Code(5) };
        for text in [[open_mpi, cancelled, own, others], [open_mpi, cancelled, others, own]] {
            let mut watched = watched(&text.concat());
            assert_eq!(watched.poll(), [], "{text:?}");
            assert_eq!(watched.finish(RankEnd::Code(143)).first(), Some(&abort), "{text:?}");
        }
        let mut watched = watched(&[mpich, cancelled, "srun: error: n3: tasks 1-2: Terminated\n"].concat());
        assert_eq!(watched.poll(), []);
        assert_eq!(watched.finish(RankEnd::Code(143)).first(), Some(&abort));
    }

    #[test]
    fn an_abort_of_the_library_is_the_root_cause_if_there_is_no_other() {
        let text = "0: Abort(807018255) on node 0 (rank 0 in comm 0): Fatal error in internal_Barrier\n\
                    srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n\
                    srun: error: n1: tasks 0-2: Killed\n";
        let events = watched(text).finish(RankEnd::Code(137));
        assert_eq!(events[0], StepEvent::Exited { rank: Rank(0), end: RankEnd::Code(15) });
        assert_eq!(events.len(), 3);
    }
}
