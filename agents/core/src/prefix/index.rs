//! `index.scr`: which checkpoints are below the prefix directory, and their state (`SCR manual §9.1`,
//! `docs/scr-files.md` §12).
//!
//! SCR rewrites the index in place and without a lock. We write it through [`durable`](crate::durable), so that a
//! reader sees the old index or the new one, and hold a lock of our own from reading to writing; the lock is a file
//! beside the index, because a lock on a file that is replaced by rename protects nothing. SCR does not know the lock:
//! the index is therefore read anew under the lock for every change, never kept.

use std::path::Path;
use std::thread;
use std::time::Duration;

use chrono::NaiveDateTime;

use super::directory::{DirectoryName, Prefix};
use super::error::PrefixError;
use super::lock::{IndexLock, OWN_DIRECTORY};
use super::reading;
use crate::control::is_number_key;
use crate::kvtree::Tree;
use crate::kvtree::file::{self, HashFileError};
use crate::temporary;
use holdfast_model::CheckpointId;

/// The index file's name.
pub const INDEX_FILE: &str = "index.scr";
/// The version of its contents.
const VERSION: &str = "1";
/// Times in the index, local and without a zone.
const TIME_FORMAT: &str = "%Y-%m-%dT%H:%M:%S";
/// The first line that `scr_index --list` prints.
pub const LIST_HEADER: &str = "FLAGS  FLUSHED              CKPT  DIRECTORY";
/// How often an index that cannot be decoded is read before it counts as damaged.
const READ_ATTEMPTS: u32 = 4;
/// The time between: much longer than SCR's rewriting of a small file takes.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(5);
/// What to do with an index that cannot be read.
const REMEDY: &str = "move the index away and add the checkpoint directories again with `holdfast index add`";

/// The index in memory. Every directory name in it has been checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    tree: Tree,
}

/// One checkpoint directory of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    pub id: CheckpointId,
    pub directory: DirectoryName,
    /// Whether all its files are there; `None` while a copy is going on, or after one that was killed.
    pub complete: Option<bool>,
    /// When it was copied; `None` if the index has no valid time.
    pub flushed: Option<NaiveDateTime>,
    /// When runs took it for their restart, newest first.
    pub fetched: Vec<NaiveDateTime>,
    /// When such an attempt failed, newest first.
    pub failed: Vec<NaiveDateTime>,
    /// Whether an attempt failed, even if its time cannot be read.
    pub has_failed: bool,
}

impl IndexEntry {
    /// Whether a restart may choose this entry by itself: complete, and never failed.
    pub fn is_usable(&self) -> bool {
        self.complete == Some(true) && !self.has_failed
    }
}

impl Index {
    /// Takes a tree that was read from `path`.
    ///
    /// # Errors
    /// [`PrefixError::Content`] for another version or an id that is no number, [`PrefixError::Name`] for a directory
    /// name that leads out of the prefix.
    pub fn from_tree(tree: Tree, path: &Path) -> Result<Self, PrefixError> {
        let content = |place: String, problem: String| PrefixError::Content {
            path: path.to_owned(),
            place,
            problem,
            remedy: REMEDY,
        };
        if !tree.is_empty() && tree.value("VERSION") != Some(VERSION) {
            let found = tree.value("VERSION").unwrap_or("none").to_owned();
            return Err(content("VERSION".to_owned(), format!("version {found}, and only {VERSION} is known")));
        }
        let check = |place: String, name: &str| match DirectoryName::new(name) {
            Ok(_) => Ok(()),
            Err(problem) => {
                Err(PrefixError::Name { path: path.to_owned(), place, name: name.to_owned(), problem, remedy: REMEDY })
            }
        };
        for (id, checkpoint) in tree.get("CKPT").into_iter().flat_map(Tree::iter) {
            if !is_number_key::<CheckpointId>(id) {
                return Err(content(format!("CKPT/{id}"), "the id is not a number".to_owned()));
            }
            for name in checkpoint.get("DIR").into_iter().flat_map(Tree::keys) {
                check(format!("CKPT/{id}/DIR"), name)?;
            }
        }
        for name in tree.get("DIR").into_iter().flat_map(Tree::keys) {
            check("DIR".to_owned(), name)?;
        }
        Ok(Index { tree })
    }

    /// The tree as it is written: VERSION in front, as the original sets it last.
    pub fn to_tree(&self) -> Tree {
        let mut tree = self.tree.clone();
        tree.put("VERSION", VERSION);
        tree
    }

