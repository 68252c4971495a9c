//! The state that the leader's procedures share, and the only things that they wait for.
//!
//! A procedure is an `async fn` over a [`Context`]. It waits for nothing but the results of orders, the results of file
//! work, and the end of a procedure in the background; each of these is a value in [`LeaderState`] that an event puts
//! there. The machine owns the futures and polls them after each event, with a waker that does nothing: there is no
//! runtime, thread or clock, and the same events always lead to the same actions. The compiler generates the states of
//! a protocol of ten steps with three fallbacks, which would otherwise be written by hand.
//!
//! The state is shared by the machine and its futures, which must be `Send`: hence a mutex. It is never contended,
//! because only the machine polls, and never held across a wait.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use holdfast_model::{CheckpointId, Dataset, Failure, FailureKind, Generation, Location, NodeName, Rank};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{CopyLimits, Order, OrderResult};
use holdfast_wire::run::{RunPlan, Settings};
use parking_lot::Mutex;

use super::action::{LeaderAction, LeaderWork};
use super::background::{Background, Procedures};
use super::dispatch::Dispatch;
use super::event::{WorkOutput, WorkResult};
use super::found::Prepared;
use super::layout::Layout;
use super::memory::{LeaderMemory, UnfinishedFlushes};
use super::open_dataset::Blocked;
use super::programs::Programs;
use super::request::Requests;
use super::waves::Waves;
use crate::collective::error::Result;
use crate::sources::SourcePolicy;

/// A handle to the leader's state for one of its procedures.
#[derive(Clone, Debug)]
pub(super) struct Context {
    shared: Arc<Shared>,
    /// The procedure, if it runs beside the collectives.
    background: Option<Background>,
}

#[derive(Debug)]
struct Shared {
    plan: Arc<RunPlan>,
    layout: Layout,
    state: Mutex<LeaderState>,
}

#[derive(Debug)]
pub(super) struct LeaderState {
    /// The time of the event that is being handled.
    pub(super) now: Duration,
    pub(super) memory: LeaderMemory,
    pub(super) dispatch: Dispatch,
    pub(super) work: PendingWork,
    /// To be performed when the event is handled.
    pub(super) actions: Vec<LeaderAction>,
    /// The collective that is under way, or the last one.
    pub(super) collective: u64,
    /// The procedures beside it.
    pub(super) background: Procedures,
    flushes: UnfinishedFlushes,
    pub(super) policy: Box<dyn SourcePolicy>,
    pub(super) requests: Requests,
    pub(super) prepared: Prepared,
    /// Since the ranks began the open dataset. Unknown after a restart of the leader.
    pub(super) blocked: Option<Blocked>,
    /// For ranks that wait for their next checkpoint.
    pub(super) programs: Programs,
    /// The nodes whose ranks were sent SIGTERM.
    pub(super) terminated: BTreeSet<NodeName>,
    /// The ranks whose programs had ended when they last waited, not because they were sent SIGTERM.
    pub(super) ended: BTreeSet<Rank>,
}

/// File work that is under way, and results that no procedure has taken yet.
#[derive(Debug, Default)]
pub(super) struct PendingWork {
    next: u64,
    results: BTreeMap<u64, Option<WorkResult>>,
}

impl PendingWork {
    fn begin(&mut self) -> u64 {
        self.next += 1;
        self.results.insert(self.next, None);
        self.next
    }

    /// Stores a result; results of unknown work are ignored.
    pub(super) fn finish(&mut self, id: u64, result: WorkResult) {
        if let Some(pending) = self.results.get_mut(&id) {
            *pending = Some(result);
        }
    }

    fn take(&mut self, id: u64) -> Option<WorkResult> {
        self.results.get(&id)?.as_ref()?;
        self.results.remove(&id).flatten()
    }
}

impl Context {
    pub(super) fn new(
        plan: Arc<RunPlan>,
        layout: Layout,
        instance: u64,
        memory: LeaderMemory,
        flushes: UnfinishedFlushes,
        policy: Box<dyn SourcePolicy>,
    ) -> Context {
        let state = LeaderState {
            now: Duration::ZERO,
            collective: memory.seq,
            memory,
            dispatch: Dispatch::new(instance),
            work: PendingWork::default(),
            actions: Vec::new(),
            background: Procedures::default(),
            flushes,
            policy,
            requests: Requests::default(),
            prepared: Prepared::None,
            blocked: None,
            programs: Programs::default(),
            terminated: BTreeSet::new(),
            ended: BTreeSet::new(),
        };
        Context { shared: Arc::new(Shared { plan, layout, state: Mutex::new(state) }), background: None }
    }

