//! Interrupts a drain and a flush into a container at every call that changes something: what the index lists as
//! complete can be read, and a repetition completes the rest.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use chrono::NaiveDateTime;
use holdfast_core::control::meta::Meta;
use holdfast_core::crash::Subject;
use holdfast_core::kvtree::file::packed;
use holdfast_core::prefix::inspect::{Completeness, inspect};
use holdfast_core::prefix::publish::{self, Publication};
use holdfast_core::prefix::rank_filemap::{FilemapWriter, RankFilemap};
use holdfast_core::prefix::scan::{Scan, ScanOptions, scan};
use holdfast_core::prefix::summary::{RankFiles, SummaryFile};
use holdfast_core::prefix::{Summary, index, summary};
use holdfast_core::store::dataset_files::write_meta;
use holdfast_core::store::memory::MemoryStore;
use holdfast_core::store::{DatasetAccess, DatasetStore, DirectoryName, FoundFile, OpenDataset, PosixStore, Staged};
use holdfast_core::temporary;
use holdfast_model::{CheckpointId, ContainerRequest, Dataset, PackedRank, Rank};

use super::*;

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
    let content = content(rank);
    let crc = Some(crc32fast::hash(&content));
    Meta { crc, ..Meta::of_application(name(rank), content.len() as u64, ID, Rank(rank), RANKS) }
}

fn filemap(rank: u32) -> RankFilemap {
    RankFilemap { rank: Rank(rank), id: ID, files: vec![name(rank)], expected: 1 }
}

