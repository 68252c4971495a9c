//! Kills at any instant of an index update, and at every file-system step of a publication.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;

use super::world::{PosixWorld, TestStore, add_with, at, drained_dataset, each_store, name, some_time};
use crate::calls::{self, Call};
use crate::control::meta::Meta;
use crate::crash::{ALL_ERRORS, Subject, Tried};
use crate::kvtree::file;
use crate::prefix::add::{AddOptions, add};
use crate::prefix::inspect::inspect;
use crate::prefix::publish::{self, Publication};
use crate::prefix::rank_filemap::RankFilemap;
use crate::prefix::scan::{ScanOptions, scan};
use crate::prefix::summary::{RankFiles, SummaryFile};
use crate::prefix::{Summary, delete, index, summary};
use crate::redundancy::directory;
use crate::store::dataset_files::read_meta;
use crate::store::dataset_files::write_meta;
use crate::store::memory::MemoryStore;
use crate::store::{DatasetAccess, DatasetFiles, DatasetStore, FoundFile, OpenDataset, PosixStore};
use holdfast_model::{CheckpointId, Dataset, OutputPath, Rank};

/// The child process's working directory; without it the child's test does nothing.
const WHERE: &str = "HOLDFAST_TEST_PREFIX";
/// After this many updates the child ends by itself, if it has not been killed.
const UPDATES: u64 = 2000;

fn ids(store: &dyn DatasetStore) -> Vec<u64> {
    let mut ids: Vec<u64> = index::read(store).unwrap().unwrap().entries().iter().map(|entry| entry.id.0).collect();
    ids.sort_unstable();
    ids
}

#[test]
#[ignore = "the process that the_index_is_old_or_new_whenever_its_writer_is_killed kills"]
fn writer_that_is_killed() {
    let Some(path) = std::env::var_os(WHERE) else { return };
    let prefix = PosixStore::open(path).unwrap();
    let first = index::read(&prefix).unwrap().unwrap_or_default().entries().len() as u64 + 1;
    for id in first..first + UPDATES {
        index::update(&prefix, |index| index.add(CheckpointId(id), &name(&format!("d{id}")), some_time())).unwrap();
        println!("\nwritten {id}");
    }
}

#[test]
fn the_index_is_old_or_new_whenever_its_writer_is_killed() {
    let scratch = tempfile::tempdir().unwrap();
    let prefix = PosixStore::open(scratch.path()).unwrap();
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
        // After a kill at any instant: a complete index with all acknowledged entries, and a free lock.
        let found = ids(&prefix);
        assert!(found.len() as u64 >= written);
        assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
        index::update(&prefix, |index| index.set_complete(&name("d1"), true)).unwrap();
    }
}

#[test]
fn before_the_rename_the_index_is_the_old_one_and_can_be_updated() {
    let scratch = tempfile::tempdir().unwrap();
    let prefix = PosixStore::open(scratch.path()).unwrap();
    index::update(&prefix, |index| index.add(CheckpointId(1), &name("d1"), some_time())).unwrap();
    let mut new = index::read(&prefix).unwrap().unwrap();
    new.add(CheckpointId(2), &name("d2"), some_time());
    let bytes = file::encode(&new.to_tree());
    // A temporary file that is empty, partly written, and completely written, each left by a kill.
    for length in [0, bytes.len() / 2, bytes.len()] {
        fs::write(scratch.path().join(format!(".hf-index.scr.{length}.tmp")), &bytes[..length]).unwrap();
        assert_eq!(ids(&prefix), [1]);
    }
    index::update(&prefix, |index| index.add(CheckpointId(3), &name("d3"), some_time())).unwrap();
    assert_eq!(ids(&prefix), [1, 3]);
}

