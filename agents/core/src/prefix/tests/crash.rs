//! Kills: at any instant of an index update, and between any two steps of an add.

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};

use super::world::{add_with, drained_checkpoint, name, some_time, write_tree};
use crate::ids::CheckpointId;
use crate::kvtree::file;
use crate::prefix::add::{AddOptions, Outcome};
use crate::prefix::inspect::{inspect, summary_of};
use crate::prefix::scan::{ScanOptions, scan};
use crate::prefix::{Prefix, index, rebuild, summary};

/// Tells the child process where to work; without it the child's test does nothing.
const WHERE: &str = "HOLDFAST_TEST_PREFIX";
/// So many updates and the child ends by itself, should nobody kill it.
const UPDATES: u64 = 2000;

fn ids(prefix: &Prefix) -> Vec<u64> {
    let mut ids: Vec<u64> = index::read(prefix).unwrap().unwrap().entries().iter().map(|entry| entry.id.0).collect();
    ids.sort_unstable();
    ids
}

#[test]
#[ignore = "the process that the_index_is_old_or_new_whenever_its_writer_is_killed kills"]
fn writer_that_is_killed() {
    let Some(path) = std::env::var_os(WHERE) else { return };
    let prefix = Prefix::open(path).unwrap();
    let first = index::read(&prefix).unwrap().unwrap_or_default().entries().len() as u64 + 1;
    for id in first..first + UPDATES {
        index::update(&prefix, |index| index.add(CheckpointId(id), &name(&format!("d{id}")), some_time())).unwrap();
        println!("\nwritten {id}");
    }
}

#[test]
fn the_index_is_old_or_new_whenever_its_writer_is_killed() {
    let scratch = tempfile::tempdir().unwrap();
    let prefix = Prefix::open(scratch.path()).unwrap();
    for round in 1..=12 {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "prefix::tests::crash::writer_that_is_killed", "--ignored", "--nocapture"])
            .env(WHERE, scratch.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(writer.stdout.take().unwrap()).lines().map_while(Result::ok);
        let written = lines.filter_map(|line| line.strip_prefix("written ")?.parse::<u64>().ok()).nth(round).unwrap();
        writer.kill().unwrap();
        writer.wait().unwrap();
        // Whatever instant the kill met: a whole index, with all that was acknowledged, and a lock that is free.
        let found = ids(&prefix);
        assert!(found.len() as u64 >= written);
        assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
        index::update(&prefix, |index| index.set_complete(&name("d1"), true)).unwrap();
    }
}

#[test]
fn the_state_before_the_rename_is_the_old_index_and_is_overcome() {
    let scratch = tempfile::tempdir().unwrap();
    let prefix = Prefix::open(scratch.path()).unwrap();
    index::update(&prefix, |index| index.add(CheckpointId(1), &name("d1"), some_time())).unwrap();
    let mut new = index::read(&prefix).unwrap().unwrap();
    new.add(CheckpointId(2), &name("d2"), some_time());
    let bytes = file::encode(&new.to_tree());
    // A temporary file that was made, half written, and wholly written, each left by a kill.
    for length in [0, bytes.len() / 2, bytes.len()] {
        fs::write(scratch.path().join(format!(".hf-index.scr.{length}.tmp")), &bytes[..length]).unwrap();
        assert_eq!(ids(&prefix), [1]);
    }
    index::update(&prefix, |index| index.add(CheckpointId(3), &name("d3"), some_time())).unwrap();
    assert_eq!(ids(&prefix), [1, 3]);
}

#[test]
fn updates_at_the_same_time_are_all_there_in_the_end() {
    let scratch = tempfile::tempdir().unwrap();
    let prefix = Prefix::open(scratch.path()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let prefix = &prefix;
            scope.spawn(move || {
                for id in (1 + thread..=40).step_by(4) {
                    index::update(prefix, |index| index.add(CheckpointId(id), &name(&format!("d{id}")), some_time()))
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(ids(&prefix), (1..=40).collect::<Vec<_>>());
}

#[test]
fn an_update_that_changes_nothing_writes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let prefix = Prefix::open(scratch.path()).unwrap();
    index::update(&prefix, |_| ()).unwrap();
    assert!(index::read(&prefix).unwrap().is_none());
}

/// What a drain left: rank 1 lost, rank 6's filemap lost.
fn drained(prefix: &Path) -> &'static str {
    let directory = prefix.join("drained");
    drained_checkpoint(&directory, 9, 8, 4);
    for file in
        ["rank_1.ckpt", "rank_1.ckpt.scr", "2_of_4_in_0.xor", "2_of_4_in_0.xor.scr", "1.scrfilemap", "6.scrfilemap"]
    {
        fs::remove_file(directory.join(file)).unwrap();
    }
    "drained"
}

#[test]
fn an_add_that_was_killed_between_two_steps_is_completed_by_the_next() {
    let drain = AddOptions { make_current: true, ..AddOptions::default() };
    for killed_after in 0..6 {
        let scratch = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(scratch.path()).unwrap();
        let directory = drained(scratch.path());
        let path = scratch.path().join(directory);
        let judge = || {
            let scanned = scan(&path, ScanOptions::default()).unwrap();
            let inspection = inspect(&scanned);
            (scanned, inspection)
        };
        // The steps one by one, up to the kill.
        if killed_after >= 1 {
            index::update(&prefix, |index| index.add(CheckpointId(9), &name(directory), some_time())).unwrap();
        }
        if killed_after >= 2 {
            let (_, inspection) = judge();
            for set in rebuild::plan(&inspection) {
                rebuild::run(&path, &set, &mut |_| ControlFlow::Continue(())).unwrap();
            }
        }
        let (scanned, inspection) = judge();
        if killed_after >= 3 {
            for filemap in scanned.lost_filemaps() {
                filemap.write(&path, crate::prefix::rank_filemap::Origin::Copy).unwrap();
            }
        }
        if killed_after >= 4 {
            summary::write(&path, &summary_of(&scanned, &inspection).unwrap()).unwrap();
        }
        if killed_after >= 5 {
            index::update(&prefix, |index| index.set_complete(&name(directory), true)).unwrap();
        }
        let report = add_with(scratch.path(), directory, &drain).unwrap();
        let outcome = if killed_after == 5 { Outcome::AlreadyComplete } else { Outcome::Complete };
        assert_eq!(report.outcome, outcome, "killed after {killed_after}: {:?}", report.reasons);
        assert_eq!(summary::read(&path).unwrap().accept(8), Ok(()));
        let entry = index::read(&prefix).unwrap().unwrap().entry(&name(directory)).unwrap();
        assert_eq!((entry.complete, entry.id), (Some(true), CheckpointId(9)));
        assert_eq!(prefix.current().unwrap(), Some(name(directory)));
    }
}

#[test]
fn a_rebuild_that_was_stopped_leaves_no_member_that_looks_whole() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = drained(scratch.path());
    let path = scratch.path().join(directory);
    let set = inspect(&scan(&path, ScanOptions::default()).unwrap()).rebuildable.remove(0);
    assert!(rebuild::run(&path, &set, &mut |_| ControlFlow::Break(())).is_err());
    assert_eq!(inspect(&scan(&path, ScanOptions::default()).unwrap()).rebuildable, [set]);
    // A half-written temporary file of a rebuild, and one of a meta file, are nobody's files.
    fs::write(path.join(".hf-rank_1.ckpt.1.tmp"), b"half").unwrap();
    write_tree(&path.join(".hf-1.scrfilemap.2.tmp"), &crate::kvtree::Tree::new());
    assert!(add_with(scratch.path(), directory, &AddOptions::default()).unwrap().is_complete());
}
