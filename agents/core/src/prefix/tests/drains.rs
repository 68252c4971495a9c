//! Every drain of the fixtures: the files that `scr_copy` copied are added, and the result is compared with that of
//! `scr_index --add`, or, in the tests named `trap`, with the correct result.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_testkit::{application_bytes, fixtures, scratch_copy};
use tempfile::TempDir;

use super::world::{add_with, at, name, names_in};
use crate::control::filemap::Filemap;
use crate::kvtree::file;
use crate::prefix::add::{AddOptions, AddOutcome, AddReport, add};
use crate::prefix::rank_filemap::{FilemapWriter, RankFilemap};
use crate::prefix::{index, summary};
use crate::store::PosixStore;
use holdfast_model::{CheckpointId, Rank};

/// Drains whose result must be better than SCR's; each has its own test below.
const TRAPS: [&str; 4] = [
    // SCR calls the set invalid because one filemap is missing.
    "f-drain-xor/pfs-scrfilemap-missing",
    // SCR rebuilds from a corrupt survivor and calls the result complete.
    "f-drain-xor/pfs-file-corrupt-same-size",
    // SCR detects the corruption only in the rebuilt file, and lists the corrupt survivor as intact.
    "f-drain-xor/crc-on-copy-corrupt-survivor",
    // SCR rebuilds the one set but lists the files from before.
    "f2-drain-xor-8nodes/group0-loses-two-group4-loses-one",
];

struct Drained {
    scratch: TempDir,
    directory: String,
    report: AddReport,
}

impl Drained {
    fn checkpoint(&self) -> PathBuf {
        self.scratch.path().join(&self.directory)
    }
}

fn drains() -> Vec<String> {
    let root = fixtures("scr");
    let mut drains = Vec::new();
    for scenario in ["f-drain-xor", "f2-drain-xor-8nodes", "f3-drain-xor-remainder", "g-drain-partner"] {
        for state in names_in(&root.join(scenario)) {
            if root.join(scenario).join(&state).join("input/tree/pfs").is_dir() {
                drains.push(format!("{scenario}/{state}"));
            }
        }
    }
    drains
}

fn drain_directory(prefix: &Path) -> Option<String> {
    names_in(prefix).into_iter().find(|name| name.starts_with("scr.2011-04-15"))
}

/// Adds the drain with the time at which SCR added it.
fn run(drain: &str) -> Drained {
    let root = fixtures("scr").join(drain);
    let scratch = scratch_copy(&root.join("input/tree/pfs"));
    let directory = drain_directory(scratch.path()).unwrap();
    let expected = index::read(&PosixStore::open(root.join("expected/tree/pfs")).unwrap()).unwrap().unwrap();
    let when = expected.entry(&name(&directory)).unwrap().flushed.unwrap();
    let prefix = PosixStore::open(scratch.path()).unwrap();
    let report = add(&prefix, &name(&directory), when, &AddOptions::default(), &|_| {}).unwrap();
    Drained { scratch, directory, report }
}

#[test]
fn every_drain_ends_as_with_scr() {
    let mut compared = 0;
    for drain in drains() {
        if TRAPS.contains(&drain.as_str()) || drain == "f-drain-xor/already-flushed" {
            continue;
        }
        let drained = run(&drain);
        let expected = fixtures("scr").join(&drain).join("expected/tree/pfs");
        let theirs = index::read(&PosixStore::open(&expected).unwrap()).unwrap().unwrap();
        let ours = index::read(&PosixStore::open(drained.scratch.path()).unwrap()).unwrap().unwrap();
        // The index of one added directory is deterministic, to the byte.
        assert_eq!(file::encode(&ours.to_tree()), fs::read(expected.join("index.scr")).unwrap(), "{drain}: index");
        let complete = theirs.entry(&name(&drained.directory)).unwrap().complete;
        assert_eq!(Some(drained.report.is_complete()), complete, "{drain}: {:?}", drained.report);
        same_checkpoint(&drain, &drained.checkpoint(), &expected.join(&drained.directory));
        compared += 1;
    }
    assert!(compared >= 25, "only {compared} drains were compared");
}

