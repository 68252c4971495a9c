//! Kills the agent at every step of routing, sealing, completing and deleting: every file that exists afterwards has an
//! entry, and the next agent finishes the work.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holdfast_core::control::meta::{FileKind, Meta};
use holdfast_core::{kill_point, temporary};
use holdfast_model::{CheckpointId, Locations, Rank};

use super::Store;
use super::tests::{descriptor, file_paths};
use crate::directories::paths::Paths;
use crate::fixtures::{base, fixture_start};

/// The node and the instant of the kill for the child process; without them the child's test does nothing.
const WHERE: &str = "HOLDFAST_TEST_NODE";
const WHEN: &str = "HOLDFAST_TEST_KILL";
const RANKS: [Rank; 2] = [Rank(0), Rank(1)];
const FILES: u32 = 2;

fn open(root: &Path) -> Store {
    let paths = Paths::new(&fixture_start(root, "node0"));
    fs::create_dir_all(paths.control()).unwrap();
    let store = Store::open(paths, vec![base("node0")]).unwrap();
    assert_eq!(store.faults(), [""; 0]);
    store
}

fn name(rank: Rank, file: u32) -> String {
    format!("rank_{rank}.{file}.ckpt")
}

/// Starts, routes, writes and completes a checkpoint; can be repeated.
fn take_checkpoint(store: &Store, id: CheckpointId) {
    for rank in RANKS {
        let own = descriptor(rank.0, "node0");
        store.set_descriptor(id, rank, rank, &own).unwrap();
        store.make_directory(id, &own).unwrap();
    }
    for file in 0..FILES {
        for rank in RANKS {
            let path = store.add_file(id, rank, rank, &name(rank, file)).unwrap();
            fs::write(path, "data").unwrap();
        }
    }
    for rank in RANKS {
        for (file, path) in file_paths(store, id, rank) {
            let (kind, ranks) = (FileKind::Full, RANKS.len() as u32);
            let meta =
                Meta { file, kind, size: 4, checkpoint: id, rank, ranks, complete: true, crc: None, output_path: None };
            meta.write_unsynced(&path).unwrap();
        }
        store.set_expected(id, rank, rank, FILES).unwrap();
    }
    store.fold_logs().unwrap();
    store.flush.note(id, Locations { cache: true, ..Locations::default() }).unwrap();
}

/// All steps of an agent with one checkpoint in cache.
fn work(store: &Store) {
    store.begin_run(&RANKS, &[]).unwrap();
    take_checkpoint(store, CheckpointId(1));
    store.delete(CheckpointId(1)).unwrap();
    take_checkpoint(store, CheckpointId(2));
    // The ranks change places: their entries move.
    store.begin_run(&[Rank(1), Rank(0)], &[]).unwrap();
}

/// The application's files that are in cache.
fn files_in_cache(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![root.join(base("node0").trim_start_matches('/'))];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let is_checkpoint_file = path.extension().is_some_and(|extension| extension == "ckpt");
            if path.is_dir() {
                directories.push(path);
            } else if is_checkpoint_file {
                files.push(path);
            }
        }
    }
    files
}

/// All files have an entry, and complete checkpoints can be used.
fn check(root: &Path, context: &str) -> Store {
    let store = open(root);
    let known: Vec<PathBuf> = store
        .checkpoints()
        .into_iter()
        .flat_map(|id| RANKS.map(|rank| file_paths(&store, id, rank)))
        .flatten()
        .map(|(_, path)| path)
        .collect();
    for path in files_in_cache(root) {
        assert!(known.contains(&path), "{context}: {} has no entry", path.display());
    }
    for id in store.flush.locations().unwrap().into_keys() {
        let deleting = id == CheckpointId(1);
        assert!(deleting || RANKS.iter().all(|rank| store.has(id, *rank)), "{context}: {id} is not complete");
    }
    store
}

#[test]
#[ignore = "the process that after_a_kill_at_any_instant_every_file_has_an_entry kills"]
fn agent_that_is_killed() {
    let (Some(root), Ok(instant)) = (std::env::var_os(WHERE), std::env::var(WHEN)) else { return };
    let store = open(Path::new(&root));
    kill_point::arm(instant.parse().unwrap());
    work(&store);
}

#[test]
fn after_a_kill_at_any_instant_every_file_has_an_entry() {
    let mut instant = 1;
    loop {
        let root = tempfile::tempdir().unwrap();
        open(root.path());
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::crash_tests::agent_that_is_killed", "--ignored"])
            .env(WHERE, root.path())
            .env(WHEN, instant.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        let context = format!("killed at {instant}");
        let store = check(root.path(), &context);
        if ended.success() {
            break;
        }
        assert_eq!(ended.signal(), Some(9), "{context}: it failed by itself");
        // The next agent repeats the steps.
        work(&store);
        let store = check(root.path(), &context);
        assert_eq!(store.checkpoints(), [CheckpointId(2)], "{context}");
        assert_eq!(files_in_cache(root.path()).len(), RANKS.len() * FILES as usize, "{context}");
        assert!(!store.paths.control().join("filemap_2.scrinfo").exists(), "{context}");
        let leftovers = fs::read_dir(store.paths.control()).unwrap().map(|entry| entry.unwrap().file_name());
        let leftovers: Vec<_> = leftovers.filter(|name| !temporary::is_temporary(&name.to_string_lossy())).collect();
        assert!(leftovers.len() <= 6, "{context}: {leftovers:?}");
        instant += 1;
    }
    assert!(instant > 50, "only {instant} instants were found");
}
