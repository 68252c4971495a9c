//! The task that always has a question to one agent under way.
//!
//! The agent holds its answer back until there is news or the poll interval is over. When its process dies, the system
//! closes the connection, and the question ends at once: the loss is noticed within a millisecond, not after an interval.
//!
//! Nearly all answers say that nothing changed. Of these only the time at which the question was sent matters, and they are
//! handed over together, every few milliseconds: see [`answers`](super::answers).

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

/// So often the whole health report is asked for although it is known: the job may not have been able to act on the last
/// one when it came.
const FULL_REPORT_EVERY: Duration = Duration::from_secs(10);

/// A connection that takes longer waits for the agent and not for this process: the next one has its turn.
const TURN: Duration = Duration::from_millis(50);

/// What a poller reports.
#[derive(Debug)]
pub enum PollReport {
    /// An answer with news.
    Answered {
        node: NodeName,
        /// Which start of the node's agent was asked.
        start: u64,
        /// When the question was sent.
        sent: Duration,
        /// The answer; its events are new.
        reply: Box<PollReply>,
    },
    /// Answers without news, of many agents.
    Unchanged(Vec<UnchangedAnswer>),
    /// The agent is lost; the poller has ended.
    Lost {
        node: NodeName,
        /// Which start of the node's agent was asked.
        start: u64,
        reason: String,
    },
}

/// Whom to poll, and how.
#[derive(Clone, Debug)]
pub struct PollTarget {
    pub node: NodeName,
    /// Counts the starts of this node's agent, so that reports about an old one do not count.
    pub start: u64,
    pub address: SocketAddr,
    /// How long the agent may hold an answer back.
    pub interval: Duration,
    /// How much longer than that an answer may take.
    pub patience: Duration,
    /// What an earlier orchestrator has seen of its events: the instance and the highest number.
    pub seen: Option<(u64, u64)>,
    /// When the allocation ends, as the resource manager reports it now.
    pub end: watch::Receiver<Option<i64>>,
}

