//! The prefix directory: directories with files, their summaries, the index, the link. The index and the rules for a
//! fetch are the real ones; the files are simulated.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{NaiveDateTime, TimeDelta};
use holdfast_core::control::meta::FileKind;
use holdfast_core::prefix::fetch::{self, RestartCandidate};
use holdfast_core::prefix::index::IndexEntry;
use holdfast_core::prefix::prune::{self, PruneCandidate, PruneRules};
use holdfast_core::prefix::scan::{
    CheckpointIdentity, ExpectationSource, ExpectedFiles, PresentFile, RankScan, RedundancySet, Scan,
};
use holdfast_core::prefix::unfinished::UnfinishedFlush;
use holdfast_core::prefix::{Index, Summary};
use holdfast_core::redundancy::files::SetId;
use holdfast_core::store::{DatasetFiles, DirectoryName, FoundFile, ListedFile, OpenDataset, StoredFile};
use holdfast_model::dataset::default_name;
use holdfast_model::{CheckpointId, Dataset, OutputPath, Rank};

use crate::content::{Content, FileName, Parity, Rebuilt, Survivor};

pub const PATH: &str = "/prefix";
pub const JOB: &str = "17";

/// A file on the prefix directory.
#[derive(Clone, Debug)]
pub struct PrefixFile {
    pub rank: Rank,
    pub content: Content,
}

/// A directory below the prefix.
#[derive(Debug)]
pub struct Directory {
    pub checkpoint: CheckpointId,
    pub files: BTreeMap<FileName, PrefixFile>,
    /// The rank's files that a drain recorded, and how many there should be.
    pub filemaps: BTreeMap<Rank, (Vec<FileName>, u32)>,
    pub summary: Option<Summary>,
    pub dataset: Option<Dataset>,
}

#[derive(Default)]
pub struct Prefix {
    pub directories: BTreeMap<DirectoryName, Directory>,
    pub index: Index,
    pub current: Option<DirectoryName>,
    /// The record of the drain that is under way.
    pub drain: Option<(CheckpointId, DirectoryName)>,
    made: i64,
    changes: i64,
}

/// The path that is sent to the nodes.
pub fn path_of(directory: &DirectoryName) -> PathBuf {
    PathBuf::from(PATH).join(directory.as_str())
}

/// The directory of a path.
pub fn directory_of(path: &std::path::Path) -> DirectoryName {
    DirectoryName::new(path.file_name().unwrap().to_string_lossy()).unwrap()
}

impl Prefix {
    /// A time later than that of any earlier change.
    fn now(&mut self) -> NaiveDateTime {
        self.changes += 1;
        start() + TimeDelta::seconds(self.changes)
    }

    pub fn make_directory(&mut self, checkpoint: CheckpointId) -> DirectoryName {
        self.made += 1;
        let stamp = (start() + TimeDelta::seconds(self.made)).format("%Y-%m-%d_%H:%M:%S");
        let name = DirectoryName::new(format!("scr.{stamp}.{JOB}.{checkpoint}")).unwrap();
        let directory =
            Directory { checkpoint, files: BTreeMap::new(), filemaps: BTreeMap::new(), summary: None, dataset: None };
        self.directories.insert(name.clone(), directory);
        name
    }

    pub fn enter_index(&mut self, checkpoint: CheckpointId, name: &DirectoryName, dataset: &Dataset) {
        if let Some(directory) = self.directories.get_mut(name)
            && !dataset.is_plain()
        {
            directory.dataset = Some(dataset.clone());
        }
        let now = self.now();
        self.index.add(checkpoint, name, now);
    }

    pub fn dataset(&self, name: &DirectoryName) -> Option<Dataset> {
        let mut dataset = self.directories.get(name)?.dataset.clone()?;
        dataset.direct = dataset.direct.map(|_| name.to_string());
        Some(dataset)
    }

    pub fn find(&self, name: &str) -> Option<(CheckpointId, DirectoryName)> {
        let entries = self.index.entries().into_iter();
        let named = |id: CheckpointId, directory: &DirectoryName| match self.dataset(directory).and_then(|it| it.name) {
            Some(given) => given == name,
            None => default_name(id) == name,
        };
        let mut found = entries.filter(|entry| entry.directory.as_str() == name || named(entry.id, &entry.directory));
        found.next().map(|entry| (entry.id, entry.directory))
    }

    pub fn candidates(&self) -> Vec<RestartCandidate> {
        let current = self.current.as_ref().filter(|name| self.directories.contains_key(*name));
        fetch::order(&self.index, current)
    }

