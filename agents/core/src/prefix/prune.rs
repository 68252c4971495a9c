//! Which datasets of a prefix directory to delete, by rules that the user chooses: `holdfast index prune`, and the
//! [window](super::window) of a job.
//!
//! SCR 1.1 deletes nothing on the prefix directory by itself. The rules follow its cache: the newest checkpoints are
//! kept, older ones are deleted.

use serde::Serialize;

use super::index::IndexEntry;
use crate::store::DirectoryName;
use holdfast_model::CheckpointId;

/// The chosen rules. Without any, nothing is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneRules {
    /// Delete complete checkpoints except this many, the newest by id.
    pub keep: Option<usize>,
    /// Delete datasets that are not complete.
    pub incomplete: bool,
    /// Delete datasets from which a restart failed.
    pub failed: bool,
}

/// A dataset of the prefix directory, as far as the rules need it.
#[derive(Clone, Debug)]
pub struct PruneCandidate {
    pub entry: IndexEntry,
    /// The application declared it as output: the rule `keep` does not apply.
    pub output: bool,
    /// It may be being written, or a run relies on it.
    pub in_use: bool,
    /// It can take the place of an older one. Without, it is deleted by the rule `keep` as soon as enough newer ones
    /// count.
    pub counts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PruneReason {
    /// There are enough newer checkpoints.
    Old,
    Incomplete,
    /// A restart from it failed.
    Failed,
}

/// A dataset that is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrunedDataset {
    pub directory: DirectoryName,
    pub id: CheckpointId,
    pub reason: PruneReason,
}

/// The datasets to delete, in the order of the candidates, which are listed as in the index: newest first. The current
/// dataset is never deleted, and neither is one that is in use or that the user keeps.
pub fn plan(candidates: &[PruneCandidate], current: Option<&DirectoryName>, rules: PruneRules) -> Vec<PrunedDataset> {
    let mut complete = 0;
    let mut pruned = Vec::new();
    for PruneCandidate { entry, output, in_use, counts } in candidates {
        let is_current = current == Some(&entry.directory);
        let reason = if entry.complete != Some(true) {
            rules.incomplete.then_some(PruneReason::Incomplete)
        } else if entry.has_failed {
            rules.failed.then_some(PruneReason::Failed)
        } else if *output {
            None
        } else {
            let newer = complete;
            complete += usize::from(*counts);
            rules.keep.is_some_and(|keep| newer >= keep).then_some(PruneReason::Old)
        };
        if let Some(reason) = reason.filter(|_| !is_current && !in_use && !entry.marks.kept) {
            pruned.push(PrunedDataset { directory: entry.directory.clone(), id: entry.id, reason });
        }
    }
    pruned
}

#[cfg(test)]
mod tests {
    use super::super::index::Marks;
    use super::*;

    fn candidate(id: u64, complete: Option<bool>, failed: bool) -> PruneCandidate {
        let entry = IndexEntry {
            id: CheckpointId(id),
            directory: DirectoryName::new(format!("d{id}")).unwrap(),
            complete,
            flushed: None,
            fetched: Vec::new(),
            failed: Vec::new(),
            has_failed: failed,
            marks: Marks::default(),
        };
        PruneCandidate { entry, output: false, in_use: false, counts: true }
    }

    fn pruned(candidates: &[PruneCandidate], current: &str, rules: PruneRules) -> Vec<(u64, PruneReason)> {
        let current = DirectoryName::new(current).unwrap();
        plan(candidates, Some(&current), rules).into_iter().map(|dataset| (dataset.id.0, dataset.reason)).collect()
    }

    #[test]
    fn the_newest_complete_checkpoints_and_the_current_one_are_kept() {
        let mut all: Vec<_> = [9, 8, 7, 6, 5].map(|id| candidate(id, Some(true), false)).into();
        all[2].output = true;
        all.insert(1, candidate(10, Some(false), false));
        all.insert(2, candidate(11, Some(true), true));
        let rules = PruneRules { keep: Some(2), ..PruneRules::default() };
        assert_eq!(pruned(&all, "d9", rules), [(6, PruneReason::Old), (5, PruneReason::Old)]);
        assert_eq!(pruned(&all, "d6", rules), [(5, PruneReason::Old)], "a checkpoint that was set by hand");
        assert_eq!(pruned(&all, "d9", PruneRules::default()), []);
    }

    #[test]
    fn what_the_user_keeps_stays_and_what_does_not_count_takes_no_place() {
        let mut all: Vec<_> = [9, 8, 7, 6].map(|id| candidate(id, Some(true), false)).into();
        all[0].counts = false;
        all[3].entry.marks.kept = true;
        let rules = |keep| PruneRules { keep: Some(keep), ..PruneRules::default() };
        assert_eq!(pruned(&all, "none", rules(1)), [(7, PruneReason::Old)]);
        assert_eq!(pruned(&all, "none", rules(2)), [], "8 and 7 count");
        all[1].counts = false;
        assert_eq!(pruned(&all, "none", rules(2)), [], "an older one waits for newer ones that count");
    }

    #[test]
    fn incomplete_and_failed_datasets_are_deleted_unless_they_are_being_written() {
        let mut all = vec![candidate(4, None, false), candidate(3, Some(true), true), candidate(2, Some(false), false)];
        let rules = PruneRules { keep: None, incomplete: true, failed: true };
        let reasons = [(4, PruneReason::Incomplete), (3, PruneReason::Failed), (2, PruneReason::Incomplete)];
        assert_eq!(pruned(&all, "d9", rules), reasons);
        all[0].in_use = true;
        assert_eq!(pruned(&all, "d9", rules), reasons[1..]);
        assert_eq!(pruned(&all, "d9", PruneRules { failed: false, ..rules }), reasons[2..]);
    }
}
