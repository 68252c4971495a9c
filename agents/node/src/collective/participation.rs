//! This agent's participation in the collectives of one generation: the calls of its ranks, and the tasks of the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use holdfast_model::Rank;
use holdfast_wire::agent::WaitingRanks;
use holdfast_wire::peer::{CALLS_BYTES, Outcome, ToLeader};
use holdfast_wire::plan::AcceptedPlan;
use holdfast_wire::rank::Call;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};

use super::error::CallError;
use super::leader::Leader;
use crate::run::Run;
use crate::sources::files::FileError;

/// The collectives of one generation on this agent.
#[derive(Debug)]
pub struct Participation {
    pub plan: AcceptedPlan,
    pub run: Arc<Run>,
    /// This agent was restarted in the middle of the run: its ranks may be at different calls, so each is sent alone.
    pub adopted: bool,
    /// The calls of this node's ranks that are not answered yet.
    pub calls: Calls,
    pub to_leader: mpsc::UnboundedSender<ToLeader>,
    /// On the run's first node.
    pub leader: Option<Arc<Leader>>,
    tasks: Mutex<Vec<AbortHandle>>,
    /// The ranks of this node were sent SIGTERM.
    terminated: AtomicBool,
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
        Participation {
            plan,
            run,
            adopted,
            calls: Calls::default(),
            to_leader,
            leader,
            tasks: Mutex::default(),
            terminated: AtomicBool::new(false),
        }
    }

    /// Aborts the task when the run ends.
    pub(super) fn own(&self, task: JoinHandle<()>) {
        self.tasks.lock().push(task.abort_handle());
    }

    pub(super) fn end(&self) {
        self.run.cancelled.cancel();
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        self.calls.abandon();
    }

    /// Reports to the leader that the ranks of this node are about to be sent SIGTERM. To be called before the signal:
    /// the leader must not take their end for that of an application that is finished.
    pub fn terminate(&self) {
        self.terminated.store(true, Ordering::Relaxed);
        let _ = self.to_leader.send(ToLeader::Terminated);
    }

    /// What the leader may not have received, for a new link to it.
    pub(super) fn repeat(&self) -> Vec<ToLeader> {
        let terminated = self.terminated.load(Ordering::Relaxed).then_some(ToLeader::Terminated);
        terminated.into_iter().chain(self.calls.repeat()).collect()
    }

    /// Records a rank's call, and sends it to the leader when all ranks of this node have made it.
    pub fn call(&self, rank: Rank, seq: u64, call: Call) -> oneshot::Receiver<Outcome> {
        if self.run.library.is_some() {
            let (answer, receiver) = oneshot::channel();
            let _ = answer.send(Err(CallError::from(FileError::OtherLibrary).into()));
            return receiver;
        }
        let local = self.run.plan.local.len();
        // In an adopted run the earlier agent may have answered the others: each call is sent alone.
        let (receiver, messages) = self.calls.note(rank, seq, call, local, self.adopted);
        for message in messages {
            // This fails only after the run, when the answer is not needed.
            let _ = self.to_leader.send(message);
        }
        receiver
    }
}

/// Calls of this node's ranks that are not answered yet.
#[derive(Debug, Default)]
pub struct Calls {
    open: Mutex<OpenCalls>,
}

#[derive(Debug, Default)]
struct OpenCalls {
    /// By the number of the collective.
    waiting: BTreeMap<u64, BTreeMap<Rank, WaitingCall>>,
    /// The highest number that a rank has called.
    newest: u64,
    /// The highest number whose results have arrived.
    answered: u64,
    /// The ranks that have called.
    known: BTreeSet<Rank>,
    /// A rank's first call here was not its first one: an earlier agent of this node has served the run, and may have
    /// answered other ranks.
    replaces_agent: bool,
}

/// The number of a rank's first collective.
const FIRST_CALL: u64 = 1;

#[derive(Debug)]
struct WaitingCall {
    call: Call,
    since: Instant,
    answer: oneshot::Sender<Outcome>,
}

