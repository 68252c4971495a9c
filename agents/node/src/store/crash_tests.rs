//! Interrupts the agent at every call of routing, sealing, completing and deleting: every file that exists afterwards
//! has an entry, and the next agent finishes the work.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_core::control::meta::Meta;
use holdfast_core::crash::{EXHAUSTED, Subject, write_file};
use holdfast_core::temporary;
use holdfast_model::{CheckpointId, Locations, Rank};

use super::Store;
use super::tests::{descriptor, file_paths};
use crate::directories::paths::Paths;
use crate::fixtures::{base, fixture_start};

const RANKS: [Rank; 2] = [Rank(0), Rank(1)];
const FILES: u32 = 2;

fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

/// As an agent that starts.
fn open(root: &Path) -> Result<Store, String> {
    let paths = Paths::new(&fixture_start(root, "node0"));
    fs::create_dir_all(paths.control()).unwrap();
    temporary::remove_abandoned_below(&paths.control()).map_err(text)?;
    let store = Store::open(paths, vec![base("node0")]).map_err(text)?;
    match store.faults().as_slice() {
        [] => Ok(store),
        faults => Err(faults.join("; ")),
    }
}

fn name(rank: Rank, file: u32) -> String {
    format!("rank_{rank}.{file}.ckpt")
}

/// Starts, routes, writes and completes a checkpoint; can be repeated.
fn take_checkpoint(store: &Store, id: CheckpointId) -> Result<(), String> {
    for rank in RANKS {
        let own = descriptor(rank.0, "node0");
        store.set_descriptor(id, rank, rank, &own).map_err(text)?;
        store.make_directory(id, &own).map_err(text)?;
    }
    for file in 0..FILES {
        for rank in RANKS {
            let path = store.add_file(id, rank, rank, &name(rank, file)).map_err(text)?;
            write_file(&path, b"data").map_err(text)?;
        }
    }
    for rank in RANKS {
        for (file, path) in file_paths(store, id, rank) {
            Meta::of_application(file, 4, id, rank, RANKS.len() as u32).write_unsynced(&path).map_err(text)?;
        }
        store.set_expected(id, rank, rank, FILES).map_err(text)?;
    }
    store.fold_logs().map_err(text)?;
    store.flush.note(id, Locations { cache: true, ..Locations::default() }).map_err(text)
}

/// All steps of an agent with one checkpoint in cache.
fn work(root: &Path) -> Result<(), String> {
    let store = open(root)?;
    store.begin_run(&RANKS, &[]).map_err(text)?;
    take_checkpoint(&store, CheckpointId(1))?;
    store.delete(CheckpointId(1)).map_err(text)?;
    take_checkpoint(&store, CheckpointId(2))?;
    // The ranks change places: their entries move.
    store.begin_run(&[Rank(1), Rank(0)], &[]).map_err(text)
}

/// The application's files that are in cache.
fn files_in_cache(root: &Path) -> Vec<PathBuf> {
    let mut files = holdfast_testkit::files_below(&root.join(base("node0").trim_start_matches('/')));
    files.retain(|path| path.extension().is_some_and(|extension| extension == "ckpt"));
    files
}

/// All files have an entry, and complete checkpoints can be used.
fn check(root: &Path) -> Result<(), String> {
    let store = open(root)?;
    let checkpoints = store.checkpoints().into_iter();
    let known = checkpoints.flat_map(|id| RANKS.map(|rank| file_paths(&store, id, rank))).flatten();
    let known: Vec<PathBuf> = known.map(|(_, path)| path).collect();
    if let Some(path) = files_in_cache(root).into_iter().find(|path| !known.contains(path)) {
        return Err(format!("{} has no entry", path.display()));
    }
    for id in store.flush.locations().map_err(text)?.into_keys() {
        let deleting = id == CheckpointId(1);
        if !deleting && !RANKS.iter().all(|rank| store.has(id, *rank).unwrap()) {
            return Err(format!("{id} is not complete"));
        }
    }
    Ok(())
}

/// The checkpoints, their files, and what else there is.
fn result(root: &Path) -> String {
    let store = open(root).unwrap();
    let control = holdfast_testkit::files_below(&store.paths.control());
    let names = control.iter().map(|path| path.file_name().unwrap().to_string_lossy());
    // One that could not be read is kept under this name.
    let names: Vec<_> = names.filter(|name| !name.ends_with(".damaged")).collect();
    format!("{:?} {:#?} {names:#?}", store.checkpoints(), files_in_cache(root))
}

#[test]
fn crash_the_cache_of_an_agent_whose_files_all_have_entries() {
    let prepare = |root: &Path| {
        fs::create_dir(root).unwrap();
        open(root).unwrap();
    };
    // The files of a node that has lost its power, or whose disk fails, count as lost.
    let (power, errors) = (false, EXHAUSTED);
    let subject =
        Subject { name: "cache", prepare: &prepare, work: &work, check: &check, result: &result, power, errors };
    let tried = subject.interrupt();
    assert!(tried.kills > 50 && tried.errors > 200, "{tried:?}");
}
