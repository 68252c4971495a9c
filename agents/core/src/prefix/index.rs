//! `index.scr`: which checkpoints are below the prefix directory, and their state (`SCR manual §9.1`,
//! `docs/scr-files.md` §12).

use std::path::Path;

use chrono::NaiveDateTime;

use crate::control::is_number_key;
use crate::kvtree::Tree;
use crate::store::{DatasetStore, DirectoryName, PrefixError, RecordsChange};
use holdfast_model::CheckpointId;

/// The index file's name.
pub const INDEX_FILE: &str = "index.scr";
/// The version of its contents.
const VERSION: &str = "1";
/// Times in the index, local and without a zone.
const TIME_FORMAT: &str = "%Y-%m-%dT%H:%M:%S";
/// The first line that `scr_index --list` prints.
pub const LIST_HEADER: &str = "FLAGS  FLUSHED              CKPT  DIRECTORY";
/// How often a change is made again that other processes overtake, where the store cannot lock.
const CHANGE_ATTEMPTS: u32 = 100;
/// The keys of [`Marks`] in an entry.
const WINDOW_OF: &str = "WINDOW";
const VERIFIED: &str = "VERIFIED";
const RESTARTED: &str = "RESTARTED";
const KEPT: &str = "KEEP";
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
    /// The attempts that failed, newest first.
    pub failed: Vec<FailedAttempt>,
    /// Whether an attempt failed, even if its time cannot be read.
    pub has_failed: bool,
    /// What Holdfast recorded for the window of the prefix directory, and the user's mark.
    pub marks: Marks,
}

/// Marks of an entry that SCR does not know, and keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The job of which a window made the directory.
    pub window_of: Option<String>,
    /// The files were read after they had been written, and are what was written.
    pub verified: bool,
    /// The last restart of this job took it, from the caches or from here.
    pub restarted: bool,
    /// The user keeps it: neither a window nor `holdfast index prune` deletes it.
    pub kept: bool,
}

