//! What a resource manager declares and provides: its line in the registry, and the allocation that it opens.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;

use super::error::AllocationError;
use super::nodes::Allocation;
use super::record::AllocationRecord;
use crate::spec::{self, ManagerFacts, ManagerKeys};

/// A resource manager in the [`registry`](super::registry).
#[derive(Debug)]
pub struct ManagerEntry {
    /// The name, in a spec and in the job's state, and what reading a spec depends on.
    pub facts: ManagerFacts,
    /// The keys of `allocation:` that it declares itself.
    pub keys: ManagerKeys,
    /// Checks the requirements on this machine before anything is started.
    pub check: fn() -> Result<(), AllocationError>,
    /// What a dry run shows for the nodes.
    pub preview: fn(&AllocationRequest<'_>) -> Result<AllocationPreview, AllocationError>,
    /// Opens the nodes of a new job.
    pub open: for<'a> fn(AllocationRequest<'a>) -> PendingAllocation<'a>,
    /// Opens the nodes of a job whose orchestrator ended; with the spec if the job goes on. Logs of agents go to the
    /// path.
    pub reopen: for<'a> fn(&'a AllocationRecord, Option<&'a spec::Allocation>, PathBuf) -> PendingAllocation<'a>,
    /// True if the nodes still exist and can be used from here.
    pub is_available: fn(&AllocationRecord) -> bool,
    /// True if another run continues in these nodes, after one that left the job unfinished. False where it would use
    /// other nodes, or can get better ones.
    pub continues: fn(&AllocationRecord, &Continuation<'_>) -> bool,
    /// A description of the nodes for messages.
    pub place: fn(&AllocationRecord) -> String,
}

/// What a dry run shows for the nodes of a job.
#[derive(Debug, Default)]
pub struct AllocationPreview {
    pub lines: Vec<String>,
    /// Why the nodes could not be opened.
    pub refusal: Option<AllocationError>,
}

/// Another run in nodes that a run left.
#[derive(Clone, Copy, Debug)]
pub struct Continuation<'a> {
    /// The `allocation:` section of its spec.
    pub spec: &'a spec::Allocation,
    /// Nodes that it needs.
    pub needed: usize,
    /// Nodes that are not down.
    pub left: usize,
}

/// True if an allocation with this end, seconds since the epoch, has ended.
pub(super) fn has_ended(end: Option<u64>) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    end.is_some_and(|end| end <= now)
}

/// An allocation that is being opened.
pub type PendingAllocation<'a> = BoxFuture<'a, Result<Arc<dyn Allocation>, AllocationError>>;

/// Requirements of a new job.
#[derive(Clone, Debug)]
pub struct AllocationRequest<'a> {
    /// The `allocation:` section of the spec.
    pub spec: &'a spec::Allocation,
    /// A job id, for managers that do not provide one.
    pub job_id: String,
    /// The user, for managers that do not provide one.
    pub user: String,
    /// The user that a parameter sets, also where the manager provides one.
    pub given_user: Option<String>,
    /// Nodes of the largest step; 1 for a drain.
    pub needed: u32,
    pub prefix: &'a Path,
    /// The directory of the job's state, below the prefix.
    pub state: PathBuf,
    /// The directory for the logs of agents.
    pub logs: PathBuf,
    /// The executable of every step.
    pub programs: Vec<&'a Path>,
    /// The working directory of the ranks of every step.
    pub working_directories: Vec<&'a Path>,
}
