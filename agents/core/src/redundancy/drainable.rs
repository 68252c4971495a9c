//! Which checkpoint can be saved at the end of an allocation (`docs/scr-files.md` §13, step 3), as a pure judgement
//! with reasons.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{CheckpointId, Inventory, Locations, Rank, RankDescriptor, Scheme};

use super::inventory::{Held, by_rank, named};
use super::lost_set::LostSet;
use super::registry;

/// Whether a checkpoint can be drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drainability {
    /// All files are there, or can be computed again on the prefix.
    Drainable {
        /// Ids of the groups with members to compute again.
        rebuild: Vec<u32>,
    },
    /// It is on the prefix already: nothing to do, for this and all older ones.
    AlreadyFlushed,
    Incomplete(IncompleteReason),
}

/// Why a checkpoint cannot be completed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IncompleteReason {
    #[error("it was never complete: the run ended while it was written")]
    NeverComplete,
    #[error("no healthy node holds all files of any of its ranks")]
    NothingHeld,
    /// All files of some groups are lost.
    #[error("only {seen} of {expected} redundancy groups have files left")]
    GroupsUnseen {
        /// Groups that the descriptors record.
        expected: u32,
        /// Groups of which any file is left.
        seen: u32,
    },
    #[error("group {group_id} lost {missing} member(s), and the redundancy of {} was not made", named(unprotected))]
    GroupUnprotected {
        /// World rank of its member 0.
        group_id: u32,
        missing: u32,
        unprotected: Vec<Rank>,
    },
    /// A group lost more than its scheme allows.
    #[error(transparent)]
    GroupLost(LostSet),
    #[error("its descriptors contradict each other: {0}")]
    InconsistentDescriptors(String),
}

/// Judges checkpoint `id` from what the healthy nodes hold, and from where it is by their flush files: `None` if no
/// flush file lists it, because it was never complete.
pub fn drainable<'a>(
    id: CheckpointId,
    inventories: impl IntoIterator<Item = &'a Inventory>,
    flush: Option<Locations>,
) -> Drainability {
    match flush {
        None => return Drainability::Incomplete(IncompleteReason::NeverComplete),
        Some(locations) if locations.pfs => return Drainability::AlreadyFlushed,
        // A flush that was under way counts as none.
        Some(_) => {}
    }
    match judge(id, inventories) {
        Ok(rebuild) => Drainability::Drainable { rebuild },
        Err(reason) => Drainability::Incomplete(reason),
    }
}

struct HeldGroup<'a> {
    descriptor: &'a RankDescriptor,
    complete: BTreeSet<u32>,
    protected: BTreeSet<u32>,
    known: BTreeMap<u32, Rank>,
}

/// True if some node has complete files of each rank. Then nothing has to be computed, and the descriptors do not
/// matter: those of a restart that was interrupted may be of two placements.
fn every_rank_is_complete(held: &Held<'_>) -> bool {
    let complete = || held.values().flatten().map(|(_, holding)| holding).filter(|holding| holding.complete);
    let mut worlds = complete().filter_map(|holding| holding.ranks);
    let Some(world) = worlds.next() else { return false };
    let ranks: BTreeSet<Rank> = complete().map(|holding| holding.rank).collect();
    worlds.all(|other| other == world) && ranks.into_iter().eq((0..world).map(Rank))
}