#[test]
fn concurrent_updates_are_all_applied() {
    each_store(|world| {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    for id in (1 + thread..=40).step_by(4) {
                        let directory = name(&format!("d{id}"));
                        index::update(world.store(), |index| index.add(CheckpointId(id), &directory, some_time()))
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(ids(world.store()), (1..=40).collect::<Vec<_>>());
    });
}

#[test]
fn a_publication_that_another_process_overtakes_is_made_again() {
    let store = MemoryStore::new();
    drained_dataset(&store, NEW, 9, RANKS, 4);
    let mut attempts = 0;
    let published = index::change(&store, |change| {
        attempts += 1;
        change.read()?;
        if attempts < 3 {
            index::update(&store, |index| index.add(CheckpointId(attempts), &name("other"), some_time()))?;
        }
        change.update(|index| index.add(CheckpointId(9), &name(NEW), some_time()))
    });
    published.unwrap();
    assert_eq!((attempts, ids(&store)), (3, vec![2, 9]));
}

#[test]
fn an_update_that_changes_nothing_writes_nothing() {
    each_store(|world| {
        index::update(world.store(), |_| ()).unwrap();
        assert!(index::read(world.store()).unwrap().is_none());
    });
}

/// The result of a drain: rank 1 lost, rank 6's filemap lost.
fn drained(world: &dyn TestStore) {
    drained_dataset(world, NEW, 9, 8, 4);
    for file in
        ["rank_1.ckpt", "rank_1.ckpt.scr", "2_of_4_in_0.xor", "2_of_4_in_0.xor.scr", "1.scrfilemap", "6.scrfilemap"]
    {
        world.take_away(&format!("{NEW}/{file}"));
    }
}

fn opened(store: &dyn DatasetStore, directory: &str) -> Arc<dyn OpenDataset> {
    store.open(&name(directory), DatasetAccess::Write).unwrap()
}

fn added(store: &dyn DatasetStore, directory: &str, options: &AddOptions) -> bool {
    add(store, &name(directory), some_time(), options, &|_| {}).unwrap().is_complete()
}

/// The callers of a publication.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Caller {
    Flush,
    Direct,
    Drain,
    /// `index add` of a directory that was indexed as incomplete, with a rank to rebuild.
    Add,
    /// `index add --rescan` of a directory that was complete and has lost a file for good.
    Rescan,
    /// The flush of an output that replaces an earlier attempt of it, whose files are at the same paths.
    Output,
    /// `holdfast index delete` of an output.
    DeleteOutput,
}

const CALLERS: [Caller; 7] =
    [Caller::Flush, Caller::Direct, Caller::Drain, Caller::Add, Caller::Rescan, Caller::Output, Caller::DeleteOutput];
/// The directory of the earlier attempt.
const ATTEMPT: &str = "plot";
const NEW: &str = "drained";
const OLDER: &str = "older";
const RANKS: u32 = 8;

/// Gives the files of a copied dataset output paths, and publishes it.
fn output(store: &dyn DatasetStore, directory: &str, id: u64) {
    let here = opened(store, directory);
    let dataset = Dataset { name: Some("plot".to_owned()), checkpoint: false, output: true, ..Dataset::default() };
    publish::begin(store, CheckpointId(id), &name(directory), &dataset, "17", some_time()).unwrap();
    for rank in 0..RANKS {
        let path = OutputPath::parse(&format!("out/{rank}/rank_{rank}.ckpt")).unwrap();
        let known = read_meta(&*here, &format!("rank_{rank}.ckpt")).unwrap();
        let meta = Meta { output_path: Some(path), ..known.clone() };
        if known != meta {
            write_meta(&*here, &meta).unwrap();
        }
    }
    let scanned = scan(&here, ScanOptions::default()).unwrap();
    let publication = Publication::of_scan(name(directory), &scanned, &inspect(&scanned), false, some_time());
    assert!(publication.publish(store).unwrap().complete);
}

impl Caller {
    /// Prepares the copied files, and the records of earlier work.
    fn prepare(self, world: &dyn TestStore) {
        let store = world.store();
        drained_dataset(world, OLDER, 3, RANKS, 4);
        assert!(added(store, OLDER, &AddOptions { make_current: true, ..AddOptions::default() }));
        match self {
            Caller::Flush | Caller::Direct => drained_dataset(world, NEW, 9, RANKS, 4),
            Caller::Drain => drained(world),
            Caller::Add => {
                drained(world);
                let scanned = scan(&opened(store, NEW), ScanOptions::default()).unwrap();
                let inspection = inspect(&scanned);
                Publication::of_scan(name(NEW), &scanned, &inspection, false, some_time()).publish(store).unwrap();
            }
            Caller::Rescan => {
                drained_dataset(world, NEW, 9, RANKS, 4);
                assert!(added(store, NEW, &AddOptions::default()));
                for rank in [1, 2] {
                    world.take_away(&format!("{NEW}/rank_{rank}.ckpt"));
                }
            }
            Caller::Output | Caller::DeleteOutput => {
                drained_dataset(world, ATTEMPT, 8, RANKS, 4);
                output(store, ATTEMPT, 8);
                world.put("out/of_the_user", b"kept");
                drained_dataset(world, NEW, 9, RANKS, 4);
            }
        }
    }

