//! The task that always has a poll to one agent under way (long polling).
//!
//! The agent delays its answer until something changes or the poll interval is over. When its process dies, the system
//! closes the connection, and the poll ends at once: a loss is detected within a millisecond, not after an interval.
//! Another connection is opened first: an agent that is alive accepts it, and is not lost.
//!
//! A poll has no time limit. Whether an agent that does not answer is lost is decided by the owner of the supervisor,
//! in running time ([`running_time`](super::running_time)).
//!
//! Nearly all answers report no change. For these only the time at which the poll was sent matters, and they are handed
//! over together, every few milliseconds: see [`answers`](super::answers).

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

/// A connection that takes longer waits for the agent and not for this process: the next one may be opened meanwhile.
const TURN: Duration = Duration::from_millis(50);

/// The agent to poll, and how.
#[derive(Clone, Debug)]
pub struct PollTarget {
    pub node: NodeName,
    /// Counts the starts of this node's agent, so that reports about an earlier one can be ignored.
    pub start: u64,
    pub address: SocketAddr,
    /// How long the agent may delay an answer.
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

/// How a poll travels that is sent while another one is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Over the same connection.
    Beside,
    /// Over another connection.
    Elsewhere,
}

/// A poll that was sent while another one is under way.
type ExtraPollUnderWay = (Way, Pin<Box<dyn Future<Output = ExtraPoll> + Send>>);

/// The result of a poll that was sent while another one was under way.
struct ExtraPoll {
    sent: Duration,
    asked: Instant,
    /// `None` when the program ends.
    reply: Option<Result<PollReply, RequestError>>,
}

/// Completes when the poll is answered; never without one.
async fn complete(poll: &mut Option<ExtraPollUnderWay>) -> ExtraPoll {
    match poll {
        Some((_, poll)) => poll.await,
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
    async fn poll_over(&mut self, connection: &mut AgentChannel) -> Result<Infallible, PollEnd> {
        let interval = u64::try_from(self.target.interval.as_millis()).unwrap_or(u64::MAX);
        // `poll_now` was called while a poll was under way.
        let mut at_once = false;
        loop {
            let request = self.request(if at_once { 0 } else { interval });
            let urgent = std::mem::take(&mut at_once);
            let (sent, asked) = (self.clock.now(), Instant::now());
            let requested = Arc::clone(&self.requested);
            let poll = connection.poll(&request);
            tokio::pin!(poll);
            let mut extra: Option<ExtraPollUnderWay> = None;
            let answer = loop {
                tokio::select! {
                    biased;
                    answer = &mut poll => break answer?,
                    () = requested.elsewhere.notified(), if !matches!(extra, Some((Way::Elsewhere, _))) => {
                        at_once = true;
                        extra = Some((Way::Elsewhere, Box::pin(self.extra_poll(request, Way::Elsewhere))));
                    }
                    () = requested.now.notified(), if !at_once && extra.is_none() => {
                        at_once = true;
                        extra = Some((Way::Beside, Box::pin(self.extra_poll(request, Way::Beside))));
                    }
                    ExtraPoll { sent, asked: extra_asked, reply } = complete(&mut extra) => {
                        extra = None;
                        at_once = false;
                        // Without an answer here, the other poll goes on.
                        if let Ok(reply) = reply.ok_or(PollEnd::NotReceived)? {
                            self.answered(request.after, sent, extra_asked, Box::new(reply))?;
                            if asked.elapsed() > Duration::from_millis(request.wait_ms) + self.target.patience {
                                return Err(PollEnd::Stuck);
                            }
                        }
                    }
                }
            };
            match answer {
                PollAnswer::Reply(reply) => self.answered(request.after, sent, asked, reply)?,
                PollAnswer::Unchanged => {
                    self.answered_here = true;
                    let PollTarget { node, start, .. } = &self.target;
                    let answer = UnchangedAnswer { node: node.clone(), start: *start, sent };
                    self.reports.unchanged(answer, urgent);
                }
            }
        }
    }

    /// A poll that is answered at once.
    fn extra_poll(&self, request: PollRequest, way: Way) -> impl Future<Output = ExtraPoll> + Send + 'static {
        let (reports, client, clock) = (self.reports.clone(), self.client.clone(), self.clock);
        let (address, patience) = (self.target.address, self.target.patience);
        async move {
            let permit = reports.permit_extra_poll().await;
            let (sent, asked) = (clock.now(), Instant::now());
            let request = PollRequest { wait_ms: 0, known: None, ..request };
            let poll = async move {
                match way {
                    Way::Beside => client.poll_beside(address, &request, patience).await,
                    Way::Elsewhere => client.poll(address, &request, patience).await,
                }
            };
            let reply = reports.request(poll).await;
            drop(permit);
            ExtraPoll { sent, asked, reply }
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
        assert_eq!(received.known(begun + FULL_REPORT_EVERY), None);
    }
}
