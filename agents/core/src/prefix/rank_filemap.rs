//! `<rank>.scrfilemap`: beside the copied files of a rank, how many there should be (`SCR manual §8.1`).
//!
//! A drain writes one after the last file of the rank. Without it, a rank that wrote one file could not be
//! distinguished from a rank that lost one of two.

use std::path::Path;

use crate::kvtree::{Tree, file};
use crate::store::base_name::check_base_name;
use crate::store::dataset_files::read_tree;
use crate::store::{DatasetFiles, OpenDataset, PrefixError};
use holdfast_model::{CheckpointId, Rank};

/// The end of the names of these files.
pub const SUFFIX: &str = ".scrfilemap";
/// What to do with an invalid filemap.
const REMEDY: &str = "remove it; `holdfast index add` restores it where a redundancy file describes it";

/// The original has two writers, which order the elements differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilemapWriter {
    /// Written after a copy from cache (`scr_copy`): FILE in front of EXPECT.
    Copy,
    /// Written after a rebuild (`scr_rebuild_xor`): EXPECT in front of FILE.
    Rebuild,
}

/// The content of a `<rank>.scrfilemap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankFilemap {
    pub rank: Rank,
    pub id: CheckpointId,
    /// Base names, redundancy files included, in the order in which the cache's filemap lists them.
    pub files: Vec<String>,
    /// How many files the rank should have; more than are listed if some could not be copied.
    pub expected: u32,
}

impl RankFilemap {
    /// The name of the filemap of `rank`.
    pub fn name_of(rank: Rank) -> String {
        format!("{rank}{SUFFIX}")
    }

    /// The tree, in the order of the original program that would have written it.
    pub fn to_tree(&self, origin: FilemapWriter) -> Tree {
        let mut tree = Tree::new();
        let record = tree.set_kv("RANK", self.rank).set_kv("CKPT", self.id);
        // The element that is set last is the first.
        if origin == FilemapWriter::Copy {
            record.set_kv("EXPECT", self.expected);
        }
        for name in self.files.iter().rev() {
            record.set_kv("FILE", name);
        }
        if origin == FilemapWriter::Rebuild {
            record.set_kv("EXPECT", self.expected);
        }
        tree.set_kv("CKPT", self.id).set_kv("RANK", self.rank);
        tree
    }

    /// Takes a tree that was read from `path`.
    ///
    /// # Errors
    /// [`PrefixError::Content`] unless it describes exactly one rank and one checkpoint, [`PrefixError::Name`] for a
    /// file name that leads out of the checkpoint directory.
    pub fn from_tree(tree: &Tree, path: &Path) -> Result<Self, PrefixError> {
        let content = |place: &str, problem: &str| PrefixError::Content {
            path: path.to_owned(),
            place: place.to_owned(),
            problem: problem.to_owned(),
            remedy: REMEDY,
        };
        let (rank, of_rank) = only(tree.get("RANK")).ok_or_else(|| content("RANK", "not exactly one rank"))?;
        let place = format!("RANK/{rank}/CKPT");
        let (id, record) = only(of_rank.get("CKPT")).ok_or_else(|| content(&place, "not exactly one checkpoint"))?;
        let place = format!("{place}/{id}");
        let expected = record.single("EXPECT").and_then(|count| count.parse().ok());
        let mut files = Vec::new();
        for name in record.get("FILE").into_iter().flat_map(Tree::keys) {
            if let Err(problem) = check_base_name(name) {
                let (path, place, name) = (path.to_owned(), format!("{place}/FILE"), name.to_owned());
                return Err(PrefixError::Name { path, place, name, problem, remedy: REMEDY });
            }
            files.push(name.to_owned());
        }
        Ok(RankFilemap {
            rank: rank.parse().map_err(|_| content("RANK", "the rank is not a number"))?,
            id: id.parse().map_err(|_| content(&place, "the checkpoint id is not a number"))?,
            files,
            expected: expected.ok_or_else(|| content(&format!("{place}/EXPECT"), "not one number of files"))?,
        })
    }

    /// Reads the file of this name of a dataset.
    ///
    /// # Errors
    /// [`PrefixError::HashFile`] and those of [`RankFilemap::from_tree`].
    pub fn read(files: &dyn DatasetFiles, name: &str) -> Result<Self, PrefixError> {
        RankFilemap::from_tree(&read_tree(files, name)?, &files.path_of(name))
    }

    /// Writes the filemap of this rank into a dataset.
    ///
    /// # Errors
    /// [`PrefixError::HashFile`], [`PrefixError::Name`] if a name of it is no base name: nothing is written then.
    pub fn write(&self, dataset: &dyn OpenDataset, origin: FilemapWriter) -> Result<(), PrefixError> {
        let bytes = self.encode(dataset.location(), origin)?;
        Ok(dataset.replace(&RankFilemap::name_of(self.rank), &bytes)?)
    }

    /// The file as [`RankFilemap::write`] writes it; `directory` is only named in errors.
    pub fn encode(&self, directory: &Path, origin: FilemapWriter) -> Result<Vec<u8>, PrefixError> {
        let path = directory.join(RankFilemap::name_of(self.rank));
        self.check_names(&path)?;
        Ok(file::packed(&path, &self.to_tree(origin))?)
    }

    fn check_names(&self, path: &Path) -> Result<(), PrefixError> {
        for name in &self.files {
            if let Err(problem) = check_base_name(name) {
                let (place, name) = (format!("RANK/{}/CKPT/{}/FILE", self.rank, self.id), name.clone());
                let path = path.to_owned();
                return Err(PrefixError::Name { path, place, name, problem, remedy: REMEDY });
            }
        }
        Ok(())
    }
}

/// The element of a hash that has exactly one.
fn only(tree: Option<&Tree>) -> Option<(&str, &Tree)> {
    let mut elements = tree?.iter();
    let first = elements.next()?;
    elements.next().is_none().then_some(first)
}
