//! The leader: gathers each collective from all ranks, decides, and has it carried out by orders.
//!
//! * [`gather`]: which calls have come in, and when a collective is complete (pure);
//! * [`dispatch`]: orders out, answers in, members that come and go;
//! * [`restart`]: init, and falling back when a checkpoint cannot be read;
//! * [`checkpoint`]: need, start, complete;
//! * [`flush`]: cache to prefix;
//! * [`datasets`]: named datasets, and output; [`direct`]: those past the cache;
//! * [`layout`]: groups and descriptors of the run.

mod checkpoint;
mod datasets;
mod direct;
mod dispatch;
mod fetch;
mod flush;
mod gather;
mod layout;
mod restart;

pub use layout::LayoutError;

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_core::prefix::{Prefix, PrefixError};
use holdfast_model::{CheckpointId, Dataset, Failure, Generation, HaltState, NodeName, Rank};
use holdfast_wire::peer::{Order, ToLeader, ToMember};
use holdfast_wire::rank::{Call, Reply};
use holdfast_wire::run::RunPlan;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use self::dispatch::Dispatch;
use self::flush::Background;
use self::gather::Gather;
use self::layout::Layout;
use super::error::CallError;
use crate::agent::Agent;
use crate::halt::{HaltError, HaltKeeper, Moment};
use crate::memory::{LeaderMemory, UnfinishedFlushes};
use crate::sources::CheckpointSource;

/// The leader of one generation.
#[derive(Debug)]
pub struct Leader {
    plan: Arc<RunPlan>,
    layout: Layout,
    gather: Mutex<Gather>,
    news: Notify,
    dispatch: Dispatch,
    /// What must survive this process; changed only between collectives.
    memory: Mutex<LeaderMemory>,
    /// When a checkpoint is due.
    source: Arc<dyn CheckpointSource>,
    flushing: Background,
}

impl Leader {
    /// Forms the groups of the run; fails if the plan does not allow any.
    pub(super) fn new(
        agent: &Agent,
        plan: Arc<RunPlan>,
        source: Arc<dyn CheckpointSource>,
        cancelled: CancellationToken,
    ) -> Result<Leader, LayoutError> {
        let layout = Layout::new(&agent.paths, &plan)?;
        let memory = LeaderMemory::open(&agent.paths.control(), plan.generation);
        Ok(Leader {
            gather: Mutex::new(Gather::new(plan.ranks(), memory.seq)),
            news: Notify::new(),
            dispatch: Dispatch::new(agent.instance),
            source,
            flushing: Background::new(UnfinishedFlushes::open(&agent.paths.control(), plan.generation), cancelled),
            memory: Mutex::new(memory),
            layout,
            plan,
        })
    }

    /// A member's link is there; returns a number to end it with.
    pub(super) fn link_up(&self, node: &NodeName, to_member: mpsc::UnboundedSender<ToMember>) -> u64 {
        self.dispatch.link_up(node, to_member)
    }

    /// A member's link broke.
    pub(super) fn link_down(&self, node: &NodeName, link: u64) {
        self.dispatch.link_down(node, link);
    }

    /// A node without ranks is down: nothing is ordered there any more, and what was is not waited for.
    pub(super) fn give_up(&self, node: &NodeName) {
        self.dispatch.give_up(node);
    }

    /// A member says something.
    pub(super) fn hear(&self, node: &NodeName, message: ToLeader) {
        match message {
            ToLeader::Done { order, result } => self.dispatch.done(node, order, result),
            ToLeader::Calls { seq, calls } => {
                let ended = {
                    let mut gather = self.gather.lock();
                    calls.into_iter().fold(false, |ended, (rank, call)| gather.hear(seq, rank, call) || ended)
                };
                if ended {
                    // The collective is over, and its results were lost on the way: here they are again.
                    let outcome = self.memory.lock().outcome.clone();
                    self.dispatch.send(node, ToMember::Results { seq, outcome });
                }
                self.news.notify_one();
            }
        }
    }

    fn generation(&self) -> Generation {
        self.plan.generation
    }

    /// All nodes of the run, spares included.
    fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.plan.nodes.iter().map(|node| &node.name)
    }

    /// The nodes that have ranks.
    fn busy_nodes(&self) -> impl Iterator<Item = (&NodeName, &[Rank])> {
        self.plan.nodes.iter().filter(|node| !node.ranks.is_empty()).map(|node| (&node.name, node.ranks.as_slice()))
    }

    /// The same order for every node.
    fn everywhere(&self, order: &Order) -> BTreeMap<NodeName, Order> {
        self.nodes().map(|node| (node.clone(), order.clone())).collect()
    }

    /// The same order for every node that has ranks.
    fn where_ranks_are(&self, order: &Order) -> BTreeMap<NodeName, Order> {
        self.busy_nodes().map(|(node, _)| (node.clone(), order.clone())).collect()
    }
}