/// Every file to the byte; summaries are parsed, because SCR lists files in the order of `readdir`. The other
/// hash files are compared to the byte too.
fn same_checkpoint(drain: &str, ours: &Path, theirs: &Path) {
    assert_eq!(names_in(ours), names_in(theirs), "{drain}");
    for file_name in names_in(theirs) {
        let (mine, original) = (ours.join(&file_name), theirs.join(&file_name));
        if file_name == summary::SUMMARY_FILE {
            let (mine, original) = (file::read(&mine).unwrap(), file::read(&original).unwrap());
            assert!(mine.same_content(&original), "{drain}: {mine:#?} instead of {original:#?}");
        } else {
            assert!(fs::read(mine).unwrap() == fs::read(original).unwrap(), "{drain}: {file_name} differs");
        }
    }
}

#[test]
fn adding_again_changes_nothing() {
    for drain in drains() {
        if drain == "f-drain-xor/already-flushed" {
            continue;
        }
        let drained = run(&drain);
        let before = super::world::snapshot(drained.scratch.path());
        let again = AddOptions { rescan: true, ..AddOptions::default() };
        let report = add_with(drained.scratch.path(), &drained.directory, &again).unwrap();
        assert_eq!(report.is_complete(), drained.report.is_complete(), "{drain}");
        assert!(report.rebuilt.is_empty(), "{drain}");
        assert!(super::world::snapshot(drained.scratch.path()) == before, "{drain}");
    }
}

#[test]
fn a_directory_without_any_file_is_not_indexed() {
    let input = fixtures("scr").join("f-drain-xor/already-flushed/input/tree/pfs");
    let scratch = scratch_copy(&input);
    let directory = "scr.2011-04-15_12:00:00.1145655.2";
    fs::create_dir_all(scratch.path().join(directory)).unwrap();
    let report = add_with(scratch.path(), directory, &AddOptions::default()).unwrap();
    assert_eq!(report.outcome, AddOutcome::NothingUsable);
    assert!(!report.is_complete());
    let index = index::read(&PosixStore::open(scratch.path()).unwrap()).unwrap().unwrap_or_default();
    assert_eq!(index.entry(&name(directory)), None);
}

#[test]
fn a_dry_run_reports_the_same_and_changes_nothing() {
    let scratch = scratch_copy(&fixtures("scr").join("f-drain-xor/one-node-lost/input/tree/pfs"));
    let directory = drain_directory(scratch.path()).unwrap();
    let before = super::world::snapshot(scratch.path());
    let options = AddOptions { dry_run: true, ..AddOptions::default() };
    let report = add_with(scratch.path(), &directory, &options).unwrap();
    assert_eq!(report.outcome, AddOutcome::Rebuildable);
    assert_eq!(
        report.rebuilt.iter().map(|set| (set.ranks.clone(), set.missing.clone())).collect::<Vec<_>>(),
        [(vec![Rank(2)], vec![2])]
    );
    assert!(super::world::snapshot(scratch.path()) == before);
    assert!(!scratch.path().join(".holdfast").exists());
}

#[test]
fn trap_a_lost_filemap_is_restored_from_the_xor_header_to_the_byte() {
    let drained = run("f-drain-xor/pfs-scrfilemap-missing");
    assert_eq!(drained.report.outcome, AddOutcome::Complete);
    assert!(drained.report.rebuilt.is_empty(), "no data was lost: {:?}", drained.report);
    // The same checkpoint, drained without any loss.
    let undamaged = fixtures("scr").join("f-drain-xor/complete-no-loss/expected/tree/pfs").join(&drained.directory);
    same_checkpoint("pfs-scrfilemap-missing", &drained.checkpoint(), &undamaged);
}

#[test]
fn trap_a_corrupt_survivor_is_never_used_for_a_rebuild() {
    for drain in ["f-drain-xor/pfs-file-corrupt-same-size", "f-drain-xor/crc-on-copy-corrupt-survivor"] {
        let drained = run(drain);
        assert_eq!(drained.report.outcome, AddOutcome::Incomplete, "{drain}");
        assert!(drained.report.rebuilt.is_empty(), "{drain}");
        let damaged: Vec<_> = drained.report.damaged.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(damaged, ["rank_1.ckpt"], "{drain}");
        assert!(!drained.checkpoint().join("rank_2.ckpt").exists(), "{drain}");
        let summary = summary::read(&*at(&drained.checkpoint())).unwrap();
        assert!(!summary.complete);
        let listed = |rank| summary.to_fetch(Rank(rank)).map(|file| file.name.as_str()).collect::<Vec<_>>();
        assert_eq!(
            [listed(0), listed(1), listed(2), listed(3)],
            [vec!["rank_0.ckpt"], vec![], vec![], vec!["rank_3.ckpt"]]
        );
        let index = index::read(&PosixStore::open(drained.scratch.path()).unwrap()).unwrap().unwrap();
        assert_eq!(index.entry(&name(&drained.directory)).unwrap().complete, Some(false));
    }
}