    /// The caller's work when the files exist; can be repeated.
    fn work(self, store: &dyn DatasetStore) {
        match self {
            Caller::Flush | Caller::Direct => {
                let direct = (self == Caller::Direct).then(|| NEW.to_owned());
                let named = (self == Caller::Direct).then(|| "shared".to_owned());
                let dataset = Dataset { name: named, direct, ..Dataset::default() };
                publish::begin(store, CheckpointId(9), &name(NEW), &dataset, "17", some_time()).unwrap();
                let here = opened(store, NEW);
                let files = |rank: u32| {
                    let file = format!("rank_{rank}.ckpt");
                    let FoundFile::Regular(size) = here.examine(&file, None).unwrap() else { panic!("{file}") };
                    let file = SummaryFile {
                        name: file,
                        size: Some(size),
                        crc: None,
                        fetch: true,
                        failed: false,
                        output_path: None,
                    };
                    (Rank(rank), RankFiles { expected: None, files: vec![file] })
                };
                let by_rank = (0..RANKS).map(files).collect();
                let summary = Summary { id: CheckpointId(9), ranks: RANKS, complete: true, by_rank };
                let publication = Publication::of_copy(name(NEW), Some(summary), true, some_time());
                assert!(publication.publish(store).unwrap().complete);
            }
            Caller::Drain => {
                let here = opened(store, NEW);
                let judged = || {
                    let scanned = scan(&here, ScanOptions::default()).unwrap();
                    let inspection = inspect(&scanned);
                    (scanned, inspection)
                };
                let (scanned, inspection) = judged();
                for set in &inspection.rebuildable {
                    directory::rebuild(&scanned.files, set.set, &set.missing, &mut |_, _| ControlFlow::Continue(()))
                        .unwrap();
                }
                let (scanned, inspection) = judged();
                let publication = Publication::of_scan(name(NEW), &scanned, &inspection, true, some_time());
                assert!(publication.publish(store).unwrap().complete);
            }
            Caller::Add => assert!(added(store, NEW, &AddOptions { make_current: true, ..AddOptions::default() })),
            Caller::Output => output(store, NEW, 9),
            Caller::DeleteOutput => drop(delete::delete(store, &name(ATTEMPT)).unwrap()),
            Caller::Rescan => assert!(!added(store, NEW, &AddOptions { rescan: true, ..AddOptions::default() })),
        }
    }

    /// Checks that a restart finds a usable checkpoint, whenever the work is interrupted.
    fn check_state(self, world: &dyn TestStore, killed_at: u64) {
        let (context, store) = (format!("{self:?} killed at {killed_at}: {world:?}"), world.store());
        let entries = index::read(store).unwrap().unwrap().entries();
        for entry in entries.iter().filter(|entry| entry.complete == Some(true)) {
            let here = store.open(&entry.directory, DatasetAccess::Read).unwrap();
            let summary = summary::read(&*here).unwrap();
            assert_eq!(summary.accept(RANKS), Ok(()), "{context}: {}", entry.directory);
            // An output that is indexed as complete has its files, with their contents, at the paths.
            if !summary.output_files().is_empty() {
                let mut scanned = scan(&here, ScanOptions::default()).unwrap();
                scanned.verify(1, &|_| {});
                assert_eq!(scanned.damaged, [], "{context}");
                for rank in 0..RANKS {
                    assert!(world.get(&format!("out/{rank}/rank_{rank}.ckpt")).is_some(), "{context}");
                }
            }
        }
        let current = store.current().unwrap().unwrap();
        let linked = entries.iter().find(|entry| entry.directory == current).unwrap();
        assert_eq!(linked.complete, Some(true), "{context}: scr.current leads to {current}");
    }
}

/// Every file of a store with a digest of its content. The elements of a filemap may be in either of its two orders.
pub(super) fn digests(world: &dyn TestStore) -> BTreeMap<String, String> {
    let digest = |path: &str, bytes: &[u8]| match file::decode(bytes) {
        Ok((tree, _)) if path.ends_with(".scrfilemap") => {
            format!("{:?}", RankFilemap::from_tree(&tree, path.as_ref()).unwrap())
        }
        _ => format!("{} bytes, CRC {:#x}", bytes.len(), crc32fast::hash(bytes)),
    };
    world.files().into_iter().map(|(path, bytes)| (path.clone(), digest(&path, &bytes))).collect()
}