/// Carries out one collective after the other, for the whole run.
pub async fn lead(agent: Arc<Agent>, leader: Arc<Leader>) {
    loop {
        let ready = leader.gather.lock().next();
        let Some((seq, calls)) = ready else {
            leader.news.notified().await;
            continue;
        };
        let work = Work { agent: agent.clone(), leader: leader.clone() };
        let outcome = match gather::agree(&calls) {
            Ok(call) => work.carry_out(call, calls).await.map_err(Failure::from),
            Err(error) => Err(error.into()),
        };
        let memory = {
            let mut memory = leader.memory.lock();
            memory.seq = seq;
            memory.outcome = outcome.clone();
            memory.clone()
        };
        // Without the lock, which members' messages need, and not on a thread that answers polls.
        let control = agent.paths.control();
        let saved = tokio::task::spawn_blocking(move || memory.save(&control)).await;
        if let Err(error) = saved.map_err(std::io::Error::other).flatten() {
            // The run can go on; only a restart of this very agent would now repeat the collective.
            tracing::warn!(%error, "the results of a collective could not be kept on disk");
        }
        leader.gather.lock().ended(seq);
        for (node, _) in leader.busy_nodes() {
            leader.dispatch.send(node, ToMember::Results { seq, outcome: outcome.clone() });
        }
    }
}

/// One collective being carried out: what all its steps need.
struct Work {
    agent: Arc<Agent>,
    leader: Arc<Leader>,
}

impl Work {
    async fn carry_out(&self, call: Call, calls: BTreeMap<Rank, Call>) -> Result<Reply, CallError> {
        match call.clone() {
            Call::Init => self.init().await,
            Call::Need => self.need().await,
            Call::Start => self.start(Dataset::default()).await,
            Call::StartOutput { name, checkpoint, output, bypass } => {
                if let Some((rank, _)) = calls.iter().find(|(_, other)| **other != call) {
                    return Err(CallError::DifferentDatasets(*rank));
                }
                self.start_output(Dataset { name, checkpoint, output, direct: None }, bypass).await
            }
            Call::RestartName => Ok(self.restart_name()),
            Call::Current { name } => self.current(name).await,
            Call::Load => self.load().await,
            Call::Drop { name } => self.drop_from_index(name).await,
            Call::Delete { name } => self.delete_named(name).await,
            Call::Complete { .. } => {
                let invalid = gather::ranks_where(&calls, |call| matches!(call, Call::Complete { valid: false }));
                self.complete(&invalid).await
            }
            Call::CompleteRestart { .. } => {
                let invalid =
                    gather::ranks_where(&calls, |call| matches!(call, Call::CompleteRestart { valid: false }));
                self.complete_restart(&invalid).await
            }
            Call::ShouldExit => Ok(Reply::Flag(self.halt_condition().await?.is_some())),
            Call::Allgather { .. } => {
                let data = calls.into_values().filter_map(|call| match call {
                    Call::Allgather { data } => Some(data),
                    _ => None,
                });
                Ok(Reply::Gathered(data.collect()))
            }
            Call::Finalize => self.finalize().await,
            Call::Route { .. } => Err(CallError::NotCollective(call.name())),
        }
    }

    /// The halt condition that holds now, if any.
    async fn halt_condition(&self) -> Result<Option<String>, CallError> {
        Ok(self.halt(|halt, moment| Ok(halt.state(moment))).await?.met)
    }

    /// Does something with the halt file, on a thread that may block.
    async fn halt(
        &self,
        work: impl FnOnce(&HaltKeeper, &Moment) -> Result<HaltState, HaltError> + Send + 'static,
    ) -> Result<HaltState, CallError> {
        let moment = self.agent.halt.moment(chrono::Utc::now().timestamp(), &self.leader.plan.settings);
        self.blocking(move |agent| Ok(work(&agent.halt, &moment)?)).await
    }

    /// Work on files, on a thread that may block.
    async fn blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Agent>) -> Result<R, CallError> + Send + 'static,
    ) -> Result<R, CallError> {
        let agent = self.agent.clone();
        tokio::task::spawn_blocking(move || work(&agent)).await?
    }

    /// The same halt conditions on every node, so that they outlive the leader's.
    async fn spread_halt(&self, state: HaltState) -> Result<(), CallError> {
        self.order(self.leader.everywhere(&Order::Halt { state })).await.map(drop)
    }

    async fn delete(&self, checkpoint: CheckpointId) -> Result<(), CallError> {
        let order = Order::Delete { checkpoints: vec![checkpoint], all_but: None };
        self.order(self.leader.everywhere(&order)).await?;
        self.memory(|memory| memory.datasets.remove(&checkpoint));
        // The id may be given out again, and then means other files.
        self.flush_ended(checkpoint).await
    }

    /// The prefix directory, made if it is missing, on a thread that may block.
    async fn on_prefix<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Prefix) -> Result<R, PrefixError> + Send + 'static,
    ) -> Result<R, CallError> {
        let path = self.leader.plan.settings.prefix.clone();
        self.blocking(move |_| {
            let prefix = Prefix::create(path)?;
            Ok(work(&prefix)?)
        })
        .await
    }

    /// Orders, with one answer for all that went wrong.
    async fn order(
        &self,
        orders: BTreeMap<NodeName, Order>,
    ) -> Result<BTreeMap<NodeName, holdfast_wire::peer::OrderResult>, CallError> {
        Ok(self.leader.dispatch.order(orders).await?)
    }

    fn memory<R>(&self, change: impl FnOnce(&mut LeaderMemory) -> R) -> R {
        change(&mut self.leader.memory.lock())
    }

    fn event(&self, event: holdfast_wire::agent::AgentEvent) {
        self.agent.events.add(event);
    }
}