    /// Enters `directory` as a copy of `id` that began at `flushed`, before the first file is copied: what is being
    /// written is then known even if the copy is killed. COMPLETE comes with [`Index::set_complete`]. An entry that
    /// exists keeps its time; one under another id is dropped, because a directory holds one checkpoint.
    pub fn add(&mut self, id: CheckpointId, directory: &DirectoryName, flushed: NaiveDateTime) {
        if self.id_of(directory).is_some_and(|other| other != id) {
            self.remove(directory);
        }
        let entry = self.tree.set_kv("CKPT", id).set_kv("DIR", directory);
        if entry.get("FLUSHED").is_none() {
            entry.put("FLUSHED", flushed.format(TIME_FORMAT));
        }
        self.tree.set_kv("DIR", directory).set_kv("CKPT", id);
    }

    /// Records whether all files are present; returns whether the entry exists. The same value again changes nothing.
    pub fn set_complete(&mut self, directory: &DirectoryName, complete: bool) -> bool {
        let value = if complete { "1" } else { "0" };
        self.change(directory, |entry| {
            if entry.single("COMPLETE") != Some(value) {
                entry.put("COMPLETE", value);
            }
        })
    }

    /// Records that a run tries to restart from `directory`; returns whether the entry exists.
    pub fn mark_fetched(&mut self, directory: &DirectoryName, when: NaiveDateTime) -> bool {
        self.change(directory, |entry| {
            entry.set_kv("FETCHED", when.format(TIME_FORMAT));
        })
    }

    /// Records that the attempt failed: the entry is not chosen again. Returns whether the entry exists.
    pub fn mark_failed(&mut self, directory: &DirectoryName, when: NaiveDateTime) -> bool {
        self.change(directory, |entry| {
            entry.set_kv("FAILED", when.format(TIME_FORMAT));
        })
    }

    /// Removes `directory` from the index (its files are kept); returns whether it was listed.
    pub fn remove(&mut self, directory: &DirectoryName) -> bool {
        let Some(id) = self.id_of(directory) else { return self.tree.unset_kv("DIR", directory) };
        self.tree.unset_kv("DIR", directory);
        let emptied = match self.tree.get_mut("CKPT").and_then(|ids| ids.get_mut(&id.to_string())) {
            Some(checkpoint) => {
                checkpoint.unset_kv("DIR", directory);
                checkpoint.is_empty()
            }
            None => false,
        };
        if emptied {
            self.tree.unset_kv("CKPT", id);
        }
        true
    }

    /// The checkpoint in `directory`, if it is indexed.
    pub fn id_of(&self, directory: &DirectoryName) -> Option<CheckpointId> {
        let listed: Option<CheckpointId> = self.tree.get_kv("DIR", directory).and_then(|entry| entry.parsed("CKPT"));
        // The DIR table is only a shortcut; the CKPT table is authoritative.
        listed.filter(|id| self.record(*id, directory).is_some()).or_else(|| {
            let ids = self.tree.get("CKPT")?;
            ids.iter().find(|(_, it)| it.get_kv("DIR", directory).is_some()).and_then(|(id, _)| id.parse().ok())
        })
    }

    pub fn entry(&self, directory: &DirectoryName) -> Option<IndexEntry> {
        let id = self.id_of(directory)?;
        self.record(id, directory).map(|record| read_entry(id, directory.clone(), record))
    }

    /// All entries as they are listed: ids descending by number, directories of one id newest first.
    pub fn entries(&self) -> Vec<IndexEntry> {
        let mut entries = Vec::new();
        for (id, checkpoint) in self.tree.get("CKPT").into_iter().flat_map(Tree::iter) {
            let Ok(id) = id.parse::<CheckpointId>() else { continue };
            for (name, record) in checkpoint.get("DIR").into_iter().flat_map(Tree::iter) {
                if let Ok(directory) = DirectoryName::new(name) {
                    entries.push(read_entry(id, directory, record));
                }
            }
        }
        // Stable, and by number: the original misorders ids above 255.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.id));
        entries
    }

    fn record(&self, id: CheckpointId, directory: &DirectoryName) -> Option<&Tree> {
        self.tree.get_kv("CKPT", id)?.get_kv("DIR", directory)
    }

