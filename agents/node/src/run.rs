//! The run in force, as every step of it needs it: who runs where, and what this node knows of its checkpoints.

use std::sync::Arc;

use holdfast_model::{NodeName, Rank};
use holdfast_wire::run::RunPlan;
use tokio_util::sync::CancellationToken;

use crate::memory::Remembered;
use crate::sources::CheckpointSource;

/// One generation on this node.
#[derive(Debug)]
pub struct Run {
    /// Who runs where, and the settings.
    pub plan: Arc<RunPlan>,
    /// What this node knows of the run's checkpoints.
    pub memory: Remembered,
    /// Who produces the checkpoint files.
    pub source: Arc<dyn CheckpointSource>,
    /// Ends the copies that belong to the run.
    pub cancelled: CancellationToken,
}

impl Run {
    /// The ranks on this node.
    pub fn local_ranks(&self, node: &NodeName) -> &[Rank] {
        self.plan.node(node).map_or(&[], |node| &node.ranks)
    }
}
