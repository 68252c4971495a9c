//! The requests of a drain: those that wait, and those that are under way.
//!
//! Every operation is O(log N) in the number of requests under way, so that an answer costs about the same with ten
//! nodes and with ten thousand.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;

use holdfast_core::prefix::inspect::SetRebuild;
use holdfast_core::prefix::verify::VerifyUnit;
use holdfast_core::store::DirectoryName;
use holdfast_model::{CheckpointId, ContainerPlaces, NodeName};

use super::action::{AgentAt, DrainRequest};
use super::event::RequestId;
use super::plan::Packing;
use super::rounds::CopyOrder;

/// The directory that a dataset is drained to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    pub(super) checkpoint: CheckpointId,
    /// The directory's name below the prefix.
    pub(super) directory: DirectoryName,
    /// The container that the files are packed into.
    pub(super) container: Option<PlannedContainer>,
}

/// A container that is being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedContainer {
    pub(super) packing: Packing,
    pub(super) places: Arc<ContainerPlaces>,
}

impl PlannedContainer {
    /// The places that a node writes to. Those of round 2 are behind those of round 1: an agent that was lost may still
    /// be writing there.
    fn places_of(&self, order: &CopyOrder) -> ContainerPlaces {
        let ranks = self.packing.ranks_of(&order.node, order.round);
        self.places.of(ranks, u64::from(order.round.saturating_sub(1)))
    }
}

/// One of many tasks of a phase.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// For the agent of this node only.
    OfNode(NodeName, NodeTask),
    /// On files in the prefix directory: for any agent, or with `here` for the orchestrator, because an agent failed.
    OnFiles { task: FileTask, destination: Arc<Destination>, here: bool },
}

impl Task {
    /// A copy to the destination.
    pub(super) fn copy(order: CopyOrder, destination: &Arc<Destination>) -> Self {
        Task::OfNode(order.node.clone(), NodeTask::Copy(order, Arc::clone(destination)))
    }
}

/// A task for the agent of a node.
#[derive(Clone, Debug)]
pub(super) enum NodeTask {
    /// Whether the agent first ends its part in the run.
    Inventory {
        end_run: bool,
    },
    Copy(CopyOrder, Arc<Destination>),
    NoteFlushed(CheckpointId),
}

impl NodeTask {
    /// The request to this agent.
    pub(super) fn request(self, agent: AgentAt) -> DrainRequest {
        match self {
            NodeTask::Inventory { end_run } => DrainRequest::TakeInventory { agent, end_run },
            NodeTask::Copy(order, destination) => {
                let Destination { checkpoint, directory, container } = &*destination;
                let container = container.as_ref().map(|container| Box::new(container.places_of(&order)));
                let (checkpoint, directory) = (*checkpoint, directory.clone());
                DrainRequest::Copy { agent, checkpoint, directory, container, order }
            }
            NodeTask::NoteFlushed(checkpoint) => DrainRequest::NoteFlushed { agent, checkpoint },
        }
    }
}

/// A task on files in the prefix directory.
#[derive(Clone, Debug)]
pub(super) enum FileTask {
    Verify(Arc<[VerifyUnit]>),
    /// The position of the set in the inspection, and the set.
    Rebuild(usize, SetRebuild),
}

impl FileTask {
    /// The request to an agent, or the step of the orchestrator.
    pub(super) fn request(self, agent: Option<AgentAt>, destination: &Destination) -> DrainRequest {
        let Destination { checkpoint, directory, .. } = destination.clone();
        match self {
            FileTask::Verify(files) => DrainRequest::Verify { agent, directory, files },
            FileTask::Rebuild(_, set) => DrainRequest::Rebuild { agent, checkpoint, directory, set },
        }
    }
}

/// A step of the orchestrator on the prefix directory; no request is under way meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) enum PrefixStep {
    ExamineFlushed,
    OpenDirectory,
    CommitContainer,
    Repack,
    Scan,
    Publish,
    CloseDirectory,
    AbandonFlushes,
    KeepWindow,
    FindOlder,
}

#[derive(Clone, Debug)]
pub(super) enum RequestPurpose {
    Task(Task),
    Prefix(PrefixStep),
}

#[derive(Clone, Debug)]
struct UnderWay {
    purpose: RequestPurpose,
    node: Option<NodeName>,
}

/// At most `at_once` requests are under way; the other tasks wait for their turn.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    at_once: usize,
    next: u64,
    waiting: VecDeque<Task>,
    under_way: BTreeMap<RequestId, UnderWay>,
    of_node: BTreeMap<NodeName, BTreeSet<RequestId>>,
}

impl Requests {
    pub(super) fn new(at_once: usize) -> Self {
        Requests {
            at_once: at_once.max(1),
            next: 0,
            waiting: VecDeque::new(),
            under_way: BTreeMap::new(),
            of_node: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, tasks: impl IntoIterator<Item = Task>) {
        self.waiting.extend(tasks);
    }

    /// Adds a task before all that wait.
    pub(super) fn add_first(&mut self, task: Task) {
        self.waiting.push_front(task);
    }

    /// The next task that may begin now.
    pub(super) fn next_to_begin(&mut self) -> Option<Task> {
        if self.under_way.len() < self.at_once { self.waiting.pop_front() } else { None }
    }

    /// No task waits and no request is under way.
    pub(super) fn are_done(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// Begins a request to the agent of a node, or one that the orchestrator carries out itself.
    pub(super) fn begin(&mut self, purpose: RequestPurpose, node: Option<&NodeName>) -> RequestId {
        let request = RequestId(self.next);
        self.next += 1;
        if let Some(node) = node {
            self.of_node.entry(node.clone()).or_default().insert(request);
        }
        self.under_way.insert(request, UnderWay { purpose, node: node.cloned() });
        request
    }

    /// Ends a request; `None` if it is over already. Returns its purpose, and the node that it was sent to.
    pub(super) fn end(&mut self, request: RequestId) -> Option<(RequestPurpose, Option<NodeName>)> {
        let UnderWay { purpose, node } = self.under_way.remove(&request)?;
        if let Some(name) = &node
            && let Some(requests) = self.of_node.get_mut(name)
        {
            requests.remove(&request);
            if requests.is_empty() {
                self.of_node.remove(name);
            }
        }
        Some((purpose, node))
    }

    /// The requests that are under way at a node.
    pub(super) fn at(&self, node: &NodeName) -> Vec<RequestId> {
        self.of_node.get(node).into_iter().flatten().copied().collect()
    }

    /// Removes all tasks. Returns the requests that are under way.
    pub(super) fn clear(&mut self) -> Vec<RequestId> {
        self.waiting.clear();
        self.of_node.clear();
        mem::take(&mut self.under_way).into_keys().collect()
    }
}
