//! Which checkpoints are evicted from the caches for one that begins (`SCR manual §11.6`).

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{CheckpointId, Dataset, Level};

use super::context::Context;
use super::files;
use super::layout::Protection;
use crate::collective::error::CallError;

/// The checkpoints to evict from the caches for one with this protection, and those of which an earlier leader deleted
/// a part.
pub(super) async fn evicted(
    cx: &Context,
    checkpoint: CheckpointId,
    dataset: &Dataset,
    protection: &Protection,
) -> Result<Vec<CheckpointId>, CallError> {
    let base = protection.base();
    let of_cache = || cx.settings().caches.iter().find(|cache| cache.base == base).map_or(1, |cache| cache.keep);
    let keep = protection.keep(cx).unwrap_or_else(of_cache);
    // Before the list is made: output that is deleted meanwhile would be listed without its record, which is that of a
    // checkpoint, and evict one.
    let outputs: BTreeSet<CheckpointId> = cx.memory(|memory| {
        let outputs = memory.datasets.iter().filter(|(_, dataset)| !dataset.checkpoint);
        outputs.map(|(id, _)| *id).collect()
    });
    // As the leader's own node has them: all nodes hold the same ids.
    let in_base = files::datasets_here(cx, Some(base)).await?;
    let half_evicted = half_evicted(cx, checkpoint).await?;
    // A descriptor with its own number counts its own checkpoints; the others of the cache are counted together.
    let own = protection.keep(cx).map(|_| protection.index());
    let is_counted = |id: CheckpointId| {
        let other = cx.layout().protection_of(id, &cx.dataset(id));
        own == other.ok().filter(|other| other.keep(cx).is_some()).map(Protection::index)
    };
    // Output passes through the cache: it neither evicts a checkpoint nor counts as one.
    let is_candidate = |id: &CheckpointId| *id != checkpoint && !outputs.contains(id) && is_counted(*id);
    let mut kept: Vec<CheckpointId> = in_base.into_iter().filter(is_candidate).collect();
    let surplus = if dataset.checkpoint { (kept.len() + 1).saturating_sub(keep as usize) } else { 0 };
    let mut protected = cx.memory(|memory| memory.protected.clone());
    protected.retain(|id, _| !outputs.contains(id));
    let surplus = match dataset.level {
        Some(_) => surplus.min(superseded(&mut kept, |id| cx.dataset(id).level)),
        None if cx.layout().has_levels() => {
            // These stay, even if there is one more than `keep` then: a complete one replaces them, not one that is
            // begun.
            let (newest, strongest) = (kept.last().copied().filter(|_| keep > 1), strongest(&protected));
            kept.retain(|id| ![newest, strongest].contains(&Some(*id)));
            surplus
        }
        None => surplus,
    };
    let flushing = cx.flushing();
    let oldest = oldest(kept, surplus, &flushing, |id| protected.contains_key(&id));
    Ok(half_evicted.into_iter().chain(oldest).collect())
}

/// The newest of the checkpoints that survive the most losses, by how many nodes each survives.
fn strongest(protected: &BTreeMap<CheckpointId, u32>) -> Option<CheckpointId> {
    protected.iter().map(|(id, survives)| (*survives, *id)).max().map(|(_, id)| id)
}

/// The oldest first. Only if the others are not enough: those that are being flushed; the newest, which a restart
/// needs until the next one is complete; at last the newest protected one, without which the loss of a node costs all.
/// `kept` is ascending.
fn oldest(
    mut kept: Vec<CheckpointId>,
    surplus: usize,
    flushing: &BTreeSet<CheckpointId>,
    is_protected: impl Fn(CheckpointId) -> bool,
) -> impl Iterator<Item = CheckpointId> {
    let newest = kept.last().copied();
    let protected = kept.iter().copied().rfind(|id| is_protected(*id));
    kept.sort_by_key(|id| (Some(*id) == protected, Some(*id) == newest, flushing.contains(id)));
    kept.into_iter().take(surplus)
}

/// The checkpoints that must stay whatever the cache's size is: those for which there is no newer one of at least the
/// same level. Without them, the loss of a node could cost all checkpoints although one was protected against it.
/// `kept` is ascending.
pub(super) fn needed(kept: &[CheckpointId], level: impl Fn(CheckpointId) -> Option<Level>) -> BTreeSet<CheckpointId> {
    let mut highest = None;
    let mut needed = BTreeSet::new();
    for id in kept.iter().rev() {
        let of_this = level(*id);
        if highest.is_none_or(|highest| of_this > highest) {
            needed.insert(*id);
            highest = Some(of_this);
        }
    }
    needed
}

/// Removes from `kept`, which is ascending, the checkpoints that must stay. Returns how many of the others, which stay
/// in `kept`, can be evicted.
fn superseded(kept: &mut Vec<CheckpointId>, level: impl Fn(CheckpointId) -> Option<Level>) -> usize {
    let needed = needed(kept, level);
    kept.retain(|id| !needed.contains(id));
    kept.len()
}

/// Datasets that the leader's own node has deleted already, but perhaps not all other nodes.
async fn half_evicted(cx: &Context, begun: CheckpointId) -> Result<Vec<CheckpointId>, CallError> {
    let here = files::datasets_here(cx, None).await?;
    let cached = cx.memory(|memory| memory.cached.clone());
    Ok(cached.into_iter().filter(|id| *id != begun && !here.contains(id)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is evicted of checkpoints 1 to 5.
    fn of_five(surplus: usize, flushing: &[u64], protected: &[u64]) -> Vec<u64> {
        let kept = (1..=5).map(CheckpointId).collect();
        let flushing = flushing.iter().copied().map(CheckpointId).collect();
        let evicted = oldest(kept, surplus, &flushing, |id| protected.contains(&id.0));
        evicted.map(|id| id.0).collect()
    }

    #[test]
    fn the_newest_and_the_newest_protected_checkpoint_are_evicted_last() {
        assert_eq!(of_five(2, &[], &[1, 2, 3, 4, 5]), [1, 2]);
        assert_eq!(of_five(4, &[2], &[1, 2, 3, 4, 5]), [1, 3, 4, 2]);
        assert_eq!(of_five(3, &[], &[]), [1, 2, 3]);
        // The redundancy of 5 is not made yet, or it has none.
        assert_eq!(of_five(3, &[], &[1, 2]), [1, 3, 4]);
        assert_eq!(of_five(4, &[], &[1, 2]), [1, 3, 4, 5]);
        assert_eq!(of_five(5, &[], &[1, 2]), [1, 3, 4, 5, 2]);
    }

    #[test]
    fn the_strongest_is_the_newest_of_those_that_survive_the_most_losses() {
        let of = |known: &[(u64, u32)]| {
            strongest(&known.iter().map(|(id, survives)| (CheckpointId(*id), *survives)).collect()).map(|id| id.0)
        };
        assert_eq!((of(&[]), of(&[(4, 1)]), of(&[(3, 2), (4, 1), (5, 1)])), (None, Some(4), Some(3)));
        assert_eq!((of(&[(3, 2), (5, 1), (6, 2)]), of(&[(5, 1), (7, 1)])), (Some(6), Some(7)));
    }
}