fn judge<'a>(
    id: CheckpointId,
    inventories: impl IntoIterator<Item = &'a Inventory>,
) -> Result<Vec<u32>, IncompleteReason> {
    let held = by_rank(id, (0u32..).zip(inventories));
    if every_rank_is_complete(&held) {
        return Ok(Vec::new());
    }
    let mut groups: BTreeMap<u32, HeldGroup<'_>> = BTreeMap::new();
    let mut run: Option<(Scheme, u32)> = None;
    for (rank, holders) in &held {
        for (_, holding) in holders {
            let Some(descriptor) = &holding.descriptor else { continue };
            let own = (descriptor.descriptor.scheme, descriptor.groups);
            if *run.get_or_insert(own) != own {
                return Err(IncompleteReason::InconsistentDescriptors(format!(
                    "rank {rank} has another scheme or number of \
                        groups"
                )));
            }
            let group = groups.entry(descriptor.group_id).or_insert_with(|| HeldGroup {
                descriptor,
                complete: BTreeSet::new(),
                protected: BTreeSet::new(),
                known: BTreeMap::new(),
            });
            if group.descriptor.group_size != descriptor.group_size {
                return Err(IncompleteReason::InconsistentDescriptors(format!(
                    "group {} has two sizes",
                    descriptor.group_id
                )));
            }
            if *group.known.entry(descriptor.group_rank).or_insert(*rank) != *rank {
                return Err(IncompleteReason::InconsistentDescriptors(format!(
                    "group {} has a member twice",
                    descriptor.group_id
                )));
            }
            if holding.complete {
                group.complete.insert(descriptor.group_rank);
            }
            if holding.protection.is_complete() {
                group.protected.insert(descriptor.group_rank);
            }
        }
    }
    let Some((scheme, expected)) = run.filter(|_| groups.values().any(|group| !group.complete.is_empty())) else {
        return Err(IncompleteReason::NothingHeld);
    };
    let known = registry::get(scheme).ok_or_else(|| {
        IncompleteReason::InconsistentDescriptors(format!(
            "they name the scheme {scheme}, which is not known \
                here"
        ))
    })?;
    let mut rebuild = Vec::new();
    for (&group_id, group) in &groups {
        let complete = u32::try_from(group.complete.len()).unwrap_or(u32::MAX);
        let missing = group.descriptor.group_size.saturating_sub(complete);
        if missing > known.tolerance(group.descriptor) {
            let lost = group.known.iter().filter(|(index, _)| !group.complete.contains(index));
            return Err(IncompleteReason::GroupLost(LostSet {
                scheme,
                group_id,
                size: group.descriptor.group_size,
                tolerance: known.tolerance(group.descriptor),
                members: group.known.values().copied().collect(),
                missing,
                lost: lost.map(|(_, rank)| *rank).collect(),
            }));
        }
        let unprotected = group.known.iter().filter(|(index, _)| group.complete.contains(index));
        let unprotected = unprotected.filter(|(index, _)| !group.protected.contains(index));
        let unprotected: Vec<Rank> = unprotected.map(|(_, rank)| *rank).collect();
        if missing > 0 && !unprotected.is_empty() {
            return Err(IncompleteReason::GroupUnprotected { group_id, missing, unprotected });
        }
        if missing > 0 {
            rebuild.push(group_id);
        }
    }
    let seen = u32::try_from(groups.len()).unwrap_or(u32::MAX);
    if seen != expected {
        return Err(IncompleteReason::GroupsUnseen { expected, seen });
    }
    Ok(rebuild)
}

#[cfg(test)]
mod tests {
    use holdfast_model::{Descriptor, HeldFile, Holding, NodeName, Protection};

    use super::*;

    const IN_CACHE: Locations = Locations { cache: true, pfs: false, flushing: false };
    use crate::redundancy::{partner, xor};

    fn holding(rank: u32, scheme: Scheme, place: (u32, u32, u32, u32), complete: bool) -> Holding {
        let (groups, group_id, group_size, group_rank) = place;
        let descriptor = RankDescriptor {
            groups,
            group_id,
            group_size,
            group_rank,
            ..RankDescriptor::unplaced(Descriptor::new(0, scheme, "/tmp"), "/tmp/u/scr.1/index.0")
        };
        let files = ["a", "b"].map(|name| HeldFile { name: name.to_owned(), size: 1 });
        Holding {
            checkpoint: CheckpointId(3),
            rank: Rank(rank),
            complete,
            files: if complete { files.to_vec() } else { Vec::new() },
            expected: complete.then_some(2),
            ranks: complete.then_some(8),
            fault: None,
            protection: if complete { Protection::Scheme(scheme) } else { Protection::Nothing },
            partner_of: None,
            descriptor: Some(descriptor),
        }
    }

    fn nodes(holdings: Vec<Vec<Holding>>) -> Vec<Inventory> {
        let numbered = holdings.into_iter().zip(0..);
        numbered
            .map(|(holdings, node)| Inventory {
                node: Some(NodeName::new(format!("node{node}"))),
                holdings,
                ..Inventory::default()
            })
            .collect()
    }

    /// Two XOR sets of four, rank r on node r, its right neighbour keeping its descriptor.
    fn xor_run() -> Vec<Inventory> {
        let place = |rank: u32| (2, rank / 4 * 4, 4, rank % 4);
        nodes(
            (0..8)
                .map(|rank| {
                    let left = rank / 4 * 4 + (rank + 3) % 4;
                    vec![holding(rank, xor::NAME, place(rank), true), holding(left, xor::NAME, place(left), false)]
                })
                .collect(),
        )
    }