/// Packs these ranks as the nodes do, and completes the container.
fn pack(dataset: &Arc<dyn OpenDataset>, ranks: &[u32], filemaps: bool) {
    let streams = ranks.iter().map(|rank| (Rank(*rank), stream_bytes([content(*rank).len() as u64]))).collect();
    let creation = DatasetCreation::new(Arc::clone(dataset), RANKS, &streams, 2).unwrap();
    let places = creation.places();
    let placed = PlacedFiles::open(&**dataset, &places).unwrap();
    let of_rank = |rank: &u32| {
        let mut writer = placed.writer(places.ranks[&Rank(*rank)]).unwrap();
        writer.add(&name(*rank), &content(*rank)).unwrap();
        let tree = packed(dataset.location(), &meta(*rank).to_tree()).unwrap();
        writer.add(&format!("{}.scr", name(*rank)), &tree).unwrap();
        if filemaps {
            let bytes = filemap(*rank).encode(dataset.location(), FilemapWriter::Copy).unwrap();
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
fn rebuild(dataset: &dyn OpenDataset, rank: u32) {
    dataset.replace(&name(rank), &content(rank)).unwrap();
    write_meta(dataset, &meta(rank)).unwrap();
    filemap(rank).write(dataset, FilemapWriter::Rebuild).unwrap();
}

fn scanned(dataset: &Arc<dyn OpenDataset>) -> Scan {
    scan(dataset, ScanOptions { threads: 1, open }).unwrap()
}

fn opened(store: &dyn DatasetStore) -> Arc<dyn OpenDataset> {
    store.open(&directory(), DatasetAccess::Write).unwrap()
}

impl Caller {
    fn prepare(self, store: &dyn DatasetStore) {
        assert!(store.create(&directory()).unwrap());
        if self == Caller::RepeatedDrain {
            pack(&opened(store), &[0, 1], true);
            rebuild(&*opened(store), LOST);
        }
    }

    /// All steps; can be repeated.
    fn work(self, store: &dyn DatasetStore) {
        let here = opened(store);
        here.remove_staged(Staged::Abandoned).unwrap();
        if self == Caller::Flush {
            publish::begin(store, ID, &directory(), &Dataset::default(), "17", now()).unwrap();
            pack(&here, &[0, 1, 2, 3], false);
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
            assert!(publication.publish(store).unwrap().complete);
            return;
        }
        pack(&here, &[0, 1, 3], true);
        let mut found = scanned(&here);
        if !found.ranks.contains_key(&Rank(LOST)) || inspect(&found).completeness != Completeness::Complete {
            rebuild(&*here, LOST);
            found = scanned(&here);
        }
        let plain = |rank: &Rank| !found.files.is_packed(&name(rank.0));
        let plain: BTreeMap<Rank, Vec<String>> =
            found.ranks.keys().filter(|rank| plain(rank)).map(|rank| (*rank, vec![name(rank.0)])).collect();
        if !plain.is_empty() {
            let streams = plain.keys().map(|rank| (*rank, 2000)).collect();
            repack(&*found.files, &ContainerRequest { ranks: RANKS, streams, files: 1 }, &plain).unwrap();
            found = scanned(&here);
        }
        let inspection = inspect(&found);
        let publication = Publication::of_scan(directory(), &found, &inspection, true, now());
        assert!(publication.publish(store).unwrap().complete, "{inspection:?}");
    }

    /// What the index lists as complete can be read.
    fn check(self, store: &dyn DatasetStore, killed_at: u64) {
        let context = format!("{self:?} killed at {killed_at}, {}", store.location().display());
        let here = opened(store);
        let entries = index::read(store).unwrap().unwrap_or_default().entries();
        let is_complete = entries.iter().any(|entry| entry.complete == Some(true));
        if store.current().unwrap().is_some() {
            assert!(is_complete, "{context}: scr.current leads to what is not complete");
        }
        if is_complete {
            assert_eq!(summary::read(&*here).unwrap().accept(RANKS), Ok(()), "{context}");
            let mut found = scanned(&here);
            found.verify(1, &|_| {});
            assert_eq!((found.damaged.len(), found.ranks.len()), (0, RANKS as usize), "{context}: {found:?}");
        }
        // Whatever is found under the name of a file of a rank is what was written.
        let files = open(here).unwrap();
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

/// What is there at the end: containers only, and nothing temporary.
fn result(store: &dyn DatasetStore, paths: impl Iterator<Item = String>) -> String {
    for path in paths {
        let text = path.rsplit('/').next().unwrap();
        let known = ["index.scr", "summary.scr", "dataset.scr", "scr.current"].contains(&text)
            || text.starts_with("holdfast-")
            || path.starts_with(".holdfast/")
            || path.starts_with(".scr/");
        assert!(known && !temporary::is_temporary(text), "{path}");
    }
    format!("{:?}", store.current().unwrap())
}

/// In a directory: every kill, and every loss of power.
fn interrupt_in_a_directory(caller: Caller) {
    let store = |path: &Path| PosixStore::open(path).unwrap();
    let tried = Subject {
        name: &format!("container, {caller:?}"),
        prepare: &|path| {
            std::fs::create_dir(path).unwrap();
            caller.prepare(&store(path));
        },
        work: &|path| {
            caller.work(&store(path));
            Ok(())
        },
        check: &|path| {
            caller.check(&store(path), 0);
            Ok(())
        },
        result: &|path| {
            let below = |file: &Path| file.strip_prefix(path).unwrap().to_str().unwrap().to_owned();
            result(&store(path), holdfast_testkit::files_below(path).iter().map(|file| below(file)))
        },
        power: true,
        errors: &[],
    }
    .kill();
    assert!(tried.kills > 20 && tried.losses > 20, "{tried:?}");
}

/// In memory: every kill.
fn kill_at_every_instant(caller: Caller) {
    let prepared = MemoryStore::new();
    caller.prepare(&prepared);
    let check = |world: &MemoryStore, instant: u64, ended: bool| {
        caller.check(world, instant);
        if ended {
            return;
        }
        caller.work(world);
        caller.check(world, instant);
        assert_eq!(world.staged(), 0);
        result(world, world.files().into_keys());
    };
    let instants = prepared.killed_at_each_instant(|store| caller.work(store), check);
    assert!(instants > 4, "{caller:?}: only {instants} instants");
}

#[test]
fn crash_a_container_is_complete_or_not_there() {
    std::thread::scope(|scope| {
        for caller in CALLERS {
            scope.spawn(move || interrupt_in_a_directory(caller));
            scope.spawn(move || kill_at_every_instant(caller));
        }
    });
}
