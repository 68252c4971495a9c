//! The ends of ranks, reported in an order in which the first is the one that began: the others may have ended for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use holdfast_model::{NodeName, Rank, RankEnd};

use super::LauncherMessages;
use super::abort::Abort;
use crate::launch::StepEvent;

/// A rank that a signal ends is reported late, when its memory has been written to a core file; the ranks that miss it end
/// with an error of their own long before. So those wait a little, and the first that is reported is the one that began.
const HOLD_BACK: Duration = Duration::from_millis(400);

/// A launcher's own signal may reach a rank before it is known which one made the launcher send it. The launcher ends soon
/// after, and its end says more; should it not end, the wait does.
const HOLD_BACK_FOR_LAUNCHER: Duration = Duration::from_secs(3);

/// A rank that ended and waits to be reported.
#[derive(Clone, Copy, Debug)]
struct Held {
    since: Instant,
    rank: Rank,
    end: RankEnd,
}

/// What is known of the ranks of a launcher command.
#[derive(Debug)]
pub(in crate::launch) struct RankEnds {
    ranks: BTreeMap<Rank, NodeName>,
    abort: Abort,
    reported: BTreeSet<Rank>,
    held: Vec<Held>,
    refused: bool,
    events: Vec<StepEvent>,
}

impl RankEnds {
    pub(super) fn new(ranks: BTreeMap<Rank, NodeName>) -> Self {
        RankEnds {
            ranks,
            abort: Abort::default(),
            reported: BTreeSet::new(),
            held: Vec::new(),
            refused: false,
            events: Vec::new(),
        }
    }

    pub(in crate::launch) fn ranks(&self) -> &BTreeMap<Rank, NodeName> {
        &self.ranks
    }

    /// The first rank: the subject of what concerns them all.
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

    /// True if the run was refused.
    pub(in crate::launch) fn is_refused(&self) -> bool {
        self.refused
    }

    /// The run is refused for this reason. Reported once: the first reason is the cause of the others.
    pub(in crate::launch) fn refuse(&mut self, rank: Rank, reason: String) {
        if !std::mem::replace(&mut self.refused, true) {
            self.events.push(StepEvent::Refused { rank, reason });
        }
    }

    /// The launcher failed, and nothing is known of any rank.
    pub(in crate::launch) fn fail(&mut self, launcher: RankEnd) {
        self.events.push(StepEvent::Failed { end: launcher });
    }

    pub(in crate::launch) fn report(&mut self, rank: Rank, end: RankEnd) {
        if self.ranks.contains_key(&rank) && self.reported.insert(rank) {
            self.events.push(StepEvent::Exited { rank, end });
        }
    }

    /// Reports the end of a rank later: it may be the consequence of another one.
    pub(in crate::launch) fn hold(&mut self, rank: Rank, end: RankEnd) {
        self.held.push(Held { since: Instant::now(), rank, end });
    }

    pub(super) fn read_abort(&mut self, rank: Option<Rank>, text: &str) {
        self.abort.read_line(rank, text);
    }

    /// Reports all that wait once one of them has waited long enough.
    pub(super) fn release_due(&mut self, messages: &impl LauncherMessages) {
        let due = |held: &Held| {
            let unexplained = messages.waits_for_launcher(held.end) && self.abort.rank().is_none();
            held.since.elapsed() >= if unexplained { HOLD_BACK_FOR_LAUNCHER } else { HOLD_BACK }
        };
        if self.held.iter().any(due) {
            self.release(messages, None);
        }
    }

    /// Reports all that wait, first the one that began: it called `MPI_Abort`, or it was not ended by the launcher, or it
    /// is the odd one out, since those that miss it end alike, or it was the first. `launcher` is how the launcher ended,
    /// if it has.
    pub(super) fn release(&mut self, messages: &impl LauncherMessages, launcher: Option<RankEnd>) {
        let mut held = std::mem::take(&mut self.held);
        // Words of a program that was started inside of the run say nothing of the run.
        if let Some(rank) = self.abort.rank().filter(|_| launcher != Some(RankEnd::SUCCESS)) {
            let is_own = |held: &Held| held.rank == rank && matches!(held.end, RankEnd::Code(_));
            if !held.iter().any(is_own) {
                held.retain(|held| held.rank != rank);
                held.push(Held { since: Instant::now(), rank, end: self.abort.end(launcher) });
            }
        }
        let alike: Vec<RankEnd> = held.iter().map(|held| held.end).collect();
        held.sort_by_key(|held| {
            let same = alike.iter().filter(|other| **other == held.end).count();
            (!self.abort.was_called_by(held.rank), messages.is_own_signal(held.end), same, held.since)
        });
        for Held { rank, end, .. } in held {
            self.report(rank, end);
        }
    }

    /// Reports all ranks of which nothing is known.
    pub(super) fn report_remaining(&mut self, end: RankEnd) {
        let silent: Vec<Rank> = self.ranks.keys().filter(|rank| !self.reported.contains(rank)).copied().collect();
        for rank in silent {
            self.report(rank, end);
        }
    }

    /// What was reported since the last call.
    pub(super) fn take_events(&mut self) -> Vec<StepEvent> {
        std::mem::take(&mut self.events)
    }
}

/// True for an end that may be another rank's doing: an error of a rank that misses it, or a launcher's own signals.
pub(in crate::launch) fn may_be_consequence(end: RankEnd) -> bool {
    const SIGKILL: i32 = 9;
    matches!(end, RankEnd::Code(_) | RankEnd::Signal(SIGKILL)) || is_termination(end)
}

/// True for the signal by which launchers end all ranks when one of them fails.
pub(in crate::launch) fn is_termination(end: RankEnd) -> bool {
    const SIGTERM: i32 = 15;
    end == RankEnd::Signal(SIGTERM)
}