    /// True if the index lists a copy that a restart may take.
    pub fn has_usable(&self, checkpoint: CheckpointId) -> bool {
        self.index.entries().iter().any(|entry| entry.id == checkpoint && entry.is_usable())
    }

    pub fn withdraw(&mut self, name: &DirectoryName) {
        if self.current.as_ref() == Some(name) {
            self.current = None;
        }
        self.index.remove(name);
    }

    pub fn fetch_begun(&mut self, name: &DirectoryName) {
        let now = self.now();
        self.index.mark_fetched(name, now);
    }

    pub fn fetch_failed(&mut self, name: &DirectoryName) {
        let now = self.now();
        self.index.mark_failed(name, now, None);
        if self.current.as_ref() == Some(name) {
            self.current = None;
        }
    }

    /// The steps of a publication, in the order of the real one; a writer that is killed does only the first `steps`.
    /// Returns whether the index now lists the directory as complete.
    pub fn publish(
        &mut self,
        name: &DirectoryName,
        summary: Option<&Summary>,
        make_current: bool,
        steps: usize,
    ) -> bool {
        let Some(summary) = summary else {
            if steps > 0 && self.current.as_ref() == Some(name) {
                self.current = None;
            }
            if steps > 1 {
                self.index.set_complete(name, false);
            }
            return false;
        };
        let now = self.now();
        if steps > 0 && !summary.complete {
            self.index.add(summary.id, name, now);
            self.index.set_complete(name, false);
        }
        if steps > 1
            && let Some(directory) = self.directories.get_mut(name)
        {
            directory.summary = Some(summary.clone());
        }
        if steps > 2 && summary.complete {
            self.index.add(summary.id, name, now);
            self.index.set_complete(name, true);
            if steps > 3 && make_current {
                self.current = Some(name.clone());
            }
            return true;
        }
        false
    }

    /// The flushes that did not end, newest first; datasets that bypass the cache are left out.
    pub fn unfinished_flushes(&self) -> Vec<UnfinishedFlush> {
        let entries = self.index.entries().into_iter().filter(|entry| self.is_unfinished(entry));
        let through_cache = entries.filter(|entry| {
            self.directories
                .get(&entry.directory)
                .is_none_or(|known| known.dataset.as_ref().is_none_or(|dataset| dataset.direct.is_none()))
        });
        let flushes = through_cache.map(|entry| UnfinishedFlush { checkpoint: entry.id, directory: entry.directory });
        let mut flushes: Vec<_> = flushes.collect();
        flushes.sort_by(|a, b| (b.checkpoint, &b.directory).cmp(&(a.checkpoint, &a.directory)));
        flushes
    }

    pub fn is_unfinished(&self, entry: &IndexEntry) -> bool {
        entry.complete != Some(true)
            && self.directories.get(&entry.directory).is_none_or(|known| {
                known.filemaps.is_empty() && known.summary.as_ref().is_none_or(|summary| summary.complete)
            })
    }

    pub fn abandon(&mut self, name: &DirectoryName) -> bool {
        if self.index.entry(name).is_some_and(|entry| entry.complete == Some(true)) {
            return false;
        }
        let summary = self.directories.get(name).and_then(|known| known.summary.clone());
        if let Some(summary) = summary.filter(|summary| summary.complete) {
            self.publish(name, Some(&summary), false, usize::MAX);
            return false;
        }
        self.withdraw(name);
        self.directories.remove(name);
        true
    }

    pub fn abandon_all(&mut self) -> Vec<DirectoryName> {
        let entries = self.index.entries();
        if !entries.iter().any(|entry| entry.complete == Some(true)) {
            return Vec::new();
        }
        let unfinished: Vec<_> = entries.into_iter().filter(|entry| self.is_unfinished(entry)).collect();
        unfinished.into_iter().map(|entry| entry.directory).filter(|name| self.abandon(name)).collect()
    }

    /// The dataset of this id that was written for the window and is not verified.
    pub fn unverified(&self, checkpoint: CheckpointId) -> Option<(DirectoryName, Summary)> {
        let mut entries = self.of_window().into_iter().filter(|entry| entry.id == checkpoint);
        let found = entries.find(|entry| entry.complete == Some(true) && !entry.marks.verified)?;
        let summary = self.directories.get(&found.directory)?.summary.clone()?;
        Some((found.directory, summary))
    }

