//! The files of a member of a group: which redundancy files belong to which set, and what the application wrote.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{CheckpointId, Rank, Scheme};
use serde::{Deserialize, Serialize};

use super::error::RedundancyError;
use crate::control::meta::Meta;
use crate::kvtree::{Element, Tree};

/// More members than any site would put into one set; limits the work that a damaged name or header can cause.
pub const MAX_MEMBERS: u32 = 65_536;

/// A set, as the names of its redundancy files identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SetId {
    pub scheme: Scheme,
    /// World rank of member 0.
    pub group_id: u32,
    pub members: u32,
}

/// The set and member in the name of a redundancy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetFile {
    pub set: SetId,
    /// Index of the member whose file it is, from 0.
    pub member: u32,
}

/// How `inspect` and `verify` name the redundancy files of a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFormat {
    /// The short name in commands and JSON.
    pub name: &'static str,
    /// The name for people.
    pub title: &'static str,
    /// The name of what follows the header.
    pub data: &'static str,
    /// How the files' names end.
    pub extension: &'static str,
}

/// What the header of a redundancy file records about the file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescribedHeader {
    /// Bytes behind the header.
    pub data_bytes: u64,
    pub members: u32,
    /// The member whose file it is, from 0.
    pub member: u32,
}

/// A rebuilt member that was installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuiltMember {
    pub rank: Rank,
    pub checkpoint: CheckpointId,
    /// Meta data of its application files in the order of the file map, checksums included.
    pub files: Vec<Meta>,
    /// Meta data of its redundancy files.
    pub redundancy: Vec<Meta>,
}

/// The application's files of one member, in the order of the file map, which is the order of concatenation where a
/// scheme takes them as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberFiles {
    /// World rank of the member.
    pub rank: Rank,
    /// Meta data of its files; may be empty.
    pub files: Vec<Meta>,
}

impl MemberFiles {
    /// The tree as its owner writes it, and as it is sent to the right neighbour.
    pub fn to_tree(&self) -> Tree {
        self.to_tree_with(Meta::to_tree)
    }

    /// As [`MemberFiles::to_tree`]; its length does not depend on the values of the checksums.
    pub fn to_tree_of_fixed_length(&self) -> Tree {
        self.to_tree_with(Meta::to_tree_of_fixed_length)
    }

    fn to_tree_with(&self, meta: fn(&Meta) -> Tree) -> Tree {
        let mut tree = Tree::new();
        tree.put("RANK", self.rank);
        tree.put("FILES", self.files.len());
        // The file added last is the first. No index comes twice, so that there is always a tree.
        let files = self.files.iter().enumerate().rev();
        let files = files.map(|(index, file)| Element { key: index.to_string().into(), value: meta(file) });
        tree.set("FILE", Tree::from_front_to_back(files.collect()).unwrap_or_default());
        tree
    }

    /// Reads the tree, in any order of its elements.
    pub fn from_tree(tree: &Tree, origin: &str) -> Result<MemberFiles, RedundancyError> {
        let rank = number(tree, "RANK", origin)?;
        let count: usize = number(tree, "FILES", origin)?;
        let mut listed = BTreeMap::new();
        for (index, meta) in tree.get("FILE").into_iter().flat_map(Tree::iter) {
            let index: usize = index.parse().map_err(|_| bad(origin, format!("file index `{index}` is no number")))?;
            let meta = Meta::from_tree(meta).map_err(|error| bad(origin, format!("file {index}: {error}")))?;
            listed.insert(index, meta);
        }
        if listed.len() != count || listed.keys().next_back().is_some_and(|last| *last >= count) {
            return Err(bad(origin, format!("FILES is {count}, but {} are listed", listed.len())));
        }
        let files: Vec<Meta> = listed.into_values().collect();
        let mut names = BTreeSet::new();
        if let Some(twice) = files.iter().find(|meta| !names.insert(meta.file.as_str())) {
            return Err(bad(origin, format!("`{}` is listed twice", twice.file)));
        }
        let files = MemberFiles { rank: Rank(rank), files };
        if files.total_bytes().is_none() {
            return Err(bad(origin, "the sizes of its files do not add up".into()));
        }
        Ok(files)
    }

    /// Bytes of all files together; `None` if that is no number we can count to.
    pub fn total_bytes(&self) -> Option<u64> {
        self.files.iter().try_fold(0u64, |sum, meta| sum.checked_add(meta.size))
    }
}

pub(super) fn number<T: std::str::FromStr>(tree: &Tree, key: &str, origin: &str) -> Result<T, RedundancyError> {
    match tree.value(key) {
        Some(value) => value.parse().map_err(|_| bad(origin, format!("{key} `{value}` is not a valid number"))),
        None => Err(bad(origin, format!("{key} is missing"))),
    }
}

pub(super) fn bad(origin: &str, why: String) -> RedundancyError {
    RedundancyError::Header { origin: origin.to_owned(), why }
}
