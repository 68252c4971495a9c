//! Which checkpoint can be saved at the end of an allocation (`FORMATS.md` §13, step 3), as a pure judgement with reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::descriptor::Scheme;
use super::inventory::{Inventory, by_rank, named};
use holdfast_model::{CheckpointId, Rank};

/// What the flush files say of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushState {
    /// No flush file knows it: it was never complete.
    Unknown,
    /// Complete in cache, and not on the prefix; a flush that was under way counts as none.
    NeedsFlush,
    /// On the prefix.
    OnPrefix,
}

/// Whether a checkpoint can be drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All files are there, or can be computed again on the prefix.
    Drainable {
        /// Group ids of the XOR sets that miss one member each.
        rebuild: Vec<u32>,
    },
    /// It is on the prefix already: nothing to do, for this and all older ones.
    AlreadyFlushed,
    /// It cannot be completed.
    Incomplete(Reason),
}

/// Why a checkpoint cannot be completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was never complete in cache: the run ended while it was written.
    NeverComplete,
    /// No healthy node has a whole rank of it.
    NothingHeld,
    /// Whole groups are gone.
    GroupsUnseen {
        /// Groups that the descriptors speak of.
        expected: u32,
        /// Groups of which anything is there.
        seen: u32,
    },
    /// A group lost more than its scheme allows.
    GroupLost {
        /// The scheme.
        scheme: Scheme,
        /// World rank of its member 0.
        group_id: u32,
        /// Members missing.
        missing: u32,
        /// The missing ranks that are known by name.
        ranks: Vec<Rank>,
    },
    /// Descriptors contradict each other.
    Contradiction(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NeverComplete => f.write_str("it was never complete: the run ended while it was written"),
            Reason::NothingHeld => f.write_str("no healthy node holds a whole rank of it"),
            Reason::GroupsUnseen { expected, seen } => {
                write!(f, "only {seen} of {expected} redundancy groups have files left")
            }
            Reason::GroupLost { scheme, group_id, missing, ranks } => {
                let of = match scheme {
                    Scheme::Xor => "XOR can rebuild one",
                    Scheme::Partner => "neither files nor copies are left",
                    Scheme::Local => "LOCAL keeps no second copy",
                };
                write!(f, "group {group_id} lost {missing} member(s), and {of}")?;
                if !ranks.is_empty() {
                    write!(f, " ({})", named(ranks))?;
                }
                Ok(())
            }
            Reason::Contradiction(what) => write!(f, "its descriptors contradict each other: {what}"),
        }
    }
}

/// Judges checkpoint `id` from what the healthy nodes hold.
pub fn drainable(id: CheckpointId, inventories: &[Inventory], flush: FlushState) -> Verdict {
    match flush {
        FlushState::OnPrefix => return Verdict::AlreadyFlushed,
        FlushState::Unknown => return Verdict::Incomplete(Reason::NeverComplete),
        FlushState::NeedsFlush => {}
    }
    match judge(id, inventories) {
        Ok(rebuild) => Verdict::Drainable { rebuild },
        Err(reason) => Verdict::Incomplete(reason),
    }
}

#[derive(Default)]
struct Seen {
    whole: BTreeSet<u32>,
    known: BTreeMap<u32, Rank>,
}

fn judge(id: CheckpointId, inventories: &[Inventory]) -> Result<Vec<u32>, Reason> {
    let held = by_rank(id, inventories);
    let mut groups: BTreeMap<u32, Seen> = BTreeMap::new();
    let mut shapes: BTreeMap<u32, u32> = BTreeMap::new();
    let mut run: Option<(Scheme, u32)> = None;
    for (rank, holders) in &held {
        for (_, holding) in holders {
            let Some(descriptor) = &holding.descriptor else { continue };
            let (scheme, total) = *run.get_or_insert((descriptor.scheme, descriptor.groups));
            if (scheme, total) != (descriptor.scheme, descriptor.groups) {
                return Err(Reason::Contradiction(format!("rank {rank} has another scheme or number of groups")));
            }
            let size = *shapes.entry(descriptor.group_id).or_insert(descriptor.group_size);
            if size != descriptor.group_size {
                return Err(Reason::Contradiction(format!("group {} has two sizes", descriptor.group_id)));
            }
            let group = groups.entry(descriptor.group_id).or_default();
            if *group.known.entry(descriptor.group_rank).or_insert(*rank) != *rank {
                return Err(Reason::Contradiction(format!("group {} has a member twice", descriptor.group_id)));
            }
            if holding.complete {
                group.whole.insert(descriptor.group_rank);
            }
        }
    }
    let Some((scheme, expected)) = run.filter(|_| groups.values().any(|group| !group.whole.is_empty())) else {
        return Err(Reason::NothingHeld);
    };
    let allowed = u32::from(scheme == Scheme::Xor);
    let mut rebuild = Vec::new();
    for (&group_id, group) in &groups {
        let whole = u32::try_from(group.whole.len()).unwrap_or(u32::MAX);
        let missing = shapes.get(&group_id).copied().unwrap_or(0).saturating_sub(whole);
        if missing > allowed {
            let gone = group.known.iter().filter(|(index, _)| !group.whole.contains(index));
            return Err(Reason::GroupLost { scheme, group_id, missing, ranks: gone.map(|(_, rank)| *rank).collect() });
        }
        if missing > 0 {
            rebuild.push(group_id);
        }
    }
    let seen = u32::try_from(groups.len()).unwrap_or(u32::MAX);
    if seen != expected {
        return Err(Reason::GroupsUnseen { expected, seen });
    }
    Ok(rebuild)
}

