//! Kills at any instant of an index update, and at every file-system step of a publication.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::world::{add_with, drained_checkpoint, name, snapshot, some_time, write_tree};
use crate::control::meta::Meta;
use crate::dataset_files::PlainFiles;
use crate::kvtree::file;
use crate::prefix::add::AddOptions;
use crate::prefix::inspect::inspect;
use crate::prefix::publish::{self, Publication};
use crate::prefix::rank_filemap::RankFilemap;
use crate::prefix::scan::{ScanOptions, scan};
use crate::prefix::summary::{RankFiles, SummaryFile};
use crate::prefix::{Prefix, Summary, index, rebuild, summary};
use crate::temporary;
use holdfast_model::{CheckpointId, Dataset, OutputPath, Rank};

/// The child process's working directory; without it the child's test does nothing.
const WHERE: &str = "HOLDFAST_TEST_PREFIX";
/// After this many updates the child ends by itself, if it has not been killed.
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
    let prefix = Prefix::open(scratch.path()).unwrap();
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

/// The result of a drain: rank 1 lost, rank 6's filemap lost.
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
fn output(prefix: &Prefix, directory: &str, id: u64) {
    let here = prefix.path().join(directory);
    let dataset = Dataset { name: Some("plot".to_owned()), checkpoint: false, output: true, ..Dataset::default() };
    publish::begin(prefix, CheckpointId(id), &name(directory), &dataset, "17", some_time()).unwrap();
    for rank in 0..RANKS {
        let file = here.join(format!("rank_{rank}.ckpt"));
        let path = OutputPath::parse(&format!("out/{rank}/rank_{rank}.ckpt")).unwrap();
        let meta = Meta { output_path: Some(path), ..Meta::read(&file).unwrap() };
        if Meta::read(&file).unwrap() != meta {
            meta.write(&file).unwrap();
        }
    }
    let scanned = scan(&here, ScanOptions::default()).unwrap();
    let publication = Publication::of_scan(name(directory), &scanned, &inspect(&scanned), false, some_time());
    assert!(publication.publish(prefix).unwrap());
}

impl Caller {
    /// Prepares the copied files, and the records of earlier work.
    fn prepare(self, prefix: &Prefix) {
        let older = prefix.path().join(OLDER);
        drained_checkpoint(&older, 3, RANKS, 4);
        add_with(prefix.path(), OLDER, &AddOptions { make_current: true, ..AddOptions::default() }).unwrap();
        let directory = prefix.path().join(NEW);
        match self {
            Caller::Flush | Caller::Direct => drained_checkpoint(&directory, 9, RANKS, 4),
            Caller::Drain => drop(drained(prefix.path())),
            Caller::Add => {
                drained(prefix.path());
                let scanned = scan(&directory, ScanOptions::default()).unwrap();
                let inspection = inspect(&scanned);
                Publication::of_scan(name(NEW), &scanned, &inspection, false, some_time()).publish(prefix).unwrap();
            }
            Caller::Rescan => {
                drained_checkpoint(&directory, 9, RANKS, 4);
                assert!(add_with(prefix.path(), NEW, &AddOptions::default()).unwrap().is_complete());
                for rank in [1, 2] {
                    fs::remove_file(directory.join(format!("rank_{rank}.ckpt"))).unwrap();
                }
            }
            Caller::Output | Caller::DeleteOutput => {
                drained_checkpoint(&prefix.path().join(ATTEMPT), 8, RANKS, 4);
                output(prefix, ATTEMPT, 8);
                fs::write(prefix.path().join("out/of_the_user"), "kept").unwrap();
                drained_checkpoint(&directory, 9, RANKS, 4);
            }
        }
    }