#[test]
fn trap_one_set_is_rebuilt_and_listed_although_another_is_lost() {
    let drained = run("f2-drain-xor-8nodes/group0-loses-two-group4-loses-one");
    assert_eq!(drained.report.outcome, AddOutcome::Incomplete);
    assert_eq!(drained.report.rebuilt.iter().flat_map(|set| set.ranks.clone()).collect::<Vec<_>>(), [Rank(4)]);
    let summary = summary::read(&*at(&drained.checkpoint())).unwrap();
    assert_eq!(summary.by_rank.keys().map(|rank| rank.0).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
    let file = summary.to_fetch(Rank(4)).next().unwrap();
    let bytes = fs::read(drained.checkpoint().join(&file.name)).unwrap();
    assert!(bytes == application_bytes(1, 4, 0, bytes.len()));
    assert_eq!(file.crc, Some(crc32fast::hash(&bytes)));
}

#[test]
fn a_copied_rank_gets_the_filemap_that_scr_copy_wrote() {
    let root = fixtures("scr");
    let mut compared = 0;
    // Node k of these sources ran the ranks whose filemaps are compared.
    for (source, drain, id) in [
        ("a-xor4/killed-before-flush", "f-drain-xor/complete-no-loss", 3),
        ("b-xor4-2groups/killed-before-flush", "f-drain-xor/multi-file-one-node-lost", 3),
        ("c-partner/killed-before-flush", "g-drain-partner/complete-no-loss", 2),
    ] {
        let drained = root.join(drain).join("input/tree/pfs");
        let directory = drained.join(drain_directory(&drained).unwrap());
        for node in 0..4 {
            let control = root.join(source).join(format!("tree/node{node}/user1/scr.1145655"));
            for file_name in names_in(&control).iter().filter(|name| name.starts_with("filemap_")) {
                let cache = Filemap::read(&control.join(file_name)).unwrap();
                for rank in cache.ranks(CheckpointId(id)) {
                    let tree = file::read(&control.join(file_name)).unwrap();
                    let record = tree.path(&["RANK", &rank.to_string(), "CKPT", &id.to_string()]).unwrap();
                    let path = directory.join(RankFilemap::name_of(rank));
                    // Partner copies and neighbours' descriptors are not copied by this node.
                    if record.get("PARTNER").is_some() || record.get("EXPECT").is_none() || !path.exists() {
                        continue;
                    }
                    let files = record.get("FILE").unwrap().keys();
                    let files = files.map(|file| file.rsplit('/').next().unwrap().to_owned()).collect();
                    let expected = record.parsed("EXPECT").unwrap();
                    let filemap = RankFilemap { rank, id: CheckpointId(id), files, expected };
                    assert_eq!(
                        file::encode(&filemap.to_tree(FilemapWriter::Copy)),
                        fs::read(&path).unwrap(),
                        "{}",
                        path.display()
                    );
                    assert_eq!(RankFilemap::read(&*at(&directory), &RankFilemap::name_of(rank)).unwrap(), filemap);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared >= 12, "only {compared} filemaps were compared");
}

#[test]
fn a_rebuilt_rank_has_the_filemap_that_scr_rebuild_xor_wrote() {
    let expected = fixtures("scr").join("f-drain-xor/multi-file-one-node-lost/expected/tree/pfs");
    let directory = expected.join(drain_directory(&expected).unwrap());
    for rank in [4, 5].map(Rank) {
        let path = directory.join(RankFilemap::name_of(rank));
        let filemap = RankFilemap::read(&*at(&directory), &RankFilemap::name_of(rank)).unwrap();
        assert_eq!(file::encode(&filemap.to_tree(FilemapWriter::Rebuild)), fs::read(&path).unwrap());
    }
}
