//! The steps that a leader can order. Each can be repeated: an agent that was restarted gets its order again.
//!
//! * [`seal`]: check the ranks' files, write their meta files;
//! * [`group`]: a member's part in encoding and rebuilding, by the redundancy scheme; [`links`] between members;
//! * [`verify`]: compare files in cache with their checksums;
//! * [`transfer`]: the files of a rank, to the node on which it now runs;
//! * [`direct`]: datasets that the ranks write to the prefix directory themselves;
//! * [`fetch`] and [`flush`]: from and to the prefix directory.

mod direct;
mod error;
mod fetch;
mod files;
mod flush;
mod group;
mod links;
mod seal;
mod transfer;
mod verify;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;

use holdfast_core::redundancy::descriptor;
use holdfast_model::{CheckpointId, Failure, HaltState, Locations, NodeName, Rank};
use holdfast_wire::peer::{Member, Order, OrderResult, Purpose};
use tokio_util::sync::CancellationToken;

use error::OrderError;

use crate::agent::Agent;
use crate::copy::pipeline::Pipeline;
use crate::dataset_directory::DatasetDirectory;
use crate::run::Run;
use crate::store::StoreError;
use crate::stream::{IncomingStream, OutgoingStream};

/// Carries out one order. Blocks.
pub fn execute(
    agent: &Arc<Agent>,
    run: &Arc<Run>,
    order: u64,
    what: Order,
    cancelled: &CancellationToken,
) -> Result<OrderResult, Failure> {
    let context = OrderContext { agent, run, order, cancelled, opened: OnceLock::new() };
    let result = match what {
        Order::Inventory => Ok(OrderResult::Inventory(crate::inventory::inventory(agent))),
        Order::Delete { checkpoints, all_but } => context.delete(&checkpoints, all_but.as_ref()),
        Order::Prepare { checkpoint, delete, members } => context.prepare(checkpoint, &delete, &members),
        Order::Seal { checkpoint, ranks, crc } => context.seal(checkpoint, ranks, crc),
        Order::Encode { checkpoint, groups, crc, only } => context.encode(checkpoint, &groups, crc, only.as_deref()),
        Order::Commit { checkpoint } => context.commit(checkpoint),
        Order::Discard { checkpoint, ranks } => context.discard(checkpoint, &ranks),
        Order::Transfer { checkpoint, outgoing, incoming } => context.transfer(checkpoint, &outgoing, &incoming),
        Order::Adopt { checkpoint, members } => context.adopt(checkpoint, &members),
        Order::Verify { checkpoint, ranks } => context.verify(checkpoint, &ranks),
        Order::Rebuild { checkpoint, groups } => context.rebuild(checkpoint, &groups),
        Order::Fetch { checkpoint, directory, ranks, total_ranks, width } => {
            context.fetch(checkpoint, &directory, &ranks, total_ranks, width)
        }
        Order::Flush { checkpoint, directory, limits, crc, container } => {
            context.flush(checkpoint, &directory, limits, crc, container.as_ref())
        }
        Order::Describe { checkpoint, dataset } => context.describe(checkpoint, dataset),
        Order::OpenDirect { checkpoint, directory } => context.open_direct(checkpoint, directory),
        Order::SealDirect { checkpoint } => context.seal_direct(checkpoint),
        Order::CloseDirect { checkpoint } => context.close_direct(checkpoint),
        Order::ReadDirect { checkpoint, directory, files } => context.read_direct(checkpoint, directory, files),
        Order::Note { checkpoint, locations } => context.note(checkpoint, locations),
        Order::Halt { state } => context.take_over_halt(&state),
    };
    agent.streams.settled(order);
    result.map_err(|error| context.explain(Failure::from(error)).on_node(&agent.start.node))
}

/// The directory of a rank's files of a checkpoint on this node.
pub fn rank_directory(agent: &Agent, checkpoint: CheckpointId, rank: Rank) -> Result<PathBuf, StoreError> {
    agent.store.rank_directory(checkpoint, rank)
}

type Result<T, E = OrderError> = std::result::Result<T, E>;

struct OrderContext<'a> {
    agent: &'a Arc<Agent>,
    run: &'a Arc<Run>,
    order: u64,
    /// Cancelled when the order is, when the link to the leader breaks, and when the run is over.
    cancelled: &'a CancellationToken,
    /// The directory of the dataset that is flushed or fetched.
    opened: OnceLock<DatasetDirectory>,
}

