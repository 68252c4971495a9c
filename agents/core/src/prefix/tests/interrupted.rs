//! Changes of a store that are interrupted at every call: what is in the index, in the link and in the directories.

use std::fs;
use std::path::Path;

use holdfast_model::{CheckpointId, Dataset};

use super::crash::digests;
use super::world::{PosixWorld, TestStore as _, drained_dataset, name, some_time};
use crate::crash::{ALL_ERRORS, Subject};
use crate::prefix::add::{AddOptions, add};
use crate::prefix::{delete, index, publish, reindex, summary, unfinished, window};
use crate::store::{DatasetAccess, DatasetStore, DirectoryName, PosixStore, PrefixError};

const RANKS: u32 = 4;
/// Names with times, which the index that is made again has.
const OLDER: &str = "scr.2026-11-20_10:22:24.17.3";
const NEWER: &str = "scr.2026-11-20_10:32:24.17.9";

fn entered(store: &dyn DatasetStore, directory: &str, make_current: bool) {
    let options = AddOptions { make_current, ..AddOptions::default() };
    assert!(add(store, &name(directory), some_time(), &options, &|_| {}).unwrap().is_complete());
}

/// Two complete datasets in the index; the newer one is current.
fn prepared(path: &Path) {
    fs::create_dir(path).unwrap();
    let world = PosixWorld::at(path);
    for (directory, id) in [(OLDER, 3), (NEWER, 9)] {
        drained_dataset(&world, directory, id, RANKS, 4);
        entered(world.store(), directory, directory == NEWER);
    }
}

/// What is in the index as complete can be read, and so can the current one.
fn is_usable(path: &Path) -> Result<(), String> {
    let store = PosixStore::open(path).unwrap();
    let index = index::read(&store).map_err(|error| error.to_string())?;
    // Lost, and made again by the next command.
    let Some(index) = index else { return Ok(()) };
    let complete: Vec<DirectoryName> =
        index.entries().into_iter().filter(|entry| entry.complete == Some(true)).map(|entry| entry.directory).collect();
    for directory in &complete {
        let here = store.open(directory, DatasetAccess::Read).map_err(|error| error.to_string())?;
        let summary = summary::read(&*here).map_err(|error| error.to_string())?;
        summary.accept(RANKS).map_err(|error| format!("{directory}: {error}"))?;
        let listed = here.list().map_err(|error| error.to_string())?;
        for rank in 0..RANKS {
            let file = format!("rank_{rank}.ckpt");
            if !listed.iter().any(|known| known.name == file) {
                return Err(format!("{directory} is complete without {file}"));
            }
        }
    }
    match store.current().map_err(|error| error.to_string())? {
        Some(current) if !complete.contains(&current) => Err(format!("scr.current leads to {current}")),
        _ => Ok(()),
    }
}

fn interrupted(name: &str, prepare: &dyn Fn(&Path), work: &dyn Fn(&dyn DatasetStore) -> Result<(), PrefixError>) {
    let tried = Subject {
        name,
        prepare,
        work: &|path| {
            let store = PosixStore::open(path).map_err(|error| error.to_string())?;
            work(&store).map_err(|error| error.to_string())
        },
        check: &is_usable,
        result: &|path| format!("{:#?}", (digests(&PosixWorld::at(path)), PosixWorld::at(path).staged())),
        power: true,
        errors: ALL_ERRORS,
    }
    .interrupt();
    assert!(tried.losses >= 1 && tried.errors >= 20, "{tried:?}");
}

#[test]
fn crash_a_new_entry_in_the_index() {
    interrupted("index, new entry", &prepared, &|store| {
        index::update(store, |index| index.add(CheckpointId(12), &name("other"), some_time()))
    });
}

#[test]
fn crash_another_current_checkpoint() {
    interrupted("index current", &prepared, &|store| publish::make_current(store, &name(OLDER)));
}

#[test]
fn crash_no_current_checkpoint() {
    interrupted("index, no current", &prepared, &|store| publish::remove_current(store).map(drop));
}

#[test]
fn crash_an_entry_that_is_dropped() {
    interrupted("index drop", &prepared, &|store| publish::withdraw(store, &name(NEWER)).map(drop));
}

#[test]
fn crash_a_dataset_that_is_deleted() {
    interrupted("index delete", &prepared, &|store| delete::delete(store, &name(NEWER)).map(drop));
}

#[test]
fn crash_a_lost_index_that_is_made_again() {
    let prepare = |path: &Path| {
        prepared(path);
        fs::remove_file(path.join(index::INDEX_FILE)).unwrap();
    };
    interrupted("index restore", &prepare, &|store| {
        reindex::restore(store, some_time(), |dataset| Ok(dataset)).map(drop)
    });
}

#[test]
fn crash_marks_of_the_window() {
    interrupted("index marks", &prepared, &|store| window::mark_verified(store, &name(OLDER)));
}

#[test]
fn crash_a_flush_that_begins() {
    let prepare = |path: &Path| {
        prepared(path);
        drained_dataset(&PosixWorld::at(path), "begun", 12, RANKS, 4);
    };
    interrupted("flush, begin", &prepare, &|store| {
        publish::begin(store, CheckpointId(12), &name("begun"), &Dataset::default(), "17", some_time())
    });
}

#[test]
fn crash_a_flush_that_is_abandoned() {
    let prepare = |path: &Path| {
        prepared(path);
        let world = PosixWorld::at(path);
        drained_dataset(&world, "begun", 12, RANKS, 4);
        publish::begin(world.store(), CheckpointId(12), &name("begun"), &Dataset::default(), "17", some_time())
            .unwrap();
    };
    interrupted("flush, abandon", &prepare, &|store| unfinished::abandon(store, &name("begun")).map(drop));
}
