//! The task that always has a poll to one agent under way (long polling).
//!
//! The agent holds a poll until something changes or the next poll arrives, which is sent after the poll interval: it
//! wakes once an interval, and needs no timer. When its process dies, the system closes the connection, and the poll
//! ends at once: a loss is detected within a millisecond, not after an interval. Another connection is opened first: an
//! agent that is alive accepts it, and is not lost.
//!
//! A poll has no time limit. Whether an agent that does not answer is lost is decided by the owner of the supervisor,
//! in running time ([`running_time`](super::running_time)).
//!
//! Nearly all answers report no change. For these only the time at which the poll was sent matters, and they are handed
//! over together, every few milliseconds: see [`answers`](super::answers).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::NodeName;
use holdfast_wire::agent::{self, KnownHealth, PollReply, PollRequest};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::answers::{PollReport, PollReports, UnchangedAnswer};
use super::channel::{AgentChannel, PollAnswer};
use super::client::AgentClient;
use super::clock::Clock;
use super::error::RequestError;

/// The full health report is requested this often although it is known: the job may not have been able to act on the
/// last one when it arrived.
const FULL_REPORT_EVERY: Duration = Duration::from_secs(10);

/// An agent answers a poll that it holds after so many intervals, also if no other poll arrives.
const HELD_FOR: u32 = 4;

/// A connection that takes longer waits for the agent and not for this process: the next one may be opened meanwhile.
const TURN: Duration = Duration::from_millis(50);

/// The agent to poll, and how.
#[derive(Clone, Debug)]
pub struct PollTarget {
    pub node: NodeName,
    /// Counts the starts of this node's agent, so that reports about an earlier one can be ignored.
    pub start: u64,
    pub address: SocketAddr,
    /// How long the agent may delay an answer: the next poll is sent after this.
    pub interval: Duration,
    /// When an answer takes this much longer than that, another connection is tried.
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
    requested: Arc<Requested>,
}

/// What is requested of a poller from outside.
#[derive(Debug, Default)]
struct Requested {
    /// Another poll, beside the one under way.
    now: Notify,
    /// Another poll over another connection.
    elsewhere: Notify,
}

impl Poller {
    /// Polls until the agent is lost.
    pub fn spawn(client: AgentClient, target: PollTarget, clock: Clock, reports: PollReports) -> Self {
        let requested = Arc::<Requested>::default();
        let runtime = reports.polls.clone();
        let poll = Poll::new(client, target, clock, reports, Arc::clone(&requested));
        Poller { task: runtime.spawn(poll.run()), requested }
    }

    /// Polls now, also if a poll is under way.
    pub fn poll_now(&self) {
        self.requested.now.notify_one();
    }

