//! Which files a checkpoint directory contains (`SCR manual §11.10.7`, `docs/scr-files.md` §13).
//!
//! A scan reads the filemaps (`<rank>.scrfilemap`), the meta files (`<file>.scr`) and sizes, and lists for every rank
//! which files it should have, which are present and which are damaged, and which redundancy sets there are. It judges
//! nothing ([`inspect`](super::inspect) does), follows no links, looks into no directories and changes nothing.
//!
//! It differs from the original in four points:
//! * ranks are numbers: more than 256 of them work;
//! * a lost filemap can be replaced: what a rank wrote is also in the headers of redundancy files, its own and those of
//!   other members, and in an earlier summary;
//! * which checkpoint a directory holds is decided by the majority of its meta files, not by the first one that is
//!   read;
//! * a damaged file is kept with its reason, so that the report can name it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rank_filemap::{self, RankFilemap};
use super::summary::SUMMARY_FILE;
use crate::control::content::ContentMismatch;
use crate::control::meta::{self, FileKind, Meta};
use crate::redundancy::files::{SetFile, SetId};
use crate::redundancy::registry;
use crate::store::dataset_files::{open_plain, read_meta};
use crate::store::{DatasetFiles, DatasetOpener, FoundFile, ListedFile, OpenDataset, PrefixError};
use crate::workers;
use holdfast_model::{CheckpointId, OutputPath, Rank};

/// Which checkpoint a directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointIdentity {
    pub id: CheckpointId,
    pub ranks: u32,
}

/// Why a file does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileDamage {
    #[error("its meta file cannot be used: {0}")]
    Meta(String),
    #[error("the filemap cannot be used: {0}")]
    Filemap(String),
    /// The meta file is about another file.
    #[error("its meta file is about {0:?}")]
    OtherName(String),
    /// The writer marked it as not complete.
    #[error("it is marked as not complete")]
    NotComplete,
    #[error("it is missing")]
    Missing,
    /// It is a link, a directory, a pipe: nothing that is read.
    #[error("it is not a regular file")]
    NotRegular,
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// Its length is not the recorded one.
    #[error("it has {found} bytes, its meta file records {expected}")]
    Size {
        /// From the meta file.
        expected: u64,
        found: u64,
    },
    /// Its contents are not what was written.
    #[error("its CRC32 is {found:#x}, its meta file records {expected:#x}")]
    Crc {
        /// From the meta file.
        expected: u32,
        found: u32,
    },
    /// It belongs to another checkpoint than most files here.
    #[error("it belongs to checkpoint {id} of {ranks} ranks")]
    OtherCheckpoint { id: CheckpointId, ranks: u32 },
    /// Its rank is not below the number of ranks.
    #[error("its rank {0} does not exist")]
    NoSuchRank(Rank),
    /// It is redundancy data whose name does not identify its set.
    #[error("it is redundancy data, but its name does not identify its set")]
    NotASetName,
}

impl From<ContentMismatch> for FileDamage {
    fn from(mismatch: ContentMismatch) -> Self {
        match mismatch {
            ContentMismatch::Size { expected, found } => FileDamage::Size { expected, found },
            ContentMismatch::Crc { expected, found } => FileDamage::Crc { expected, found },
        }
    }
}

/// A file that is there and agrees with its meta file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentFile {
    /// Application or redundancy data.
    pub kind: FileKind,
    pub size: u64,
    /// CRC32, if the meta file has it.
    pub crc: Option<u32>,
    /// Where a file of an output belongs below the prefix directory.
    pub output_path: Option<OutputPath>,
}

/// A file that does not count, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedFile {
    pub name: String,
    /// Whose it is, if that is known.
    pub rank: Option<Rank>,
    pub damage: FileDamage,
}

impl fmt::Display for DamagedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "{} of rank {rank}: {}", self.name, self.damage),
            None => write!(f, "{}: {}", self.name, self.damage),
        }
    }
}

/// Where it is known from how many files a rank should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectationSource {
    Filemap,
    /// The header of a redundancy file; the filemap is lost and can be written again.
    Header,
    /// A summary that was written before.
    Summary,
}

/// The files that a rank should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedFiles {
    pub count: u32,
    /// Their names, as far as they are known; in the order of the source.
    pub names: Vec<String>,
    pub source: ExpectationSource,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankScan {
    /// The files that should be present; `None` if unknown.
    pub expected: Option<ExpectedFiles>,
    /// What is there, by base name.
    pub present: BTreeMap<String, PresentFile>,
}

/// A redundancy set of which at least one file is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedundancySet {
    /// Scheme, group id and number of members.
    pub id: SetId,
    /// The members whose redundancy files are there, counted from 0, with their ranks.
    pub present: BTreeMap<u32, Rank>,
    /// The ranks of the members, as far as they are known: of those whose redundancy files were found, and of all if a
    /// header was read.
    pub ranks: BTreeMap<u32, Rank>,
    /// How many members can be lost and computed again; `None` if it is known neither from names nor from a header.
    pub tolerance: Option<u32>,
}

