//! Stores for tests: prefix directories, and stores in memory.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::NaiveDateTime;
use tempfile::TempDir;

use crate::control::meta::{FileKind, Meta};
use crate::kvtree::{Tree, file};
use crate::owned::MARKER_FILE;
use crate::prefix::add::{AddOptions, AddReport, add};
use crate::prefix::rank_filemap::{FilemapWriter, RankFilemap};
use crate::redundancy::files::MemberFiles;
use crate::redundancy::parity::header::{ParityHeader, chunk_size};
use crate::redundancy::xor;
use crate::store::memory::MemoryStore;
use crate::store::{DatasetAccess, DatasetStore, DirectoryName, OpenDataset, PosixDataset, PosixStore, PrefixError};
use crate::temporary;
use holdfast_model::{CheckpointId, Rank};

/// A local time as the index writes it.
pub fn time(text: &str) -> NaiveDateTime {
    NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S").unwrap()
}

/// A time for tests that do not depend on it.
pub fn some_time() -> NaiveDateTime {
    time("2026-11-20T10:22:24")
}

pub fn name(text: &str) -> DirectoryName {
    DirectoryName::new(text).unwrap()
}

/// A store, and what a test does to it beside the interface.
pub trait TestStore: Debug + Send + Sync {
    fn store(&self) -> &dyn DatasetStore;

    /// Writes a file; directories are made.
    fn put(&self, path: &str, bytes: &[u8]);

    /// Removes a file, or all below a directory.
    fn take_away(&self, path: &str);

    /// Every file by its path, without temporary files and Holdfast's own directory.
    fn files(&self) -> BTreeMap<String, Vec<u8>>;

    /// Files that were begun and neither completed nor removed.
    fn staged(&self) -> usize;

    fn get(&self, path: &str) -> Option<Vec<u8>> {
        self.files().remove(path)
    }

    fn dataset(&self, directory: &str) -> Arc<dyn OpenDataset> {
        self.store().open(&name(directory), DatasetAccess::Create).unwrap()
    }
}

/// Does `test` with an empty store of each kind.
pub fn each_store(test: impl Fn(&dyn TestStore)) {
    test(&PosixWorld::new());
    test(&MemoryStore::new());
}

#[derive(Debug)]
pub struct PosixWorld {
    pub scratch: Scratch,
    store: PosixStore,
}

/// Where the store is: in a directory that is removed at the end, or in one that another owns.
#[derive(Debug)]
pub enum Scratch {
    Own(TempDir),
    Other(PathBuf),
}

impl Scratch {
    pub fn path(&self) -> &Path {
        match self {
            Scratch::Own(directory) => directory.path(),
            Scratch::Other(path) => path,
        }
    }
}

impl PosixWorld {
    pub fn new() -> PosixWorld {
        PosixWorld::of(Scratch::Own(tempfile::tempdir().unwrap()))
    }

    /// In a directory that exists.
    pub fn at(path: &Path) -> PosixWorld {
        PosixWorld::of(Scratch::Other(path.to_owned()))
    }

    pub fn scratch_copy(&self) -> PosixWorld {
        PosixWorld::of(Scratch::Own(holdfast_testkit::scratch_copy(self.scratch.path())))
    }

    fn of(scratch: Scratch) -> PosixWorld {
        let store = PosixStore::open(scratch.path()).unwrap();
        PosixWorld { scratch, store }
    }
}

impl TestStore for PosixWorld {
    fn store(&self) -> &dyn DatasetStore {
        &self.store
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.scratch.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn take_away(&self, path: &str) {
        let path = self.scratch.path().join(path);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let below = |path: PathBuf| path.strip_prefix(self.scratch.path()).unwrap().to_str().unwrap().to_owned();
        let files = snapshot(self.scratch.path()).into_iter().map(|(path, bytes)| (below(path), bytes));
        let is_trash = |path: &str| path.starts_with(".hf-trash-") && path.ends_with(MARKER_FILE);
        let is_temporary = |path: &str| temporary::is_temporary(path.rsplit('/').next().unwrap());
        files.filter(|(path, _)| !is_temporary(path) && !is_trash(path)).collect()
    }

    fn staged(&self) -> usize {
        let files = holdfast_testkit::files_below(self.scratch.path()).into_iter();
        files.filter(|path| temporary::is_temporary(&path.file_name().unwrap().to_string_lossy())).count()
    }
}

impl TestStore for MemoryStore {
    fn store(&self) -> &dyn DatasetStore {
        self
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        MemoryStore::put(self, path, bytes);
    }

    fn take_away(&self, path: &str) {
        MemoryStore::take_away(self, path);
    }

    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        MemoryStore::files(self)
    }

    fn staged(&self) -> usize {
        MemoryStore::staged(self)
    }
}

/// The dataset in a directory, which need not be below a prefix directory.
pub fn at(directory: &Path) -> Arc<dyn OpenDataset> {
    Arc::new(PosixDataset::at(directory).unwrap())
}

pub fn add_now(prefix: &Path, directory: &str) -> Result<AddReport, PrefixError> {
    add_with(prefix, directory, &AddOptions::default())
}

