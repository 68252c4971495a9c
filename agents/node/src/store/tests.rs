use super::*;
use std::fs;
use std::path::Path;

use holdfast_core::control::meta::Meta;
use holdfast_core::kvtree::file;
use holdfast_model::Locations;

use crate::fixtures::{base, fixture_start};
use crate::store::fixtures::fixture;

fn fixture_paths(root: &Path, node: &str) -> Paths {
    Paths::new(&fixture_start(root, node))
}

/// The files of a rank by base name and path on this machine, in filemap order.
pub(super) fn file_paths(store: &Store, checkpoint: CheckpointId, rank: Rank) -> Vec<(String, PathBuf)> {
    let filemaps = store.filemaps.lock();
    let Some(map) = filemaps.holder(checkpoint, rank) else { return Vec::new() };
    map.files(checkpoint, rank)
        .map(|path| (base_name(path).unwrap().to_owned(), store.paths.real_of_job(path, &filemaps.bases).unwrap()))
        .collect()
}

pub(super) fn descriptor(rank: u32, node: &str) -> Tree {
    let mut tree = Tree::new();
    tree.put("SET_SIZE", 4);
    tree.put("HOP_DISTANCE", 1);
    tree.put("GROUP_RANK", rank);
    tree.put("GROUP_SIZE", 4);
    tree.put("GROUP_ID", 0);
    tree.put("GROUPS", 1);
    tree.put("TYPE", "XOR");
    tree.put("DIRECTORY", format!("{}/user1/scr.1145655/index.0", base(node)));
    tree.put("BASE", base(node));
    tree.put("INTERVAL", 1);
    tree.put("INDEX", 0);
    tree.put("ENABLED", 1);
    tree
}

/// An empty node on which rank 0 runs.
fn fresh() -> (tempfile::TempDir, Store) {
    let root = tempfile::tempdir().unwrap();
    let paths = fixture_paths(root.path(), "node0");
    fs::create_dir_all(paths.control()).unwrap();
    let store = Store::open(paths, vec![base("node0")]).unwrap();
    store.begin_run(&[Rank(0)], &[base("node0")]).unwrap();
    (root, store)
}

fn checkpoint(store: &Store, id: u64) {
    let id = CheckpointId(id);
    let own = descriptor(0, "node0");
    store.set_descriptor(id, Rank(0), Rank(0), &own).unwrap();
    store.make_directory(id, &own).unwrap();
    let path = store.add_file(id, Rank(0), Rank(0), "out/rank_0.ckpt").unwrap();
    fs::write(path, "data").unwrap();
    store.set_descriptor(id, Rank(0), Rank(3), &descriptor(3, "node3").reversed()).unwrap();
    store.add_file(id, Rank(0), Rank(0), "1_of_4_in_0.xor").unwrap();
    store.set_expected(id, Rank(0), Rank(0), 2).unwrap();
    store.flush.note(id, Locations { cache: true, ..Locations::default() }).unwrap();
}

#[test]
fn the_files_after_three_checkpoints_equal_those_of_scr_byte_for_byte() {
    let (_root, store) = fresh();
    store.write_nodes(4).unwrap();
    checkpoint(&store, 1);
    checkpoint(&store, 2);
    store.delete(CheckpointId(1)).unwrap();
    checkpoint(&store, 3);
    store.fold_logs().unwrap();
    let theirs = holdfast_testkit::fixtures("scr").join("a-xor4/killed-before-flush/tree/node0/user1/scr.1145655");
    for name in ["filemap.scrinfo", "filemap_0.scrinfo", "flush.scrinfo", "nodes.scrinfo"] {
        let (ours, theirs) = (store.paths.control().join(name), theirs.join(name));
        assert_eq!(file::read(&ours).unwrap(), file::read(&theirs).unwrap(), "{name}");
        assert_eq!(fs::read(&ours).unwrap(), fs::read(&theirs).unwrap(), "{name}");
    }
}

