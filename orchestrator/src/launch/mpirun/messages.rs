//! The messages of an mpirun and of the parents of its ranks, and the meaning of its end.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use holdfast_model::{NodeName, Rank, RankEnd};

use super::dialect::Dialect;
use super::rank::{self, RankReport};
use super::{hydra, openmpi, remote_shell};
use crate::launch::command::rank_ends::{LauncherMessages, RankEnds, is_termination, may_be_consequence};
use crate::launch::labels::LineLabels;
use crate::launch::obstacle::Obstacle;

/// Maximum size of the messages of mpirun that are kept to explain a failed launch.
const LONGEST_MESSAGES: usize = 2 << 10;

static HYDRA_LABELS: LineLabels = LineLabels {
    read: |line| hydra::labelled(line).map(|(rank, text)| (rank, Cow::from(text))),
    is_internal: rank::is_internal,
};
static OPEN_MPI_LABELS: LineLabels = LineLabels {
    read: |line| {
        let (rank, text) = openmpi::labelled(Dialect::OpenMpi, line)?;
        Some((rank, without(text, openmpi::label(line, text))))
    },
    is_internal: rank::is_internal,
};
static PRRTE_LABELS: LineLabels = LineLabels {
    read: |line| openmpi::labelled(Dialect::Prrte, line).map(|(rank, text)| (rank, Cow::from(text))),
    is_internal: rank::is_internal,
};

/// The labels of the lines of ranks.
pub(in crate::launch) fn labels(dialect: Dialect) -> &'static LineLabels {
    match dialect {
        Dialect::Hydra => &HYDRA_LABELS,
        Dialect::OpenMpi => &OPEN_MPI_LABELS,
        Dialect::Prrte => &PRRTE_LABELS,
    }
}

/// The messages of mpirun and of the parents of its ranks so far.
#[derive(Debug)]
pub(in crate::launch) struct MpirunMessages {
    dialect: Dialect,
    /// Ranks that have started.
    begun: BTreeSet<Rank>,
    /// Messages of mpirun itself, in one line.
    launcher_messages: String,
}

impl MpirunMessages {
    pub(in crate::launch) fn new(dialect: Dialect) -> Self {
        MpirunMessages { dialect, begun: BTreeSet::new(), launcher_messages: String::new() }
    }

    fn keep(&mut self, line: &str) {
        let text = line.trim_matches([' ', '-', '=']);
        if !text.is_empty() && self.launcher_messages.len() + text.len() < LONGEST_MESSAGES {
            self.launcher_messages.push_str(if self.launcher_messages.is_empty() { "" } else { " " });
            self.launcher_messages.push_str(text);
        }
    }
}

impl LauncherMessages for MpirunMessages {
    fn labels(&self) -> &'static LineLabels {
        labels(self.dialect)
    }

    fn read_line(&mut self, rank: Option<Rank>, text: &str, ends: &mut RankEnds) {
        // PRRTE no longer labels the last lines when it ends a job; a report names its rank itself.
        match RankReport::parse(text) {
            Some((rank, RankReport::Begins)) => drop(self.begun.insert(rank)),
            Some((rank, RankReport::Refused(reason))) => ends.refuse(rank, reason, Obstacle::Job),
            // mpirun kills the other ranks after a failure, and their parents report that: held back for the root
            // cause.
            Some((rank, RankReport::Ended(end))) if may_be_consequence(end) => ends.hold(rank, end),
            Some((rank, RankReport::Ended(end))) => ends.report(rank, end),
            None if rank.is_none() => self.keep(text),
            None => {}
        }
    }

    /// Detects a daemon that did not start, for which MPICH's mpiexec would wait forever.
    fn poll(&mut self, directory: &Path, ends: &mut RankEnds) {
        if ends.refused || self.begun.len() >= ends.ranks.len() {
            return;
        }
        let missing_rank = |node: &NodeName| {
            let mut ranks = ends.ranks.iter();
            ranks.find(|(rank, home)| *home == node && !self.begun.contains(rank)).map(|(rank, _)| *rank)
        };
        let failures = remote_shell::failures(directory);
        let found = failures.into_iter().find_map(|(node, problem)| Some((missing_rank(&node)?, node, problem)));
        if let Some((rank, node, problem)) = found {
            let colon = if self.launcher_messages.is_empty() { "" } else { ": " };
            let messages = &self.launcher_messages;
            let reason = format!("mpirun's daemon on node {node} did not start: {problem}{colon}{messages}");
            let obstacle = Obstacle::of_refusal(&reason);
            ends.refuse(rank, reason, obstacle);
        }
    }

    fn is_own_signal(&self, end: RankEnd) -> bool {
        is_termination(end)
    }

    fn waits_for_launcher(&self, end: RankEnd) -> bool {
        is_termination(end)
    }

    /// Reports an mpirun that failed, if no rank's end explains it.
    fn finish(&mut self, launcher: RankEnd, ends: &mut RankEnds) {
        let failed = matches!(launcher, RankEnd::Code(code) if code != 0);
        if !failed || !ends.none_reported() || ends.refused {
            return;
        }
        if !self.begun.is_empty() {
            return ends.fail(launcher);
        }
        let messages = if self.launcher_messages.is_empty() { "no message" } else { &self.launcher_messages };
        let reason = format!("mpirun ended with {launcher} before any rank started: {messages}");
        ends.refuse(ends.first(), reason, Obstacle::Job);
    }

    /// The parents do not report ranks that succeed.
    fn end_of_unreported(&self, launcher: RankEnd, _ends: &RankEnds) -> RankEnd {
        if launcher == RankEnd::SUCCESS { RankEnd::SUCCESS } else { RankEnd::Unknown }
    }
}