/// What lies in a checkpoint directory.
#[derive(Clone, Debug)]
pub struct Scan {
    pub files: Arc<dyn DatasetFiles>,
    /// Which checkpoint; `None` if no usable meta file is there.
    pub identity: Option<CheckpointIdentity>,
    /// The ranks of which anything is known.
    pub ranks: BTreeMap<Rank, RankScan>,
    /// The redundancy sets of which anything is there.
    pub sets: Vec<RedundancySet>,
    /// Everything that does not count.
    pub damaged: Vec<DamagedFile>,
    /// What does not count either, and is a damage only if the dataset is not complete without it.
    pub leftovers: Vec<DamagedFile>,
}

/// How a scan works.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    pub threads: usize,
    /// Opens the files of the dataset.
    pub open: DatasetOpener,
}

impl Default for ScanOptions {
    fn default() -> Self {
        ScanOptions { threads: workers::default_threads(), open: open_plain }
    }
}

/// The names of a directory, sorted into what a scan is interested in.
struct ScanListing {
    filemaps: Vec<String>,
    metas: Vec<String>,
    irregular: Vec<DamagedFile>,
}

/// Reads a dataset.
///
/// # Errors
/// [`PrefixError::Io`] if it cannot be listed. Whatever is wrong with single files is in the result.
pub fn scan(dataset: &Arc<dyn OpenDataset>, options: ScanOptions) -> Result<Scan, PrefixError> {
    let files = (options.open)(Arc::clone(dataset)).map_err(unlisted(dataset.location()))?;
    scan_files(files, options.threads)
}

/// As [`scan`], of files that are open.
pub fn scan_files(files: Arc<dyn DatasetFiles>, threads: usize) -> Result<Scan, PrefixError> {
    let listing = list(&*files)?;
    let mut damaged = listing.irregular;
    let lost = |(name, problem)| DamagedFile { name, rank: None, damage: FileDamage::Unreadable(problem) };
    damaged.extend(files.damaged_containers().into_iter().map(lost));
    let leftovers = files.containers_without_first_file().into_iter().map(lost).collect();
    let metas = workers::map_small(&listing.metas, threads, |name| check_file(&*files, name));
    let mut usable = Vec::with_capacity(metas.len());
    for outcome in metas {
        match outcome {
            Ok(meta) => usable.push(meta),
            Err(found) => damaged.push(found),
        }
    }
    let identity = majority(&usable);
    let mut scan = Scan { files, identity, ranks: BTreeMap::new(), sets: Vec::new(), damaged, leftovers };
    let Some(identity) = identity else { return Ok(scan) };
    scan.enter_files(usable, identity);
    let filemaps = workers::map_small(&listing.filemaps, threads, |name| read_filemap(&*scan.files, name, identity));
    for outcome in filemaps {
        match outcome {
            Ok(filemap) => {
                let RankFilemap { rank, files, expected, .. } = filemap;
                let expected = ExpectedFiles { count: expected, names: files, source: ExpectationSource::Filemap };
                scan.ranks.entry(rank).or_default().expected = Some(expected);
            }
            Err(found) => scan.damaged.push(found),
        }
    }
    scan.read_headers(identity);
    scan.read_summary(identity);
    Ok(scan)
}

/// The error for a directory that cannot be listed.
pub fn unlisted(directory: &Path) -> impl FnOnce(io::Error) -> PrefixError {
    let remedy = "check that it exists and that you may read it";
    PrefixError::io("list the checkpoint directory", directory, remedy)
}

/// Lists the directory once; entries that are no regular files are never opened, a pipe would block us for ever.
fn list(files: &dyn DatasetFiles) -> Result<ScanListing, PrefixError> {
    let (mut filemaps, mut metas, mut irregular) = (Vec::new(), Vec::new(), Vec::new());
    for ListedFile { name, is_regular } in files.list().map_err(unlisted(files.location()))? {
        let filemap = name.ends_with(rank_filemap::SUFFIX);
        if !filemap && (!name.ends_with(meta::EXTENSION) || name == SUMMARY_FILE) {
            continue;
        }
        if !is_regular {
            irregular.push(DamagedFile { name, rank: None, damage: FileDamage::NotRegular });
        } else if filemap {
            filemaps.push(name);
        } else {
            metas.push(name);
        }
    }
    // The order of a directory differs from one file system to the next; a report must not.
    filemaps.sort_unstable();
    metas.sort_unstable();
    Ok(ScanListing { filemaps, metas, irregular })
}