/// The temporary files below a directory, those in Holdfast's own directory included.
fn temporary_files(directory: &std::path::Path) -> usize {
    let files = holdfast_testkit::files_below(directory).into_iter();
    let names = files.map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
    names.filter(|name| crate::temporary::is_temporary(name)).count()
}

/// The instant at which the child process is killed.
const WHAT: &str = "HOLDFAST_TEST_KILL";

/// A caller whose work a kill or a loss of power interrupts.
fn lose_power(caller: Caller) -> Tried {
    let world = |path: &Path| PosixWorld::at(path);
    Subject {
        name: &format!("publication, {caller:?}"),
        prepare: &|path| {
            fs::create_dir(path).unwrap();
            caller.prepare(&world(path));
        },
        work: &|path| {
            caller.work(world(path).store());
            Ok(())
        },
        check: &|path| {
            caller.check_state(&world(path), 0);
            Ok(())
        },
        result: &|path| format!("{:#?}", digests(&world(path))),
        power: true,
        errors: ALL_ERRORS,
    }
    .kill()
}

#[test]
fn crash_a_publication_survives_any_loss_of_power() {
    std::thread::scope(|scope| {
        for caller in CALLERS {
            scope.spawn(move || {
                let tried = lose_power(caller);
                assert!(tried.losses > 15, "{tried:?}");
            });
        }
    });
}

fn kill_at_every_instant(caller: Caller) {
    let prepared = MemoryStore::new();
    caller.prepare(&prepared);
    let undisturbed = prepared.fork();
    caller.work(&undisturbed);
    caller.check_state(&undisturbed, 0);
    let expected = digests(&undisturbed);
    let check = |world: &MemoryStore, instant: u64, ended: bool| {
        caller.check_state(world, instant);
        if ended {
            return;
        }
        caller.work(world);
        caller.check_state(world, instant);
        assert_eq!(world.staged(), 0, "{caller:?} killed at {instant} and repeated");
        assert_eq!(digests(world), expected, "{caller:?} killed at {instant} and repeated");
    };
    let instants = prepared.killed_at_each_instant(|store| caller.work(store), check);
    assert!(instants > 1, "{caller:?}: only {instants} instants");
}

/// How many calls are left out between two that fail: with `HOLDFAST_TEST_EVERY_CALL`, none.
fn calls_left_out() -> u64 {
    if std::env::var_os("HOLDFAST_TEST_EVERY_CALL").is_some() { 0 } else { 3 }
}

/// Does a caller's work with a call that fails, for each of the calls.
fn fail_at_every_call(prepared: &PosixWorld, caller: Caller) {
    caller.prepare(prepared);
    let undisturbed = prepared.scratch_copy();
    caller.work(undisturbed.store());
    let expected = digests(&undisturbed);
    let mut instant = 1;
    loop {
        let world = prepared.scratch_copy();
        let reached = Rc::new(Cell::new(0));
        let count = reached.clone();
        let observer = move |call: Call| {
            count.set(count.get() + 1);
            match call.changes() {
                _ if count.get() != instant => Ok(()),
                true => Err(Errno::NOSPC),
                false => Err(Errno::IO),
            }
        };
        // It fails with a panic: the work of a test unwraps.
        let _ = catch_unwind(AssertUnwindSafe(|| calls::observe(observer, || caller.work(world.store()))));
        let context = format!("{caller:?}, call {instant} failed");
        caller.check_state(&world, instant);
        caller.work(world.store());
        caller.check_state(&world, instant);
        assert_eq!(world.staged(), 0, "{context}, and repeated");
        let found = digests(&world);
        let differs = |path: &&String| found.get(*path) != expected.get(*path);
        // What a drain or `index add` cannot read is damaged, and is rebuilt.
        let counts = |path: &&String| {
            matches!(caller, Caller::Flush | Caller::Direct | Caller::DeleteOutput)
                || !["xor", "scr", "scrfilemap"].iter().any(|end| path.ends_with(&format!(".{end}")))
                || !path.contains('/')
        };
        let names = found.keys().chain(expected.keys());
        let different: Vec<_> = names.filter(counts).filter(differs).collect();
        assert!(different.is_empty(), "{context}, and repeated: {different:?}");
        if reached.get() < instant {
            break;
        }
        instant += 1 + calls_left_out();
    }
    assert!(instant > 30, "{caller:?}: only {instant} calls");
}