    /// Polls now over another connection: the present one may be stuck.
    pub fn poll_elsewhere(&self) {
        self.requested.elsewhere.notify_one();
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
    /// The health report that need not be sent again; now and then none, so that the next one is complete.
    fn known(&mut self, now: Instant) -> Option<KnownHealth> {
        let (known, requested) = self.health.as_mut()?;
        if now.duration_since(*requested) < FULL_REPORT_EVERY {
            return Some(*known);
        }
        // Not once more by the poll that is sent before the answer arrives.
        *requested = now;
        None
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
    /// A poll is not answered, and another one over another connection is.
    Stuck,
    /// The supervisor has ended.
    NotReceived,
}

impl From<RequestError> for PollEnd {
    fn from(error: RequestError) -> Self {
        PollEnd::Lost(error)
    }
}

/// A poll that was sent over the channel, and is not answered yet.
#[derive(Clone, Copy, Debug)]
struct PollUnderWay {
    number: u32,
    request: PollRequest,
    /// When it was sent, by the clock of the supervisor.
    sent: Duration,
    asked: Instant,
}

impl PollUnderWay {
    /// The agent answers it when something changes, or the next one arrives.
    fn is_held(&self) -> bool {
        self.request.wait_ms > 0
    }
}

/// The polls over one channel that are not answered yet, in the order in which they were sent.
#[derive(Debug, Default)]
struct PollsUnderWay(VecDeque<PollUnderWay>);

impl PollsUnderWay {
    fn held(&self) -> usize {
        self.0.iter().filter(|poll| poll.is_held()).count()
    }

    /// A poll is to be answered at once.
    fn has_urgent(&self) -> bool {
        self.0.iter().any(|poll| !poll.is_held())
    }

    fn take(&mut self, number: u32) -> Option<PollUnderWay> {
        let at = self.0.iter().position(|poll| poll.number == number)?;
        self.0.remove(at)
    }
}

/// A poll over another connection.
type PollElsewhere = Pin<Box<dyn Future<Output = AnswerElsewhere> + Send>>;

/// The result of a poll over another connection.
struct AnswerElsewhere {
    sent: Duration,
    asked: Instant,
    after: u64,
    /// `None` when the program ends.
    reply: Option<Result<PollReply, RequestError>>,
}

/// Completes when the poll is answered; never without one.
async fn complete(poll: &mut Option<PollElsewhere>) -> AnswerElsewhere {
    match poll {
        Some(poll) => poll.await,
        None => std::future::pending().await,
    }
}

/// The task of a poller.
struct Poll {
    client: AgentClient,
    target: PollTarget,
    clock: Clock,
    reports: PollReports,
    requested: Arc<Requested>,
    received: Received,
    /// The present connection has carried an answer, or another one has since it was opened.
    answered_here: bool,
}

impl Poll {
    fn new(
        client: AgentClient,
        target: PollTarget,
        clock: Clock,
        reports: PollReports,
        requested: Arc<Requested>,
    ) -> Self {
        let received = match target.seen {
            Some((instance, number)) => Received { instance: Some(instance), number, health: None },
            None => Received::default(),
        };
        Poll { client, target, clock, reports, requested, received, answered_here: false }
    }

    async fn run(mut self) {
        if let Err(PollEnd::Lost(error)) = self.poll().await {
            let PollTarget { node, start, .. } = self.target;
            // The supervisor may have ended.
            let _ = self.reports.send(PollReport::Lost { node, start, reason: error.brief() });
        }
    }

    async fn poll(&mut self) -> Result<(), PollEnd> {
        let mut connection = self.connect().await?;
        loop {
            self.answered_here = false;
            let broken = match self.poll_over(&mut connection).await {
                // An agent that breaks every connection is lost.
                Err(PollEnd::Lost(error @ RequestError::Broken { .. })) if self.answered_here => error,
                // Another connection was answered.
                Err(PollEnd::Stuck) => RequestError::Silent {
                    address: self.target.address,
                    path: agent::POLL,
                    within: self.target.patience,
                },
                Err(end) => return Err(end),
                Ok(never) => match never {},
            };
            // An orchestrator that was stopped finds connections closed whose agents are alive.
            connection = self.connect().await.map_err(|_| broken)?;
            // Another node's agent may listen at this address now: the next answer names its node.
            self.received.health = None;
        }
    }

    /// Polls over a connection until it breaks.
    async fn poll_over(&mut self, channel: &mut AgentChannel) -> Result<Infallible, PollEnd> {
        let requested = Arc::clone(&self.requested);
        let held_for = u64::try_from(self.target.interval.saturating_mul(HELD_FOR).as_millis()).unwrap_or(u64::MAX);
        let mut under_way = PollsUnderWay::default();
        let mut elsewhere: Option<PollElsewhere> = None;
        let due = tokio::time::sleep(self.target.interval);
        tokio::pin!(due);
        // The first one is answered at once: those behind it need no complete report.
        self.send(channel, &mut under_way, 0)?;
        let mut has_report = false;
        loop {
            if has_report && under_way.held() == 0 {
                self.send(channel, &mut under_way, held_for)?;
                due.as_mut().reset(Instant::now() + self.target.interval);
            }
            tokio::select! {
                biased;
                // Before anything is written: it is written together with a request that waits.
                () = requested.now.notified(), if !under_way.has_urgent() => self.send(channel, &mut under_way, 0)?,
                answer = channel.next() => {
                    let (number, answer) = answer?;
                    if let Some(poll) = under_way.take(number) {
                        has_report = true;
                        self.answered_over_channel(&poll, answer)?;
                    }
                }
                () = requested.elsewhere.notified(), if elsewhere.is_none() => {
                    elsewhere = Some(Box::pin(self.poll_elsewhere()));
                }
                AnswerElsewhere { sent, asked, after, reply } = complete(&mut elsewhere) => {
                    elsewhere = None;
                    // Without an answer there, the polls here go on.
                    if let Ok(reply) = reply.ok_or(PollEnd::NotReceived)? {
                        self.answered(after, sent, asked, Box::new(reply))?;
                        let limit = self.target.interval + self.target.patience;
                        let late = |poll: &PollUnderWay| poll.asked.elapsed() > limit;
                        if under_way.0.front().is_some_and(late) {
                            return Err(PollEnd::Stuck);
                        }
                    }
                }
                // Releases the one before.
                () = &mut due, if under_way.held() == 1 => {
                    self.send(channel, &mut under_way, held_for)?;
                    due.as_mut().reset(Instant::now() + self.target.interval);
                }
            }
        }
    }

    /// Sends a poll that may be held for `wait_ms`.
    fn send(&mut self, channel: &mut AgentChannel, under_way: &mut PollsUnderWay, wait_ms: u64) -> Result<(), PollEnd> {
        let (sent, asked) = (self.clock.now(), Instant::now());
        let request = PollRequest { known: self.received.known(asked), ..self.request(wait_ms) };
        let number = channel.send_poll(&request)?;
        under_way.0.push_back(PollUnderWay { number, request, sent, asked });
        Ok(())
    }

    fn answered_over_channel(&mut self, poll: &PollUnderWay, answer: PollAnswer) -> Result<(), PollEnd> {
        match answer {
            PollAnswer::Reply(reply) => self.answered(poll.request.after, poll.sent, poll.asked, reply),
            PollAnswer::Unchanged => {
                self.answered_here = true;
                let PollTarget { node, start, .. } = &self.target;
                let answer = UnchangedAnswer { node: node.clone(), start: *start, sent: poll.sent };
                self.reports.unchanged(answer, !poll.is_held());
                Ok(())
            }
        }
    }

    /// A poll over another connection, which is answered at once.
    fn poll_elsewhere(&self) -> impl Future<Output = AnswerElsewhere> + Send + 'static {
        let (reports, client, clock) = (self.reports.clone(), self.client.clone(), self.clock);
        let (address, patience, request) = (self.target.address, self.target.patience, self.request(0));
        async move {
            let permit = reports.permit_poll_elsewhere().await;
            let (sent, asked) = (clock.now(), Instant::now());
            let reply = reports.request(async move { client.poll(address, &request, patience).await }).await;
            drop(permit);
            AnswerElsewhere { sent, asked, after: request.after, reply }
        }
    }

    /// Opens a connection. An agent that does not answer is tried again, because its silence is judged elsewhere.
    async fn connect(&self) -> Result<AgentChannel, RequestError> {
        loop {
            match self.try_to_connect().await {
                Err(RequestError::Silent { .. }) => tokio::time::sleep(self.target.interval).await,
                connected => return connected,
            }
        }
    }

    /// Opens a connection, a bounded number of them at a time.
    async fn try_to_connect(&self) -> Result<AgentChannel, RequestError> {
        let mut turn = self.reports.permit_to_connect().await;
        let connecting = self.client.open_channel(self.target.address, self.target.patience);
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

    /// A poll for all that is new, and the complete health report.
    fn request(&self, wait_ms: u64) -> PollRequest {
        let allocation_end = *self.target.end.borrow();
        PollRequest { after: self.received.number, wait_ms, allocation_end, known: None }
    }

    fn answered(
        &mut self,
        requested_after: u64,
        sent: Duration,
        asked: Instant,
        mut reply: Box<PollReply>,
    ) -> Result<(), PollEnd> {
        if reply.health.node != self.target.node {
            let reason = format!("{} is the agent of {} now", self.target.address, reply.health.node);
            let (address, path) = (self.target.address, agent::POLL);
            return Err(PollEnd::Lost(RequestError::Broken { address, path, reason }));
        }
        self.answered_here = true;
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
            kept: vec![],
            unauthenticated: 0,
            newest: None,
            agent_memory: 0,
            quiet: vec![],
            waiting: None,
            halt: None,
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
        let later = begun + FULL_REPORT_EVERY;
        assert_eq!(received.known(later), None);
        assert_eq!(received.known(later), Some(known), "it is on its way");
        assert_eq!(received.known(later + FULL_REPORT_EVERY), None);
    }
}
