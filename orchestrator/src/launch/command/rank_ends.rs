//! The ends of ranks, ordered so that the first reported one is the root cause: others may be its consequence. What a
//! launcher reports about them is parsed by its [`LauncherMessages`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_model::{NodeName, Rank, RankEnd};

use super::abort::Abort;
use crate::launch::labels::LineLabels;
use crate::launch::obstacle::Obstacle;
use crate::launch::plan::StepEvent;

/// A rank that is killed by a signal is reported late, after its core file was written. Ranks that lose their
/// connection to it fail long before. So errors are held back for this time.
const HOLD_BACK: Duration = Duration::from_millis(400);

/// A signal of the launcher may reach a rank before the root cause is known. The launcher ends soon after, and its end
/// gives more information. If it does not end, this limits the wait.
const HOLD_BACK_FOR_LAUNCHER: Duration = Duration::from_secs(3);

/// Open MPI 5 ends a rank with this message, and a code of its own, when another rank closed their connection.
const LOST_ANOTHER_RANK: &str = "*** An error occurred in Socket closed";

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Parses the messages of a launcher about its ranks, and interprets its own end.
pub(in crate::launch) trait LauncherMessages {
    /// The labels of the lines of ranks.
    fn labels(&self) -> &'static LineLabels;

    /// Parses a line of standard error without its label: of a rank, or of the launcher itself.
    fn read_line(&mut self, rank: Option<Rank>, text: &str, ends: &mut RankEnds);

    /// Polls for failures that the launcher does not report.
    fn poll(&mut self, _directory: &Path, _ends: &mut RankEnds) {}

    /// True for a signal that the launcher itself sends after the failure of another rank.
    fn is_own_signal(&self, end: RankEnd) -> bool;

    /// True for an end that was probably caused by the launcher. It is reported later, when the end of another rank or
    /// of the launcher may explain it.
    fn waits_for_launcher(&self, end: RankEnd) -> bool;

    /// The launcher ended without starting anything, for a temporary reason: the reason, and the pause before a retry.
    fn retry(&mut self, _launcher: RankEnd, _ends: &RankEnds) -> Option<(String, Duration)> {
        None
    }

    /// The launcher has ended, and all its lines have been read: reports what follows.
    fn finish(&mut self, launcher: RankEnd, ends: &mut RankEnds);

    /// The end of all ranks that were not reported, given the end of the launcher.
    fn end_of_unreported(&self, launcher: RankEnd, ends: &RankEnds) -> RankEnd;
}

/// The end of a rank that is held back.
#[derive(Clone, Copy, Debug)]
struct Held {
    since: Instant,
    rank: Rank,
    end: RankEnd,
}

/// The state of the ranks of a launcher command.
#[derive(Debug, Default)]
pub(in crate::launch) struct RankEnds {
    pub(in crate::launch) ranks: BTreeMap<Rank, NodeName>,
    abort: Abort,
    /// Ranks that their MPI library ended because of the loss of another one.
    lost_another: BTreeSet<Rank>,
    reported: BTreeSet<Rank>,
    /// Each rank once.
    held: BTreeMap<Rank, Held>,
    /// The launch was refused.
    pub(in crate::launch) refused: bool,
    events: Vec<StepEvent>,
}

impl RankEnds {
    pub(super) fn new(ranks: BTreeMap<Rank, NodeName>) -> Self {
        RankEnds { ranks, ..RankEnds::default() }
    }

    /// The first rank, which stands for all in reports that concern all.
    pub(in crate::launch) fn first(&self) -> Rank {
        self.ranks.keys().next().copied().unwrap_or(Rank(0))
    }

    /// True if the end of no rank is known.
    pub(in crate::launch) fn none_ended(&self) -> bool {
        self.reported.is_empty() && self.held.is_empty()
    }

    /// True if the end of no rank was reported.
    pub(in crate::launch) fn none_reported(&self) -> bool {
        self.reported.is_empty()
    }

    /// Reports that the launch was refused. Only the first reason is reported, as the cause of any others. A rank that
    /// the command does not have is output of the application that resembles a report.
    pub(in crate::launch) fn refuse(&mut self, rank: Rank, reason: String, obstacle: Obstacle) {
        if self.ranks.contains_key(&rank) && !std::mem::replace(&mut self.refused, true) {
            self.events.push(StepEvent::Refused { rank, reason, obstacle });
        }
    }

    /// Reports that the launcher failed without information about its ranks.
    pub(in crate::launch) fn fail(&mut self, launcher: RankEnd) {
        self.events.push(StepEvent::Failed { end: launcher });
    }

