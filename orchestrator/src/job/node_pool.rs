//! The nodes of a job whose steps run side by side: performs the decisions of [`lending`](super::lending).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_model::NodeName;
use parking_lot::Mutex;

use super::background::Background;
use super::excluded_nodes::ExcludedNodes;
use super::lending::{Lending, Lent, Need, StepAt};
use crate::allocation::Allocation;
use crate::relaunch::Event;

/// The nodes of the job. Clones share them.
#[derive(Clone)]
pub(super) struct NodePool {
    lending: Arc<Mutex<Lending>>,
    /// Steps that wait for nodes.
    waiting: Arc<Mutex<BTreeMap<StepAt, Background>>>,
    excluded: ExcludedNodes,
    allocation: Arc<dyn Allocation>,
}

/// A step's access to the nodes of its job.
#[derive(Clone)]
pub(super) struct StepNodes {
    pool: NodePool,
    step: StepAt,
}

impl NodePool {
    pub(super) fn new(lending: Lending, excluded: ExcludedNodes, allocation: Arc<dyn Allocation>) -> Self {
        NodePool { lending: Arc::new(Mutex::new(lending)), waiting: Arc::default(), excluded, allocation }
    }

    /// A step has these nodes already.
    pub(super) fn has<'a>(&self, step: StepAt, nodes: impl Iterator<Item = &'a NodeName>) {
        self.lending.lock().has(step, nodes);
    }

    /// The nodes with which a step begins; `None` while there are too few.
    pub(super) async fn begin(&self, step: StepAt, need: &Need) -> Option<BTreeSet<NodeName>> {
        let unusable = self.unusable().await;
        self.lending.lock().begin(step, need, &unusable)
    }

    /// A step has ended, and gives nodes back. Steps that wait get them.
    pub(super) async fn end(&self, step: StepAt, free: &BTreeSet<NodeName>, keeps: bool) {
        let unusable = self.unusable().await;
        let answers = self.lending.lock().end(step, free, keeps, &unusable);
        let mut waiting = self.waiting.lock();
        waiting.remove(&step);
        for (step, lent) in answers {
            if let Some(background) = waiting.get(&step) {
                background.event(lent.into());
            }
        }
    }

    pub(super) fn of(&self, step: StepAt) -> StepNodes {
        StepNodes { pool: self.clone(), step }
    }

    /// The nodes that the user excludes, and those that the resource manager reports as down. Those of the spec only,
    /// if the file with the others cannot be read.
    async fn unusable(&self) -> BTreeSet<NodeName> {
        let (excluded, allocation) = (self.excluded.clone(), Arc::clone(&self.allocation));
        let read = tokio::task::spawn_blocking(move || {
            let nodes = excluded.read_or_of_spec().into_keys();
            nodes.chain(allocation.down_nodes().into_iter().map(|(node, _)| node)).collect()
        });
        read.await.unwrap_or_default()
    }
}

impl StepNodes {
    /// Asks for nodes, in the background: ends as `NodesLent`.
    pub(super) fn borrow(&self, wanted: u32, waits: bool, background: Background) {
        let StepNodes { pool, step } = self.clone();
        if waits {
            pool.waiting.lock().insert(step, background.clone());
        }
        tokio::spawn(async move {
            let unusable = pool.unusable().await;
            let lent = pool.lending.lock().borrow(step, wanted, waits, &unusable);
            background.event(lent.into());
        });
    }
}

impl From<Lent> for Event {
    fn from(Lent { nodes, more_later }: Lent) -> Self {
        Event::NodesLent { nodes, more_later }
    }
}