/// A mark that a restart from a directory failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    pub time: NaiveDateTime,
    /// Why, if the program that set the mark recorded it: SCR's library does not.
    pub reason: Option<String>,
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
            if !complete {
                entry.unset(VERIFIED);
            }
        })
    }

    /// Records that a run tries to restart from `directory`; returns whether the entry exists.
    pub fn mark_fetched(&mut self, directory: &DirectoryName, when: NaiveDateTime) -> bool {
        self.change(directory, |entry| {
            entry.set_kv("FETCHED", when.format(TIME_FORMAT));
        })
    }

    /// Records that the attempt failed, and why: the entry is not chosen again. Returns whether the entry exists. SCR
    /// ignores the reason, and keeps it.
    pub fn mark_failed(&mut self, directory: &DirectoryName, when: NaiveDateTime, reason: Option<&str>) -> bool {
        self.change(directory, |entry| {
            let attempt = entry.set_kv("FAILED", when.format(TIME_FORMAT));
            if let Some(reason) = reason {
                attempt.put("REASON", reason);
            }
        })
    }

    /// Removes the marks of failed attempts: the entry may be chosen again. Returns whether it had one.
    pub fn restore(&mut self, directory: &DirectoryName) -> bool {
        let mut marked = false;
        self.change(directory, |entry| marked = entry.unset("FAILED"));
        marked
    }

    /// Records that `directory` was made for the window of a job, before its files are written.
    pub fn mark_of_window(&mut self, directory: &DirectoryName, job: &str) -> bool {
        self.change(directory, |entry| {
            entry.put(WINDOW_OF, job);
            entry.unset(VERIFIED);
        })
    }

    /// Records that the files were read, and are what was written.
    pub fn mark_verified(&mut self, directory: &DirectoryName) -> bool {
        self.change(directory, |entry| entry.put(VERIFIED, "1"))
    }

    /// Records that a run of the job restarted from `directory`: until the next restart its window keeps it.
    pub fn mark_restarted(&mut self, directory: &DirectoryName, job: &str) -> bool {
        for entry in self.entries() {
            if entry.marks.restarted && entry.marks.window_of.as_deref() == Some(job) {
                self.change(&entry.directory, |entry| {
                    entry.unset(RESTARTED);
                });
            }
        }
        self.change(directory, |entry| entry.put(RESTARTED, "1"))
    }

    /// Sets or removes the user's mark; returns whether it was changed, `None` if the entry does not exist.
    pub fn set_kept(&mut self, directory: &DirectoryName, kept: bool) -> Option<bool> {
        let mut changed = false;
        let exists = self.change(directory, |entry| {
            changed = entry.get(KEPT).is_some() != kept;
            if kept {
                entry.put(KEPT, "1");
            } else {
                entry.unset(KEPT);
            }
        });
        exists.then_some(changed)
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
    let failed = record.get("FAILED").into_iter().flat_map(Tree::iter).filter_map(|(text, attempt)| {
        Some(FailedAttempt { time: time(text)?, reason: attempt.value("REASON").map(str::to_owned) })
    });
    IndexEntry {
        id,
        directory,
        complete: record.value("COMPLETE").map(|value| value == "1"),
        flushed: record.value("FLUSHED").and_then(time),
        fetched: times("FETCHED"),
        failed: failed.collect(),
        has_failed: record.get("FAILED").is_some(),
        marks: Marks {
            window_of: record.value(WINDOW_OF).map(str::to_owned),
            verified: record.get(VERIFIED).is_some(),
            restarted: record.get(RESTARTED).is_some(),
            kept: record.get(KEPT).is_some(),
        },
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
pub fn read(store: &dyn DatasetStore) -> Result<Option<Index>, PrefixError> {
    parsed(store, store.index()?)
}

fn parsed(store: &dyn DatasetStore, tree: Option<Tree>) -> Result<Option<Index>, PrefixError> {
    tree.map(|tree| Index::from_tree(tree, &store.location().join(INDEX_FILE))).transpose()
}

/// A change of the index and of the current dataset. What belongs to it (summaries, files of outputs) is changed in the
/// meantime; no other process makes a change in between, or this one is made again.
#[derive(Debug)]
pub(super) struct IndexChange<'a> {
    pub(super) store: &'a dyn DatasetStore,
    records: Box<dyn RecordsChange + 'a>,
}

/// Does `work` as one change; again from the beginning if another process overtakes it. All of `work` must be
/// repeatable.
///
/// # Errors
/// Those of `work`, and those of beginning a change.
pub(super) fn change<R>(
    store: &dyn DatasetStore,
    mut work: impl FnMut(&mut IndexChange<'_>) -> Result<R, PrefixError>,
) -> Result<R, PrefixError> {
    let mut attempt = 1;
    loop {
        let mut change = IndexChange { store, records: store.begin_change()? };
        match work(&mut change) {
            Err(PrefixError::Overtaken { .. }) if attempt < CHANGE_ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

impl<'a> IndexChange<'a> {
    /// The index; a missing one is an empty one.
    pub(super) fn read(&self) -> Result<Index, PrefixError> {
        Ok(parsed(self.store, self.records.index()?)?.unwrap_or_default())
    }

    /// Reads the index, lets `change` work on it, and replaces it if anything differs.
    ///
    /// # Errors
    /// Those of [`read`] and of replacing it. The old index is then still there.
    pub(super) fn update<R>(&mut self, change: impl FnOnce(&mut Index) -> R) -> Result<R, PrefixError> {
        let before = self.read()?;
        let mut index = before.clone();
        let result = change(&mut index);
        if before != index {
            self.records.set_index(&index.to_tree())?;
        }
        Ok(result)
    }

    pub(super) fn current(&self) -> Result<Option<DirectoryName>, PrefixError> {
        self.records.current()
    }

    pub(super) fn set_current(&mut self, directory: &DirectoryName) -> Result<(), PrefixError> {
        self.records.set_current(directory)
    }

    /// Also one that cannot be read; returns whether there was one.
    pub(super) fn remove_current(&mut self) -> Result<bool, PrefixError> {
        self.records.remove_current()
    }

    /// No dataset is current if this one is.
    pub(super) fn remove_current_if(&mut self, directory: &DirectoryName) -> Result<(), PrefixError> {
        if self.current()?.as_ref() == Some(directory) {
            self.remove_current()?;
        }
        Ok(())
    }
}

/// One change of the index.
///
/// # Errors
/// Those of beginning a change, of [`read`], and of replacing the index. The old index is then still there.
pub fn update<R>(store: &dyn DatasetStore, mut work: impl FnMut(&mut Index) -> R) -> Result<R, PrefixError> {
    change(store, |index| index.update(&mut work))
}