    pub fn mark_restarted(&mut self, checkpoint: CheckpointId) {
        if let Some(entry) = self.of_window().into_iter().find(|entry| entry.id == checkpoint) {
            self.index.mark_restarted(&entry.directory, JOB);
        }
    }

    /// Deletes what the window leaves out, by the real rules.
    pub fn keep_window(&mut self, keep: u32) -> Vec<(CheckpointId, DirectoryName)> {
        let exists = |entry: &IndexEntry| self.directories.contains_key(&entry.directory);
        let candidate = |entry: IndexEntry| PruneCandidate {
            output: self.dataset(&entry.directory).is_some_and(|dataset| dataset.output),
            in_use: entry.marks.restarted,
            counts: entry.marks.verified,
            entry,
        };
        let usable = self.of_window().into_iter().filter(|entry| entry.is_usable() && exists(entry));
        let rules = PruneRules { keep: Some(keep as usize), ..PruneRules::default() };
        let planned = prune::plan(&usable.map(candidate).collect::<Vec<_>>(), self.current.as_ref(), rules);
        for left_out in &planned {
            let usable = self.of_window().into_iter().filter(|entry| entry.is_usable() && exists(entry));
            let newer = usable.filter(|entry| entry.id >= left_out.id && entry.directory != left_out.directory);
            let verified = newer.filter(|entry| entry.marks.verified).count();
            assert!(verified >= keep as usize, "{left_out:?} is deleted, with {verified} newer ones");
        }
        let planned = planned.into_iter().map(|left_out| (left_out.id, left_out.directory));
        planned
            .inspect(|(_, name)| {
                self.withdraw(name);
                self.directories.remove(name);
            })
            .collect()
    }

    fn of_window(&self) -> Vec<IndexEntry> {
        let mut entries = self.index.entries();
        entries.retain(|entry| entry.marks.window_of.as_deref() == Some(JOB));
        entries
    }

    /// The directory that a drain resumes.
    pub fn interrupted(&self, checkpoint: CheckpointId) -> Option<DirectoryName> {
        let noted = self.drain.as_ref().filter(|(id, name)| *id == checkpoint && self.directories.contains_key(name));
        let incomplete = || {
            let entries = self.index.entries().into_iter();
            let ours = entries.filter(|entry| {
                entry.id == checkpoint
                    && entry.complete != Some(true)
                    && self.directories.contains_key(&entry.directory)
            });
            ours.map(|entry| entry.directory).max()
        };
        noted.map(|(_, name)| name.clone()).or_else(incomplete)
    }
}

/// The time at the start of the job, for names.
fn start() -> NaiveDateTime {
    NaiveDateTime::default() + TimeDelta::days(20_000)
}

impl Directory {
    /// The result of a scan.
    pub fn scan(&self, name: &DirectoryName, world: u32) -> Scan {
        let mut ranks: BTreeMap<Rank, RankScan> = BTreeMap::new();
        let mut sets: BTreeMap<(u32, u32), RedundancySet> = BTreeMap::new();
        for (file, found) in &self.files {
            let kind = match *file {
                FileName::Application { .. } => FileKind::Full,
                FileName::Parity { scheme, .. } => FileKind::Redundancy(scheme),
            };
            let present = PresentFile { kind, size: file.size(), crc: None, output_path: None };
            ranks.entry(found.rank).or_default().present.insert(file.to_string(), present);
            if let FileName::Parity { scheme, group_id, members, member } = *file {
                let id = SetId { scheme, group_id, members };
                let set = sets.entry((group_id, members)).or_insert_with(|| RedundancySet {
                    id,
                    present: BTreeMap::new(),
                    ranks: BTreeMap::new(),
                    tolerance: None,
                });
                set.present.insert(member, found.rank);
                set.ranks.insert(member, found.rank);
                self.read_header(found, id, member, &mut ranks, set);
            }
        }
        for (rank, (files, count)) in &self.filemaps {
            let names = files.iter().map(ToString::to_string).collect();
            ranks.entry(*rank).or_default().expected =
                Some(ExpectedFiles { count: *count, names, source: ExpectationSource::Filemap });
        }
        let identity = (!self.files.is_empty()).then_some(CheckpointIdentity { id: self.checkpoint, ranks: world });
        Scan {
            files: Arc::new(NoFiles(path_of(name))),
            identity,
            ranks,
            sets: sets.into_values().collect(),
            damaged: Vec::new(),
            leftovers: Vec::new(),
        }
    }

