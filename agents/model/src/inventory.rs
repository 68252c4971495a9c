//! What a node holds, and where datasets are: the input of the restart plan and of the choice of what to drain.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dataset::Dataset;
use crate::descriptor::{RankDescriptor, Scheme};
use crate::ids::{CheckpointId, NodeName, Rank};

/// What a node holds, from its control directory (Holdfast's own state, or what LLNL's library left there).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    pub node: Option<NodeName>,
    /// One entry a rank and dataset, partner copies included.
    pub holdings: Vec<Holding>,
    /// The flush file: datasets and where they are.
    pub flush: BTreeMap<CheckpointId, Locations>,
    /// What the application declared of its datasets; plain checkpoints are not listed.
    #[serde(default)]
    pub datasets: BTreeMap<CheckpointId, Dataset>,
    pub nodes: Option<u32>,
    /// Files that could not be read, and why: reported, never fatal.
    pub faults: Vec<String>,
}

/// Files of one rank of one dataset on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holding {
    pub checkpoint: CheckpointId,
    /// The rank that owns the files.
    pub rank: Rank,
    /// Ranks of the run that wrote it, from the meta files; `None` if there are none.
    pub ranks: Option<u32>,
    /// How many files are expected, once its redundancy was made; `None` before, and where only a descriptor is stored.
    pub expected: Option<u32>,
    /// True if every expected file is present with the right size and a meta file that marks it as complete.
    pub complete: bool,
    /// What is wrong, if it is not complete.
    pub fault: Option<String>,
    /// What protects the files now, as far as their own node can tell.
    #[serde(default)]
    pub protection: Protection,
    /// Set for partner copies: the node of the owner when the copy was made.
    pub partner_of: Option<NodeName>,
    /// The rank's descriptor: its own, or the copy that its neighbour keeps. `None` if not known.
    pub descriptor: Option<RankDescriptor>,
    /// The files, redundancy files included; empty where only a neighbour's descriptor is stored.
    pub files: Vec<HeldFile>,
}

impl Holding {
    /// True if there is something to delete: files, or an entry that expects some.
    pub fn has_files(&self) -> bool {
        !self.files.is_empty() || self.expected.is_some()
    }
}

/// What protects files from the loss of their node. A descriptor says what is to protect them; this is what does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// The scheme makes no redundancy, or has not made it yet.
    #[default]
    Nothing,
    /// A part of the redundancy: it restores nothing.
    Partly,
    /// All redundancy of this scheme.
    Scheme(Scheme),
}

impl Protection {
    /// True if the redundancy of a scheme is complete.
    pub fn is_complete(self) -> bool {
        matches!(self, Protection::Scheme(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldFile {
    /// Base name.
    pub name: String,
    pub size: u64,
}

/// A place where a dataset can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Location {
    /// In the cache of the nodes.
    Cache,
    /// Complete on the parallel file system.
    ParallelFileSystem,
    /// Being copied there. If a killed run left this, the copy is not complete.
    Flushing,
}

impl Location {
    pub const ALL: [Location; 3] = [Location::Cache, Location::ParallelFileSystem, Location::Flushing];

    /// Its name in SCR's flush file.
    pub fn as_str(self) -> &'static str {
        match self {
            Location::Cache => "CACHE",
            Location::ParallelFileSystem => "PFS",
            Location::Flushing => "FLUSHING",
        }
    }
}

/// Where a dataset is: a set of [`Location`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locations {
    /// In cache.
    pub cache: bool,
    /// In the prefix directory.
    pub pfs: bool,
    /// On its way.
    pub flushing: bool,
}

impl Locations {
    /// True if the dataset is in this place.
    pub fn contains(self, location: Location) -> bool {
        match location {
            Location::Cache => self.cache,
            Location::ParallelFileSystem => self.pfs,
            Location::Flushing => self.flushing,
        }
    }

    /// Adds or removes a place.
    pub fn set(&mut self, location: Location, present: bool) {
        match location {
            Location::Cache => self.cache = present,
            Location::ParallelFileSystem => self.pfs = present,
            Location::Flushing => self.flushing = present,
        }
    }
}