    fn judged(inventories: &[Inventory]) -> Drainability {
        drainable(CheckpointId(3), inventories, Some(IN_CACHE))
    }

    #[test]
    fn one_lost_node_in_each_set_is_drainable_and_the_sets_are_named() {
        let mut run = xor_run();
        assert_eq!(judged(&run), Drainability::Drainable { rebuild: vec![] });
        run[2].holdings.clear();
        run[7].holdings.clear();
        assert_eq!(judged(&run), Drainability::Drainable { rebuild: vec![0, 4] });
    }

    #[test]
    fn a_lost_node_is_drainable_only_if_the_redundancy_of_its_set_was_made() {
        let mut run = xor_run();
        run[5].holdings[0].protection = Protection::Partly;
        assert_eq!(judged(&run), Drainability::Drainable { rebuild: vec![] }, "all files are there");
        run[0].holdings.clear();
        assert_eq!(judged(&run), Drainability::Drainable { rebuild: vec![0] }, "the other set is protected");
        run[7].holdings.clear();
        let Drainability::Incomplete(reason) = judged(&run) else { panic!("rank 7 cannot be computed") };
        assert_eq!(reason.to_string(), "group 4 lost 1 member(s), and the redundancy of rank 5 was not made");
    }

    #[test]
    fn two_lost_members_of_one_xor_set_are_not_drainable() {
        let mut run = xor_run();
        run[1].holdings.clear();
        run[2].holdings.clear();
        let Drainability::Incomplete(reason) = judged(&run) else { panic!("two members of set 0 are lost") };
        let expected = "two members of the XOR set that begins with rank 0 were lost (rank 2 among them), and it \
                        survives one; see `scheme: rs`";
        assert_eq!(reason.to_string(), expected);
    }

    #[test]
    fn a_set_without_any_file_left_is_not_drainable() {
        let mut run = xor_run();
        run.truncate(4);
        let expected = IncompleteReason::GroupsUnseen { expected: 2, seen: 1 };
        assert_eq!(judged(&run), Drainability::Incomplete(expected));
    }

    #[test]
    fn a_partner_copy_replaces_the_files_of_a_lost_node() {
        let whole = |rank| holding(rank, partner::NAME, (1, 0, 3, rank), true);
        let mut run = nodes((0..3).map(|rank| vec![whole(rank), whole((rank + 2) % 3)]).collect());
        run[0].holdings.clear();
        assert_eq!(judged(&run), Drainability::Drainable { rebuild: vec![] });
        run[1].holdings.clear();
        assert!(matches!(
            judged(&run),
            Drainability::Incomplete(IncompleteReason::GroupLost(LostSet { missing: 1, .. }))
        ));
    }

    #[test]
    fn complete_files_of_every_rank_are_enough_when_an_interrupted_restart_left_descriptors_of_two_placements() {
        let own = |rank, groups| Holding { ranks: Some(3), ..holding(rank, partner::NAME, (groups, 0, 3, rank), true) };
        // The ranks of node 2 and 3 have the descriptors of the new placement already.
        let mut run = nodes(vec![vec![own(0, 1)], vec![own(1, 2)], vec![own(2, 2), own(1, 1)]]);
        assert_eq!(judged(&run), Drainability::Drainable { rebuild: vec![] });
        run[0].holdings.clear();
        assert!(
            matches!(judged(&run), Drainability::Incomplete(IncompleteReason::InconsistentDescriptors(_))),
            "rank 0 is lost"
        );
    }

    #[test]
    fn complete_files_of_all_ranks_but_the_last_are_not_enough() {
        let own = |rank| Holding { ranks: Some(3), ..holding(rank, partner::NAME, (1, 0, 3, rank), true) };
        let run = nodes(vec![vec![own(0)], vec![own(1)], Vec::new()]);
        assert!(matches!(
            judged(&run),
            Drainability::Incomplete(IncompleteReason::GroupLost(LostSet { missing: 1, .. }))
        ));
    }

    #[test]
    fn the_flush_state_decides_first() {
        let run = xor_run();
        assert_eq!(
            drainable(CheckpointId(3), &run, Some(Locations { pfs: true, ..IN_CACHE })),
            Drainability::AlreadyFlushed
        );
        let never = drainable(CheckpointId(3), &run, None);
        assert_eq!(never, Drainability::Incomplete(IncompleteReason::NeverComplete));
        let other = drainable(CheckpointId(4), &run, Some(IN_CACHE));
        assert_eq!(other, Drainability::Incomplete(IncompleteReason::NothingHeld));
    }
}