/// Reads a meta file and checks the file it is about, as far as that needs no other file.
fn check_file(files: &dyn DatasetFiles, meta_name: &str) -> Result<Meta, DamagedFile> {
    let name = meta_name.strip_suffix(meta::EXTENSION).unwrap_or(meta_name);
    let damaged = |rank, damage| DamagedFile { name: name.to_owned(), rank, damage };
    let meta = read_meta(files, name).map_err(|error| damaged(None, FileDamage::Meta(error.to_string())))?;
    let damaged = |damage| damaged(Some(meta.rank), damage);
    if meta.file != name {
        return Err(damaged(FileDamage::OtherName(meta.file.clone())));
    }
    if !meta.complete {
        return Err(damaged(FileDamage::NotComplete));
    }
    if meta.kind != FileKind::Full && set_file(&meta).is_none() {
        return Err(damaged(FileDamage::NotASetName));
    }
    match files.examine(name, meta.output_path.as_ref()) {
        Ok(FoundFile::Other) => Err(damaged(FileDamage::NotRegular)),
        Ok(FoundFile::Regular(found)) if found != meta.size => {
            Err(damaged(FileDamage::Size { expected: meta.size, found }))
        }
        Ok(FoundFile::Regular(_)) => Ok(meta),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(damaged(FileDamage::Missing)),
        Err(error) => Err(damaged(FileDamage::Unreadable(error.to_string()))),
    }
}

/// Reads a filemap that must be of the rank in its name and of this checkpoint.
fn read_filemap(
    files: &dyn DatasetFiles,
    name: &str,
    identity: CheckpointIdentity,
) -> Result<RankFilemap, DamagedFile> {
    let rank: Option<Rank> = name.strip_suffix(rank_filemap::SUFFIX).and_then(|rank| rank.parse().ok());
    let damaged = |problem: String| DamagedFile { name: name.to_owned(), rank, damage: FileDamage::Filemap(problem) };
    let filemap = RankFilemap::read(files, name).map_err(|error| damaged(error.to_string()))?;
    if Some(filemap.rank) != rank {
        return Err(damaged(format!("it is about rank {}", filemap.rank)));
    }
    if filemap.id != identity.id {
        return Err(damaged(format!("it is about checkpoint {}", filemap.id)));
    }
    if filemap.rank.0 >= identity.ranks {
        return Err(damaged(format!("the checkpoint has only {} ranks", identity.ranks)));
    }
    Ok(filemap)
}

/// The set and member of a redundancy file, if its name and its meta file name the same scheme.
fn set_file(meta: &Meta) -> Option<SetFile> {
    registry::redundancy_file(&meta.file).filter(|file| meta.kind == FileKind::Redundancy(file.set.scheme))
}

/// The identity that most usable meta files record; of equals the newest checkpoint.
fn majority(metas: &[Meta]) -> Option<CheckpointIdentity> {
    let mut votes: HashMap<CheckpointIdentity, usize> = HashMap::new();
    for meta in metas {
        *votes.entry(CheckpointIdentity { id: meta.checkpoint, ranks: meta.ranks }).or_default() += 1;
    }
    votes.into_iter().max_by_key(|(identity, votes)| (*votes, *identity)).map(|(identity, _)| identity)
}

impl Scan {
    /// What a rank has, or nothing at all.
    pub fn rank(&self, rank: Rank) -> Option<&RankScan> {
        self.ranks.get(&rank)
    }

    /// Takes a file out of what counts.
    pub(super) fn mark_damaged(&mut self, rank: Rank, name: &str, damage: FileDamage) {
        if let Some(known) = self.ranks.get_mut(&rank)
            && known.present.remove(name).is_some()
        {
            self.damaged.push(DamagedFile { name: name.to_owned(), rank: Some(rank), damage });
            if let Some(file) = registry::redundancy_file(name)
                && let Some(set) = self.sets.iter_mut().find(|set| set.id == file.set)
            {
                set.present.remove(&file.member);
            }
        }
    }

    fn enter_files(&mut self, metas: Vec<Meta>, identity: CheckpointIdentity) {
        let mut sets: BTreeMap<SetId, RedundancySet> = BTreeMap::new();
        for meta in metas {
            let damage = if (meta.checkpoint, meta.ranks) != (identity.id, identity.ranks) {
                Some(FileDamage::OtherCheckpoint { id: meta.checkpoint, ranks: meta.ranks })
            } else if meta.rank.0 >= identity.ranks {
                Some(FileDamage::NoSuchRank(meta.rank))
            } else {
                None
            };
            if let Some(damage) = damage {
                self.damaged.push(DamagedFile { name: meta.file, rank: Some(meta.rank), damage });
                continue;
            }
            if let Some(SetFile { set: id, member }) = set_file(&meta) {
                let set = sets.entry(id).or_insert_with(|| RedundancySet {
                    id,
                    present: BTreeMap::new(),
                    ranks: BTreeMap::new(),
                    tolerance: registry::get(id.scheme).and_then(|scheme| scheme.tolerance_by_name(id)),
                });
                set.present.insert(member, meta.rank);
                set.ranks.insert(member, meta.rank);
            }
            let Meta { file, kind, size, crc, output_path, .. } = meta;
            let present = PresentFile { kind, size, crc, output_path };
            self.ranks.entry(meta.rank).or_default().present.insert(file, present);
        }
        self.sets = sets.into_values().collect();
    }
}