/// Adds a dataset of a prefix directory. A copy of the store in memory must get the same report and the same files.
pub fn add_with(prefix: &Path, directory: &str, options: &AddOptions) -> Result<AddReport, PrefixError> {
    let added = |store: &dyn DatasetStore| add(store, &name(directory), some_time(), options, &|_| {});
    let in_memory = MemoryStore::copy_of(prefix).map(|store| (added(&store), store.files()));
    let report = added(&PosixStore::open(prefix)?);
    if let Some((in_memory, files)) = in_memory {
        assert_eq!(report.as_ref().ok(), in_memory.ok().as_ref());
        if report.is_ok() {
            let below = |path: PathBuf| path.strip_prefix(prefix).unwrap().to_str().unwrap().to_owned();
            let here: BTreeMap<_, _> = snapshot(prefix).into_iter().map(|(path, bytes)| (below(path), bytes)).collect();
            assert!(here == files, "{:?} and {:?}", here.keys(), files.keys());
        }
    }
    report
}

/// All names in a directory, sorted, without Holdfast's own directory.
pub fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != ".holdfast");
    names.sort();
    names
}

/// Every file below a directory with its bytes, to check that nothing changed.
pub fn snapshot(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    holdfast_testkit::files_below(directory)
        .into_iter()
        .filter(|path| !path.components().any(|part| part.as_os_str() == ".holdfast"))
        .map(|path| {
            let link = fs::read_link(&path).map(|target| target.into_os_string().into_encoded_bytes());
            let bytes = link.or_else(|_| fs::read(&path)).unwrap_or_default();
            (path, bytes)
        })
        .collect()
}

/// Writes a tree as a hash file.
pub fn write_tree(path: &Path, tree: &Tree) {
    file::write(path, tree).unwrap();
}

/// A drained checkpoint of ranks in XOR sets of `set_size`, one application file of a few bytes a rank. Without the
/// library's or our own encoder, so that the two are not tested against each other.
pub fn drained_checkpoint(directory: &Path, id: u64, ranks: u32, set_size: u32) {
    fs::create_dir_all(directory).unwrap();
    for (name, bytes) in drained_files(id, ranks, set_size) {
        fs::write(directory.join(name), bytes).unwrap();
    }
}

/// As [`drained_checkpoint`], in a store.
pub fn drained_dataset(world: &dyn TestStore, directory: &str, id: u64, ranks: u32, set_size: u32) {
    world.dataset(directory);
    for (name, bytes) in drained_files(id, ranks, set_size) {
        world.put(&format!("{directory}/{name}"), &bytes);
    }
}

fn drained_files(id: u64, ranks: u32, set_size: u32) -> Vec<(String, Vec<u8>)> {
    let mut written = Vec::new();
    let data: Vec<Vec<u8>> = (0..ranks).map(|rank| format!("data of rank {rank:8}").into_bytes()).collect();
    for first in (0..ranks).step_by(set_size as usize) {
        let members: Vec<u32> = (first..(first + set_size).min(ranks)).collect();
        let count = members.len() as u32;
        let longest = members.iter().map(|rank| data[*rank as usize].len()).max().unwrap() as u64;
        let chunk = chunk_size(longest, count, 1);
        let files = |rank: u32| MemberFiles {
            rank: Rank(rank),
            files: vec![app_meta(id, rank, ranks, &data[rank as usize], false)],
        };
        for (index, rank) in members.iter().enumerate() {
            let header = ParityHeader {
                scheme: &xor::PARITY,
                chunk,
                checkpoint: CheckpointId(id),
                ranks,
                members: members.iter().map(|rank| Rank(*rank)).collect(),
                current: files(*rank),
                left: vec![files(members[(index + members.len() - 1) % members.len()])],
            };
            let mut data_of_set = vec![0_u8; chunk as usize];
            for (other, other_rank) in members.iter().enumerate().filter(|(other, _)| *other != index) {
                let slot = if index < other { index } else { index - 1 };
                let start = slot * chunk as usize;
                for (at, byte) in data_of_set.iter_mut().enumerate() {
                    *byte ^= data[*other_rank as usize].get(start + at).copied().unwrap_or(0);
                }
            }
            let mut bytes = file::encode(&header.to_tree());
            bytes.extend(data_of_set);
            let xor_name = format!("{}_of_{count}_in_{first}.xor", index + 1);
            let application = app_meta(id, *rank, ranks, &data[*rank as usize], true);
            let redundancy = Meta {
                file: xor_name.clone(),
                kind: FileKind::Redundancy(xor::NAME),
                size: bytes.len() as u64,
                crc: Some(crc32fast::hash(&bytes)),
                ..application.clone()
            };
            for (meta, bytes) in [(&application, &data[*rank as usize]), (&redundancy, &bytes)] {
                written.push((meta.file.clone(), bytes.clone()));
                written.push((format!("{}.scr", meta.file), file::encode(&meta.to_tree())));
            }
            let filemap = RankFilemap {
                rank: Rank(*rank),
                id: CheckpointId(id),
                files: vec![xor_name, application.file],
                expected: 2,
            };
            written.push((RankFilemap::name_of(Rank(*rank)), file::encode(&filemap.to_tree(FilemapWriter::Copy))));
        }
    }
    written
}

fn app_meta(id: u64, rank: u32, ranks: u32, data: &[u8], crc: bool) -> Meta {
    let file = format!("rank_{rank}.ckpt");
    Meta {
        crc: crc.then(|| crc32fast::hash(data)),
        ..Meta::of_application(file, data.len() as u64, CheckpointId(id), Rank(rank), ranks)
    }
}