/// A running poller; dropping it ends it.
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

    /// Sends another question now, whatever is under way.
    pub fn poll_now(&self) {
        self.now.notify_one();
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What was seen of an agent.
#[derive(Debug, Default)]
struct Seen {
    instance: Option<u64>,
    number: u64,
    /// Its last health report, and when that was asked for.
    health: Option<(KnownHealth, Instant)>,
}

impl Seen {
    /// The health report that need not be sent again.
    fn known(&self, now: Instant) -> Option<KnownHealth> {
        self.health.filter(|(_, asked)| now.duration_since(*asked) < FULL_REPORT_EVERY).map(|(known, _)| known)
    }

    /// Takes the events out that were seen before. After a change of the instance, counting begins again: an answer
    /// that was asked for with an old number may lack events, so none of it are taken, and they are asked for anew.
    fn filter(&mut self, reply: &mut PollReply, asked_after: u64) {
        if self.instance != Some(reply.instance) {
            self.instance = Some(reply.instance);
            self.number = 0;
            if asked_after > 0 {
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
    /// The reports are not received any more.
    NotReceived,
}

impl From<RequestError> for PollEnd {
    fn from(error: RequestError) -> Self {
        PollEnd::Lost(error)
    }
}

/// One agent that is being polled.
struct Poll {
    client: AgentClient,
    target: PollTarget,
    clock: Clock,
    reports: PollReports,
    now: Arc<Notify>,
    seen: Seen,
}

impl Poll {
    fn new(client: AgentClient, target: PollTarget, clock: Clock, reports: PollReports, now: Arc<Notify>) -> Self {
        let seen = match target.seen {
            Some((instance, number)) => Seen { instance: Some(instance), number, health: None },
            None => Seen::default(),
        };
        Poll { client, target, clock, reports, now, seen }
    }

    async fn run(mut self) {
        if let Err(PollEnd::Lost(error)) = self.poll().await {
            let PollTarget { node, start, .. } = self.target;
            // Not received any more when the orchestrator is ending.
            let _ = self.reports.send(PollReport::Lost { node, start, reason: error.brief() });
        }
    }

    async fn poll(&mut self) -> Result<(), PollEnd> {
        let interval = u64::try_from(self.target.interval.as_millis()).unwrap_or(u64::MAX);
        let mut connection = self.connect().await?;
        // An answer was asked for while another question was under way.
        let mut at_once = false;
        loop {
            let request = self.request(if at_once { 0 } else { interval });
            let urgent = std::mem::take(&mut at_once);
            let (sent, asked) = (self.clock.now(), Instant::now());
            let (now, client) = (Arc::clone(&self.now), self.client.clone());
            let question = connection.poll(&request, self.target.patience);
            tokio::pin!(question);
            let answer = loop {
                tokio::select! {
                    biased;
                    answer = &mut question => break answer?,
                    () = now.notified(), if !at_once => at_once = true,
                    // Beside the question that is under way: breaking that off would cost its connection.
                    permit = self.reports.permit_extra_poll(), if at_once => {
                        let beside = PollRequest { wait_ms: 0, known: None, ..request };
                        let (sent, asked) = (self.clock.now(), Instant::now());
                        let (client, address, patience) = (client.clone(), self.target.address, self.target.patience);
                        let asking = async move { client.poll(address, &beside, patience).await };
                        let reply = self.reports.request(asking).await.ok_or(PollEnd::NotReceived)??;
                        drop(permit);
                        at_once = false;
                        self.answered(beside.after, sent, asked, Box::new(reply))?;
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

    /// Connects when it is this agent's turn.
    async fn connect(&self) -> Result<PollConnection, RequestError> {
        let mut turn = self.reports.permit_to_connect().await;
        let connecting = self.client.connect_for_polls(self.target.address, self.target.patience);
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                biased;
                connection = &mut connecting => return connection,
                // It costs nothing to wait for a node that does not answer: it must not hold up the others.
                () = tokio::time::sleep(TURN), if turn.is_some() => turn = None,
            }
        }
    }

    fn request(&self, wait_ms: u64) -> PollRequest {
        let allocation_end = *self.target.end.borrow();
        PollRequest { after: self.seen.number, wait_ms, allocation_end, known: self.seen.known(Instant::now()) }
    }

    fn answered(
        &mut self,
        asked_after: u64,
        sent: Duration,
        asked: Instant,
        mut reply: Box<PollReply>,
    ) -> Result<(), PollEnd> {
        self.seen.filter(&mut reply, asked_after);
        let known = KnownHealth { instance: reply.instance, version: reply.health_version };
        // That the work under way has ended is news too, which an answer without content does not tell.
        self.seen.health = reply.progress.is_empty().then_some((known, asked));
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
            strangers: 0,
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
    fn an_event_that_two_answers_carry_is_reported_once() {
        let mut seen = Seen::default();
        let mut first = reply(7, &[1, 2]);
        seen.filter(&mut first, 0);
        let mut second = reply(7, &[2, 3]);
        seen.filter(&mut second, 1);
        assert_eq!((numbers(&first), numbers(&second)), (vec![1, 2], vec![3]));
    }

    #[test]
    fn an_agent_that_was_restarted_counts_anew_and_nothing_is_skipped() {
        let mut seen = Seen::default();
        seen.filter(&mut reply(7, &[1, 2, 3, 4]), 0);
        let mut asked_too_late = reply(8, &[5]);
        seen.filter(&mut asked_too_late, 4);
        assert!(numbers(&asked_too_late).is_empty());
        assert_eq!(seen.number, 0);
        let mut again = reply(8, &[1, 2, 3, 4, 5]);
        seen.filter(&mut again, 0);
        assert_eq!(numbers(&again).len(), 5);
    }

    #[test]
    fn a_known_health_report_is_asked_for_again_after_a_while() {
        let (mut seen, begun) = (Seen::default(), Instant::now());
        assert_eq!(seen.known(begun), None);
        let known = KnownHealth { instance: 7, version: 2 };
        seen.health = Some((known, begun));
        assert_eq!(seen.known(begun), Some(known));
        assert_eq!(seen.known(begun + FULL_REPORT_EVERY), None);
    }
}