    pub(super) fn with<R>(&self, change: impl FnOnce(&mut LeaderState) -> R) -> R {
        change(&mut self.shared.state.lock())
    }

    pub(super) fn memory<R>(&self, change: impl FnOnce(&mut LeaderMemory) -> R) -> R {
        self.with(|state| change(&mut state.memory))
    }

    /// Calls the policy of the checkpoint source, with the time.
    pub(super) fn policy<R>(&self, ask: impl FnOnce(&mut dyn SourcePolicy, Duration) -> R) -> R {
        self.with(|state| ask(&mut *state.policy, state.now))
    }

    /// A checkpoint was requested and has not begun.
    pub(super) fn checkpoint_requested(&self) -> bool {
        self.with(|state| state.requests.waiting)
    }

    pub(super) fn now(&self) -> Duration {
        self.with(|state| state.now)
    }

    /// Milliseconds since `begun`.
    pub(super) fn millis_since(&self, begun: Duration) -> u64 {
        u64::try_from(self.now().saturating_sub(begun).as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn plan(&self) -> &RunPlan {
        &self.shared.plan
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.shared.plan.settings
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.shared.layout
    }

    pub(super) fn generation(&self) -> Generation {
        self.shared.plan.generation
    }

    /// The ranks of the run, ascending.
    pub(super) fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.shared.layout.ranks()).map(Rank)
    }

    /// What the application declared of a dataset.
    pub(super) fn dataset(&self, checkpoint: CheckpointId) -> Dataset {
        self.memory(|memory| memory.dataset(checkpoint))
    }

    /// Reports that a checkpoint cannot be used for a restart.
    pub(super) fn attempt_failed(&self, checkpoint: CheckpointId, from: Location, reason: String) {
        self.emit(AgentEvent::RestartAttempt { generation: self.generation(), checkpoint, from, reason });
    }

    pub(super) fn emit(&self, event: AgentEvent) {
        self.with(|state| state.actions.push(LeaderAction::Emit(event)));
    }

    /// The same order for every node, spares included.
    pub(super) fn all_nodes(&self, order: &Order) -> BTreeMap<NodeName, Order> {
        self.shared.plan.nodes.iter().map(|node| (node.name.clone(), order.clone())).collect()
    }

    /// The same order for every node that has ranks.
    pub(super) fn nodes_with_ranks(&self, order: &Order) -> BTreeMap<NodeName, Order> {
        let busy = self.shared.plan.nodes.iter().filter(|node| !node.ranks.is_empty());
        busy.map(|node| (node.name.clone(), order.clone())).collect()
    }

    /// Has orders carried out; returns the nodes' results, or when all have answered the first error that is not a lost
    /// peer.
    pub(super) async fn order(&self, orders: BTreeMap<NodeName, Order>) -> Result<BTreeMap<NodeName, OrderResult>> {
        let of = self.background;
        let batch = self.with(|state| {
            if of.is_some_and(|name| state.background.is_cancelled(name)) {
                return Err(cancelled());
            }
            Ok(state.dispatch.begin(orders, of, state.now, &mut state.actions))
        })?;
        Ok(self.wait_until(|state| state.dispatch.take(batch)).await?)
    }

    /// As [`Context::order`], but only some nodes at a time. The first error ends it.
    pub(super) async fn order_in_waves(
        &self,
        orders: BTreeMap<NodeName, Order>,
        waves: Waves,
    ) -> Result<BTreeMap<NodeName, OrderResult>> {
        let mut results = BTreeMap::new();
        let mut waiting = orders.into_iter();
        loop {
            let wave: BTreeMap<NodeName, Order> = waiting.by_ref().take(waves.nodes_at_a_time).collect();
            if wave.is_empty() {
                return Ok(results);
            }
            results.extend(self.order(wave).await?);
        }
    }

    pub(super) async fn work(&self, work: LeaderWork) -> Result<WorkOutput> {
        let id = self.with(|state| {
            let id = state.work.begin();
            state.actions.push(LeaderAction::Perform { id, work });
            id
        });
        Ok(self.wait_until(|state| state.work.take(id)).await?)
    }

