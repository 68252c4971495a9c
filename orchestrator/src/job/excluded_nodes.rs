//! The nodes that the user excludes: `allocation.exclude` of the spec, and `<prefix>/.holdfast/excluded.json`, which
//! `holdfast nodes` changes while the job runs. The file belongs to the job id in it, and is ignored in later jobs.
//!
//! The orchestrator reads the file every half a second, on a thread of its own. One that takes over reads it too, so
//! that a request is not lost whenever either process is killed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::durable::Durability;
use holdfast_core::hostlist;
use holdfast_core::owned::{Access, OwnedDirectory};
use holdfast_model::NodeName;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::background::Background;
use super::state::{self, StateError};
use crate::relaunch::{Event, Exclusion};
use crate::spec::{JobSpec, Origin};

const VERSION: u32 = 1;
const FILE: &str = "excluded.json";
/// Held while the file is changed.
const LOCK_FILE: &str = "excluded.lock";
/// One entry a node of ten thousand nodes is smaller.
const LARGEST: u64 = 16 << 20;
/// How often the orchestrator reads the file. A user waits for it.
const READ_EVERY: Duration = Duration::from_millis(500);
const KEY: &str = "allocation.exclude";

/// What the user requested for single nodes while the job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRequests {
    version: u32,
    job_id: String,
    nodes: BTreeMap<NodeName, NodeRequest>,
}

/// The last request for a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum NodeRequest {
    Exclude(Exclusion),
    /// Also if the spec excludes it.
    Include,
}

impl NodeRequests {
    fn none(job_id: &str) -> Self {
        NodeRequests { version: VERSION, job_id: job_id.to_owned(), nodes: BTreeMap::new() }
    }

    /// Reads the requests of the job with this id, in the prefix directory of the job.
    ///
    /// # Errors
    /// [`StateError::Owned`] if the file is not ours; [`StateError::Content`].
    pub fn read(prefix: &Path, job_id: &str) -> Result<Self, StateError> {
        match state::open_directory(prefix)? {
            Some(own) => NodeRequests::read_in(&own, job_id),
            None => Ok(NodeRequests::none(job_id)),
        }
    }

    fn read_in(own: &OwnedDirectory, job_id: &str) -> Result<Self, StateError> {
        let Some(text) = own.read(FILE, Access::GroupRead, LARGEST)? else { return Ok(NodeRequests::none(job_id)) };
        let content = |problem: String| StateError::Content { path: own.path().join(FILE), problem };
        let found: NodeRequests = serde_json::from_slice(&text).map_err(|error| content(error.to_string()))?;
        match found {
            found if found.version != VERSION => {
                Err(content(format!("its version is {}, this one reads {VERSION}", found.version)))
            }
            found if found.job_id == job_id => Ok(found),
            // Of an earlier job of this prefix directory.
            _ => Ok(NodeRequests::none(job_id)),
        }
    }

    /// Adds requests to those of the file.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`StateError::File`].
    pub fn add(prefix: &Path, job_id: &str, requests: BTreeMap<NodeName, NodeRequest>) -> Result<(), StateError> {
        let Some(own) = state::open_directory(prefix)? else { return Ok(()) };
        let lock = own.open_or_create(LOCK_FILE, Access::Private)?;
        let path = own.path().join(LOCK_FILE);
        flock(&lock, FlockOperation::LockExclusive).map_err(|errno| StateError::file("lock", &path)(errno.into()))?;
        let mut all = NodeRequests::read_in(&own, job_id)?;
        all.nodes.extend(requests);
        let path = own.path().join(FILE);
        let text = serde_json::to_vec(&all).map_err(|error| StateError::file("write", &path)(error.into()))?;
        own.replace(FILE, &text, Access::Private, Durability::Machine)?;
        Ok(())
    }

    /// The nodes that are excluded, if the spec excludes these.
    fn apply_to(&self, mut excluded: BTreeMap<NodeName, Exclusion>) -> BTreeMap<NodeName, Exclusion> {
        for (node, request) in &self.nodes {
            match request {
                NodeRequest::Exclude(exclusion) => drop(excluded.insert(node.clone(), exclusion.clone())),
                NodeRequest::Include => drop(excluded.remove(node)),
            }
        }
        excluded
    }
}

/// The nodes that the spec excludes.
fn of_spec(spec: &JobSpec) -> BTreeMap<NodeName, Exclusion> {
    let place = match spec.settings.get(KEY).map(|setting| &setting.origin) {
        Some(origin @ Origin::Parameter(_)) => origin.to_string(),
        _ => KEY.to_owned(),
    };
    let exclusion = Exclusion { reason: format!("listed in {place}"), now: false };
    spec.allocation.exclude.iter().map(|node| (node.clone(), exclusion.clone())).collect()
}

/// The excluded nodes of a job, from its spec and the file.
#[derive(Clone, Debug)]
pub(super) struct ExcludedNodes {
    spec: BTreeMap<NodeName, Exclusion>,
    prefix: PathBuf,
    job_id: String,
}

impl ExcludedNodes {
    /// Of the job with this prefix directory.
    pub(super) fn new(spec: &JobSpec, prefix: PathBuf, job_id: &str) -> Self {
        ExcludedNodes { spec: of_spec(spec), prefix, job_id: job_id.to_owned() }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// As [`NodeRequests::read`].
    pub(super) fn read(&self) -> Result<BTreeMap<NodeName, Exclusion>, StateError> {
        Ok(NodeRequests::read(&self.prefix, &self.job_id)?.apply_to(self.spec.clone()))
    }

    /// The nodes of the spec that are not in the allocation.
    pub(super) fn unknown(&self, nodes: &[NodeName]) -> Vec<NodeName> {
        let excluded: Vec<NodeName> = self.spec.keys().cloned().collect();
        hostlist::subtract(&excluded, nodes)
    }

    /// Reads the file again and again until the result is dropped, and sends what changes. `known` was read before.
    pub(super) fn watch(self, known: BTreeMap<NodeName, Exclusion>, background: Background) -> JoinSet<()> {
        let (excluded, mut known, mut is_readable) = (Arc::new(self), known, true);
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            loop {
                tokio::time::sleep(READ_EVERY).await;
                let read = Arc::clone(&excluded);
                let Ok(read) = tokio::task::spawn_blocking(move || read.read()).await else { return };
                match read {
                    Ok(excluded) => {
                        is_readable = true;
                        if excluded != known {
                            known.clone_from(&excluded);
                            background.event(Event::ExclusionsChanged { excluded });
                        }
                    }
                    // The nodes stay as they are.
                    Err(error) => {
                        if std::mem::take(&mut is_readable) {
                            tracing::warn!(%error, "the excluded nodes cannot be read");
                        }
                    }
                }
            }
        });
        watch
    }
}