#[test]
fn checkpoints_of_scr_are_complete() {
    let (_root, store) = fixture("a-xor4/killed-before-flush", "node1");
    assert_eq!(store.checkpoints(), [CheckpointId(2), CheckpointId(3)]);
    assert_eq!(store.files(CheckpointId(3), Rank(1)), ["2_of_4_in_0.xor", "rank_1.ckpt"]);
    assert!(store.has(CheckpointId(3), Rank(1)).unwrap());
    assert!(!store.has(CheckpointId(3), Rank(0)).unwrap(), "only the descriptor of the left neighbour");
    assert_eq!(store.descriptor(CheckpointId(3), Rank(0)).unwrap().value("GROUP_RANK"), Some("0"));
    assert_eq!(store.in_base(&base("node1")), [CheckpointId(2), CheckpointId(3)]);
    let locations = store.flush.locations().unwrap();
    assert!(locations[&CheckpointId(3)].cache && !locations[&CheckpointId(3)].pfs);
}

#[test]
fn an_unfinished_checkpoint_is_listed_and_not_complete() {
    let (_root, store) = fixture("a-xor4/killed-mid-checkpoint", "node1");
    assert_eq!(store.files(CheckpointId(2), Rank(1)), ["rank_1.ckpt"]);
    assert!(!store.has(CheckpointId(2), Rank(1)).unwrap());
    assert!(store.has(CheckpointId(1), Rank(1)).unwrap());
}

#[test]
fn redundancy_that_is_being_made_is_not_counted_among_the_files_that_are_expected() {
    let (_root, store) = fixture("a-xor4/killed-before-flush", "node1");
    let (checkpoint, rank) = (CheckpointId(3), Rank(1));
    let with = |files| {
        store.set_expected(checkpoint, rank, rank, files).unwrap();
        (store.is_listed(checkpoint, rank), store.has(checkpoint, rank).unwrap())
    };
    assert_eq!([with(2), with(1)], [(true, true); 2], "with its redundancy file, and before that is expected");
    assert_eq!([with(0), with(3)], [(false, false); 2]);
    store.unset_expected(checkpoint, rank, rank).unwrap();
    assert!(!store.is_listed(checkpoint, rank));
}

#[test]
fn a_run_with_other_ranks_takes_over_every_entry() {
    let (root, store) = fixture("a-xor4/killed-before-flush", "node1");
    store.begin_run(&[Rank(0), Rank(1), Rank(7)], &[base("node1")]).unwrap();
    let again = Store::open(fixture_paths(root.path(), "node1"), vec![base("node1")]).unwrap();
    for store in [&store, &again] {
        assert!(store.has(CheckpointId(2), Rank(1)).unwrap() && store.has(CheckpointId(3), Rank(1)).unwrap());
        assert_eq!(store.files(CheckpointId(3), Rank(1)), ["2_of_4_in_0.xor", "rank_1.ckpt"]);
        assert!(store.descriptor(CheckpointId(3), Rank(0)).is_some());
    }
    let (on_disk, _) = again.on_disk().unwrap();
    assert_eq!(
        on_disk.slots.iter().map(|(level, map)| (*level, map.all_ranks())).collect::<Vec<_>>(),
        [(0, vec![Rank(0)]), (1, vec![Rank(1)]), (2, vec![]),]
    );
    store.begin_run(&[], &[]).unwrap();
    assert!(store.has(CheckpointId(3), Rank(1)).unwrap(), "a spare keeps its files");
    assert_eq!(store.on_disk().unwrap().0.slots.len(), 1);
    let control = store.paths.control();
    assert!(!control.join("filemap_1.scrinfo").exists() && !control.join("filemap_3.scrinfo").exists());
}

#[test]
fn beginning_the_same_run_again_changes_nothing() {
    let (_root, store) = fixture("a-xor4/killed-before-flush", "node1");
    let map = store.paths.control().join("filemap_0.scrinfo");
    let before = fs::read(&map).unwrap();
    store.begin_run(&[Rank(1)], &[]).unwrap();
    store.begin_run(&[Rank(1)], &[]).unwrap();
    assert_eq!(fs::read(&map).unwrap(), before);
}

