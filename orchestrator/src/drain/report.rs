//! How a drain ended.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{CheckpointId, Inventory, NodeName, Rank, Unplaced};

use super::error::DrainError;
use super::plan::DrainPlan;
use crate::events::DrainResult;

#[derive(Clone, Debug, PartialEq)]
pub enum DrainEnd {
    /// It was carried out.
    Drained(DrainReport),
    /// Only a plan was requested.
    Surveyed(Box<Survey>),
    /// It could not be carried out; files that were copied are kept.
    Failed(DrainError),
}

/// How a drain went; the default is that of a drain that found nothing to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainReport {
    /// The result for the relaunch loop.
    pub result: DrainResult,
    /// The directory that was written, below the prefix.
    pub directory: Option<String>,
    pub bytes: u64,
    /// Ranks whose files were copied.
    pub copied: Vec<Rank>,
    /// Ranks whose files were computed.
    pub rebuilt: Vec<Rank>,
    /// Nodes whose files could not be copied.
    pub failed_nodes: BTreeMap<NodeName, String>,
    /// Another drain could complete the dataset from the files that the nodes still have.
    pub retry_may_help: bool,
    /// If one dataset was requested: others that only the nodes have, and that must not be deleted.
    pub left: BTreeSet<CheckpointId>,
    /// The complete outputs of the job, also earlier ones, with files that are not at their paths.
    pub unplaced: Vec<Unplaced>,
}

impl DrainReport {
    /// The datasets that only the nodes have, as a text; empty if there is none.
    pub fn left_text(&self) -> String {
        let ids: Vec<String> = self.left.iter().rev().map(ToString::to_string).collect();
        ids.join(", ")
    }

    /// The report of a drain that could not be carried out.
    pub fn failed(error: &DrainError) -> Self {
        DrainReport { result: DrainResult::from(error), retry_may_help: true, ..DrainReport::default() }
    }
}

/// The inventories of the nodes, and the plan of a drain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// The inventories of the nodes that answered, in the order of their names.
    pub inventories: Vec<Inventory>,
    /// Nodes that did not answer, and why.
    pub silent: BTreeMap<NodeName, String>,
    /// The datasets to drain.
    pub plan: DrainPlan,
}