    fn change(&mut self, directory: &DirectoryName, change: impl FnOnce(&mut Tree)) -> bool {
        let Some(id) = self.id_of(directory) else { return false };
        let record = self
            .tree
            .get_mut("CKPT")
            .and_then(|ids| ids.get_mut(&id.to_string()))
            .and_then(|checkpoint| checkpoint.get_mut("DIR"))
            .and_then(|directories| directories.get_mut(directory.as_str()));
        record.map(change).is_some()
    }
}

fn read_entry(id: CheckpointId, directory: DirectoryName, record: &Tree) -> IndexEntry {
    let time = |text: &str| NaiveDateTime::parse_from_str(text, TIME_FORMAT).ok();
    let times = |key: &str| record.get(key).into_iter().flat_map(Tree::keys).filter_map(time).collect::<Vec<_>>();
    IndexEntry {
        id,
        directory,
        complete: record.value("COMPLETE").map(|value| value == "1"),
        flushed: record.value("FLUSHED").and_then(time),
        fetched: times("FETCHED"),
        failed: times("FAILED"),
        has_failed: record.get("FAILED").is_some(),
    }
}

/// The text that `scr_index --list` prints for these entries, header included.
pub fn list_text(entries: &[IndexEntry]) -> String {
    let mut text = format!("{LIST_HEADER}\n");
    entries.iter().for_each(|entry| text.push_str(&format!("{}\n", list_line(entry))));
    text
}

/// The line that `scr_index --list` prints for an entry.
pub fn list_line(entry: &IndexEntry) -> String {
    let complete = if entry.complete == Some(true) { 'c' } else { 'x' };
    let failed = if entry.has_failed { 'f' } else { '-' };
    let flushed = entry.flushed.map(|time| time.format(TIME_FORMAT).to_string()).unwrap_or_default();
    format!("{complete}{failed}     {flushed:19}{:6}  {}", entry.id.0, entry.directory)
}

/// Reads the index; `None` if there is none yet.
///
/// # Errors
/// [`PrefixError::HashFile`] for a file that is not a hash file, and those of [`Index::from_tree`].
pub fn read(prefix: &Prefix) -> Result<Option<Index>, PrefixError> {
    let path = prefix.path().join(INDEX_FILE);
    let mut attempt = 1;
    loop {
        match reading::hash_file(&path) {
            Ok(tree) => return tree.map(|tree| Index::from_tree(tree, &path)).transpose(),
            // SCR truncates the index and writes it anew: a reader may meet it in between.
            Err(PrefixError::HashFile(HashFileError::Format { .. })) if attempt < READ_ATTEMPTS => {
                attempt += 1;
                thread::sleep(BETWEEN_ATTEMPTS);
            }
            Err(error) => return Err(error),
        }
    }
}

/// The index while this process holds its lock. What belongs to a change of the index (summary, link) is changed in the
/// meantime, so that no other Holdfast process sees or makes a change in between.
#[derive(Debug)]
pub(super) struct LockedIndex<'a> {
    prefix: &'a Prefix,
    _lock: IndexLock,
}

/// Waits for the lock of the index, and removes the temporary files that killed processes left beside it.
///
/// # Errors
/// [`PrefixError::Io`] if the lock file cannot be made or locked.
pub(super) fn lock(prefix: &Prefix) -> Result<LockedIndex<'_>, PrefixError> {
    let lock = IndexLock::acquire(prefix)?;
    for directory in [prefix.path().to_owned(), prefix.path().join(OWN_DIRECTORY)] {
        // No reader uses them: a failure must not prevent the change.
        let _ = temporary::remove_abandoned(&directory);
    }
    Ok(LockedIndex { prefix, _lock: lock })
}

impl LockedIndex<'_> {
    /// Reads the index, lets `change` work on it, and replaces the file if anything differs. A missing index is an
    /// empty one.
    ///
    /// # Errors
    /// Those of [`read`] and of replacing the file. The old index is then still there.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Index) -> R) -> Result<R, PrefixError> {
        let before = read(self.prefix)?.unwrap_or_default();
        let mut index = before.clone();
        let result = change(&mut index);
        if before != index {
            file::write(&self.prefix.path().join(INDEX_FILE), &index.to_tree())?;
        }
        Ok(result)
    }
}

/// One change of the index under its lock.
///
/// # Errors
/// Those of taking the lock, of [`read`], and of replacing the file. The old index is then still there.
pub fn update<R>(prefix: &Prefix, change: impl FnOnce(&mut Index) -> R) -> Result<R, PrefixError> {
    lock(prefix)?.change(change)
}
