//! Kills a drain and a flush into a container at every step that changes a name: what the index lists as complete can
//! be read, and a repetition completes the rest.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use chrono::NaiveDateTime;
use holdfast_core::control::meta::{FileKind, Meta};
use holdfast_core::dataset_files::FoundFile;
use holdfast_core::durable::{self, CreationMode};
use holdfast_core::kvtree::file::packed;
use holdfast_core::prefix::inspect::{Completeness, inspect};
use holdfast_core::prefix::publish::{self, Publication};
use holdfast_core::prefix::rank_filemap::{FilemapWriter, RankFilemap};
use holdfast_core::prefix::scan::{Scan, ScanOptions, scan};
use holdfast_core::prefix::summary::{RankFiles, SummaryFile};
use holdfast_core::prefix::{DirectoryName, Prefix, Summary, index, summary};
use holdfast_core::{kill_point, temporary};
use holdfast_model::{CheckpointId, ContainerRequest, Dataset, PackedRank, Rank};

use super::*;

/// The prefix directory, and the caller with the instant of the kill, for the child process.
const WHERE: &str = "HOLDFAST_TEST_PREFIX";
const WHAT: &str = "HOLDFAST_TEST_KILL";
const RANKS: u32 = 4;
const ID: CheckpointId = CheckpointId(9);
const NAME: &str = "scr.dataset.9";

fn now() -> NaiveDateTime {
    NaiveDateTime::parse_from_str("2026-01-02T03:04:05", "%Y-%m-%dT%H:%M:%S").unwrap()
}

fn directory() -> DirectoryName {
    DirectoryName::new(NAME).unwrap()
}

fn name(rank: u32) -> String {
    format!("rank_{rank}.ckpt")
}

fn content(rank: u32) -> Vec<u8> {
    (0..700 + 100 * rank).map(|at| (at * 7 + rank) as u8).collect()
}

fn meta(rank: u32) -> Meta {
    Meta {
        file: name(rank),
        kind: FileKind::Full,
        size: content(rank).len() as u64,
        checkpoint: ID,
        rank: Rank(rank),
        ranks: RANKS,
        complete: true,
        crc: Some(crc32fast::hash(&content(rank))),
        output_path: None,
    }
}

fn filemap(rank: u32) -> RankFilemap {
    RankFilemap { rank: Rank(rank), id: ID, files: vec![name(rank)], expected: 1 }
}

