//! `summary.scr`: which rank wrote which files of a checkpoint on the prefix (`SCR manual §9.2`, `docs/scr-files.md`
//! §11).
//!
//! Two writers, two shapes: a flush by the library lists application files only; a drain also records how many files
//! each rank should have, and lists the redundancy files, marked not to be fetched.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::control::meta::{format_crc, parse_crc};
use crate::kvtree::Tree;
use crate::store::base_name::check_base_name;
use crate::store::dataset_files::{read_tree_if_there, write_tree};
use crate::store::{DatasetAccess, DatasetFiles, DatasetStore, DirectoryName, OpenDataset, PrefixError, known};
use holdfast_model::{CheckpointId, OutputPath, Rank};

/// The summary file's name.
pub const SUMMARY_FILE: &str = "summary.scr";
/// The text file that SCR wrote before summaries were hash files.
pub(super) const OLD_SUMMARY_FILE: &str = "scr_summary.txt";
/// The version of its contents.
const VERSION: &str = "5";
/// What to do with an invalid summary.
const REMEDY: &str = "do not restart from it; `holdfast index add` writes it anew from the files that are there";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryFile {
    /// Its base name; always checked.
    pub name: String,
    /// Its size in bytes; absent for a file whose flush failed.
    pub size: Option<u64>,
    /// The CRC32 of its contents, if it was computed.
    pub crc: Option<u32>,
    /// False for redundancy files, which a restart does not need.
    pub fetch: bool,
    /// True for a file that the writer marked `COMPLETE 0`.
    pub failed: bool,
    /// Where a file of an output belongs below the prefix directory. SCR 1 has no such key.
    pub output_path: Option<OutputPath>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankFiles {
    /// How many files the rank should have, redundancy files included; only drains record it.
    pub expected: Option<u32>,
    /// Those that are there, in the order of the file.
    pub files: Vec<SummaryFile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub id: CheckpointId,
    pub ranks: u32,
    /// Whether every file of every rank is there.
    pub complete: bool,
    /// The ranks of which anything is known, by number.
    pub by_rank: BTreeMap<Rank, RankFiles>,
}

/// Why a checkpoint cannot be fetched although its summary can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchRefusal {
    #[error("it is not complete")]
    Incomplete,
    /// It was written by a run of another size.
    #[error("it was written by {written} ranks, and this run has {running}")]
    OtherSize {
        /// Ranks that wrote it.
        written: u32,
        /// Ranks that want it.
        running: u32,
    },
    #[error("it does not mention rank {rank}")]
    RankMissing {
        /// The first such rank.
        rank: Rank,
    },
    /// A file without a size cannot be checked after the copy.
    #[error("it gives no size for {file} of rank {rank}")]
    SizeMissing { rank: Rank, file: String },
}

impl Summary {
    /// Accepts the summary for a restart with `running` ranks.
    ///
    /// # Errors
    /// Why not.
    pub fn accept(&self, running: u32) -> Result<(), FetchRefusal> {
        if !self.complete {
            return Err(FetchRefusal::Incomplete);
        }
        if self.ranks != running {
            return Err(FetchRefusal::OtherSize { written: self.ranks, running });
        }
        for (expected, found) in
            (0..self.ranks).map(Rank).zip(self.by_rank.keys().map(Some).chain(std::iter::repeat(None)))
        {
            if found != Some(&expected) {
                return Err(FetchRefusal::RankMissing { rank: expected });
            }
        }
        for (rank, files) in &self.by_rank {
            for file in files.files.iter().filter(|file| file.fetch) {
                if file.failed {
                    return Err(FetchRefusal::Incomplete);
                }
                if file.size.is_none() {
                    return Err(FetchRefusal::SizeMissing { rank: *rank, file: file.name.clone() });
                }
            }
        }
        Ok(())
    }

    /// The files that a restart copies for `rank`.
    pub fn to_fetch(&self, rank: Rank) -> impl Iterator<Item = &SummaryFile> {
        self.by_rank.get(&rank).into_iter().flat_map(|files| &files.files).filter(|file| file.fetch)
    }

    /// The files of an output that belong elsewhere than in the dataset's directory: their names and paths. A path that
    /// several ranks name is listed once.
    pub fn output_files(&self) -> BTreeMap<&OutputPath, &SummaryFile> {
        let files = self.by_rank.values().flat_map(|rank| &rank.files);
        files.filter_map(|file| Some((file.output_path.as_ref()?, file))).collect()
    }