    /// Requests a procedure in the background, in the name of the collective that is under way.
    pub(super) fn request(&self, name: Background) {
        self.with(|state| state.background.request(name, state.collective));
    }

    /// The handle for a procedure in the background.
    pub(super) fn of(&self, name: Background) -> Context {
        Context { shared: self.shared.clone(), background: Some(name) }
    }

    /// Waits until none of these procedures is left in the background. Their limits are lifted: they are for
    /// procedures that nothing waits for.
    pub(super) async fn ended(&self, which: impl Fn(Background) -> bool) {
        self.with(|state| {
            for name in state.background.expect_end(&which) {
                state.dispatch.lift_limits(name, &mut state.actions);
            }
        });
        self.wait_until(|state| (!state.background.any(&which)).then_some(())).await;
    }

    /// Waits until no flush is under way in the background.
    pub(super) async fn flush_ended(&self) {
        self.ended(|name| matches!(name, Background::Flush(_))).await;
    }

    /// Waits until nothing in the background uses the files of this dataset in cache.
    pub(super) async fn ended_of(&self, checkpoint: CheckpointId) {
        self.ended(|name| name.cached_dataset() == Some(checkpoint)).await;
    }

    /// Cancels these procedures.
    pub(super) fn cancel_all(&self, which: impl Fn(Background) -> bool) {
        let names = self.with(|state| state.background.names().filter(|name| which(*name)).collect::<Vec<_>>());
        names.into_iter().for_each(|name| self.cancel(name));
    }

    /// Cancels a procedure: its orders fail. File work that is under way is completed.
    pub(super) fn cancel(&self, name: Background) {
        self.with(|state| {
            state.background.cancel(name);
            state.dispatch.cancel(name, &cancelled(), state.now, &mut state.actions);
        });
    }

    /// The limits of an order of this procedure, if nothing waits for it.
    pub(super) fn limits(&self, limits: CopyLimits) -> CopyLimits {
        self.background.map_or(CopyLimits::NONE, |name| self.with(|state| state.background.limits(name, limits)))
    }

    /// True if the procedure is to end: what it works on is deleted.
    pub(super) fn is_cancelled(&self) -> bool {
        self.background.is_some_and(|name| self.with(|state| state.background.is_cancelled(name)))
    }

    /// The datasets that are being flushed in the background, or wait for it.
    pub(super) fn flushing(&self) -> BTreeSet<CheckpointId> {
        self.with(|state| state.background.flushing())
    }

    /// Waits until the results of this collective are on disk.
    pub(super) async fn results_saved(&self, seq: u64) {
        self.wait_until(|state| (state.memory.seq >= seq).then_some(())).await;
    }

    /// The directory of an interrupted flush of a dataset.
    pub(super) fn unfinished_flush(&self, checkpoint: CheckpointId) -> Option<String> {
        self.with(|state| state.flushes.directories.get(&checkpoint).cloned())
    }

    /// The interrupted flushes, by dataset.
    pub(super) fn unfinished_flushes(&self) -> BTreeMap<CheckpointId, String> {
        self.with(|state| state.flushes.directories.clone())
    }

    /// Records the directory of a dataset's flush, or that the flush has ended, in memory and on disk.
    pub(super) async fn record_flush(&self, checkpoint: CheckpointId, directory: Option<&str>) {
        let changed = self.with(|state| {
            let directories = &mut state.flushes.directories;
            let before = match directory {
                Some(directory) => directories.insert(checkpoint, directory.to_owned()),
                None => directories.remove(&checkpoint),
            };
            (before.as_deref() != directory).then(|| state.flushes.clone())
        });
        if let Some(flushes) = changed {
            // Where this fails, the driver has reported it. It matters only to an agent that is restarted before the
            // next flush: it would start the flush again, or find all files copied and publish them again.
            let _ = self.work(LeaderWork::SaveFlushes(flushes)).await;
        }
    }

    pub(super) async fn wait_until<R>(&self, mut look: impl FnMut(&mut LeaderState) -> Option<R>) -> R {
        poll_fn(|_| self.with(&mut look).map_or(Poll::Pending, Poll::Ready)).await
    }
}

fn cancelled() -> Failure {
    Failure::new(FailureKind::Cancelled, "cancelled: the dataset is deleted")
}
