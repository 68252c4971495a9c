//! The directory with the roots of a job's virtual nodes.
//!
//! A job that halts keeps its caches for the next run, after they were drained. On a cluster the end of the allocation
//! ends that; here the record [`KEPT_FILE`] says until when: the end of the allocation, at most [`KEPT_FOR`]. The next
//! job of the same user that makes virtual nodes removes what is older. A workspace without the record is in use, or
//! contains checkpoints that were not drained, and is never removed here.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_core::durable::Durability;
use holdfast_core::owned::{Access, Base, Marker, OwnedDirectory, OwnedError};
use holdfast_model::NodeName;
use serde::{Deserialize, Serialize};

/// The name of the directory with the roots in a workspace.
pub(super) const ROOTS: &str = "nodes";
/// The record in a workspace whose job has halted.
const KEPT_FILE: &str = "kept.json";
/// A larger record is not ours.
const LARGEST_RECORD: u64 = 4 << 10;
/// The version of the record.
const VERSION: u32 = 1;
/// The longest time that the caches of a halted job stay.
const KEPT_FOR: Duration = Duration::from_hours(7 * 24);
/// A run that found it in time has removed the record when this time has passed.
const TAKEN_WITHIN: Duration = Duration::from_mins(1);

/// The marker of the workspace of a job.
pub(super) fn marker(job_id: &str) -> Marker<'_> {
    Marker { kind: "workspace", job: job_id, prefix: None, allocation: None }
}

/// The names of the workspaces of a user begin with this.
fn stem(user: &str) -> String {
    format!("holdfast-{user}-")
}

/// Until when the workspace of a halted job stays.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    job: String,
    /// Seconds since 1970.
    until: u64,
}

impl Kept {
    fn read(directory: &OwnedDirectory) -> Option<Kept> {
        let bytes = directory.read(KEPT_FILE, Access::Private, LARGEST_RECORD).ok()??;
        serde_json::from_slice(&bytes).ok().filter(|kept: &Kept| kept.version == VERSION)
    }

    fn has_expired(&self, now: SystemTime) -> bool {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.until)).is_some_and(|until| until <= now)
    }
}

/// The workspace of a job, open and checked.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) directory: OwnedDirectory,
}

impl Workspace {
    /// Makes a workspace with a random name below the temporary directory.
    pub(super) fn create(user: &str, job_id: &str) -> Result<Self, OwnedError> {
        let base = Base::trusted(&std::env::temp_dir())?;
        let directory = base.new_random_directory(&stem(user), Access::Private, &marker(job_id))?;
        Ok(Workspace { directory })
    }

    /// Opens one that was made for this job; `None` if it does not exist.
    pub(super) fn open(path: &Path, job_id: &str) -> Result<Option<Self>, OwnedError> {
        let Some(directory) = OwnedDirectory::open(path, Access::Private)? else { return Ok(None) };
        directory.check_marker(&marker(job_id))?;
        Ok(Some(Workspace { directory }))
    }

    /// Makes the roots of the nodes. If that fails, nothing is left of the workspace.
    pub(super) fn make_roots(&self, nodes: &[NodeName], job_id: &str) -> Result<(), OwnedError> {
        let make = || {
            let roots = self.roots()?;
            nodes.iter().try_for_each(|node| roots.create_directory(node.as_str(), Access::Private).map(drop))
        };
        make().inspect_err(|_| {
            let _ = self.remove(job_id);
        })
    }

    pub(super) fn roots(&self) -> Result<OwnedDirectory, OwnedError> {
        self.directory.create_directory(ROOTS, Access::Private)
    }

    /// Removes it with everything in it; returns whether it existed.
    pub(super) fn remove(&self, job_id: &str) -> Result<bool, OwnedError> {
        let path = self.directory.path();
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
        Base::trusted(parent)?.remove_tree(name, Access::Private, &marker(job_id))
    }

    /// Records that everything in it is drained, and that it stays for another run until the end of the allocation.
    pub(super) fn keep(&self, job_id: &str, end: Option<SystemTime>, now: SystemTime) -> Result<(), OwnedError> {
        let longest = now + KEPT_FOR;
        let until = end.map_or(longest, |end| end.min(longest)).duration_since(UNIX_EPOCH).unwrap_or_default();
        let kept = Kept { version: VERSION, job: job_id.to_owned(), until: until.as_secs() };
        let record = serde_json::to_vec(&kept).unwrap_or_default();
        self.directory.replace(KEPT_FILE, &record, Access::Private, Durability::Process)
    }

    /// Another run, or a drain, uses it again.
    pub(super) fn use_again(&self) -> Result<(), OwnedError> {
        self.directory.remove_file(KEPT_FILE, Durability::Process).map(drop)
    }
}

/// True if the time is over for which this workspace was kept.
pub(super) fn has_expired(path: &Path) -> bool {
    let directory = OwnedDirectory::open(path, Access::Private).ok().flatten();
    directory.and_then(|directory| Kept::read(&directory)).is_some_and(|kept| kept.has_expired(SystemTime::now()))
}

/// Removes the workspaces of halted jobs of this user whose time is over. What cannot be removed stays, and is tried
/// again by the next job.
pub(super) fn remove_expired(temporary: &Path, user: &str, now: SystemTime) {
    let names = match Base::trusted(temporary).and_then(|base| base.names()) {
        Ok(names) => names,
        Err(error) => return tracing::debug!("old workspaces are not looked for: {error}"),
    };
    for name in names.iter().filter(|name| name.to_string_lossy().starts_with(&stem(user))) {
        let path = temporary.join(name);
        let Ok(Some(directory)) = OwnedDirectory::open(&path, Access::Private) else { continue };
        let Some(kept) = Kept::read(&directory).filter(|kept| kept.has_expired(now - TAKEN_WITHIN)) else { continue };
        let workspace = Workspace::open(&path, &kept.job);
        match workspace.and_then(|workspace| workspace.map_or(Ok(false), |workspace| workspace.remove(&kept.job))) {
            Ok(true) => tracing::info!("removed the caches that job {} had kept in {}", kept.job, path.display()),
            Ok(false) => {}
            Err(error) => tracing::warn!("the caches of job {} are not removed: {error}", kept.job),
        }
    }
}