    /// The tree in the drain's order if the expected number of files of any rank is known, else in the library's.
    pub fn to_tree(&self) -> Tree {
        let drain = self.by_rank.values().any(|rank| rank.expected.is_some());
        let mut tree = Tree::new();
        if !drain {
            tree.put("VERSION", VERSION);
        }
        // The element that is set last is the first, hence from back to front on every level.
        let checkpoint = tree.set_kv("CKPT", self.id);
        if !drain {
            checkpoint.put("RANKS", self.ranks);
        }
        let by_rank = checkpoint.entry("RANK");
        for (rank, files) in self.by_rank.iter().rev() {
            write_rank(by_rank.entry(rank.to_string()), files, drain);
        }
        if drain {
            checkpoint.put("RANKS", self.ranks);
        }
        if self.complete {
            checkpoint.put("COMPLETE", 1);
        }
        if drain {
            tree.put("VERSION", VERSION);
        }
        tree
    }

    /// Takes a tree that was read from `path`.
    ///
    /// # Errors
    /// [`PrefixError::Content`] for what cannot be, [`PrefixError::Name`] for a file name that leads out of the
    /// checkpoint directory.
    pub fn from_tree(tree: &Tree, path: &Path) -> Result<Self, PrefixError> {
        let reader = Reader { path };
        if tree.value("VERSION") != Some(VERSION) {
            let found = tree.value("VERSION").unwrap_or("none");
            return Err(reader.content("VERSION", format!("version {found}, and only {VERSION} is known")));
        }
        let checkpoints = tree.get("CKPT").filter(|ids| ids.len() == 1);
        let Some((id_text, checkpoint)) = checkpoints.and_then(|ids| ids.iter().next()) else {
            let found = tree.get("CKPT").map_or(0, Tree::len);
            return Err(reader.content("CKPT", format!("{found} checkpoints where exactly one belongs")));
        };
        let place = format!("CKPT/{id_text}");
        let id = id_text.parse().map_err(|_| reader.content(&place, "the id is not a number"))?;
        let ranks: u32 = checkpoint
            .single("RANKS")
            .and_then(|ranks| ranks.parse().ok())
            .ok_or_else(|| reader.content(&format!("{place}/RANKS"), "no number of ranks"))?;
        let mut by_rank = BTreeMap::new();
        for (rank_text, files) in checkpoint.get("RANK").into_iter().flat_map(Tree::iter) {
            let place = format!("{place}/RANK/{rank_text}");
            let rank: Rank = rank_text.parse().map_err(|_| reader.content(&place, "the rank is not a number"))?;
            if rank.0 >= ranks {
                return Err(reader.content(&place, format!("the checkpoint has only {ranks} ranks")));
            }
            if by_rank.insert(rank, reader.rank(files, &place)?).is_some() {
                return Err(reader.content(&place, "the rank is listed twice"));
            }
        }
        Ok(Summary { id, ranks, complete: checkpoint.value("COMPLETE") == Some("1"), by_rank })
    }
}

/// Reads the summary of a dataset of a store.
///
/// # Errors
/// As [`read`], and those of opening the dataset.
pub fn of(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<Summary, PrefixError> {
    read(&*store.open(directory, DatasetAccess::Read)?)
}

/// Reads the summary of a dataset.
///
/// # Errors
/// [`PrefixError::NoSummary`], [`PrefixError::OldSummary`] if there is only the text file of old,
/// [`PrefixError::HashFile`], and those of [`Summary::from_tree`].
pub fn read(dataset: &dyn DatasetFiles) -> Result<Summary, PrefixError> {
    if let Some(tree) = read_tree_if_there(dataset, SUMMARY_FILE)? {
        return Summary::from_tree(&tree, &dataset.path_of(SUMMARY_FILE));
    }
    Err(match exists(dataset, OLD_SUMMARY_FILE)? {
        true => PrefixError::OldSummary { path: dataset.path_of(OLD_SUMMARY_FILE) },
        false => PrefixError::NoSummary { directory: dataset.location().to_owned() },
    })
}

/// True if there is anything under this name. What this user may not examine is taken to be there.
///
/// # Errors
/// When the file system fails.
pub(super) fn exists(dataset: &dyn DatasetFiles, name: &str) -> Result<bool, PrefixError> {
    match dataset.examine(name, None) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => {
            known(found.map_err(PrefixError::io("examine", dataset.path_of(name), "repeat the command")))?;
            Ok(true)
        }
    }
}

