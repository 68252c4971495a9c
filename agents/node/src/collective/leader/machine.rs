//! The leader as a machine: events in, actions out, time passed in.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, NodeName};
use holdfast_wire::agent::RequestState;
use holdfast_wire::peer::{Outcome, ToLeader};
use holdfast_wire::run::RunPlan;

use super::action::LeaderAction;
use super::background::Background;
use super::collective::carry_out;
use super::context::Context;
use super::event::LeaderEvent;
use super::found::Prepared;
use super::gather::Gather;
use super::layout::{Layout, LayoutError};
use super::memory::{LeaderMemory, UnfinishedFlushes};
use super::prepared;
use super::{deletion, flush, protection, window};
use crate::collective::error::CallError;
use crate::sources::SourcePolicy;

/// The first generation of a job: its nodes hold nothing, or what an earlier allocation left.
const FIRST: Generation = Generation(1);

/// The input of a new machine.
#[derive(Debug)]
pub struct LeaderStart {
    pub plan: Arc<RunPlan>,
    /// The directory of each redundancy descriptor's checkpoints, as the nodes see it.
    pub directories: Vec<String>,
    /// Chosen at random when the agent starts: a restarted leader does not reuse order numbers.
    pub instance: u64,
    /// What an earlier leader of this run saved, or a fresh start.
    pub memory: LeaderMemory,
    pub flushes: UnfinishedFlushes,
    /// When checkpoints are due.
    pub policy: Box<dyn SourcePolicy>,
}

/// The leader of one generation. It is dropped when the run is over, and so are its unfinished procedures.
pub struct LeaderMachine {
    context: Context,
    gather: Gather,
    /// The collective that is under way.
    collective: Option<Collective>,
    /// The generation is not the first one, and no collective has begun: its restart is prepared when all members can
    /// be reached.
    prepares_restart: bool,
    preparing: Option<Procedure<()>>,
    /// Those beside it, by priority.
    background: BTreeMap<Background, Procedure<()>>,
}

type Procedure<T> = Pin<Box<dyn Future<Output = T> + Send>>;

struct Collective {
    seq: u64,
    procedure: Procedure<Arc<Outcome>>,
}

impl LeaderMachine {
    /// Forms the groups of the run.
    ///
    /// # Errors
    /// When the plan allows no groups.
    pub fn new(start: LeaderStart) -> Result<LeaderMachine, LayoutError> {
        let LeaderStart { plan, directories, instance, memory, flushes, policy } = start;
        let layout = Layout::new(&plan, directories)?;
        let gather = Gather::new(layout.ranks(), memory.seq);
        let prepares_restart = plan.generation > FIRST && memory.seq == 0 && policy.restarts_ranks();
        let context = Context::new(plan, layout, instance, memory, flushes, policy);
        // What an earlier leader of this run did not end.
        for checkpoint in context.memory(|memory| memory.flushing.clone()) {
            context.request(Background::Flush(checkpoint));
        }
        protection::unprotected(&context).into_iter().for_each(|id| context.request(Background::Protect(id)));
        let background = BTreeMap::new();
        Ok(LeaderMachine { gather, context, collective: None, prepares_restart, preparing: None, background })
    }

    /// Handles one event at `now`, which is counted from any fixed instant and never goes back.
    pub fn handle(&mut self, now: Duration, event: LeaderEvent) -> Vec<LeaderAction> {
        self.context.with(|state| {
            state.now = state.now.max(now);
            let (now, dispatch, actions) = (state.now, &mut state.dispatch, &mut state.actions);
            match event {
                LeaderEvent::LinkUp { node, link } => dispatch.link_up(&node, link, now, actions),
                LeaderEvent::LinkDown { node, link } => dispatch.link_down(&node, link),
                LeaderEvent::NodeDown { node } => dispatch.node_down(&node, now, actions),
                LeaderEvent::Received { node, message: ToLeader::Done { order, result } } => {
                    dispatch.done(&node, order, result, now, actions);
                }
                LeaderEvent::Received { node, message: ToLeader::Terminated } => {
                    state.terminated.insert(node);
                }
                LeaderEvent::Received { node, message: ToLeader::Calls { seq, calls } }
                    if self.gather.is_under_way(seq) =>
                {
                    state.programs.update(calls, state.terminated.contains(&node));
                }
                LeaderEvent::Received { node, message: ToLeader::Calls { seq, calls } } => {
                    let rank = calls.first().map(|(rank, _)| *rank);
                    let refusal = rank.and_then(|rank| match state.memory.finalized {
                        _ if self.gather.is_ahead(seq) => Some(CallError::ResultsLost),
                        _ if !self.gather.is_past(seq) => None,
                        true => Some(CallError::Finalized),
                        false => Some(CallError::JoinedLate(rank)),
                    });
                    if let Some(error) = refusal.filter(|_| dispatch.can_reach(&node)) {
                        actions.push(LeaderAction::Answer {
                            nodes: vec![node],
                            seq,
                            outcome: Arc::new(Err(error.into())),
                        });
                    } else if self.gather.receive(seq, calls) && dispatch.can_reach(&node) {
                        // The collective has ended, and its results were lost on the way.
                        let outcome = state.memory.outcome.clone();
                        actions.push(LeaderAction::Answer { nodes: vec![node], seq, outcome });
                    } else if state.terminated.contains(&node) {
                        self.gather.note_sigterm(seq);
                    }
                }
                LeaderEvent::WorkFinished { id, result } => state.work.finish(id, result),
                LeaderEvent::HaltChanged => state.programs.check_halt = true,
                LeaderEvent::CheckpointRequested { after } => {
                    state.requests.add(&state.memory, &*state.policy, after);
                }
                LeaderEvent::Tick => {}
            }
            state.dispatch.tick(now, &mut state.actions);
        });
        self.advance();
        self.context.with(|state| std::mem::take(&mut state.actions))
    }