#[test]
fn a_checkpoint_is_deleted_with_files_directory_and_entries_and_can_be_deleted_again() {
    let (root, store) = fixture("a-xor4/killed-before-flush", "node1");
    let directory = root.path().join("tmp/scr-fixture/node1/user1/scr.1145655/index.0/checkpoint.2");
    assert!(directory.is_dir());
    fs::write(directory.join("left_by_the_application"), "x").unwrap();
    store.delete(CheckpointId(2)).unwrap();
    store.delete(CheckpointId(2)).unwrap();
    assert!(!directory.exists());
    assert_eq!(store.checkpoints(), [CheckpointId(3)]);
    assert!(!store.flush.locations().unwrap().contains_key(&CheckpointId(2)));
    assert!(store.has(CheckpointId(3), Rank(1)).unwrap());
}

#[test]
fn partner_copies_become_own_files_of_a_rank_that_moves_here() {
    let (_root, store) = fixture("c-partner/killed-before-flush", "node0");
    let id = *store.checkpoints().last().unwrap();
    let guest = store.ranks(id).into_iter().find(|rank| store.partner(id, *rank).is_some()).unwrap();
    let files = store.files(id, guest);
    assert!(store.has(id, guest).unwrap());
    store.begin_run(&[Rank(0)], &[]).unwrap();
    assert!(store.partner(id, guest).is_some());
    store.begin_run(&[Rank(0), guest], &[]).unwrap();
    assert_eq!(store.partner(id, guest), None);
    assert!(store.has(id, guest).unwrap());
    assert_eq!(store.files(id, guest), files);
}

#[test]
fn entries_move_between_slots_and_keep_their_order() {
    let (_root, store) = fixture("a-xor4/killed-before-flush", "node1");
    store.begin_run(&[Rank(1), Rank(5)], &[]).unwrap();
    let files = store.files(CheckpointId(3), Rank(1));
    store.move_rank_to_slot(Rank(1), Rank(5)).unwrap();
    assert_eq!(store.on_disk().unwrap().0.slots[1].1.all_ranks(), [Rank(1)]);
    assert_eq!(store.files(CheckpointId(3), Rank(1)), files);
    store.move_rank_to_slot(Rank(1), Rank(1)).unwrap();
    assert_eq!(store.files(CheckpointId(3), Rank(1)), files);
    assert!(store.has(CheckpointId(3), Rank(1)).unwrap());
    assert!(matches!(store.move_rank_to_slot(Rank(1), Rank(9)), Err(StoreError::NoSlot(Rank(9)))));
}

#[test]
fn a_damaged_filemap_is_reported_and_hides_no_other() {
    let (root, store) = fixture("a-xor4/killed-before-flush", "node1");
    store.begin_run(&[Rank(1), Rank(5)], &[]).unwrap();
    let control = store.paths.control();
    fs::write(control.join("filemap_1.scrinfo"), "not a filemap").unwrap();
    let again = Store::open(fixture_paths(root.path(), "node1"), vec![base("node1")]).unwrap();
    assert!(again.has(CheckpointId(3), Rank(1)).unwrap());
    assert!(again.faults()[0].contains("filemap_1.scrinfo"), "{:?}", again.faults());
    again.begin_run(&[Rank(1), Rank(5)], &[]).unwrap();
    assert!(again.has(CheckpointId(3), Rank(1)).unwrap());
    assert!(control.join("filemap_1.scrinfo.damaged").exists());

    fs::write(control.join("filemap.scrinfo"), "").unwrap();
    let again = Store::open(fixture_paths(root.path(), "node1"), vec![base("node1")]).unwrap();
    assert!(again.has(CheckpointId(3), Rank(1)).unwrap(), "found without the master filemap");
    assert_eq!(again.faults().len(), 1);
}