/// Replaces the summary of a checkpoint directory.
///
/// # Errors
/// [`PrefixError::HashFile`]; the old summary is then still there.
pub fn write(dataset: &dyn OpenDataset, summary: &Summary) -> Result<(), PrefixError> {
    Ok(write_tree(dataset, SUMMARY_FILE, &summary.to_tree())?)
}

/// Reads a summary; its errors name the file and the place in it.
struct Reader<'a> {
    path: &'a Path,
}

impl Reader<'_> {
    fn content(&self, place: &str, problem: impl Into<String>) -> PrefixError {
        let path = self.path.to_owned();
        PrefixError::Content { path, place: place.to_owned(), problem: problem.into(), remedy: REMEDY }
    }

    fn rank(&self, tree: &Tree, place: &str) -> Result<RankFiles, PrefixError> {
        let expected = match tree.get("FILES") {
            None => None,
            Some(_) => match tree.single("FILES").and_then(|count| count.parse().ok()) {
                Some(count) => Some(count),
                None => return Err(self.content(&format!("{place}/FILES"), "not one number of files")),
            },
        };
        let listed = tree.get("FILE").into_iter().flat_map(Tree::iter);
        let files = listed.map(|(name, file)| self.file(name, file, place)).collect::<Result<Vec<_>, _>>()?;
        Ok(RankFiles { expected, files })
    }

    fn file(&self, name: &str, tree: &Tree, place: &str) -> Result<SummaryFile, PrefixError> {
        if let Err(problem) = check_base_name(name) {
            let (path, place, name) = (self.path.to_owned(), format!("{place}/FILE"), name.to_owned());
            return Err(PrefixError::Name { path, place, name, problem, remedy: REMEDY });
        }
        let number = |key: &str| match tree.get(key) {
            None => Ok(None),
            Some(_) => match tree.single(key) {
                Some(text) => Ok(Some(text)),
                None => Err(self.content(&format!("{place}/FILE/{name}/{key}"), "not exactly one value")),
            },
        };
        let bad = |key: &str, text: &str| {
            self.content(&format!("{place}/FILE/{name}/{key}"), format!("{text:?} is no number"))
        };
        let size = match number("SIZE")? {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| bad("SIZE", text))?),
        };
        let crc = match number("CRC")? {
            None => None,
            Some(text) => Some(parse_crc(text).ok_or_else(|| bad("CRC", text))?),
        };
        let output_path = match number("PATH")? {
            None => None,
            Some(text) => match OutputPath::parse(text) {
                Ok(path) if path.base_name() == name => Some(path),
                Ok(_) => {
                    let place = format!("{place}/FILE/{name}/PATH");
                    return Err(self.content(&place, format!("{text:?} does not end in the name of the file")));
                }
                Err(problem) => {
                    let place = format!("{place}/FILE/{name}/PATH");
                    return Err(self.content(&place, format!("{text:?} is refused: {problem}")));
                }
            },
        };
        let (fetch, failed) = (tree.get("NOFETCH").is_none(), tree.value("COMPLETE") == Some("0"));
        Ok(SummaryFile { name: name.to_owned(), size, crc, fetch, failed, output_path })
    }
}

/// A rank without files has an empty hash in the library's shape, and only FILES in the drain's.
fn write_rank(tree: &mut Tree, files: &RankFiles, drain: bool) {
    if let Some(count) = files.expected {
        tree.put("FILES", count);
    }
    for file in files.files.iter().rev() {
        write_file(tree.set_kv("FILE", &file.name), file, drain);
    }
}

fn write_file(tree: &mut Tree, file: &SummaryFile, drain: bool) {
    if let Some(path) = &file.output_path {
        tree.put("PATH", path);
    }
    let crc = file.crc.map(|crc| ("CRC", format_crc(crc)));
    let size = file.size.map(|size| ("SIZE", size.to_string()));
    for (key, value) in if drain { [size, crc] } else { [crc, size] }.into_iter().flatten() {
        tree.put(key, value);
    }
    if !file.fetch {
        tree.entry("NOFETCH");
    }
    if file.failed {
        tree.put("COMPLETE", 0);
    }
}