    pub(in crate::launch) fn report(&mut self, rank: Rank, end: RankEnd) {
        if self.ranks.contains_key(&rank) && self.reported.insert(rank) {
            self.events.push(StepEvent::Exited { rank, end });
        }
    }

    /// Holds the end of a rank back: it may be a consequence of another one.
    pub(in crate::launch) fn hold(&mut self, rank: Rank, end: RankEnd) {
        if self.ranks.contains_key(&rank) {
            self.held.entry(rank).or_insert_with(|| Held { since: Instant::now(), rank, end });
        }
    }

    pub(super) fn read_abort(&mut self, rank: Option<Rank>, text: &str) {
        self.abort.read_line(rank, text);
        self.lost_another.extend(rank.filter(|_| text.contains(LOST_ANOTHER_RANK)));
    }

    /// Reports all ends that are held back once one of them has waited long enough.
    pub(super) fn release_due(&mut self, messages: &impl LauncherMessages) {
        let due = |held: &Held| {
            let is_consequence = messages.waits_for_launcher(held.end) || self.lost_another.contains(&held.rank);
            let unexplained = is_consequence && self.abort.rank.is_none();
            held.since.elapsed() >= if unexplained { HOLD_BACK_FOR_LAUNCHER } else { HOLD_BACK }
        };
        if self.held.values().any(due) {
            self.release(messages, None);
        }
    }

    /// Reports all ends that are held back, the root cause first. That is the rank that called `MPI_Abort`; or one that
    /// was not killed by the launcher; or the one with the rarest end, since its consequences are alike; or the
    /// earliest. `launcher` is the end of the launcher, if it has ended.
    pub(super) fn release(&mut self, messages: &impl LauncherMessages, launcher: Option<RankEnd>) {
        let mut held: Vec<Held> = std::mem::take(&mut self.held).into_values().collect();
        // If the launcher succeeded, the message came from a program that was started inside the application.
        if let Some(rank) = self.abort.rank.filter(|_| launcher != Some(RankEnd::SUCCESS)) {
            let is_own = |held: &Held| held.rank == rank && matches!(held.end, RankEnd::Code(_));
            if !held.iter().any(is_own) {
                held.retain(|held| held.rank != rank);
                held.push(Held { since: Instant::now(), rank, end: self.abort.end(launcher) });
            }
        }
        // The message of an abort can be lost when the launcher kills all ranks. Its exit code is then that of a rank
        // whose end is not known: none of those that it killed is the root cause.
        let is_killed = |held: &Held| messages.is_own_signal(held.end) || held.end == RankEnd::Signal(SIGKILL);
        let only_killed = !held.is_empty() && held.iter().all(is_killed);
        if let Some(launcher) = launcher.filter(|_| only_killed && self.none_reported() && self.abort.rank.is_none())
            && is_code_of_a_rank(launcher)
        {
            self.fail(launcher);
        }
        let mut alike: HashMap<RankEnd, usize> = HashMap::new();
        for held in &held {
            *alike.entry(held.end).or_default() += 1;
        }
        held.sort_by_key(|held| {
            let same = alike.get(&held.end).copied();
            let is_consequence = messages.is_own_signal(held.end) || self.lost_another.contains(&held.rank);
            (!self.abort.was_called_by(held.rank), is_consequence, same, held.since)
        });
        for Held { rank, end, .. } in held {
            self.report(rank, end);
        }
    }

    /// Reports all remaining ranks.
    pub(super) fn report_remaining(&mut self, end: RankEnd) {
        let remaining: Vec<Rank> = self.ranks.keys().filter(|rank| !self.reported.contains(rank)).copied().collect();
        for rank in remaining {
            self.report(rank, end);
        }
    }

    /// The events since the last call.
    pub(super) fn take_events(&mut self) -> Vec<StepEvent> {
        std::mem::take(&mut self.events)
    }
}

/// True for an end that may be a consequence of another one: an error, or a signal that launchers send.
pub(in crate::launch) fn may_be_consequence(end: RankEnd) -> bool {
    matches!(end, RankEnd::Code(_) | RankEnd::Signal(SIGKILL)) || is_termination(end)
}

/// True for the exit code of a launcher that is not derived from a signal: as in a shell, or, with MPICH, the signal.
fn is_code_of_a_rank(launcher: RankEnd) -> bool {
    matches!(launcher, RankEnd::Code(code @ 1..128) if ![SIGKILL, SIGTERM].contains(&code))
}

/// True for the signal that launchers send to all ranks when one of them fails.
pub(in crate::launch) fn is_termination(end: RankEnd) -> bool {
    end == RankEnd::Signal(SIGTERM)
}