#[cfg(test)]
mod tests {
    use super::super::descriptor::Descriptor;
    use super::super::inventory::Holding;
    use super::*;
    use holdfast_model::NodeName;

    fn holding(rank: u32, scheme: Scheme, place: (u32, u32, u32, u32), complete: bool) -> Holding {
        let (groups, group_id, group_size, group_rank) = place;
        let descriptor = Descriptor {
            enabled: true,
            index: 0,
            interval: 1,
            base: "/tmp".into(),
            directory: "/tmp/u/scr.1/index.0".into(),
            scheme,
            groups,
            group_id,
            group_size,
            group_rank,
            hop_distance: 1,
            set_size: 4,
        };
        Holding {
            checkpoint: CheckpointId(3),
            rank: Rank(rank),
            complete,
            files: u32::from(complete) * 2,
            expected: complete.then_some(2),
            ranks: complete.then_some(8),
            copy_of: None,
            descriptor: Some(descriptor),
        }
    }

    fn nodes(holdings: Vec<Vec<Holding>>) -> Vec<Inventory> {
        let numbered = holdings.into_iter().zip(0..);
        numbered
            .map(|(holdings, node)| Inventory {
                node,
                name: NodeName::new(format!("node{node}")),
                healthy: true,
                holdings,
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
                    vec![holding(rank, Scheme::Xor, place(rank), true), holding(left, Scheme::Xor, place(left), false)]
                })
                .collect(),
        )
    }

    fn verdict(inventories: &[Inventory]) -> Verdict {
        drainable(CheckpointId(3), inventories, FlushState::NeedsFlush)
    }

    #[test]
    fn one_lost_node_in_each_set_is_drainable_and_the_sets_are_named() {
        let mut run = xor_run();
        assert_eq!(verdict(&run), Verdict::Drainable { rebuild: vec![] });
        run[2].healthy = false;
        run[7].healthy = false;
        assert_eq!(verdict(&run), Verdict::Drainable { rebuild: vec![0, 4] });
    }

    #[test]
    fn two_lost_members_of_one_set_are_not() {
        let mut run = xor_run();
        run[1].healthy = false;
        run[2].healthy = false;
        let Verdict::Incomplete(reason) = verdict(&run) else { panic!("two members of set 0 are gone") };
        assert!(reason.to_string().contains("group 0 lost 2 member(s)"), "{reason}");
        assert!(reason.to_string().contains("rank 2"), "{reason}");
    }

    #[test]
    fn a_whole_set_that_is_gone_is_noticed() {
        let mut run = xor_run();
        run.truncate(4);
        let expected = Reason::GroupsUnseen { expected: 2, seen: 1 };
        assert_eq!(verdict(&run), Verdict::Incomplete(expected));
    }

    #[test]
    fn a_partner_copy_stands_in_for_its_owner() {
        let whole = |rank| holding(rank, Scheme::Partner, (1, 0, 3, rank), true);
        let mut run = nodes((0..3).map(|rank| vec![whole(rank), whole((rank + 2) % 3)]).collect());
        run[0].healthy = false;
        assert_eq!(verdict(&run), Verdict::Drainable { rebuild: vec![] });
        run[1].healthy = false;
        assert!(matches!(verdict(&run), Verdict::Incomplete(Reason::GroupLost { missing: 1, .. })));
    }

    #[test]
    fn the_flush_state_decides_first() {
        let run = xor_run();
        assert_eq!(drainable(CheckpointId(3), &run, FlushState::OnPrefix), Verdict::AlreadyFlushed);
        let never = drainable(CheckpointId(3), &run, FlushState::Unknown);
        assert_eq!(never, Verdict::Incomplete(Reason::NeverComplete));
        let other = drainable(CheckpointId(4), &run, FlushState::NeedsFlush);
        assert_eq!(other, Verdict::Incomplete(Reason::NothingHeld));
    }
}
