//! How a drain ended.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{CheckpointId, Inventory, NodeName, Rank, Unplaced};

use super::error::DrainError;
use super::plan::DrainPlan;
use crate::events::{DrainResult, nodes_text};

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
    /// Nodes whose files could not be copied, or of which it is not known what they hold.
    pub failed_nodes: BTreeMap<NodeName, String>,
    /// Another drain could complete the dataset from the files that the nodes still have.
    pub retry_may_help: bool,
    /// If one dataset was requested: others that only the nodes have, and that must not be deleted.
    pub left: BTreeSet<CheckpointId>,
    /// The newest dataset that was flushed according to the nodes, if there is no newer one that can be completed.
    pub flushed: Option<FlushedDataset>,
    /// The complete outputs of the job, also earlier ones, with files that are not at their paths.
    pub unplaced: Vec<Unplaced>,
}

/// A dataset that was flushed according to the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushedDataset {
    pub checkpoint: CheckpointId,
    /// The index of the prefix directory lists it, and it is complete there.
    pub is_listed: bool,
}

impl DrainReport {
    /// Why it is not known that all data is saved, although nothing was found that could be copied.
    pub fn doubt(&self) -> Option<String> {
        match (&self.result, self.flushed) {
            (DrainResult::Nothing, Some(FlushedDataset { checkpoint, is_listed: false })) => Some(format!(
                "the nodes recorded that checkpoint {checkpoint} was copied, and the index of this prefix directory \
                 does not list it: it is in another one; `holdfast drain --checkpoint {checkpoint}` copies it here too"
            )),
            (DrainResult::Nothing, None) if !self.failed_nodes.is_empty() => {
                let nodes: Vec<NodeName> = self.failed_nodes.keys().cloned().collect();
                Some(format!(
                    "no other node has a checkpoint, and what {} has is not known; drain again when it can be reached",
                    nodes_text(&nodes)
                ))
            }
            _ => None,
        }
    }

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