    /// A parity file's header lists the files of its own member and of those to its left.
    fn read_header(
        &self,
        found: &PrefixFile,
        SetId { scheme, group_id, members }: SetId,
        member: u32,
        ranks: &mut BTreeMap<Rank, RankScan>,
        set: &mut RedundancySet,
    ) {
        let Content::Parity(parity) = &found.content else { return };
        let rank_of = |files: &[(FileName, Content)]| match files.first() {
            Some((FileName::Application { rank, .. }, _)) => Some(*rank),
            _ => None,
        };
        for (index, files) in (0u32..).zip(&parity.members) {
            set.ranks.extend(rank_of(files).map(|rank| (index, rank)));
        }
        set.tolerance = Some(parity.tolerance);
        for of in (0..=parity.tolerance).map(|distance| (member + members - distance) % members) {
            let Some(files) = parity.members.get(of as usize) else { continue };
            let Some(rank) = rank_of(files) else { continue };
            let known = ranks.entry(rank).or_default();
            if known.expected.is_none() {
                let mut names = vec![FileName::Parity { scheme, group_id, members, member: of }.to_string()];
                names.extend(files.iter().map(|(name, _)| name.to_string()));
                known.expected =
                    Some(ExpectedFiles { count: names.len() as u32, names, source: ExpectationSource::Header });
            }
        }
    }

    /// Computes the missing members of a set; `None` if the survivors are not enough.
    pub fn rebuild(&mut self, set: SetId, missing: &[u32], ranks: &[Rank]) -> Option<()> {
        let SetId { scheme, group_id, members } = set;
        let mut survivors = Vec::new();
        for member in (0..members).filter(|member| !missing.contains(member)) {
            let parity = self.files.get(&FileName::Parity { scheme, group_id, members, member })?;
            let of_rank = |(name, file): (&FileName, &PrefixFile)| {
                (file.rank == parity.rank && name.is_application()).then(|| (*name, file.content.clone()))
            };
            let from = FileName::Application { rank: parity.rank, part: 0 };
            let to = FileName::Application { rank: parity.rank, part: u8::MAX };
            let files = self.files.range(from..=to).filter_map(of_rank).collect();
            survivors.push(Survivor { member: member as usize, parity: Some(parity.content.clone()), files });
        }
        for (member, rank) in missing.iter().zip(ranks) {
            let Rebuilt::Files { files, parity } = Parity::rebuild(&survivors, *member as usize) else { return None };
            let parity_name = FileName::Parity { scheme, group_id, members, member: *member };
            let names: Vec<FileName> = files.iter().map(|(name, _)| *name).chain([parity_name]).collect();
            let count = names.len() as u32;
            for (name, content) in files {
                self.files.insert(name, PrefixFile { rank: *rank, content });
            }
            self.files.insert(parity_name, PrefixFile { rank: *rank, content: parity });
            self.filemaps.insert(*rank, (names, count));
        }
        Some(())
    }

    /// Why the directory is not a complete checkpoint of `world` ranks with `parts` files each.
    pub fn problem(&self, world: u32, parts: u8) -> Option<String> {
        let mut lineages = BTreeSet::new();
        for rank in (0..world).map(Rank) {
            for part in 0..parts {
                match self.files.get(&FileName::Application { rank, part }).map(|file| &file.content) {
                    Some(Content::Written(origin))
                        if (origin.rank, origin.part, origin.checkpoint) == (rank, part, self.checkpoint) =>
                    {
                        lineages.insert((origin.generation, origin.iteration));
                    }
                    Some(other) => return Some(format!("rank {rank} part {part} is {other:?}")),
                    None => return Some(format!("rank {rank} part {part} is missing")),
                }
            }
        }
        (lineages.len() != 1).then(|| format!("files of several runs: {lineages:?}"))
    }
}

/// The dataset of a scan: its files are simulated, and nothing reads them.
#[derive(Debug)]
struct NoFiles(PathBuf);

impl DatasetFiles for NoFiles {
    fn location(&self) -> &Path {
        &self.0
    }

    fn stored(&self) -> Arc<dyn OpenDataset> {
        unreachable!("the simulation has no files")
    }

    fn list(&self) -> io::Result<Vec<ListedFile>> {
        Ok(Vec::new())
    }

    fn examine(&self, _: &str, _: Option<&OutputPath>) -> io::Result<FoundFile> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn open(&self, _: &str, _: Option<&OutputPath>) -> io::Result<Box<dyn StoredFile>> {
        Err(io::ErrorKind::NotFound.into())
    }
}
