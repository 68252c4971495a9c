//! Sets of any size: the files of lost members are rebuilt, the redundancy data are those of the definition, and a
//! damaged survivor is always detected.

use std::fs;
use std::path::Path;

use holdfast_model::{Descriptor, Rank, RankDescriptor, SchemeNumbers};
use holdfast_testkit::files_below;
use proptest::prelude::*;

use super::{FAILURES, NAME, PARITY, Rs};
use crate::galois::Element;
use crate::redundancy::directory::rebuild_in_pieces;
use crate::redundancy::files::{MemberFiles, SetId};
use crate::redundancy::groups::{GroupRules, Groups, Site};
use crate::redundancy::numbers::SET_SIZE;
use crate::redundancy::parity::code::Code;
use crate::redundancy::parity::fixtures::{ID, content, dataset, encoded_set, go_on};
use crate::redundancy::parity::header::{ParityHeader, chunk_size};
use crate::redundancy::registry::{self, form};
use crate::redundancy::{RedundancyError, RedundancyScheme as _};

/// The chunks of redundancy data of a member, by the definition: bit by bit.
fn defined(sizes: &[Vec<usize>], failures: u32, index: u32, chunk: usize) -> Vec<u8> {
    let n = sizes.len() as u32;
    let code = Code::reed_solomon(n, failures);
    let logical: Vec<Vec<u8>> = (0u32..)
        .zip(sizes)
        .map(|(rank, sizes)| (0u32..).zip(sizes).flat_map(|(file, size)| content(rank, file, *size)).collect())
        .collect();
    let mut slots: Vec<(u32, u32)> = (0..failures).map(|row| ((index + row) % n, row)).collect();
    slots.sort_unstable();
    let mut data = Vec::new();
    for (slot, row) in slots {
        for at in 0..chunk {
            let sum = (0..n).filter(|member| code.row(*member, slot).is_none()).fold(0, |sum, member| {
                let before = (0..slot).filter(|other| code.row(member, *other).is_none()).count();
                let byte = logical[member as usize].get(before * chunk + at).copied().unwrap_or(0);
                sum ^ byte.times(code.factors_of(member)[row as usize])
            });
            data.push(sum);
        }
    }
    data
}

/// The files of an application in a directory.
fn application_files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let files = files_below(directory)
        .into_iter()
        .map(|path| (path.display().to_string(), fs::read(directory.join(path)).unwrap()));
    files
        .filter(|(name, _)| !registry::is_redundancy_file(name) && name.starts_with('r') && !name.ends_with("scr"))
        .collect()
}

/// Removes the files of these members.
fn lose(directory: &Path, members: u32, lost: &[u32]) {
    for path in files_below(directory) {
        let name = path.display().to_string();
        let is_lost = |member: &u32| {
            name.starts_with(&format!("r{member}.f")) || name.starts_with(&PARITY.file_name(0, members, *member))
        };
        if lost.iter().any(is_lost) {
            fs::remove_file(directory.join(path)).unwrap();
        }
    }
}

fn restores(directory: &Path, members: u32, lost: &[u32], piece: usize) {
    let before = application_files(directory);
    let redundancy = |member: &u32| fs::read(directory.join(PARITY.file_name(0, members, *member))).unwrap();
    let parity: Vec<Vec<u8>> = lost.iter().map(redundancy).collect();
    lose(directory, members, lost);
    let set = SetId { scheme: NAME, group_id: 0, members };
    let rebuilt = rebuild_in_pieces(&dataset(directory), set, lost, piece, &mut go_on).unwrap();
    assert_eq!(rebuilt.iter().map(|member| member.rank.0).collect::<Vec<_>>(), lost);
    assert!(application_files(directory) == before, "{members} {lost:?}");
    assert!(lost.iter().map(redundancy).collect::<Vec<_>>() == parity, "redundancy of {lost:?} of {members}");
}

#[test]
fn every_loss_pattern_of_small_sets_is_restored_with_its_redundancy() {
    for (members, failures) in [(2_u32, 1_u32), (3, 1), (3, 2), (4, 2), (4, 3), (5, 2)] {
        let work = tempfile::tempdir().unwrap();
        let sizes: Vec<Vec<usize>> = (0..members as usize).map(|rank| vec![rank * 31, 0, 70]).collect();
        encoded_set(&PARITY, work.path(), &sizes, failures, 64);
        for mask in 1_u32..1 << members {
            let lost: Vec<u32> = (0..members).filter(|member| mask >> member & 1 == 1).collect();
            if lost.len() <= failures as usize {
                restores(work.path(), members, &lost, 40);
            }
        }
    }
}

#[test]
fn header_of_more_members_than_the_code_has_places_is_refused() {
    let files = |rank: u32| MemberFiles { rank: Rank(rank), files: Vec::new() };
    let header = |members: u32| ParityHeader {
        scheme: &PARITY,
        chunk: 1,
        checkpoint: ID,
        ranks: members,
        members: (0..members).map(Rank).collect(),
        current: files(2),
        left: vec![files(1), files(0)],
    };
    let read = |members: u32| ParityHeader::from_tree(&PARITY, &header(members).to_tree(), "input");
    assert_eq!(read(254).unwrap(), header(254));
    let refused = read(255).unwrap_err().to_string();
    assert!(refused.contains("there is no code for 255 members and 2 losses"), "{refused}");
}