impl OrderContext<'_> {
    /// The directory on the prefix that this order reads. Orders name no directory elsewhere.
    fn directory_to_read(&self, directory: &Path) -> Result<&Path> {
        self.agent.prefixes.check(directory)?;
        let opened = DatasetDirectory::to_read(&self.agent.prefixes, directory)?;
        Ok(self.opened.get_or_init(|| opened).path())
    }

    fn directory_to_write(&self, directory: &Path) -> Result<&Path> {
        self.agent.prefixes.check(directory)?;
        let opened = DatasetDirectory::to_write(&self.agent.prefixes, directory)?;
        Ok(self.opened.get_or_init(|| opened).path())
    }

    /// Names the dataset's directory as the user knows it.
    fn explain(&self, mut failure: Failure) -> Failure {
        if let Some(opened) = self.opened.get() {
            failure.message = opened.explain(&failure.message);
            let file = failure.subject.file.take();
            failure.subject.file = file.map(|file| opened.explain(&file.to_string_lossy()).into());
        }
        failure
    }

    fn local(&self) -> &[Rank] {
        &self.run.plan.local
    }

    /// A stream to the agent of another node.
    fn connect(&self, node: &NodeName, purpose: Purpose) -> Result<OutgoingStream> {
        let plan = &self.run.plan;
        Ok(self.agent.streams.connect(plan.generation, node, purpose, plan.settings.stream_timeout)?)
    }

    /// The stream that the agent of another node opens.
    fn claim(&self, purpose: &Purpose) -> Result<IncomingStream> {
        let plan = &self.run.plan;
        Ok(self.agent.streams.claim(plan.generation, purpose, plan.settings.stream_timeout)?)
    }

    /// For copies of files that end when the order is cancelled.
    fn pipeline(&self) -> Pipeline {
        let settings = &self.run.plan.settings;
        Pipeline::new(settings.copy_bytes, settings.copy_threads, self.cancelled.clone())
    }

    fn delete(&self, checkpoints: &[CheckpointId], all_but: Option<&BTreeSet<CheckpointId>>) -> Result<OrderResult> {
        self.delete_all(checkpoints, all_but)?;
        self.agent.store.fold_logs()?;
        Ok(OrderResult::Done)
    }

    fn delete_all(&self, checkpoints: &[CheckpointId], all_but: Option<&BTreeSet<CheckpointId>>) -> Result<()> {
        let store = &self.agent.store;
        let others =
            all_but.map(|keep| store.checkpoints().into_iter().filter(|id| !keep.contains(id)).collect::<Vec<_>>());
        for id in checkpoints.iter().copied().chain(others.into_iter().flatten()) {
            store.delete(id)?;
            store.flush.forget(id)?;
            self.remember(|memory| memory.forget(id))?;
        }
        Ok(())
    }

    fn prepare(&self, checkpoint: CheckpointId, delete: &[CheckpointId], members: &[Member]) -> Result<OrderResult> {
        self.delete_all(delete, None)?;
        for member in members {
            let descriptor = descriptor::to_tree(&member.descriptor);
            // The entry first: a directory without an entry would never be deleted.
            self.agent.store.set_descriptor(checkpoint, member.rank, member.rank, &descriptor)?;
            self.agent.store.make_directory(checkpoint, &descriptor)?;
        }
        self.remember(|memory| {
            memory.open = Some(checkpoint);
            memory.restart = None;
            memory.direct = None;
        })?;
        Ok(OrderResult::Done)
    }

    fn commit(&self, checkpoint: CheckpointId) -> Result<OrderResult> {
        for rank in self.local() {
            let files = self.agent.store.files(checkpoint, *rank).len();
            self.agent.store.set_expected(checkpoint, *rank, *rank, u32::try_from(files).unwrap_or(u32::MAX))?;
        }
        self.agent.store.fold_logs()?;
        self.remember(|memory| memory.open = memory.open.filter(|open| *open != checkpoint))?;
        self.remember_restart(checkpoint)?;
        Ok(OrderResult::Done)
    }

    fn adopt(&self, checkpoint: CheckpointId, members: &[Member]) -> Result<OrderResult> {
        for member in members {
            self.agent.store.move_rank_to_slot(member.rank, member.rank)?;
            let descriptor = descriptor::to_tree(&member.descriptor);
            let known = self.agent.store.descriptor(checkpoint, member.rank);
            // To write an equal descriptor would only change the order of its elements.
            if !known.is_some_and(|known| known.same_content(&descriptor)) {
                self.agent.store.set_descriptor(checkpoint, member.rank, member.rank, &descriptor)?;
            }
            self.agent.store.make_directory(checkpoint, &descriptor)?;
        }
        self.agent.store.fold_logs()?;
        self.remember_restart(checkpoint)?;
        Ok(OrderResult::Done)
    }

    fn discard(&self, checkpoint: CheckpointId, ranks: &[Rank]) -> Result<OrderResult> {
        for rank in ranks {
            self.agent.store.delete_rank(checkpoint, *rank)?;
        }
        self.agent.store.fold_logs()?;
        Ok(OrderResult::Done)
    }

    fn note(&self, checkpoint: CheckpointId, locations: Locations) -> Result<OrderResult> {
        self.agent.store.flush.note(checkpoint, locations)?;
        Ok(OrderResult::Done)
    }

    fn take_over_halt(&self, state: &HaltState) -> Result<OrderResult> {
        let moment = self.agent.halt.moment(chrono::Utc::now().timestamp(), &self.run.plan.settings);
        self.agent.halt.take_over(state, &moment)?;
        Ok(OrderResult::Done)
    }

    /// Between init and the first start, routed files are looked for in this checkpoint.
    fn remember_restart(&self, checkpoint: CheckpointId) -> Result<()> {
        self.remember(|memory| {
            if memory.open.is_none() {
                memory.restart = Some(checkpoint);
                memory.direct = None;
            }
        })
    }

    fn remember(&self, change: impl FnOnce(&mut crate::memory::Memory)) -> Result<()> {
        self.run
            .memory
            .change(change)
            .map_err(OrderError::file("record the run's checkpoints in", self.agent.paths.control()))
    }

    /// Does `work` for all items at once, each on a thread of its own; returns the first error when all have ended.
    fn in_parallel<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
        let work = &work;
        let results: Vec<Result<R>> = std::thread::scope(|scope| {
            let threads: Vec<_> = items.iter().map(|item| scope.spawn(move || work(item))).collect();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(OrderError::Crashed)));
            joined.collect()
        });
        results.into_iter().collect()
    }

    fn routed(&self, checkpoint: CheckpointId) -> BTreeMap<Rank, Vec<String>> {
        self.local().iter().map(|rank| (*rank, self.agent.store.files(checkpoint, *rank))).collect()
    }
}
