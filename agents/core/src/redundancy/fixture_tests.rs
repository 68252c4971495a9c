//! Groups and descriptors compared with those that SCR stored in its filemaps.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use holdfast_model::{Rank, RankDescriptor};
use holdfast_testkit::{files_below, fixtures};

use super::groups::{GroupRules, Site};
use super::registry::form;
use super::{descriptor, xor};
use crate::control::filemap::Filemap;

#[test]
fn groups_and_descriptors_are_those_of_every_fixture() {
    let root = fixtures("scr");
    let mut checked = 0;
    for scenario in fs::read_dir(&root).unwrap() {
        let scenario = scenario.unwrap().path();
        let kind = scenario.file_name().unwrap().to_string_lossy().into_owned();
        let wanted = ["a-", "a2-", "a3-", "b-", "b2-", "b3-", "b4-", "c-", "d-", "d2-", "e-"];
        if !wanted.iter().any(|start| kind.starts_with(start)) {
            continue;
        }
        let mut states: BTreeMap<PathBuf, Vec<Filemap>> = BTreeMap::new();
        for path in files_below(&scenario) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let Some(tree) = path.ancestors().find(|up| up.ends_with("tree")) else { continue };
            if name.starts_with("filemap_") && name.ends_with(".scrinfo") {
                states.entry(tree.to_owned()).or_default().push(Filemap::read(&path).unwrap());
            }
        }
        for (state, filemaps) in states {
            // Nodes in the order of their directories; each rank of a node has its own filemap below it.
            let mut descriptors: BTreeMap<(u64, u32), (RankDescriptor, bool)> = BTreeMap::new();
            for filemap in &filemaps {
                for checkpoint in filemap.checkpoints() {
                    for rank in filemap.ranks(checkpoint) {
                        let Some(tree) = filemap.descriptor(checkpoint, rank) else { continue };
                        let stored = descriptor::from_tree(tree).unwrap();
                        let own = filemap.partner(checkpoint, rank).is_none()
                            && filemap.files(checkpoint, rank).next().is_some();
                        let order =
                            if own { descriptor::to_tree(&stored) } else { descriptor::to_neighbour_tree(&stored) };
                        if !state.to_string_lossy().contains("restarted") {
                            assert_eq!(*tree, order, "rank {rank} in {}", state.display());
                        }
                        descriptors.insert((checkpoint.0, rank.0), (stored, own));
                    }
                }
            }
            let per_node = match kind.split('-').next().unwrap() {
                "b" | "d" => 2,
                "d2" => u32::MAX,
                _ => 1,
            };
            let checkpoints: BTreeSet<u64> = descriptors.keys().map(|(checkpoint, _)| *checkpoint).collect();
            for checkpoint in checkpoints {
                let of: BTreeMap<u32, &RankDescriptor> =
                    descriptors.iter().filter(|((c, _), _)| *c == checkpoint).map(|((_, r), (d, _))| (*r, d)).collect();
                let world = of.len() as u32;
                assert_eq!(of.keys().copied().collect::<Vec<_>>(), (0..world).collect::<Vec<_>>());
                let sites: Vec<Site> = (0..world)
                    .map(|rank| Site::on_node(if kind.starts_with("b4") { rank / 2 } else { rank / per_node }))
                    .collect();
                let asked = &of[&0].descriptor;
                let scheme = if kind.starts_with("d2") { xor::NAME } else { asked.scheme };
                let rules = GroupRules { scheme, ..GroupRules::of(asked) };
                let groups = form(&sites, rules).unwrap();
                for (rank, descriptor) in of {
                    let place = groups.of(Rank(rank)).unwrap();
                    let found =
                        (groups.scheme, place.total, place.group.id, place.group.members.len() as u32, place.index);
                    let d = descriptor;
                    let expected = (d.descriptor.scheme, d.groups, d.group_id, d.group_size, d.group_rank);
                    assert_eq!(found, expected, "rank {rank} of checkpoint {checkpoint} in {}", state.display());
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 50, "only {checked} descriptors checked");
}