#[test]
fn one_loss_more_than_declared_is_refused_and_changes_nothing() {
    let work = tempfile::tempdir().unwrap();
    encoded_set(&PARITY, work.path(), &[vec![100], vec![50], vec![70], vec![1]], 2, 64);
    lose(work.path(), 4, &[0, 1, 3]);
    let before = files_below(work.path());
    let set = SetId { scheme: NAME, group_id: 0, members: 4 };
    let refused = rebuild_in_pieces(&dataset(work.path()), set, &[0, 1, 3], 64, &mut go_on);
    assert!(matches!(refused, Err(RedundancyError::TooManyMissing { missing: 3, .. })), "{refused:?}");
    assert_eq!(files_below(work.path()), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn losses_of_sets_up_to_ten_and_four_are_restored_and_damage_is_found(
        sizes in prop::collection::vec(prop::collection::vec(0_usize..300, 0..3), 2..=14),
        failures in 1_u32..=4,
        lost in prop::collection::vec(any::<prop::sample::Index>(), 1..=4),
        pieces in (1_usize..400, 1_usize..400),
        damaged in any::<prop::sample::Index>(),
    ) {
        let n = sizes.len();
        let failures = failures.min(n as u32 - 1);
        let work = tempfile::tempdir().unwrap();
        encoded_set(&PARITY, work.path(), &sizes, failures, pieces.0);
        for index in 0..n as u32 {
            let file = fs::read(work.path().join(PARITY.file_name(0, n as u32, index))).unwrap();
            let largest: usize = sizes.iter().map(|of| of.iter().sum()).max().unwrap();
            let chunk = chunk_size(largest as u64, n as u32, failures) as usize;
            let expected = defined(&sizes, failures, index, chunk);
            prop_assert!(file[file.len() - expected.len()..] == expected, "member {} of {}", index, n);
        }
        let mut lost: Vec<u32> = lost.iter().take(failures as usize).map(|at| at.index(n) as u32).collect();
        lost.sort_unstable();
        lost.dedup();
        restores(work.path(), n as u32, &lost, pieces.1);

        // A survivor with one changed byte.
        lose(work.path(), n as u32, &lost);
        let survivors: Vec<u32> = (0..n as u32).filter(|member| !lost.contains(member)).collect();
        let survivor = survivors[damaged.index(survivors.len())];
        let path = work.path().join(PARITY.file_name(0, n as u32, survivor));
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        let set = SetId { scheme: NAME, group_id: 0, members: n as u32 };
        let refused = rebuild_in_pieces(&dataset(work.path()), set, &lost, pieces.1, &mut go_on);
        let named = matches!(&refused, Err(RedundancyError::MemberDamaged { member, .. }) if *member == survivor);
        prop_assert!(named || matches!(refused, Err(RedundancyError::RebuiltWrong { .. })), "{refused:?}");
    }
}

fn numbers(set_size: u32, failures: u32) -> SchemeNumbers {
    [(SET_SIZE.name, set_size), (FAILURES.name, failures)].into_iter().collect()
}

fn formed(nodes: &[u32], set_size: u32, failures: u32) -> Groups {
    let sites: Vec<Site> = nodes.iter().copied().map(Site::on_node).collect();
    form(&sites, GroupRules { scheme: NAME, numbers: &numbers(set_size, failures) }).unwrap()
}

fn tolerance(set_size: u32, failures: u32) -> u32 {
    let numbers = numbers(8, failures);
    let descriptor = Descriptor { numbers, ..Descriptor::new(0, NAME, "/tmp") };
    let unplaced = RankDescriptor::unplaced(descriptor, "/tmp/u/scr.1/index.0");
    Rs.tolerance(&RankDescriptor { groups: 1, group_size: set_size, ..unplaced })
}

#[test]
fn each_set_has_more_members_than_can_be_lost_where_the_nodes_allow() {
    let nodes = |count: u32| (0..count).collect::<Vec<_>>();
    for count in 3..40 {
        for (set_size, failures) in [(8, 2), (4, 3), (3, 2), (14, 4)] {
            let groups = formed(&nodes(count), set_size, failures);
            let small = groups.groups.iter().any(|set| set.size() <= failures);
            assert_eq!(small, count <= failures, "{count} nodes, {set_size} {failures}");
            assert_eq!(groups.weaker.is_some(), small);
            assert!(groups.groups.iter().all(|set| set.size() < 2 * set_size), "{count} nodes, {set_size} {failures}");
        }
    }
}

#[test]
fn a_set_of_few_nodes_survives_the_loss_of_all_but_one_and_says_so() {
    assert_eq!((tolerance(2, 3), tolerance(3, 3), tolerance(4, 3), tolerance(1, 3)), (1, 2, 3, 0));
    let groups = formed(&[0, 1], 8, 2);
    let expected = "RS was requested to survive 2 lost nodes of a set, but 1 set has fewer members than that needs; \
                    the smallest one has 2 and survives 1: use more nodes, or spread the ranks more evenly";
    assert_eq!(groups.weaker.unwrap().to_string(), expected);
    assert_eq!(formed(&[0, 1, 2], 8, 2).weaker, None);
}

#[test]
fn numbers_that_no_code_has_are_refused() {
    let refused = |set_size, failures| {
        registry::check(GroupRules { scheme: NAME, numbers: &numbers(set_size, failures) })
            .map_err(|error| error.to_string())
    };
    assert_eq!(refused(8, 2), Ok(()));
    assert_eq!(refused(64, 63), Ok(()));
    let expected = "number of failures 4 cannot be used with RS: a set of 4 members cannot lose 4; write fewer \
                    `failures`, or a larger `set_size`";
    assert_eq!(refused(4, 4).unwrap_err(), expected);
    let expected = "set size 200 cannot be used with RS: with 2 failures a set can have at most 127 members; write a \
                    smaller `set_size` (8 to 16 are usual)";
    assert_eq!(refused(200, 2).unwrap_err(), expected);
    assert_eq!(refused(127, 2), Ok(()));
    assert!(refused(128, 2).is_err());
    assert!(refused(8, 0).is_err());
}