#[test]
fn entries_outside_of_the_job_s_directories_are_ignored() {
    let (root, store) = fresh();
    let outside = root.path().join("tmp/precious");
    fs::write(&outside, "x").unwrap();
    let id = CheckpointId(1);
    let mut hostile = Filemap::new();
    hostile.set_descriptor(id, Rank(0), descriptor(0, "node0"));
    hostile.add_file(id, Rank(0), "/tmp/precious");
    hostile.set_expected(id, Rank(0), 1);
    hostile.write(&store.paths.control().join("filemap_0.scrinfo")).unwrap();
    store.begin_run(&[Rank(0)], &[]).unwrap();
    assert!(!store.has(id, Rank(0)).unwrap());
    store.delete(id).unwrap();
    assert!(outside.exists() && store.checkpoints().is_empty());
    assert!(
        store
            .directory(id, &{
                let mut tree = Tree::new();
                tree.put("DIRECTORY", "/tmp/../etc");
                tree
            })
            .is_err()
    );
    assert!(store.add_file(id, Rank(0), Rank(0), "..").is_err());
}

#[test]
fn a_file_is_removed_with_its_meta_file_and_entry() {
    let (_root, store) = fixture("a-xor4/killed-before-flush", "node1");
    let paths = file_paths(&store, CheckpointId(3), Rank(1));
    store.remove_file(CheckpointId(3), Rank(1), "rank_1.ckpt").unwrap();
    assert!(!paths[1].1.exists() && !Meta::path_for(&paths[1].1).exists() && paths[0].1.exists());
    assert_eq!(store.files(CheckpointId(3), Rank(1)), ["2_of_4_in_0.xor"]);
    store.delete_rank(CheckpointId(3), Rank(1)).unwrap();
    assert!(!paths[0].1.exists() && store.files(CheckpointId(3), Rank(1)).is_empty());
}

#[test]
fn a_crash_between_any_two_files_of_a_redistribution_loses_no_entry() {
    let (root, store) = fixture("a-xor4/killed-before-flush", "node1");
    store.begin_run(&[Rank(0), Rank(1)], &[]).unwrap();
    let control = store.paths.control();
    let (on_disk, _) = store.on_disk().unwrap();
    let (first, second) = (&on_disk.slots[0].1, &on_disk.slots[1].1);
    // The steps of `begin_run(&[Rank(1), Rank(0)])`: all entries in a further file, then slot by slot, then without
    // that file.
    let mut all = Filemap::new();
    for rank in [Rank(0), Rank(1)] {
        all.merge(&first.clone().extract_rank(rank));
        all.merge(&second.clone().extract_rank(rank));
    }
    let master = fs::read(control.join("filemap.scrinfo")).unwrap();
    let check_all_entries = || {
        let store = Store::open(fixture_paths(root.path(), "node1"), vec![base("node1")]).unwrap();
        assert!(store.has(CheckpointId(2), Rank(1)).unwrap() && store.has(CheckpointId(3), Rank(1)).unwrap());
        assert_eq!(store.files(CheckpointId(3), Rank(1)), ["2_of_4_in_0.xor", "rank_1.ckpt"]);
        assert!(store.descriptor(CheckpointId(3), Rank(0)).is_some());
        store
    };
    all.write(&control.join("filemap_2.scrinfo")).unwrap();
    check_all_entries();
    let mut listed = holdfast_core::control::filemap::MasterFilemap::new();
    for level in 0..3 {
        listed.add(&format!("{}/filemap_{level}.scrinfo", store.paths.control_node_path()));
    }
    listed.write(&control.join("filemap.scrinfo")).unwrap();
    check_all_entries();
    second.write(&control.join("filemap_0.scrinfo")).unwrap();
    check_all_entries();
    first.write(&control.join("filemap_1.scrinfo")).unwrap();
    check_all_entries();
    // The next run cleans up in every case.
    let store = check_all_entries();
    store.begin_run(&[Rank(1), Rank(0)], &[]).unwrap();
    assert!(!control.join("filemap_2.scrinfo").exists());
    assert_eq!(fs::read(control.join("filemap.scrinfo")).unwrap(), master);
    let store = check_all_entries();
    assert_eq!(store.on_disk().unwrap().0.slots[0].1.all_ranks(), [Rank(1)]);
}
