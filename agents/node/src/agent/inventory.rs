//! What the node holds, read from its control directory, which Holdfast or LLNL's library wrote.
//!
//! A damaged file is listed as a fault and hides no other: a restart or a drain decides by what can be read. A file
//! that cannot be opened because descriptors or memory are exhausted is not damaged: then there is no inventory.

use std::collections::BTreeMap;

use holdfast_core::redundancy::descriptor;
use holdfast_core::redundancy::protection::protection;
use holdfast_model::{CheckpointId, HeldFile, Holding, Inventory, NodeName, Protection, Rank};

use crate::agent::Agent;
use crate::state::halt::HaltKeeper;
use crate::store::examine::examine;
use crate::store::{Store, StoreError};

/// What the node holds. Reads files: call it from a blocking thread.
///
/// # Errors
/// When descriptors or memory are exhausted; a later try may succeed.
pub fn inventory(agent: &Agent) -> Result<Inventory, StoreError> {
    of_store(&agent.start.node, &agent.store)
}

/// As [`inventory`], of a store.
///
/// # Errors
/// As [`inventory`].
pub fn of_store(node: &NodeName, store: &Store) -> Result<Inventory, StoreError> {
    let (on_disk, bases) = store.on_disk()?;
    let mut faults = on_disk.faults;
    let mut holdings: BTreeMap<(CheckpointId, Rank), Holding> = BTreeMap::new();
    for (_, map) in &on_disk.slots {
        for checkpoint in map.checkpoints() {
            for rank in map.ranks(checkpoint) {
                let found = examine(map, checkpoint, rank, &store.paths, &bases).map_err(StoreError::Unexamined)?;
                let descriptor = map.descriptor(checkpoint, rank).and_then(|tree| {
                    descriptor::from_tree(tree)
                        .map_err(|error| faults.push(format!("checkpoint {checkpoint} of rank {rank}: {error}")))
                        .ok()
                });
                let protection = descriptor.as_ref().map_or(Protection::Nothing, |descriptor| {
                    let usable = found.files.iter().filter(|file| file.meta.is_some());
                    protection(descriptor, found.complete, usable.map(|file| file.name.as_str()))
                });
                let files = found.files.iter().map(|file| HeldFile { name: file.name.clone(), size: file.size });
                let holding = Holding {
                    checkpoint,
                    rank,
                    ranks: found.ranks,
                    expected: map.expected(checkpoint, rank),
                    complete: found.complete,
                    fault: found.fault,
                    protection,
                    partner_of: map.partner(checkpoint, rank),
                    descriptor,
                    files: files.collect(),
                };
                match holdings.remove(&(checkpoint, rank)) {
                    Some(other) => holdings.insert((checkpoint, rank), better_of(holding, other)),
                    None => holdings.insert((checkpoint, rank), holding),
                };
            }
        }
    }
    let flush = known(store.flush.locations(), &mut faults)?;
    let nodes = known(store.nodes(), &mut faults)?;
    known(HaltKeeper::new(&store.paths).check().map_err(StoreError::from), &mut faults)?;
    Ok(Inventory {
        node: Some(node.clone()),
        holdings: holdings.into_values().collect(),
        flush,
        datasets: store.descriptions.read()?,
        nodes,
        faults,
    })
}

/// The content of a control file; a damaged one is a fault, and counts as absent.
fn known<T: Default>(read: Result<T, StoreError>, faults: &mut Vec<String>) -> Result<T, StoreError> {
    match read {
        Err(error) if !error.is_exhaustion() => {
            faults.push(error.to_string());
            Ok(T::default())
        }
        read => read,
    }
}

