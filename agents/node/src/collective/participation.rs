//! This agent's part in the collectives of one generation: the calls of its ranks, and what to end with the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_model::Rank;
use holdfast_wire::peer::{CALLS_BYTES, Outcome, ToLeader};
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
        // In an adopted run the others may have had their answer from the agent before: each call is passed on as it
        // comes.
        let (receiver, messages) = self.calls.note(rank, seq, call, local, self.adopted);
        for message in messages {
            // The receiver lives as long as the run; after that no answer is waited for either.
            let _ = self.to_leader.send(message);
        }
        receiver
    }
}

/// Calls of this node's ranks that are not answered yet.
#[derive(Debug, Default)]
pub struct Calls {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// By the number of the collective.
    waiting: BTreeMap<u64, BTreeMap<Rank, Waiting>>,
    /// The highest number that a rank has called.
    newest: u64,
}

#[derive(Debug)]
struct Waiting {
    call: Call,
    answer: oneshot::Sender<Outcome>,
}

impl Calls {
    /// Notes a rank's call. Returns where its answer comes, and the messages to the leader: those for all ranks of this
    /// node when the last of `expected` has called, or, `alone`, one for this rank; and those for ranks that are behind.
    fn note(
        &self,
        rank: Rank,
        seq: u64,
        call: Call,
        expected: usize,
        alone: bool,
    ) -> (oneshot::Receiver<Outcome>, Vec<ToLeader>) {
        let (answer, receiver) = oneshot::channel();
        let mut open = self.open.lock();
        let Open { waiting, newest } = &mut *open;
        let of_seq = waiting.entry(seq).or_default();
        of_seq.insert(rank, Waiting { call: call.clone(), answer });
        let complete = of_seq.len() == expected;
        // A rank that makes a later call has the results of the earlier ones: those collectives have ended. Ranks that
        // wait for one of them missed its results with the agent before this one, and the others will not call it again.
        let mut messages = Vec::new();
        if seq > *newest {
            *newest = seq;
            messages.extend(waiting.range(..seq).flat_map(|(earlier, calls)| all(*earlier, calls)));
        }
        if alone || seq < *newest {
            messages.push(ToLeader::Calls { seq, calls: vec![(rank, call)] });
        } else if complete {
            messages.extend(waiting.get(&seq).into_iter().flat_map(|calls| all(seq, calls)));
        }
        (receiver, messages)
    }

    /// All calls that the leader may not have heard of, after a new link to it.
    pub(super) fn repeat(&self) -> Vec<ToLeader> {
        self.open.lock().waiting.iter().flat_map(|(seq, calls)| all(*seq, calls)).collect()
    }

    /// The collective of this number ended: the ranks of this node that wait for its result.
    pub(super) fn take(&self, seq: u64) -> Vec<(Rank, oneshot::Sender<Outcome>)> {
        let taken = self.open.lock().waiting.remove(&seq).unwrap_or_default();
        taken.into_iter().map(|(rank, waiting)| (rank, waiting.answer)).collect()
    }

    /// Nobody will answer any more.
    pub fn abandon(&self) {
        self.open.lock().waiting.clear();
    }
}

/// One message for all of them; more if their payloads are large.
fn all(seq: u64, calls: &BTreeMap<Rank, Waiting>) -> Vec<ToLeader> {
    let mut messages = Vec::new();
    let (mut part, mut bytes) = (Vec::new(), 0);
    for (rank, waiting) in calls {
        let payload = waiting.call.payload_bytes();
        if bytes + payload > CALLS_BYTES && !part.is_empty() {
            messages.push(ToLeader::Calls { seq, calls: std::mem::take(&mut part) });
            bytes = 0;
        }
        bytes += payload;
        part.push((*rank, waiting.call.clone()));
    }
    if !part.is_empty() {
        messages.push(ToLeader::Calls { seq, calls: part });
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    use holdfast_wire::payload::Payload;
    use holdfast_wire::rank::LARGEST_CONTRIBUTION;

    fn ranks(messages: &[ToLeader]) -> Vec<Vec<u32>> {
        let calls = messages.iter().map(|message| match message {
            ToLeader::Calls { seq: 1, calls } => calls.iter().map(|(rank, _)| rank.0).collect(),
            other => panic!("calls were expected, not {other:?}"),
        });
        calls.collect()
    }

    #[test]
    fn the_calls_of_a_node_go_to_the_leader_together_when_the_last_rank_has_called() {
        let calls = Calls::default();
        assert!(calls.note(Rank(4), 1, Call::Need, 2, false).1.is_empty());
        let (_, messages) = calls.note(Rank(5), 1, Call::Need, 2, false);
        assert_eq!(ranks(&messages), [[4, 5]]);
        assert_eq!(ranks(&calls.repeat()), [[4, 5]]);
        let waiting: Vec<Rank> = calls.take(1).into_iter().map(|(rank, _)| rank).collect();
        assert_eq!(waiting, [Rank(4), Rank(5)]);
        assert!(calls.repeat().is_empty());
    }

    #[test]
    fn a_rank_that_missed_its_results_waits_for_no_rank_that_has_them() {
        // The agent was started afresh in the middle of the run: rank 4 has the results of collective 1, rank 5 has not.
        let calls = Calls::default();
        assert!(calls.note(Rank(5), 1, Call::Need, 2, false).1.is_empty());
        let (_, messages) = calls.note(Rank(4), 2, Call::Start, 2, false);
        assert_eq!(ranks(&messages), [[5]], "nobody else will make call 1");
        let (_, late) = calls.note(Rank(6), 1, Call::Need, 2, false);
        assert_eq!(ranks(&late), [[6]]);
    }

    #[test]
    fn payloads_of_many_ranks_go_in_several_messages() {
        let calls = Calls::default();
        let in_one = CALLS_BYTES / LARGEST_CONTRIBUTION;
        let count = in_one + 3;
        let data = Payload::from(vec![0; LARGEST_CONTRIBUTION]);
        let mut sent = Vec::new();
        for rank in (0u32..).map(Rank).take(count) {
            sent = calls.note(rank, 1, Call::Allgather { data: data.clone() }, count, false).1;
        }
        assert_eq!(ranks(&sent).iter().map(Vec::len).collect::<Vec<_>>(), [in_one, 3]);
    }
}