/// Removes repetitions of the label from a text.
fn without<'a>(text: &'a [u8], label: &[u8]) -> Cow<'a, [u8]> {
    let at = |text: &[u8]| text.windows(label.len().max(1)).position(|window| window == label);
    let Some(mut found) = at(text) else { return text.into() };
    let (mut kept, mut rest) = (Vec::with_capacity(text.len()), text);
    loop {
        kept.extend_from_slice(&rest[..found]);
        rest = &rest[found + label.len()..];
        match at(rest) {
            Some(next) => found = next,
            None => break,
        }
    }
    kept.extend_from_slice(rest);
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::StepEvent;
    use crate::launch::command::fixtures::Watched;

    fn under(dialect: Dialect, text: &str) -> Watched<MpirunMessages> {
        Watched::new(MpirunMessages::new(dialect), text)
    }

    fn under_mpirun(text: &str) -> Watched<MpirunMessages> {
        under(Dialect::Hydra, text)
    }

    #[test]
    fn the_root_cause_is_reported_before_the_ranks_that_mpirun_killed() {
        let text = "[0] @holdfast-rank 0 begins\n[2] @holdfast-rank 2 begins\n[0] @holdfast-rank 0 signal 15\n\
                    [2] @holdfast-rank 2 code 3\n[1] @holdfast-rank 1 signal 15\n";
        let mut watched = under_mpirun(text);
        assert_eq!(watched.poll(), []);
        let events = watched.finish(RankEnd::Code(3));
        assert_eq!(events[0], StepEvent::Exited { rank: Rank(2), end: RankEnd::Code(3) });
        assert_eq!(events.len(), 3);
    }

    #[test]
    fn an_exit_code_whose_rank_is_unknown_is_credited_to_none_of_the_ranks_that_mpirun_killed() {
        let text = "[0] @holdfast-rank 0 signal 15\n[1] @holdfast-rank 1 signal 15\n";
        let events = under_mpirun(text).finish(RankEnd::Code(5));
        assert_eq!(events[0], StepEvent::Failed { end: RankEnd::Code(5) });
        // The code of a signal does not show more than the ranks' own ends.
        for code in [15, 143] {
            let events = under_mpirun(text).finish(RankEnd::Code(code));
            assert!(matches!(events[0], StepEvent::Exited { end: RankEnd::Signal(15), .. }), "{code}: {events:?}");
        }
    }

    #[test]
    fn unreported_ranks_are_unknown_when_mpirun_failed() {
        let mut watched = under_mpirun("[1] @holdfast-rank 1 signal 11\n");
        assert_eq!(watched.poll(), [StepEvent::Exited { rank: Rank(1), end: RankEnd::Signal(11) }]);
        let unknown = |rank| StepEvent::Exited { rank: Rank(rank), end: RankEnd::Unknown };
        assert_eq!(watched.finish(RankEnd::Code(255)), [unknown(0), unknown(2)]);
    }

    #[test]
    fn an_mpirun_that_starts_nothing_is_a_failed_launch_with_its_messages() {
        let text = "-----------\nmpirun has detected an attempt to run as root.\n\nWe refuse.\n-----------\n";
        let events = under_mpirun(text).finish(RankEnd::Code(1));
        let StepEvent::Refused { reason, .. } = &events[0] else { panic!("{events:?}") };
        assert!(reason.contains("attempt to run as root. We refuse."), "{reason}");
    }

    #[test]
    fn an_mpirun_that_fails_after_ranks_started_is_not_a_failed_launch() {
        let text = "[0] @holdfast-rank 0 begins\nORTE has lost communication with a remote daemon.\n";
        let events = under_mpirun(text).finish(RankEnd::Code(205));
        assert_eq!(events[0], StepEvent::Failed { end: RankEnd::Code(205) });
    }

    #[test]
    fn a_daemon_that_did_not_start_is_named_although_mpirun_ended_at_once() {
        let mut watched = under_mpirun("srun: error: no way\n");
        std::fs::write(watched.directory().join(remote_shell::FAILURES), "n1 ended with exit code 1\n").unwrap();
        let events = watched.finish(RankEnd::Code(1));
        let StepEvent::Refused { reason, .. } = &events[0] else { panic!("{events:?}") };
        assert!(reason.starts_with("mpirun's daemon on node n1 did not start: ended with exit code 1"), "{reason}");
    }

    #[test]
    fn an_abort_is_credited_to_its_rank() {
        let text = "[0] @holdfast-rank 0 begins\n[1] Abort(5) on node 1 (rank 1 in comm 0): application called\n\
                    [0] @holdfast-rank 0 signal 15\n";
        let events = under_mpirun(text).finish(RankEnd::Code(5));
        assert_eq!(events[0], StepEvent::Exited { rank: Rank(1), end: RankEnd::Code(5) });
    }

    #[test]
    fn an_abort_is_reported_first_whatever_the_order_of_its_consequences() {
        let message = "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 5.\n";
        let echo = "[1,1]<stderr>:@holdfast-rank 1 signal 15\n";
        let own = "[1,2]<stderr>:@holdfast-rank 2 code 5\n";
        let ended = "[1,2]<stderr>:@holdfast-rank 2 signal 15\n";
        let abort = StepEvent::Exited { rank: Rank(2), end: RankEnd::Code(5) };
        let orders =
            [[message, echo, own], [echo, own, message], [echo, message, own], [echo, own, ""], [ended, echo, message]];
        for text in orders {
            let mut watched = under(Dialect::OpenMpi, &text.concat());
            assert_eq!(watched.poll(), [], "another rank may still be the root cause");
            assert_eq!(watched.finish(RankEnd::Code(5)).first(), Some(&abort), "{text:?}");
        }
    }

    /// What Open MPI 5.0.11 printed.
    #[test]
    fn ends_of_ranks_are_read_from_the_output_of_prrte() {
        let exit = "[1,0]<stderr>: @holdfast-rank 0 begins\n[1,1]<stderr>: @holdfast-rank 1 begins\n\
                    [1,2]<stderr>: @holdfast-rank 2 begins\n[1,0]<stderr>: \n\
                    [1,0]<stderr>: @holdfast-rank 0 signal 15\n[1,1]<stderr>: \n\
                    [1,1]<stderr>: @holdfast-rank 1 code 3\n\
                    --------------------------------------------------------------------------\n\
                    prterun detected that one or more processes exited with non-zero status,\n\
                    thus causing the job to be terminated. The first process to do so was:\n\n   \
                    Process name: [prterun-vm-3040@1,1]\n   Exit code:    3\n\
                    --------------------------------------------------------------------------\n\n\
                    @holdfast-rank 2 signal 15\n";
        let events = under(Dialect::Prrte, exit).finish(RankEnd::Code(3));
        let ended = |rank, end| StepEvent::Exited { rank: Rank(rank), end };
        let expected = [(1, RankEnd::Code(3)), (0, RankEnd::Signal(15)), (2, RankEnd::Signal(15))];
        assert_eq!(events, expected.map(|(rank, end)| ended(rank, end)));
        let abort = "[1,2]<stderr>: MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n\
                     [1,2]<stderr>:   Proc: [[1423,1],2]\n[1,2]<stderr>:   Errorcode: 5\n[1,2]<stderr>: \n\
                     [1,2]<stderr>: NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n\
                     [1,1]<stderr>: @holdfast-rank 1 signal 15\n\
                     prterun has exited due to process rank 2 with PID 0 on node vm calling\n\"abort\".\n";
        let events = under(Dialect::Prrte, abort).finish(RankEnd::Code(5));
        assert_eq!(events[0], ended(2, RankEnd::Code(5)));
    }

    /// What Open MPI 5.0.11 printed when rank 2 ended with exit code 3, and rank 1 was connected with it.
    #[test]
    fn a_rank_that_open_mpi_5_ends_because_of_another_one_is_not_the_root_cause() {
        let lost = "[1,1]<stderr>: [n2:00000] *** An error occurred in Socket closed\n\
                    [1,1]<stderr>: [n2:00000] *** reported by process [802029569,3]\n\
                    [1,1]<stderr>: [n2:00000] *** on a NULL communicator\n[1,1]<stderr>: \0\n\
                    [1,1]<stderr>: @holdfast-rank 1 code 14\n";
        let cause = "[1,2]<stderr>: \n[1,2]<stderr>: @holdfast-rank 2 code 3\n";
        let ended = |rank, code| StepEvent::Exited { rank: Rank(rank), end: RankEnd::Code(code) };
        let mut watched = under(Dialect::Prrte, &[lost, cause].concat());
        assert_eq!(watched.poll(), []);
        let events = watched.finish(RankEnd::Code(14));
        assert_eq!(events[..2], [ended(2, 3), ended(1, 14)]);
        let events = under(Dialect::Prrte, lost).finish(RankEnd::Code(14));
        assert_eq!(events[0], ended(1, 14), "it is reported if there is no other");
    }

    #[test]
    fn a_missing_program_is_a_failed_launch() {
        let text = "[0] @holdfast-rank 0 begins\n[0] @holdfast-rank 0 refused cannot run ./app on n3: No such file\n";
        let events = under_mpirun(text).finish(RankEnd::Code(127));
        let reason = "cannot run ./app on n3: No such file".to_owned();
        assert_eq!(events[0], StepEvent::Refused { rank: Rank(0), reason, obstacle: Obstacle::Job });
    }

    #[test]
    fn an_abort_of_the_library_after_the_loss_of_a_rank_is_not_the_root_cause() {
        let text = "[2] @holdfast-rank 2 code 3\n[0] Abort(807018255) on node 0 (rank 0 in comm 0): Fatal error in \
                    internal_Barrier\n[0] @holdfast-rank 0 code 15\n[1] @holdfast-rank 1 signal 15\n";
        let events = under_mpirun(text).finish(RankEnd::Code(15));
        assert_eq!(events[0], StepEvent::Exited { rank: Rank(2), end: RankEnd::Code(3) });
    }

    #[test]
    fn a_repeated_label_within_a_line_is_removed() {
        let read = labels(Dialect::OpenMpi).read;
        let line = b"[1,2]<stderr>:[n5] [1,2]<stderr>:[ 0] [1,2]<stderr>:/lib/libc.so";
        let (rank, text) = read(line).unwrap();
        assert_eq!((rank, text.as_ref()), (Rank(2), b"[n5] [ 0] /lib/libc.so".as_slice()));
        // The label of another rank is text.
        let (_, text) = read(b"[1,2]<stdout>:[1,3]<stdout>:x").unwrap();
        assert_eq!(text.as_ref(), b"[1,3]<stdout>:x");
    }

    #[test]
    fn each_dialect_reads_its_own_labels_only() {
        assert_eq!((labels(Dialect::Hydra).read)(b"[2] 3: text").map(|(rank, _)| rank), Some(Rank(2)));
        assert_eq!((labels(Dialect::Hydra).read)(b"3: text"), None);
        assert_eq!((labels(Dialect::OpenMpi).read)(b"5: text"), None);
        assert_eq!((labels(Dialect::Prrte).read)(b"[2] text"), None);
    }
}