#[test]
fn after_a_call_that_failed_the_same_work_ends_as_if_it_had_not() {
    std::thread::scope(|scope| {
        for caller in CALLERS {
            scope.spawn(move || fail_at_every_call(&PosixWorld::new(), caller));
        }
    });
}

#[test]
fn the_next_change_of_the_index_removes_the_temporary_files_of_a_killed_process_beside_it() {
    let (mut left, mut instant) = (0, 1);
    loop {
        let scratch = tempfile::tempdir().unwrap();
        let prefix = PosixStore::open(scratch.path()).unwrap();
        prefix.create(&name(NEW)).unwrap();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "prefix::tests::crash::change_of_the_index_that_is_killed", "--ignored"])
            .env(WHERE, scratch.path())
            .env(WHAT, instant.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        left += temporary_files(scratch.path());
        // Another change than the one that was killed.
        publish::withdraw(&prefix, &name("other")).unwrap();
        assert_eq!(temporary_files(scratch.path()), 0, "killed at {instant}");
        if ended.success() {
            break;
        }
        instant += 1;
    }
    assert!(left >= 4, "index and link leave temporary files");
}

#[test]
#[ignore = "the process that the_next_change_of_the_index_removes_the_temporary_files_of_a_killed_process_beside_it \
        kills"]
fn change_of_the_index_that_is_killed() {
    let (Some(path), Ok(instant)) = (std::env::var_os(WHERE), std::env::var(WHAT)) else { return };
    let prefix = PosixStore::open(path).unwrap();
    crate::kill_point::arm(instant.parse().unwrap());
    index::update(&prefix, |index| index.add(CheckpointId(9), &name(NEW), some_time())).unwrap();
    publish::make_current(&prefix, &name(NEW)).unwrap();
    delete::delete(&prefix, &name(NEW)).unwrap();
}

#[test]
fn a_publication_in_memory_that_is_killed_at_any_instant_is_old_or_new_and_is_completed_by_the_next() {
    CALLERS.into_iter().for_each(kill_at_every_instant);
}

#[test]
fn a_copy_that_failed_is_recorded_as_incomplete_and_the_link_stays() {
    each_store(|world| {
        let store = world.store();
        Caller::Flush.prepare(world);
        publish::begin(store, CheckpointId(9), &name(NEW), &Dataset::default(), "17", some_time()).unwrap();
        let entry = || index::read(store).unwrap().unwrap().entry(&name(NEW));
        assert_eq!(entry().unwrap().complete, None);
        assert!(!Publication::of_copy(name(NEW), None, true, some_time()).publish(store).unwrap().complete);
        assert_eq!(entry().unwrap().complete, Some(false));
        assert!(world.get(&format!("{NEW}/summary.scr")).is_none());
        assert_eq!(store.current().unwrap(), Some(name(OLDER)));
        publish::withdraw(store, &name(OLDER)).unwrap();
        assert_eq!((entry().is_some(), store.current().unwrap()), (true, None));
    });
}

#[test]
fn an_interrupted_rebuild_leaves_no_member_that_seems_complete() {
    each_store(|world| {
        drained(world);
        let here = world.dataset(NEW);
        let set = inspect(&scan(&here, ScanOptions::default()).unwrap()).rebuildable.remove(0);
        let files: Arc<dyn DatasetFiles> = here.clone();
        assert!(directory::rebuild(&files, set.set, &set.missing, &mut |_, _| ControlFlow::Break(())).is_err());
        assert_eq!(world.staged(), 0);
        assert_eq!(inspect(&scan(&here, ScanOptions::default()).unwrap()).rebuildable, [set]);
        assert!(added(world.store(), NEW, &AddOptions::default()));
    });
    // Incomplete temporary files of a rebuild and of a meta file belong to no rank.
    let world = PosixWorld::new();
    drained(&world);
    for left in [".hf-rank_1.ckpt.1.tmp", ".hf-1.scrfilemap.2.tmp"] {
        world.put(&format!("{NEW}/{left}"), b"half");
    }
    assert!(add_with(world.scratch.path(), NEW, &AddOptions::default()).unwrap().is_complete());
    assert!(at(&world.scratch.path().join(NEW)).examine("rank_1.ckpt", None).is_ok());
}
