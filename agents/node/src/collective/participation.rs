//! This agent's part in the collectives of one generation: the calls of its ranks, and what to end with the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_model::Rank;
use holdfast_wire::peer::{Outcome, ToLeader};
use holdfast_wire::plan::AcceptedPlan;
use holdfast_wire::rank::Call;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};

use super::leader::Leader;
use crate::run::Run;

/// One generation, as this agent takes part in its collectives.
#[derive(Debug)]
pub struct Participation {
    /// The plan that was accepted.
    pub plan: AcceptedPlan,
    /// The run.
    pub run: Arc<Run>,
    /// This agent was restarted in the middle of it: ranks may be at different calls, so nothing waits for the others.
    pub adopted: bool,
    /// Calls of this node's ranks that are not answered yet.
    pub calls: Calls,
    /// Messages to the leader.
    pub to_leader: mpsc::UnboundedSender<ToLeader>,
    /// If this is the run's first node.
    pub leader: Option<Arc<Leader>>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Participation {
    /// At the beginning of a run.
    pub(super) fn new(
        plan: AcceptedPlan,
        run: Arc<Run>,
        leader: Option<Arc<Leader>>,
        to_leader: mpsc::UnboundedSender<ToLeader>,
        adopted: bool,
    ) -> Self {
        Participation { plan, run, adopted, calls: Calls::default(), to_leader, leader, tasks: Mutex::default() }
    }

    /// A task that ends with the run.
    pub(super) fn own(&self, task: JoinHandle<()>) {
        self.tasks.lock().push(task.abort_handle());
    }

    /// Ends the run's tasks.
    pub(super) fn end(&self) {
        self.run.cancelled.cancel();
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        self.calls.abandon();
    }

    /// Notes a rank's call, and passes it to the leader when all ranks of this node have made it.
    pub fn call(&self, rank: Rank, seq: u64, call: Call) -> oneshot::Receiver<Outcome> {
        let local = self.run.plan.local.len();
        // In an adopted run the others may have had their answer from the agent before: each call is passed on as it comes.
        let (receiver, message) = self.calls.note(rank, seq, call, local, self.adopted);
        if let Some(message) = message {
            // The receiver lives as long as the run; after that no answer is waited for either.
            let _ = self.to_leader.send(message);
        }
        receiver
    }
}

/// Calls of this node's ranks that are not answered yet, by number.
#[derive(Debug, Default)]
pub struct Calls {
    waiting: Mutex<BTreeMap<u64, BTreeMap<Rank, Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    call: Call,
    answer: oneshot::Sender<Outcome>,
}

impl Calls {
    /// Notes a rank's call. Returns where its answer comes, and the message to the leader: one for all ranks of this node
    /// when the last of `expected` has called, or, `alone`, one for this rank.
    fn note(
        &self,
        rank: Rank,
        seq: u64,
        call: Call,
        expected: usize,
        alone: bool,
    ) -> (oneshot::Receiver<Outcome>, Option<ToLeader>) {
        let (answer, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        let of_seq = waiting.entry(seq).or_default();
        of_seq.insert(rank, Waiting { call: call.clone(), answer });
        let message = if alone {
            Some(ToLeader::Calls { seq, calls: vec![(rank, call)] })
        } else {
            (of_seq.len() == expected).then(|| all(seq, of_seq))
        };
        (receiver, message)
    }

    /// All calls that the leader may not have heard of, after a new link to it.
    pub(super) fn repeat(&self) -> Vec<ToLeader> {
        self.waiting.lock().iter().map(|(seq, calls)| all(*seq, calls)).collect()
    }

    /// The collective of this number ended: the ranks of this node that wait for its result.
    pub(super) fn take(&self, seq: u64) -> Vec<(Rank, oneshot::Sender<Outcome>)> {
        let taken = self.waiting.lock().remove(&seq).unwrap_or_default();
        taken.into_iter().map(|(rank, waiting)| (rank, waiting.answer)).collect()
    }

    /// Nobody will answer any more.
    pub fn abandon(&self) {
        self.waiting.lock().clear();
    }
}

fn all(seq: u64, calls: &BTreeMap<Rank, Waiting>) -> ToLeader {
    ToLeader::Calls { seq, calls: calls.iter().map(|(rank, waiting)| (*rank, waiting.call.clone())).collect() }
}