    /// The caller's work when the files exist; can be repeated.
    fn work(self, prefix: &Prefix) {
        let directory = prefix.path().join(NEW);
        match self {
            Caller::Flush | Caller::Direct => {
                let direct = (self == Caller::Direct).then(|| NEW.to_owned());
                let named = (self == Caller::Direct).then(|| "shared".to_owned());
                let dataset = Dataset { name: named, direct, ..Dataset::default() };
                publish::begin(prefix, CheckpointId(9), &name(NEW), &dataset, "17", some_time()).unwrap();
                let files = |rank: u32| {
                    let file = format!("rank_{rank}.ckpt");
                    let size = fs::metadata(directory.join(&file)).unwrap().len();
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
                assert!(publication.publish(prefix).unwrap());
            }
            Caller::Drain => {
                let judged = |directory: &Path| {
                    let scanned = scan(directory, ScanOptions::default()).unwrap();
                    let inspection = inspect(&scanned);
                    (scanned, inspection)
                };
                for set in rebuild::plan(&judged(&directory).1) {
                    rebuild::run(&PlainFiles::of(&directory), &set, &mut |_, _| ControlFlow::Continue(())).unwrap();
                }
                let (scanned, inspection) = judged(&directory);
                let publication = Publication::of_scan(name(NEW), &scanned, &inspection, true, some_time());
                assert!(publication.publish(prefix).unwrap());
            }
            Caller::Add => {
                let options = AddOptions { make_current: true, ..AddOptions::default() };
                assert!(add_with(prefix.path(), NEW, &options).unwrap().is_complete());
            }
            Caller::Output => output(prefix, NEW, 9),
            Caller::DeleteOutput => {
                super::super::delete::delete(prefix, &name(ATTEMPT)).unwrap();
            }
            Caller::Rescan => {
                let options = AddOptions { rescan: true, ..AddOptions::default() };
                assert!(!add_with(prefix.path(), NEW, &options).unwrap().is_complete());
            }
        }
    }

    /// Checks that a restart finds a usable checkpoint, whenever the work is interrupted.
    fn check_state(self, prefix: &Prefix, killed_at: u64) {
        let context = format!("{self:?} killed at {killed_at}");
        let entries = index::read(prefix).unwrap().unwrap().entries();
        for entry in entries.iter().filter(|entry| entry.complete == Some(true)) {
            let summary = summary::read(&prefix.checkpoint_path(&entry.directory)).unwrap();
            assert_eq!(summary.accept(RANKS), Ok(()), "{context}: {}", entry.directory);
            // An output that is indexed as complete has its files, with their contents, at the paths.
            if !summary.output_files().is_empty() {
                let mut scanned = scan(&prefix.checkpoint_path(&entry.directory), ScanOptions::default()).unwrap();
                scanned.verify(1, &|_| {});
                assert_eq!(scanned.damaged, [], "{context}");
                for rank in 0..RANKS {
                    assert!(prefix.path().join(format!("out/{rank}/rank_{rank}.ckpt")).exists(), "{context}");
                }
            }
        }
        let current = prefix.current().unwrap().unwrap();
        let linked = entries.iter().find(|entry| entry.directory == current).unwrap();
        assert_eq!(linked.complete, Some(true), "{context}: scr.current leads to {current}");
    }
}

/// Every file below the prefix with a digest of its content, except temporary files: a kill leaves them, and
/// they are not read. The elements of a filemap may be in either of its two orders.
fn files_of(prefix: &Prefix) -> BTreeMap<PathBuf, String> {
    let digest = |path: &Path, bytes: &[u8]| match RankFilemap::read(path) {
        Ok(filemap) => format!("{filemap:?}"),
        Err(_) => format!("{} bytes, CRC {:#x}", bytes.len(), crc32fast::hash(bytes)),
    };
    let below = |path: &Path| path.strip_prefix(prefix.path()).unwrap().to_owned();
    let temporary = |path: &Path| temporary::is_temporary(&path.file_name().unwrap().to_string_lossy());
    let files = snapshot(prefix.path()).into_iter().filter(|(path, _)| !temporary(path));
    files.map(|(path, bytes)| (below(&path), digest(&path, &bytes))).collect()
}

/// The temporary files below a directory, those in Holdfast's own directory included.
fn temporary_files(directory: &Path) -> Vec<String> {
    let files = holdfast_testkit::files_below(directory).into_iter();
    let names = files.map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
    names.filter(|name| temporary::is_temporary(name)).collect()
}

/// The caller whose work the child process does, and the instant at which it is killed.
const WHAT: &str = "HOLDFAST_TEST_KILL";

#[test]
#[ignore = "the process that a_publication_that_is_killed_at_any_instant_is_old_or_new_and_is_completed_by_the_next \
        kills"]
fn publication_that_is_killed() {
    let (Some(path), Ok(what)) = (std::env::var_os(WHERE), std::env::var(WHAT)) else { return };
    let (caller, instant) = what.split_once(' ').unwrap();
    let caller = CALLERS.into_iter().find(|known| format!("{known:?}") == caller).unwrap();
    let prefix = Prefix::open(path).unwrap();
    crate::kill_point::arm(instant.parse().unwrap());
    caller.work(&prefix);
}

fn kill_at_every_instant(caller: Caller) {
    let prepared = tempfile::tempdir().unwrap();
    caller.prepare(&Prefix::open(prepared.path()).unwrap());
    let undisturbed = holdfast_testkit::scratch_copy(prepared.path());
    let prefix = Prefix::open(undisturbed.path()).unwrap();
    caller.work(&prefix);
    caller.check_state(&prefix, 0);
    let expected = files_of(&prefix);
    let mut instant = 1;
    loop {
        let scratch = holdfast_testkit::scratch_copy(prepared.path());
        let prefix = Prefix::open(scratch.path()).unwrap();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "prefix::tests::crash::publication_that_is_killed", "--ignored"])
            .env(WHERE, scratch.path())
            .env(WHAT, format!("{caller:?} {instant}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        caller.check_state(&prefix, instant);
        if ended.success() {
            break;
        }
        assert_eq!(ended.signal(), Some(9), "{caller:?} at {instant}: it failed by itself");
        caller.work(&prefix);
        caller.check_state(&prefix, instant);
        assert_eq!(temporary_files(scratch.path()), [""; 0], "{caller:?} killed at {instant} and repeated");
        let (mut found, count) = (files_of(&prefix), expected.len());
        assert_eq!(found.len(), count, "{caller:?} killed at {instant} and repeated");
        found.retain(|path, digest| expected.get(path) != Some(digest));
        assert_eq!(found, BTreeMap::new(), "{caller:?} killed at {instant} and repeated");
        instant += 1;
    }
    // At least summary and index, with five instants each.
    assert!(instant > 10, "{caller:?}: only {} instants", instant - 1);
}

#[test]
fn the_next_change_of_the_index_removes_the_temporary_files_of_a_killed_process_beside_it() {
    let (mut left, mut instant) = (0, 1);
    loop {
        let scratch = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(scratch.path()).unwrap();
        fs::create_dir(prefix.path().join(NEW)).unwrap();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "prefix::tests::crash::change_of_the_index_that_is_killed", "--ignored"])
            .env(WHERE, scratch.path())
            .env(WHAT, instant.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        left += temporary_files(scratch.path()).len();
        // Another change than the one that was killed.
        publish::withdraw(&prefix, &name("other")).unwrap();
        assert_eq!(temporary_files(scratch.path()), [""; 0], "killed at {instant}");
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
    let prefix = Prefix::open(path).unwrap();
    crate::kill_point::arm(instant.parse().unwrap());
    index::update(&prefix, |index| index.add(CheckpointId(9), &name(NEW), some_time())).unwrap();
    publish::make_current(&prefix, &name(NEW)).unwrap();
    super::super::delete::delete(&prefix, &name(NEW)).unwrap();
}

#[test]
fn a_publication_that_is_killed_at_any_instant_is_old_or_new_and_is_completed_by_the_next() {
    std::thread::scope(|scope| {
        for caller in CALLERS {
            scope.spawn(move || kill_at_every_instant(caller));
        }
    });
}

#[test]
fn a_copy_that_failed_is_recorded_as_incomplete_and_the_link_stays() {
    let scratch = tempfile::tempdir().unwrap();
    let prefix = Prefix::open(scratch.path()).unwrap();
    Caller::Flush.prepare(&prefix);
    publish::begin(&prefix, CheckpointId(9), &name(NEW), &Dataset::default(), "17", some_time()).unwrap();
    let entry = |prefix: &Prefix| index::read(prefix).unwrap().unwrap().entry(&name(NEW));
    assert_eq!(entry(&prefix).unwrap().complete, None);
    assert!(!Publication::of_copy(name(NEW), None, true, some_time()).publish(&prefix).unwrap());
    assert_eq!(entry(&prefix).unwrap().complete, Some(false));
    assert!(!summary::path_in(&scratch.path().join(NEW)).exists());
    assert_eq!(prefix.current().unwrap(), Some(name(OLDER)));
    publish::withdraw(&prefix, &name(OLDER)).unwrap();
    assert_eq!((entry(&prefix).is_some(), prefix.current().unwrap()), (true, None));
}

#[test]
fn an_interrupted_rebuild_leaves_no_member_that_seems_complete() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = drained(scratch.path());
    let path = scratch.path().join(directory);
    let set = inspect(&scan(&path, ScanOptions::default()).unwrap()).rebuildable.remove(0);
    assert!(rebuild::run(&PlainFiles::of(&path), &set, &mut |_, _| ControlFlow::Break(())).is_err());
    assert_eq!(inspect(&scan(&path, ScanOptions::default()).unwrap()).rebuildable, [set]);
    // Incomplete temporary files of a rebuild and of a meta file belong to no rank.
    fs::write(path.join(".hf-rank_1.ckpt.1.tmp"), b"half").unwrap();
    write_tree(&path.join(".hf-1.scrfilemap.2.tmp"), &crate::kvtree::Tree::new());
    assert!(add_with(scratch.path(), directory, &AddOptions::default()).unwrap().is_complete());
}
