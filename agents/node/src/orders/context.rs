//! What the orders share: the agent, the run, and what an order may use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use holdfast_core::store::{DatasetAccess, OpenDataset};
use holdfast_core::workers;
use holdfast_model::{CheckpointId, NodeName, Rank};
use holdfast_wire::peer::Purpose;

use super::error::OrderError;
use crate::agent::Agent;
use crate::copy::pace::OrderControl;
use crate::copy::pipeline::Pipeline;
use crate::run::Run;
use crate::store::StoreError;
use crate::stream::{IncomingStream, OutgoingStream, StreamSettings};

/// The directory of a rank's files of a checkpoint on this node.
pub(super) fn rank_directory(agent: &Agent, checkpoint: CheckpointId, rank: Rank) -> Result<PathBuf, StoreError> {
    agent.store.rank_directory(checkpoint, rank)
}

pub(super) type Result<T, E = OrderError> = std::result::Result<T, E>;

/// What an order is carried out with.
pub(super) struct OrderContext<'a> {
    pub(super) agent: &'a Arc<Agent>,
    pub(super) run: &'a Arc<Run>,
    pub(super) order: u64,
    pub(super) control: &'a OrderControl,
}

impl OrderContext<'_> {
    /// The dataset in a store that this order reads or writes. Orders name no directory elsewhere.
    pub(super) fn dataset(&self, directory: &Path, access: DatasetAccess) -> Result<Arc<dyn OpenDataset>> {
        Ok(self.agent.prefixes.open(directory, access)?)
    }

    pub(super) fn local(&self) -> &[Rank] {
        &self.run.plan.local
    }

    /// A stream to the agent of another node.
    pub(super) fn connect(&self, node: &NodeName, purpose: Purpose) -> Result<OutgoingStream> {
        let plan = &self.run.plan;
        Ok(self.agent.streams.connect(plan.generation, node, purpose, StreamSettings::from(&plan.settings))?)
    }

    /// The stream that the agent of another node opens.
    pub(super) fn claim(&self, purpose: &Purpose) -> Result<IncomingStream> {
        let plan = &self.run.plan;
        Ok(self.agent.streams.claim(plan.generation, purpose, plan.settings.stream_timeout)?)
    }

    /// For copies of files that end when the order is cancelled.
    pub(super) fn pipeline(&self) -> Pipeline {
        let settings = &self.run.plan.settings;
        Pipeline::of_order(settings.copy_bytes, settings.copy_threads, self.control.clone())
    }

    /// Between init and the first start, routed files are looked for in this checkpoint.
    pub(super) fn remember_restart(&self, checkpoint: CheckpointId) -> Result<()> {
        self.remember(|memory| {
            if memory.open.is_none() {
                memory.restart = Some(checkpoint);
                memory.direct = None;
            }
        })
    }

    pub(super) fn remember(&self, change: impl FnOnce(&mut crate::state::memory::Memory)) -> Result<()> {
        self.run
            .memory
            .change(change)
            .map_err(OrderError::file("record the run's checkpoints in", self.agent.paths.control()))
    }

    /// Does `work` for all items at once, because they wait for peers, which wait for others of them. The leader limits
    /// how many items an order has (`checkpoint.redundancy_width`). When one has failed, those that wait for peers are
    /// cancelled: such a peer may be another member on this node. Returns the first error that is not of a peer when
    /// all have ended, else the first.
    pub(super) fn at_once<T: Sync, R: Send>(
        &self,
        items: &[T],
        work: impl Fn(&T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let stopped = Once::new();
        let stop = || stopped.call_once(|| self.agent.streams.cancel(self.order));
        let work = |item: &T| work(item).inspect_err(|_| stop());
        let mut done = workers::map_at_once(items, work, stop).map_err(OrderError::Thread)?;
        // What only follows from it comes last. The sort is stable.
        done.sort_by_key(|result| result.as_ref().is_err_and(OrderError::is_of_peer));
        done.into_iter().collect()
    }

    pub(super) fn routed(&self, checkpoint: CheckpointId) -> BTreeMap<Rank, Vec<String>> {
        self.local().iter().map(|rank| (*rank, self.agent.store.files(checkpoint, *rank))).collect()
    }
}