    /// Begins a request: for a checkpoint with a larger id than this, which has not begun.
    pub fn new_request(&mut self) -> CheckpointId {
        self.context.with(|state| state.requests.begin(&state.memory))
    }

    /// What became of the checkpoint that was requested with this id.
    pub fn state_of_request(&self, after: CheckpointId) -> RequestState {
        self.context.with(|state| state.requests.state_of(&state.memory, &*state.policy, after))
    }

    /// When the next [`LeaderEvent::Tick`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        self.context.with(|state| state.dispatch.deadline().into_iter().chain(state.programs.wake_at).min())
    }

    /// Polls the procedures until each waits for an event.
    fn advance(&mut self) {
        self.prepare_restart();
        loop {
            if self.collective.is_none()
                && let Some((seq, calls)) = self.gather.begin()
            {
                self.prepares_restart = false;
                let procedure = Box::pin(carry_out(self.context.clone(), seq, calls));
                self.collective = Some(Collective { seq, procedure });
            }
            let collective_ended = self.advance_collective();
            let prepared = self.preparing.take_if(|procedure| poll(procedure).is_ready()).is_some();
            let other_ended = self.advance_background();
            // One may wait for the end of the other.
            if !collective_ended && !prepared && !other_ended {
                return;
            }
        }
    }

    fn prepare_restart(&mut self) {
        let nodes = || self.context.plan().nodes.iter().map(|node| &node.name);
        if self.prepares_restart && self.context.with(|state| state.dispatch.can_reach_all(nodes())) {
            self.prepares_restart = false;
            self.context.with(|state| state.prepared = Prepared::UnderWay);
            self.preparing = Some(Box::pin(prepared::prepare(self.context.clone())));
        }
    }

    fn advance_collective(&mut self) -> bool {
        let Some(Collective { seq, procedure }) = &mut self.collective else { return false };
        let Poll::Ready(outcome) = poll(procedure) else { return false };
        let seq = *seq;
        self.collective = None;
        self.gather.end();
        self.answer(seq, outcome);
        true
    }

    /// Sends the results of a collective once to each node that has ranks; a node that cannot be reached repeats its
    /// calls.
    fn answer(&self, seq: u64, outcome: Arc<Outcome>) {
        let busy = self.context.plan().nodes.iter().filter(|node| !node.ranks.is_empty());
        self.context.with(|state| {
            let nodes: Vec<NodeName> =
                busy.filter(|node| state.dispatch.can_reach(&node.name)).map(|node| node.name.clone()).collect();
            state.actions.push(LeaderAction::Answer { nodes, seq, outcome });
        });
    }

    /// Begins the procedures in the background that can begin, and polls all of them.
    fn advance_background(&mut self) -> bool {
        while let Some((name, collective)) = self.context.with(|state| state.background.begin()) {
            let context = self.context.of(name);
            let procedure: Procedure<()> = match name {
                Background::Discard(checkpoint) => Box::pin(deletion::discard_output(context, checkpoint, collective)),
                Background::Protect(checkpoint) => Box::pin(protection::behind(context, checkpoint, collective)),
                Background::Flush(checkpoint) => Box::pin(flush::run_in_background(context, checkpoint, collective)),
                Background::KeepWindow(checkpoint) => Box::pin(window::keep(context, checkpoint)),
            };
            self.background.insert(name, procedure);
        }
        let ended = self.background.extract_if(.., |_, procedure| poll(procedure).is_ready());
        let ended: Vec<Background> = ended.map(|(name, _)| name).collect();
        self.context.with(|state| ended.iter().for_each(|name| state.background.end(*name)));
        !ended.is_empty()
    }
}

/// Runs a procedure until it waits for the next event. The machine polls after every event, so that no wake-up is
/// needed.
fn poll<T>(procedure: &mut Procedure<T>) -> Poll<T> {
    procedure.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop()))
}

impl fmt::Debug for LeaderMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderMachine")
            .field("context", &self.context)
            .field("gather", &self.gather)
            .field("collective", &self.collective.as_ref().map(|collective| collective.seq))
            .field("background", &self.background.keys())
            .finish()
    }
}
