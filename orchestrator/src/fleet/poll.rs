//! The task that always has a poll to one agent under way (long polling).
//!
//! The agent delays its answer until something changes or the poll interval is over. When its process dies, the system
//! closes the connection, and the poll ends at once: a loss is detected within a millisecond, not after an interval.
//!
//! Nearly all answers report no change. For these only the time at which the poll was sent matters, and they are handed
//! over together, every few milliseconds: see [`answers`](super::answers).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::NodeName;
use holdfast_wire::agent::{KnownHealth, PollReply, PollRequest};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::answers::{PollReports, UnchangedAnswer};
use super::connection::{PollAnswer, PollConnection};
use super::{AgentClient, Clock, RequestError};

/// The full health report is requested this often although it is known: the job may not have been able to act on the
/// last one when it arrived.
const FULL_REPORT_EVERY: Duration = Duration::from_secs(10);

/// A connection that takes longer waits for the agent and not for this process: the next one may be opened meanwhile.
const TURN: Duration = Duration::from_millis(50);

/// What a poller reports.
#[derive(Debug)]
pub enum PollReport {
    /// An answer with changes.
    Answered {
        node: NodeName,
        /// The start of the node's agent that was polled.
        start: u64,
        /// When the poll was sent.
        sent: Duration,
        /// The answer, without the events that were received before.
        reply: Box<PollReply>,
    },
    /// Answers without changes, of many agents.
    Unchanged(Vec<UnchangedAnswer>),
    /// The agent is lost; the poller has ended.
    Lost {
        node: NodeName,
        /// The start of the node's agent that was polled.
        start: u64,
        reason: String,
    },
}

/// The agent to poll, and how.
#[derive(Clone, Debug)]
pub struct PollTarget {
    pub node: NodeName,
    /// Counts the starts of this node's agent, so that reports about an earlier one can be ignored.
    pub start: u64,
    pub address: SocketAddr,
    /// How long the agent may delay an answer.
    pub interval: Duration,
    /// How much longer than that an answer may take.
    pub patience: Duration,
    /// The last event that an earlier orchestrator received: the instance and the number.
    pub seen: Option<(u64, u64)>,
    /// When the allocation ends, as the resource manager reports it now.
    pub end: watch::Receiver<Option<i64>>,
}

/// A running poller. Dropping it ends the task.
#[derive(Debug)]
pub struct Poller {
    task: JoinHandle<()>,
    now: Arc<Notify>,
}

impl Poller {
    /// Polls until the agent is lost.
    pub fn spawn(client: AgentClient, target: PollTarget, clock: Clock, reports: PollReports) -> Self {
        let now = Arc::new(Notify::new());
        let runtime = reports.runtime().clone();
        let poll = Poll::new(client, target, clock, reports, Arc::clone(&now));
        Poller { task: runtime.spawn(poll.run()), now }
    }

    /// Polls now, also if a poll is under way.
    pub fn poll_now(&self) {
        self.now.notify_one();
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What was received from an agent.
#[derive(Debug, Default)]
struct Received {
    instance: Option<u64>,
    number: u64,
    /// The last health report, and when it was requested.
    health: Option<(KnownHealth, Instant)>,
}

impl Received {
    /// The health report that need not be sent again.
    fn known(&self, now: Instant) -> Option<KnownHealth> {
        self.health.filter(|(_, requested)| now.duration_since(*requested) < FULL_REPORT_EVERY).map(|(known, _)| known)
    }

    /// Removes the events that were received before. When the instance changes, event numbers begin again: an answer to
    /// a request with a number of the old instance may lack events, so all of them are removed and requested again.
    fn filter(&mut self, reply: &mut PollReply, requested_after: u64) {
        if self.instance != Some(reply.instance) {
            self.instance = Some(reply.instance);
            self.number = 0;
            if requested_after > 0 {
                reply.events.clear();
            }
        }
        reply.events.retain(|event| event.number > self.number);
        self.number = reply.events.iter().map(|event| event.number).max().unwrap_or(self.number);
    }
}

/// Why a poller ends.
enum PollEnd {
    Lost(RequestError),
    /// The supervisor has ended.
    NotReceived,
}

impl From<RequestError> for PollEnd {
    fn from(error: RequestError) -> Self {
        PollEnd::Lost(error)
    }
}

/// The task of a poller.
struct Poll {
    client: AgentClient,
    target: PollTarget,
    clock: Clock,
    reports: PollReports,
    now: Arc<Notify>,
    received: Received,
}

impl Poll {
    fn new(client: AgentClient, target: PollTarget, clock: Clock, reports: PollReports, now: Arc<Notify>) -> Self {
        let received = match target.seen {
            Some((instance, number)) => Received { instance: Some(instance), number, health: None },
            None => Received::default(),
        };
        Poll { client, target, clock, reports, now, received }
    }

    async fn run(mut self) {
        if let Err(PollEnd::Lost(error)) = self.poll().await {
            let PollTarget { node, start, .. } = self.target;
            // The supervisor may have ended.
            let _ = self.reports.send(PollReport::Lost { node, start, reason: error.brief() });
        }
    }

    async fn poll(&mut self) -> Result<(), PollEnd> {
        let interval = u64::try_from(self.target.interval.as_millis()).unwrap_or(u64::MAX);
        let mut connection = self.connect().await?;
        // `poll_now` was called while a poll was under way.
        let mut at_once = false;
        loop {
            let request = self.request(if at_once { 0 } else { interval });
            let urgent = std::mem::take(&mut at_once);
            let (sent, asked) = (self.clock.now(), Instant::now());
            let (now, client) = (Arc::clone(&self.now), self.client.clone());
            let poll = connection.poll(&request, self.target.patience);
            tokio::pin!(poll);
            let answer = loop {
                tokio::select! {
                    biased;
                    answer = &mut poll => break answer?,
                    () = now.notified(), if !at_once => at_once = true,
                    // The poll under way is not cancelled, which would close its connection.
                    permit = self.reports.permit_extra_poll(), if at_once => {
                        let extra = PollRequest { wait_ms: 0, known: None, ..request };
                        let (sent, asked) = (self.clock.now(), Instant::now());
                        let (client, address, patience) = (client.clone(), self.target.address, self.target.patience);
                        let reply = async move { client.poll(address, &extra, patience).await };
                        let reply = self.reports.request(reply).await.ok_or(PollEnd::NotReceived)??;
                        drop(permit);
                        at_once = false;
                        self.answered(extra.after, sent, asked, Box::new(reply))?;
                    }
                }
            };
            match answer {
                PollAnswer::Reply(reply) => self.answered(request.after, sent, asked, reply)?,
                PollAnswer::Unchanged => {
                    let PollTarget { node, start, .. } = &self.target;
                    let answer = UnchangedAnswer { node: node.clone(), start: *start, sent };
                    self.reports.unchanged(answer, urgent);
                }
            }
        }
    }

    /// Opens the connection, a bounded number of them at a time.
    async fn connect(&self) -> Result<PollConnection, RequestError> {
        let mut turn = self.reports.permit_to_connect().await;
        let connecting = self.client.connect_for_polls(self.target.address, self.target.patience);
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                biased;
                connection = &mut connecting => return connection,
                // A node that does not answer must not delay the connections to others.
                () = tokio::time::sleep(TURN), if turn.is_some() => turn = None,
            }
        }
    }

