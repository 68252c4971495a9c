//! The run in force: this node's part of the plan, and the state of its checkpoints; the ranks' own directories
//! (`workspace`).

pub(crate) mod workspace;

use std::sync::Arc;

use holdfast_model::Rank;
use holdfast_wire::plan::MemberPlan;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::Agent;
use crate::library::watch::LibraryWatch;
use crate::sources::CheckpointSource;
use crate::sources::files::RankFiles;
use crate::state::memory::Remembered;

#[derive(Debug)]
pub struct Run {
    pub plan: Arc<MemberPlan>,
    pub memory: Remembered,
    pub source: CheckpointSource,
    /// Set if LLNL's library writes the checkpoints.
    pub library: Option<Arc<LibraryWatch>>,
    /// Cancels the copies of the run.
    pub cancelled: CancellationToken,
    /// Its orders and the file work of its leader, on blocking threads.
    pub work: TaskTracker,
}

impl Run {
    /// The checkpoint files of a rank on this node.
    pub(crate) fn files_of<'a>(&'a self, rank: Rank, agent: &'a Agent) -> RankFiles<'a> {
        RankFiles {
            rank,
            store: &agent.store,
            memory: &self.memory,
            prefix: &self.plan.settings.prefix,
            job_id: &agent.start.job_id,
        }
    }
}
