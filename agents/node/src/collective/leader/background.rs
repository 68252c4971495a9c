//! What the leader does beside the collectives: a list of procedures with names, in the order of their priority.
//!
//! A collective requests a procedure and does not wait for it. Of each kind one runs at a time; those of different
//! kinds run side by side, and of two that can begin or go on at the same event, that of the higher priority is first.
//! All have the same limits of bandwidth and of the processors' time, until something waits for their end.

use std::collections::BTreeSet;
use std::mem::discriminant;

use holdfast_model::CheckpointId;
use holdfast_wire::peer::CopyLimits;

/// The name of a procedure. The order of the variants is that of the priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Background {
    /// Deletes output from the caches that is on the prefix directory: other datasets need the space.
    Discard(CheckpointId),
    /// Makes the redundancy of a checkpoint whose ranks go on already.
    Protect(CheckpointId),
    /// Copies a dataset from the caches to the prefix directory.
    Flush(CheckpointId),
    /// Verifies a dataset in the prefix directory, then deletes those there that the window leaves out.
    KeepWindow(CheckpointId),
}

impl Background {
    /// Lower numbers are first.
    fn priority(self) -> u8 {
        match self {
            Background::Discard(_) => 0,
            Background::Protect(_) => 1,
            Background::Flush(_) => 2,
            Background::KeepWindow(_) => 3,
        }
    }

    /// The dataset of which it reads or deletes files in cache.
    pub(super) fn cached_dataset(self) -> Option<CheckpointId> {
        match self {
            Background::Discard(checkpoint) | Background::Protect(checkpoint) | Background::Flush(checkpoint) => {
                Some(checkpoint)
            }
            Background::KeepWindow(_) => None,
        }
    }
}

/// The procedures that were requested and have not ended: by priority, then in the order of the requests.
#[derive(Debug, Default)]
pub(super) struct Procedures(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    name: Background,
    /// The collective that requested it.
    collective: u64,
    stage: Stage,
    /// Something waits for its end: it has no limits.
    is_awaited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Requested,
    Running,
    /// It runs, and its orders fail.
    Cancelled,
}

impl Procedures {
    /// Adds a procedure, unless it is in the list.
    pub(super) fn request(&mut self, name: Background, collective: u64) {
        if self.get(name).is_none() {
            let stage = Stage::Requested;
            self.0.push(Entry { name, collective, stage, is_awaited: false });
            self.0.sort_by_key(|entry| entry.name.priority());
        }
    }

    /// The next procedure to begin, with the collective that requested it; from now on it runs.
    pub(super) fn begin(&mut self) -> Option<(Background, u64)> {
        let is_free = |name: Background| {
            let mut running = self.0.iter().filter(|entry| entry.stage != Stage::Requested);
            running.all(|entry| discriminant(&entry.name) != discriminant(&name))
        };
        let next = self.0.iter().position(|entry| entry.stage == Stage::Requested && is_free(entry.name))?;
        let entry = self.0.get_mut(next)?;
        entry.stage = Stage::Running;
        Some((entry.name, entry.collective))
    }

    pub(super) fn end(&mut self, name: Background) {
        self.0.retain(|entry| entry.name != name);
    }

    /// Cancels a procedure. One that runs ends by its next error.
    pub(super) fn cancel(&mut self, name: Background) {
        self.0.retain(|entry| entry.name != name || entry.stage != Stage::Requested);
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.name == name) {
            entry.stage = Stage::Cancelled;
        }
    }

    pub(super) fn is_cancelled(&self, name: Background) -> bool {
        self.get(name).is_some_and(|entry| entry.stage == Stage::Cancelled)
    }

    /// The procedures that have not ended.
    pub(super) fn names(&self) -> impl Iterator<Item = Background> {
        self.0.iter().map(|entry| entry.name)
    }

    /// True if one of these procedures has not ended.
    pub(super) fn any(&self, which: impl Fn(Background) -> bool) -> bool {
        self.names().any(which)
    }

    /// The datasets that are being flushed, or wait for it.
    pub(super) fn flushing(&self) -> BTreeSet<CheckpointId> {
        let flushing = self.0.iter().filter_map(|entry| match entry.name {
            Background::Flush(checkpoint) => Some(checkpoint),
            Background::Discard(_) | Background::Protect(_) | Background::KeepWindow(_) => None,
        });
        flushing.collect()
    }

    /// Something waits for these procedures; returns those that had limits until now.
    pub(super) fn expect_end(&mut self, which: impl Fn(Background) -> bool) -> Vec<Background> {
        let waiting = self.0.iter_mut().filter(|entry| which(entry.name) && !entry.is_awaited);
        let waiting = waiting.map(|entry| {
            entry.is_awaited = true;
            entry.name
        });
        waiting.collect()
    }

    /// The limits of an order of this procedure: these, until something waits for its end.
    pub(super) fn limits(&self, name: Background, limits: CopyLimits) -> CopyLimits {
        if self.get(name).is_none_or(|entry| entry.is_awaited) { CopyLimits::NONE } else { limits }
    }

    fn get(&self, name: Background) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::Background::{Discard, Flush};
    use super::*;

    const A: CheckpointId = CheckpointId(1);
    const B: CheckpointId = CheckpointId(2);

    fn requested(names: &[Background]) -> Procedures {
        let mut procedures = Procedures::default();
        names.iter().for_each(|name| procedures.request(*name, 7));
        procedures
    }

    fn begun(procedures: &mut Procedures) -> Vec<Background> {
        std::iter::from_fn(|| procedures.begin()).map(|(name, _)| name).collect()
    }

    #[test]
    fn procedures_begin_by_priority_and_one_of_each_kind_runs() {
        let mut procedures = requested(&[Flush(A), Flush(B), Discard(B), Flush(A)]);
        assert_eq!(begun(&mut procedures), [Discard(B), Flush(A)]);
        procedures.end(Flush(A));
        assert_eq!(begun(&mut procedures), [Flush(B)]);
        assert!(procedures.any(|name| name.cached_dataset() == Some(B)) && !procedures.any(|name| name == Flush(A)));
    }

    #[test]
    fn one_that_has_not_begun_is_cancelled_at_once_and_one_that_runs_when_it_ends() {
        let mut procedures = requested(&[Flush(A), Flush(B)]);
        begun(&mut procedures);
        procedures.cancel(Flush(B));
        procedures.cancel(Flush(A));
        assert_eq!((procedures.is_cancelled(Flush(A)), procedures.any(|name| name == Flush(B))), (true, false));
        assert_eq!(begun(&mut procedures), []);
        procedures.end(Flush(A));
        assert!(!procedures.any(|_| true));
    }

    #[test]
    fn a_procedure_has_the_limits_until_something_waits_for_it() {
        let limits = CopyLimits { bandwidth: 7, percent: 20.0, ..CopyLimits::NONE };
        let mut procedures = requested(&[Flush(A), Flush(B)]);
        assert_eq!(procedures.limits(Flush(A), limits), limits);
        assert_eq!(procedures.expect_end(|name| name == Flush(A)), [Flush(A)]);
        assert_eq!(procedures.expect_end(|name| name == Flush(A)), []);
        assert_eq!(procedures.limits(Flush(A), limits), CopyLimits::NONE);
        assert_eq!(procedures.limits(Flush(B), limits), limits);
    }
}
