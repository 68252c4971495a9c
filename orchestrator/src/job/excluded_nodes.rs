//! The nodes that the user excludes: `allocation.exclude` and `allocation.only` of the spec, and
//! `<prefix>/.holdfast/excluded.json`, which `holdfast nodes` changes while the job runs: see
//! [`request_file`](super::request_file).
//!
//! The orchestrator reads the file every half a second, on a thread of its own. One that takes over reads it too, so
//! that a request is not lost whenever either process is killed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::hostlist;
use holdfast_model::NodeName;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::background::Background;
use super::request_file::RequestFile;
use super::state::StateError;
use crate::relaunch::{Event, Exclusion};
use crate::spec::{Allocation, JobSpec, Origin};

const FILE: RequestFile = RequestFile { name: "excluded.json", lock: "excluded.lock" };
/// How often the orchestrator reads the file. A user waits for it.
const READ_EVERY: Duration = Duration::from_millis(500);
const EXCLUDE: &str = "allocation.exclude";
/// The key of those that are used.
const ONLY: &str = "allocation.only";

/// What the user requested for single nodes while the job runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRequests {
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
    /// Reads the requests of the job with this id, in the prefix directory of the job.
    ///
    /// # Errors
    /// [`StateError::Owned`] if the file is not ours; [`StateError::Content`].
    pub fn read(prefix: &Path, job_id: &str) -> Result<Self, StateError> {
        FILE.read(prefix, job_id)
    }

    /// Adds requests to those of the file.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`StateError::File`].
    pub fn add(prefix: &Path, job_id: &str, requests: BTreeMap<NodeName, NodeRequest>) -> Result<(), StateError> {
        FILE.change(prefix, job_id, |all: &mut NodeRequests| all.nodes.extend(requests))
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

/// The nodes that the spec excludes, of these and of those that it names.
fn of_spec(spec: &JobSpec, nodes: &[NodeName]) -> BTreeMap<NodeName, Exclusion> {
    let place = |key: &str| match spec.settings.get(key).map(|setting| &setting.origin) {
        Some(origin @ Origin::Parameter(_)) => origin.to_string(),
        _ => key.to_owned(),
    };
    let excluded = |nodes: Vec<NodeName>, reason: String| {
        let exclusion = Exclusion { reason, now: false };
        nodes.into_iter().map(move |node| (node, exclusion.clone()))
    };
    let Allocation { exclude, only, .. } = &spec.allocation;
    let others = if only.is_empty() { Vec::new() } else { hostlist::subtract(nodes, only) };
    let others = excluded(others, format!("not listed in {}", place(ONLY)));
    others.chain(excluded(exclude.clone(), format!("listed in {}", place(EXCLUDE)))).collect()
}

/// The excluded nodes of a job, from its spec and the file.
#[derive(Clone, Debug)]
pub(super) struct ExcludedNodes {
    spec: BTreeMap<NodeName, Exclusion>,
    prefix: PathBuf,
    job_id: String,
}

impl ExcludedNodes {
    /// Of the job with this prefix directory, in an allocation of these nodes.
    pub(super) fn new(spec: &JobSpec, prefix: PathBuf, job_id: &str, nodes: &[NodeName]) -> Self {
        ExcludedNodes { spec: of_spec(spec, nodes), prefix, job_id: job_id.to_owned() }
    }

    /// Before there is an allocation: of the nodes that the spec names, if it does.
    pub(super) fn of_spec(spec: &JobSpec, prefix: &Path) -> Self {
        Self::new(spec, prefix.to_owned(), "", &spec.allocation.known_nodes().unwrap_or_default())
    }

    /// Reads the file.
    ///
    /// # Errors
    /// As [`NodeRequests::read`].
    pub(super) fn read(&self) -> Result<BTreeMap<NodeName, Exclusion>, StateError> {
        Ok(NodeRequests::read(&self.prefix, &self.job_id)?.apply_to(self.spec.clone()))
    }

    /// As [`read`](Self::read); if the file cannot be read, the nodes that the spec excludes.
    pub(super) fn read_or_of_spec(&self) -> BTreeMap<NodeName, Exclusion> {
        self.read().unwrap_or_else(|error| {
            tracing::warn!(%error, "the excluded nodes cannot be read");
            self.spec.clone()
        })
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
