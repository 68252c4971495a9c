//! The run in force: this node's part of the plan, and the state of its checkpoints.

use std::sync::Arc;

use holdfast_wire::plan::MemberPlan;
use tokio_util::sync::CancellationToken;

use crate::memory::Remembered;
use crate::sources::CheckpointSource;

#[derive(Debug)]
pub struct Run {
    pub plan: Arc<MemberPlan>,
    pub memory: Remembered,
    pub source: Arc<dyn CheckpointSource>,
    /// Cancels the copies of the run.
    pub cancelled: CancellationToken,
}