    fn request(&self, wait_ms: u64) -> PollRequest {
        let allocation_end = *self.target.end.borrow();
        PollRequest { after: self.received.number, wait_ms, allocation_end, known: self.received.known(Instant::now()) }
    }

    fn answered(
        &mut self,
        requested_after: u64,
        sent: Duration,
        asked: Instant,
        mut reply: Box<PollReply>,
    ) -> Result<(), PollEnd> {
        self.received.filter(&mut reply, requested_after);
        let known = KnownHealth { instance: reply.instance, version: reply.health_version };
        // The end of long work is a change that an answer without content does not show.
        self.received.health = reply.progress.is_empty().then_some((known, asked));
        let (node, start) = (self.target.node.clone(), self.target.start);
        self.reports.send(PollReport::Answered { node, start, sent, reply }).map_err(|_| PollEnd::NotReceived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_model::Generation;
    use holdfast_wire::agent::{AgentEvent, Health, NumberedEvent};

    fn reply(instance: u64, numbers: &[u64]) -> PollReply {
        let health = Health {
            node: "node0".into(),
            generation: Generation(1),
            ranks: vec![],
            memory_total: 0,
            memory_available: 0,
            load: 0.0,
            directories: vec![],
            unauthenticated: 0,
            newest: None,
            agent_memory: 0,
            quiet: vec![],
        };
        let event =
            |number: &u64| NumberedEvent { number: *number, event: AgentEvent::Notice { message: number.to_string() } };
        PollReply { instance, health_version: 1, health, events: numbers.iter().map(event).collect(), progress: vec![] }
    }

    fn numbers(reply: &PollReply) -> Vec<u64> {
        reply.events.iter().map(|event| event.number).collect()
    }

    #[test]
    fn an_event_in_two_answers_is_reported_once() {
        let mut received = Received::default();
        let mut first = reply(7, &[1, 2]);
        received.filter(&mut first, 0);
        let mut second = reply(7, &[2, 3]);
        received.filter(&mut second, 1);
        assert_eq!((numbers(&first), numbers(&second)), (vec![1, 2], vec![3]));
    }

    #[test]
    fn event_numbers_begin_again_with_a_new_instance_and_no_event_is_skipped() {
        let mut received = Received::default();
        received.filter(&mut reply(7, &[1, 2, 3, 4]), 0);
        let mut too_late = reply(8, &[5]);
        received.filter(&mut too_late, 4);
        assert!(numbers(&too_late).is_empty());
        assert_eq!(received.number, 0);
        let mut again = reply(8, &[1, 2, 3, 4, 5]);
        received.filter(&mut again, 0);
        assert_eq!(numbers(&again).len(), 5);
    }

    #[test]
    fn a_known_health_report_is_requested_again_after_a_while() {
        let (mut received, begun) = (Received::default(), Instant::now());
        assert_eq!(received.known(begun), None);
        let known = KnownHealth { instance: 7, version: 2 };
        received.health = Some((known, begun));
        assert_eq!(received.known(begun), Some(known));
        assert_eq!(received.known(begun + FULL_REPORT_EVERY), None);
    }
}
