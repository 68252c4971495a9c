//! The run in force, as every step of it needs it: this node's part of the plan, and what this node knows of its
//! checkpoints.

use std::sync::Arc;

use holdfast_wire::plan::MemberPlan;
use tokio_util::sync::CancellationToken;

use crate::memory::Remembered;
use crate::sources::CheckpointSource;

/// One generation on this node.
#[derive(Debug)]
pub struct Run {
    /// This node's ranks, and the settings.
    pub plan: Arc<MemberPlan>,
    /// What this node knows of the run's checkpoints.
    pub memory: Remembered,
    /// Who produces the checkpoint files.
    pub source: Arc<dyn CheckpointSource>,
    /// Ends the copies that belong to the run.
    pub cancelled: CancellationToken,
}