impl Calls {
    /// Records a rank's call. Returns the receiver of its answer, and the messages to the leader: with `alone` one for
    /// this rank, otherwise one for all ranks when the last of `expected` has called; and those for ranks that are
    /// behind.
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
        let OpenCalls { waiting, newest, answered, known, replaces_agent } = &mut *open;
        // A rank waits in one call at a time. Without this, a faulty program that connects again and again with other
        // numbers would leave a call, a thread and a connection behind each time.
        waiting.retain(|other, calls| {
            let abandoned = *other != seq && calls.remove(&rank).is_some();
            !(abandoned && calls.is_empty())
        });
        let of_seq = waiting.entry(seq).or_default();
        of_seq.insert(rank, WaitingCall { call: call.clone(), since: Instant::now(), answer });
        let complete = of_seq.len() == expected;
        *replaces_agent |= known.insert(rank) && seq > FIRST_CALL;
        // A rank that makes a later call has the results of the earlier ones: those collectives have ended. Ranks that
        // wait for one of them missed its results when the earlier agent ended, and the others will not repeat it.
        let mut messages = Vec::new();
        if seq > *newest {
            *newest = seq;
            messages.extend(waiting.range(..seq).flat_map(|(earlier, calls)| all(*earlier, calls)));
        }
        // A call whose results have arrived is that of another process of the rank: the others do not repeat theirs.
        if alone || *replaces_agent || seq < *newest || seq <= *answered {
            messages.push(ToLeader::Calls { seq, calls: vec![(rank, call)] });
        } else if complete {
            messages.extend(waiting.get(&seq).into_iter().flat_map(|calls| all(seq, calls)));
        }
        (receiver, messages)
    }

    /// The calls that the leader may not have received, for a new link to it.
    fn repeat(&self) -> Vec<ToLeader> {
        self.open.lock().waiting.iter().flat_map(|(seq, calls)| all(*seq, calls)).collect()
    }

    /// The ranks of this node that wait in the earliest collective that is not answered.
    pub fn waiting(&self) -> Option<WaitingRanks> {
        let open = self.open.lock();
        let (_, calls) = open.waiting.first_key_value()?;
        let waiting = || calls.iter().filter(|(_, waiting)| waiting.call.waits_for_other_ranks());
        let (_, first) = waiting().min_by_key(|(_, waiting)| waiting.since)?;
        let ranks = waiting().map(|(rank, _)| *rank).collect();
        Some(WaitingRanks { call: first.call.name().to_owned(), ranks, waits_for: first.since.elapsed() })
    }

    /// Removes and returns the ranks of this node that wait for the result of this collective.
    pub(super) fn take(&self, seq: u64) -> Vec<(Rank, oneshot::Sender<Outcome>)> {
        let mut open = self.open.lock();
        open.answered = open.answered.max(seq);
        let taken = open.waiting.remove(&seq).unwrap_or_default();
        drop(open);
        taken.into_iter().map(|(rank, waiting)| (rank, waiting.answer)).collect()
    }

    pub fn abandon(&self) {
        self.open.lock().waiting.clear();
    }
}

/// One message for all calls; several if their payloads are large.
fn all(seq: u64, calls: &BTreeMap<Rank, WaitingCall>) -> Vec<ToLeader> {
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
    use holdfast_wire::rank::{LARGEST_CONTRIBUTION, ProgramState};

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
        // The agent was restarted in the middle of the run: rank 4 has the results of collective 1, rank 5 has not.
        let calls = Calls::default();
        assert!(calls.note(Rank(5), 1, Call::Need, 2, false).1.is_empty());
        let (_, messages) = calls.note(Rank(4), 2, Call::Start, 2, false);
        assert_eq!(ranks(&messages[..1]), [[5]], "no other rank will make call 1");
        assert!(matches!(messages[1..], [ToLeader::Calls { seq: 2, .. }]));
        let (_, late) = calls.note(Rank(6), 1, Call::Need, 2, false);
        assert_eq!(ranks(&late), [[6]]);
    }

    #[test]
    fn calls_of_ranks_that_an_earlier_agent_served_are_sent_alone() {
        // The plan of the run was lost with the earlier agent, which had answered rank 4.
        let calls = Calls::default();
        let (_, messages) = calls.note(Rank(5), 1, Call::Need, 2, false);
        assert!(messages.is_empty(), "a first call may be that of a new run");
        let calls = Calls::default();
        let (_, messages) = calls.note(Rank(5), 7, Call::Need, 2, false);
        let [ToLeader::Calls { seq: 7, calls }] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!(calls, &[(Rank(5), Call::Need)]);
    }

    #[test]
    fn another_process_of_a_rank_waits_for_no_rank_that_has_the_results() {
        let calls = Calls::default();
        let _ = calls.note(Rank(4), 1, Call::Init, 2, false);
        let _ = calls.note(Rank(5), 1, Call::Init, 2, false);
        calls.take(1);
        let (_, messages) = calls.note(Rank(5), 1, Call::Init, 2, false);
        assert_eq!(ranks(&messages), [[5]]);
    }

    #[test]
    fn a_rank_that_calls_again_with_another_number_abandons_its_call() {
        let calls = Calls::default();
        let (mut first, _) = calls.note(Rank(4), 1, Call::Need, 2, false);
        for seq in [9, 3, 7] {
            let _ = calls.note(Rank(4), seq, Call::Need, 2, false);
        }
        assert!(matches!(first.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert_eq!(calls.open.lock().waiting.keys().collect::<Vec<_>>(), [&7]);
        assert!(calls.take(1).is_empty() && calls.take(7).len() == 1);
    }

    #[test]
    fn ranks_that_wait_in_a_collective_are_reported_and_those_whose_programs_compute_are_not() {
        let calls = Calls::default();
        let waiting = || calls.waiting().map(|waiting| (waiting.call, waiting.ranks));
        assert_eq!(waiting(), None);
        let _ = calls.note(Rank(4), 1, Call::Await { state: ProgramState::Running }, 3, false);
        assert_eq!(waiting(), None);
        let _ = calls.note(Rank(6), 1, Call::Start, 3, false);
        let _ = calls.note(Rank(5), 1, Call::Start, 3, false);
        assert_eq!(waiting(), Some(("start_checkpoint".to_owned(), vec![Rank(5), Rank(6)])));
        calls.take(1);
        assert_eq!(waiting(), None);
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