/// Packs these ranks as the nodes do, and completes the container.
fn pack(directory: &Path, ranks: &[u32], filemaps: bool) {
    let streams = ranks.iter().map(|rank| (Rank(*rank), stream_bytes([content(*rank).len() as u64]))).collect();
    let creation = DatasetCreation::new(directory, RANKS, &streams, 2).unwrap();
    let places = creation.places();
    let placed = PlacedFiles::open(directory, &places).unwrap();
    let of_rank = |rank: &u32| {
        let mut writer = placed.writer(places.ranks[&Rank(*rank)]).unwrap();
        writer.add(&name(*rank), &content(*rank)).unwrap();
        let tree = packed(directory, &meta(*rank).to_tree()).unwrap();
        writer.add(&format!("{}.scr", name(*rank)), &tree).unwrap();
        if filemaps {
            let bytes = filemap(*rank).encode(directory, FilemapWriter::Copy).unwrap();
            writer.add(&format!("{rank}.scrfilemap"), &bytes).unwrap();
        }
        (Rank(*rank), writer.end())
    };
    let packed: BTreeMap<Rank, PackedRank> = ranks.iter().map(of_rank).collect();
    placed.synchronise().unwrap();
    creation.commit(&packed).unwrap();
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Caller {
    /// A drain with a lost rank, whose files are rebuilt and moved into a container.
    Drain,
    /// A drain in a directory with a container and the plain files of an earlier one.
    RepeatedDrain,
    Flush,
}

const CALLERS: [Caller; 3] = [Caller::Drain, Caller::RepeatedDrain, Caller::Flush];
/// The rank that is rebuilt.
const LOST: u32 = 2;

/// Writes the files of a rank as a rebuild does.
fn rebuild(directory: &Path, rank: u32) {
    let path = directory.join(name(rank));
    durable::replace(&path, CreationMode::Umask, &content(rank)).unwrap();
    meta(rank).write(&path).unwrap();
    filemap(rank).write(directory, FilemapWriter::Rebuild).unwrap();
}

fn scanned(directory: &Path) -> Scan {
    scan(directory, ScanOptions { threads: 1, open }).unwrap()
}

impl Caller {
    fn prepare(self, prefix: &Prefix) {
        let directory = prefix.checkpoint_path(&directory());
        fs::create_dir(&directory).unwrap();
        if self == Caller::RepeatedDrain {
            pack(&directory, &[0, 1], true);
            rebuild(&directory, LOST);
        }
    }

    /// All steps; can be repeated.
    fn work(self, prefix: &Prefix) {
        let path = prefix.checkpoint_path(&directory());
        temporary::remove_abandoned(&path).unwrap();
        if self == Caller::Flush {
            publish::begin(prefix, ID, &directory(), &Dataset::default(), "17", now()).unwrap();
            pack(&path, &[0, 1, 2, 3], false);
            let file = |rank: u32| SummaryFile {
                name: name(rank),
                size: Some(meta(rank).size),
                crc: meta(rank).crc,
                fetch: true,
                failed: false,
                output_path: None,
            };
            let files = |rank| (Rank(rank), RankFiles { expected: None, files: vec![file(rank)] });
            let summary = Summary { id: ID, ranks: RANKS, complete: true, by_rank: (0..RANKS).map(files).collect() };
            let publication = Publication::of_copy(directory(), Some(summary), true, now());
            assert!(publication.publish(prefix).unwrap());
            return;
        }
        pack(&path, &[0, 1, 3], true);
        let mut found = scanned(&path);
        if !found.ranks.contains_key(&Rank(LOST)) || inspect(&found).completeness != Completeness::Complete {
            rebuild(&path, LOST);
            found = scanned(&path);
        }
        let plain = |rank: &Rank| !found.files.is_packed(&name(rank.0));
        let plain: BTreeMap<Rank, Vec<String>> =
            found.ranks.keys().filter(|rank| plain(rank)).map(|rank| (*rank, vec![name(rank.0)])).collect();
        if !plain.is_empty() {
            let streams = plain.keys().map(|rank| (*rank, 2000)).collect();
            repack(&*found.files, &ContainerRequest { ranks: RANKS, streams, files: 1 }, &plain).unwrap();
            found = scanned(&path);
        }
        let inspection = inspect(&found);
        let publication = Publication::of_scan(directory(), &found, &inspection, true, now());
        assert!(publication.publish(prefix).unwrap(), "{inspection:?}");
    }

    /// What the index lists as complete can be read.
    fn check(self, prefix: &Prefix, killed_at: u64) {
        let context = format!("{self:?} killed at {killed_at}");
        let path = prefix.checkpoint_path(&directory());
        let entries = index::read(prefix).unwrap().unwrap_or_default().entries();
        let is_complete = entries.iter().any(|entry| entry.complete == Some(true));
        if prefix.current().unwrap().is_some() {
            assert!(is_complete, "{context}: scr.current leads to what is not complete");
        }
        if is_complete {
            assert_eq!(summary::read(&path).unwrap().accept(RANKS), Ok(()), "{context}");
            let mut found = scanned(&path);
            found.verify(1, &|_| {});
            assert_eq!((found.damaged.len(), found.ranks.len()), (0, RANKS as usize), "{context}: {found:?}");
        }
        // Whatever is found under the name of a file of a rank is what was written.
        let files = open(&path).unwrap();
        for rank in 0..RANKS {
            if let Ok(found) = files.examine(&name(rank), None) {
                assert_eq!(found, FoundFile::Regular(meta(rank).size), "{context}");
                let mut bytes = Vec::new();
                let file = files.open(&name(rank), None).unwrap();
                std::io::Read::read_to_end(&mut file.reader(), &mut bytes).unwrap();
                assert!(bytes == content(rank), "{context}");
            }
        }
    }
}

/// All names below the prefix.
fn names(prefix: &Prefix) -> Vec<PathBuf> {
    let mut names = holdfast_testkit::files_below(prefix.path());
    names.iter_mut().for_each(|path| *path = path.strip_prefix(prefix.path()).unwrap().to_owned());
    names.sort();
    names
}

#[test]
#[ignore = "the process that a_container_is_complete_or_not_there_whenever_its_writer_is_killed kills"]
fn writer_that_is_killed() {
    let (Some(path), Ok(what)) = (std::env::var_os(WHERE), std::env::var(WHAT)) else { return };
    let (caller, instant) = what.split_once(' ').unwrap();
    let caller = CALLERS.into_iter().find(|known| format!("{known:?}") == caller).unwrap();
    let prefix = Prefix::open(path).unwrap();
    kill_point::arm(instant.parse().unwrap());
    caller.work(&prefix);
}

fn kill_at_every_instant(caller: Caller) {
    let prepared = tempfile::tempdir().unwrap();
    caller.prepare(&Prefix::open(prepared.path()).unwrap());
    let mut instant = 1;
    loop {
        let scratch = holdfast_testkit::scratch_copy(prepared.path());
        let prefix = Prefix::open(scratch.path()).unwrap();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sion::dataset::crash_tests::writer_that_is_killed", "--ignored"])
            .env(WHERE, scratch.path())
            .env(WHAT, format!("{caller:?} {instant}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        caller.check(&prefix, instant);
        if ended.success() {
            break;
        }
        assert_eq!(ended.signal(), Some(9), "{caller:?} at {instant}: it failed by itself");
        caller.work(&prefix);
        caller.check(&prefix, instant);
        assert_eq!(prefix.current().unwrap(), Some(directory()), "{caller:?} killed at {instant} and repeated");
        // Containers only, and nothing temporary.
        for path in names(&prefix) {
            let text = path.file_name().unwrap().to_str().unwrap();
            let known = ["index.scr", "summary.scr", "dataset.scr", "scr.current"].contains(&text)
                || text.starts_with("holdfast-")
                || path.starts_with(".holdfast")
                || path.starts_with(".scr");
            assert!(known && !temporary::is_temporary(text), "{caller:?} killed at {instant} and repeated: {path:?}");
        }
        instant += 1;
    }
    // Two files of a container, summary, index and link, with several instants each.
    assert!(instant > 20, "{caller:?}: only {} instants", instant - 1);
}

#[test]
fn a_container_is_complete_or_not_there_whenever_its_writer_is_killed() {
    std::thread::scope(|scope| {
        for caller in CALLERS {
            scope.spawn(move || kill_at_every_instant(caller));
        }
    });
}