/// Of two entries of a rank in different filemaps, the one with more files; with the other's descriptor if it has none.
fn better_of(one: Holding, other: Holding) -> Holding {
    let rating = |holding: &Holding| (holding.complete, holding.files.len());
    let (mut better, worse) = if rating(&one) >= rating(&other) { (one, other) } else { (other, one) };
    better.descriptor = better.descriptor.or(worse.descriptor);
    better
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::base;
    use crate::store::fixtures::fixture;
    use holdfast_core::crash::{WITHOUT_DESCRIPTORS, with_error};
    use holdfast_model::{Dataset, Scheme};
    use std::fs;

    fn holding(inventory: &Inventory, checkpoint: u64, rank: u32) -> &Holding {
        let id = (CheckpointId(checkpoint), Rank(rank));
        inventory.holdings.iter().find(|holding| (holding.checkpoint, holding.rank) == id).unwrap()
    }

    #[test]
    fn own_files_and_the_left_neighbour_s_descriptor_are_reported() {
        let (_root, store) = fixture("a-xor4/killed-before-flush", "node1");
        let inventory = of_store(&"node1".into(), &store).unwrap();
        assert_eq!(inventory.faults, [""; 0]);
        assert_eq!(inventory.nodes, Some(4));
        assert!(inventory.flush[&CheckpointId(3)].cache);
        let own = holding(&inventory, 3, 1);
        assert!(
            own.complete && own.ranks == Some(4) && own.files[1].size == 10038 && own.files[1].name == "rank_1.ckpt"
        );
        let left = holding(&inventory, 3, 0);
        assert!(!left.complete && left.files.is_empty() && left.fault.is_none());
        assert_eq!(left.descriptor.as_ref().unwrap().group_rank, 0);
        assert_eq!((own.expected, left.expected), (Some(2), None));
    }

    #[test]
    fn files_are_complete_without_their_redundancy_and_protected_with_it() {
        let (root, store) = fixture("a-xor4/killed-before-flush", "node1");
        let xor = holding(&of_store(&"node1".into(), &store).unwrap(), 3, 1).clone();
        assert_eq!((xor.complete, xor.protection), (true, Protection::Scheme(Scheme::new("XOR"))));
        // Committed when the application's file was complete; the redundancy is being made.
        store.begin_run(&[Rank(1)], &[base("node1")]).unwrap();
        store.set_expected(CheckpointId(3), Rank(1), Rank(1), 1).unwrap();
        store.fold_logs().unwrap();
        let cache = root.path().join("tmp/scr-fixture/node1/user1/scr.1145655/index.0/checkpoint.3");
        fs::write(cache.join(&xor.files[0].name), "half of it").unwrap();
        let made = holding(&of_store(&"node1".into(), &store).unwrap(), 3, 1).clone();
        assert_eq!((made.complete, made.fault, made.protection), (true, None, Protection::Nothing));
        // The file of the application is not excused.
        fs::write(cache.join(&xor.files[1].name), "half of it").unwrap();
        assert!(!holding(&of_store(&"node1".into(), &store).unwrap(), 3, 1).complete);
    }

    #[test]
    fn partner_copies_carry_the_node_that_they_are_copies_of() {
        let (_root, store) = fixture("c-partner/hop2-killed-before-flush", "node0");
        let inventory = of_store(&"node0".into(), &store).unwrap();
        let copy = holding(&inventory, 1, 2);
        assert!(copy.complete, "{copy:?}");
        assert_eq!(copy.partner_of, Some("node2".into()));
        assert_eq!(holding(&inventory, 1, 0).partner_of, None);
    }

    #[test]
    fn a_lost_file_a_wrong_size_and_an_unfinished_checkpoint_are_faults_of_that_rank_only() {
        let (root, store) = fixture("a-xor4/killed-before-flush", "node1");
        let cache = root.path().join("tmp/scr-fixture/node1/user1/scr.1145655/index.0");
        fs::remove_file(cache.join("checkpoint.3/rank_1.ckpt")).unwrap();
        let inventory = of_store(&"node1".into(), &store).unwrap();
        let faulty = holding(&inventory, 3, 1);
        assert!(!faulty.complete && faulty.fault.as_ref().unwrap().contains("rank_1.ckpt"), "{faulty:?}");
        assert!(holding(&inventory, 2, 1).complete);
        fs::write(cache.join("checkpoint.2/rank_1.ckpt"), "short").unwrap();
        let inventory = of_store(&"node1".into(), &store).unwrap();
        assert!(holding(&inventory, 2, 1).fault.as_ref().unwrap().contains("SIZE"));

        let (_root, store) = fixture("a-xor4/killed-mid-checkpoint", "node1");
        let inventory = of_store(&"node1".into(), &store).unwrap();
        assert!(!holding(&inventory, 2, 1).complete);
        assert!(holding(&inventory, 1, 1).complete);
    }

    #[test]
    fn without_descriptors_or_memory_no_file_counts_as_missing() {
        let (_root, store) = fixture("a-xor4/killed-before-flush", "node1");
        store.descriptions.note(CheckpointId(3), Dataset { output: true, ..Dataset::default() }).unwrap();
        let take = || of_store(&"node1".into(), &store);
        let (complete, mut refused) = (take().unwrap(), 0);
        for errno in WITHOUT_DESCRIPTORS {
            for nth in 1.. {
                let (found, call) = with_error(nth, *errno, take);
                let Some(call) = call else { break };
                match found {
                    Ok(found) => assert_eq!(found, complete, "{errno:?} from call {nth} ({call:?})"),
                    Err(error) => assert!(error.is_exhaustion(), "{errno:?} from call {nth} ({call:?}): {error}"),
                }
                refused += 1;
            }
        }
        assert!(refused > 30, "{refused} calls");
    }

    #[test]
    fn damaged_control_files_are_listed_and_hide_nothing_else() {
        let (_root, store) = fixture("a-xor4/killed-before-flush", "node0");
        let control = store.paths.control();
        for name in ["flush.scrinfo", "nodes.scrinfo", "halt.scrinfo"] {
            fs::write(control.join(name), "damaged ".repeat(8)).unwrap();
        }
        let inventory = of_store(&"node0".into(), &store).unwrap();
        assert_eq!(inventory.faults.len(), 3, "{:?}", inventory.faults);
        assert!(holding(&inventory, 3, 0).complete);
    }
}
