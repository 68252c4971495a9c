//! The life cycle of a job's agents: started or adopted, polled, lost and restarted, fenced, ended.
//!
//! The loop of a job and `holdfast drain` each own one [`AgentSupervisor`]. It acts when it is called, and reports what
//! happens as [`FleetEvent`]s. Its owner decides whether a lost agent is restarted.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use holdfast_model::{Generation, NodeName};
use holdfast_wire::agent::{Health, PollReply, PollRequest, Pulse, PulseRequest, StopRequest};
use holdfast_wire::pulse;
use holdfast_wire::reachable::{self, ProbeResult};
use holdfast_wire::run::AgentReady;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use super::answers::{PollReport, PollReports, PollTimes, UnchangedAnswer};
use super::client::AgentClient;
use super::clock::{Clock, unix_millis};
use super::error::RequestError;
use super::fence;
use super::poll::{PollTarget, Poller};
use super::poll_thread::PollThread;
use super::roster::Roster;
use crate::allocation::{AgentPresence, AgentStartError, AgentTemplate, Allocation};

/// An agent of an earlier orchestrator that does not answer within this is lost.
const ADOPT_WITHIN: Duration = Duration::from_secs(2);
/// A new agent reports its node's health within this: it checks its directories first, which takes seconds if their
/// file systems hang.
const FIRST_HEALTH_WITHIN: Duration = Duration::from_secs(5);
/// Accepted difference of clocks; an agent's first line may be this old when it arrives.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);
/// The shortest and the longest interval at which the running time is reported.
const REPORT_EVERY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// A request is repeated if this process did not run for so many milliseconds meanwhile.
const REPEAT_AFTER_MISSING: u64 = 500;
/// An agent that still runs this long after the request to stop is killed.
const STOP_WITHIN: Duration = Duration::from_secs(3);
/// Agents that are asked what they find of another one.
const WITNESSES: usize = 2;
/// A machine that answers does so at once; without an answer in this time, others are asked.
const ANSWERS_WITHIN: Duration = Duration::from_millis(20);
/// The shortest and the longest pause before a machine that answers is tried again, and in between this part of the
/// time since the first try.
const TRY_AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(320));
const TRY_AGAIN_PART: u32 = 8;

/// How the agents of a job are started and polled.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// What every agent is started with.
    pub template: AgentTemplate,
    /// How long an agent may delay the answer to a poll.
    pub poll_interval: Duration,
    /// When an answer takes this much longer than that, another connection is tried.
    pub poll_patience: Duration,
    /// When the allocation ends, seconds since the epoch.
    pub allocation_end: Option<i64>,
    /// The time scale of [`FleetEvent::Answered`].
    pub clock: Clock,
}

/// A started agent, as it is recorded for an orchestrator that takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    pub address: SocketAddr,
    pub pid: u32,
    /// The port of its pulse (see [`holdfast_wire::pulse`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pulse: Option<u16>,
    /// The last event that was received: the agent's instance, and the number of the event.
    pub seen: (u64, u64),
}

/// What happened to an agent.
#[derive(Debug)]
pub enum FleetEvent {
    /// The agent is up: started, or adopted from an earlier orchestrator.
    Up {
        node: NodeName,
        address: SocketAddr,
        /// The generation that the agent continues.
        generation: Option<Generation>,
        /// Its node's health; `None` if it did not answer in time.
        health: Option<Box<Health>>,
        /// Milliseconds by which the node's clock is ahead of this one (behind, if negative), if that is too much.
        /// Each node compares halt times and the end of the allocation with its own clock.
        clock_skew_ms: Option<i64>,
    },
    /// The agent could not be started.
    StartFailed {
        node: NodeName,
        reason: String,
        /// The node itself is lost: another attempt cannot succeed.
        node_lost: bool,
    },
    /// Agents answered polls, and nothing changed. Only the time at which each poll was sent matters.
    Unchanged {
        /// The nodes, each with the time at which its poll was sent.
        answers: Vec<(NodeName, Duration)>,
    },
    /// The agent answered a poll, and something changed.
    Answered {
        node: NodeName,
        /// When the poll was sent.
        sent: Duration,
        /// The answer, without the events that were received before.
        reply: Box<PollReply>,
    },
    /// The running time: see [`running_time`](super::running_time). Answers that were received before have been
    /// reported before.
    PollsRan { ran: Duration },
    /// The result of [`AgentSupervisor::check`].
    Checked { node: NodeName, presence: AgentPresence },
    /// The agent is lost: its connection broke, or it did not answer a request in time.
    Lost { node: NodeName, reason: String },
}

#[derive(Debug)]
struct Agent {
    record: AgentRecord,
    /// The number of the start: reports about an earlier agent of the node are ignored.
    start: u64,
    /// None while the agent is lost; its process may still run.
    poller: Option<Poller>,
}

/// What the supervisor's own tasks report to it.
#[derive(Debug)]
enum TaskReport {
    Started {
        node: NodeName,
        address: SocketAddr,
        pid: u32,
        pulse: Option<u16>,
        generation: Option<Generation>,
        health: Option<Box<Health>>,
        clock_skew_ms: Option<i64>,
    },
    StartFailed(FleetEvent),
    /// An agent that answered when it was adopted; it is polled already.
    Adopted {
        node: NodeName,
        start: u64,
        generation: Option<Generation>,
        health: Box<Health>,
    },
    Lost {
        node: NodeName,
        start: u64,
        reason: String,
    },
    Checked {
        node: NodeName,
        start: u64,
        presence: AgentPresence,
    },
}

/// Owns the agents of one job.
pub struct AgentSupervisor {
    allocation: Arc<dyn Allocation>,
    client: AgentClient,
    settings: FleetSettings,
    agents: BTreeMap<NodeName, Agent>,
    /// Adopted agents whose `Up` has not been delivered yet, by their start.
    adopted: BTreeMap<NodeName, u64>,
    roster: Roster,
    /// Nodes that injected faults took along.
    lost_nodes: BTreeSet<NodeName>,
    starts: u64,
    start_permits: Arc<Semaphore>,
    starting: JoinSet<()>,
    fences: JoinSet<()>,
    allocation_end: watch::Sender<Option<i64>>,
    reports: mpsc::UnboundedSender<TaskReport>,
    reported: mpsc::UnboundedReceiver<TaskReport>,
    polls: PollReports,
    polled: mpsc::UnboundedReceiver<PollReport>,
    _poll_thread: Option<PollThread>,
}

impl AgentSupervisor {
    /// A supervisor without agents. Must be called in a runtime.
    pub fn new(allocation: Arc<dyn Allocation>, client: AgentClient, settings: FleetSettings) -> Self {
        let (reports, reported) = mpsc::unbounded_channel();
        let (polls, polled) = mpsc::unbounded_channel();
        let poll_thread = PollThread::start();
        let runtime = match &poll_thread {
            Ok(thread) => thread.runtime.clone(),
            Err(error) => {
                tracing::warn!(%error, "cannot start the polling thread; the common threads poll the agents");
                Handle::current()
            }
        };
        let (shortest, longest) = REPORT_EVERY;
        let times = PollTimes {
            clock: settings.clock,
            interval: settings.poll_interval,
            report_every: (settings.poll_patience / 10).clamp(shortest, longest),
        };
        let polls = PollReports::new(runtime, polls, times, client.at_once());
        AgentSupervisor {
            start_permits: Arc::new(Semaphore::new(allocation.starts_at_once())),
            allocation_end: watch::Sender::new(settings.allocation_end),
            agents: BTreeMap::new(),
            adopted: BTreeMap::new(),
            roster: Roster::default(),
            lost_nodes: BTreeSet::new(),
            starts: 0,
            starting: JoinSet::new(),
            fences: JoinSet::new(),
            allocation,
            client,
            settings,
            reports,
            reported,
            polls,
            polled,
            _poll_thread: poll_thread.ok(),
        }
    }

    /// The next event. Cancel safe.
    pub async fn next(&mut self) -> FleetEvent {
        loop {
            // The supervisor holds a sender of each channel, so no channel is ever closed.
            let event = tokio::select! {
                biased;
                Some(report) = self.reported.recv() => self.take_report(report),
                Some(report) = self.polled.recv() => self.take_poll(report),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// An injected fault takes the node along: no agent is started there any more.
    pub fn node_lost(&mut self, node: NodeName) {
        self.lost_nodes.insert(node);
    }

    /// Starts the agent of a node in the background: ends as `Up` or `StartFailed`. An agent that still runs is ended
    /// first, unless it was just adopted: then its `Up` follows.
    pub fn start(&mut self, node: NodeName) {
        if self.adopted.contains_key(&node) {
            return;
        }
        self.lose(&node);
        if self.lost_nodes.contains(&node) {
            let reason = "the node was lost by an injected fault".to_owned();
            let failed = FleetEvent::StartFailed { node, node_lost: true, reason };
            let _ = self.reports.send(TaskReport::StartFailed(failed));
            return;
        }
        self.roster.agent_started(&node);
        let (allocation, client) = (Arc::clone(&self.allocation), self.client.clone());
        let template = self.settings.template.clone();
        let (permits, reports) = (Arc::clone(&self.start_permits), self.reports.clone());
        let unreachable = self.unreachable(&node);
        while self.starting.try_join_next().is_some() {}
        self.starting.spawn(async move {
            // The semaphore is never closed; without a permit the agent would be started all the same.
            let _permit = permits.acquire_owned().await.ok();
            let started = tokio::select! {
                started = allocation.start_agent(&node, &template) => started,
                reason = unreachable => Err(AgentStartError::NodeLost { node: node.clone(), reason }),
            };
            let report = match started {
                Ok(ready) => {
                    let clock_skew_ms = ready.clock_ms.and_then(|clock_ms| clock_skew(clock_ms, unix_millis()));
                    // Before `Up`, so that a node that fails its health test gets no ranks.
                    let reply = client.poll(ready.address, &PollRequest::HEALTH_ONLY, FIRST_HEALTH_WITHIN).await;
                    let health = reply.ok().map(|reply| Box::new(reply.health));
                    let AgentReady { address, pid, pulse, adopted: generation, .. } = ready;
                    TaskReport::Started { node, address, pid, pulse, generation, health, clock_skew_ms }
                }
                Err(error) => {
                    let (node_lost, reason) = (error.is_node_lost(), error.to_string());
                    TaskReport::StartFailed(FleetEvent::StartFailed { node, reason, node_lost })
                }
            };
            let _ = reports.send(report);
        });
    }

    /// Takes over the agents of an earlier orchestrator: polls all of them concurrently, and goes on polling those that
    /// answer. Each ends as `Up` or `Lost`.
    pub async fn adopt(&mut self, known: &BTreeMap<NodeName, AgentRecord>) {
        for (node, record) in known {
            self.allocation.adopt_agent(node, record.pid);
        }
        let client = &self.client;
        let answers = client.each(known.iter(), |(node, record)| async move {
            let answer = match client.poll(record.address, &PollRequest::HEALTH_ONLY, ADOPT_WITHIN).await {
                Ok(reply) if reply.health.node == *node => Ok(Box::new(reply.health)),
                Ok(reply) => Err(format!("{} is the agent of {} now", record.address, reply.health.node)),
                Err(error) => Err(error.brief()),
            };
            (node, *record, answer)
        });
        for (node, record, answer) in answers.await {
            let node = node.clone();
            let report = match answer {
                Ok(health) => {
                    let start = self.register(&node, record);
                    self.adopted.insert(node.clone(), start);
                    let generation = Some(health.generation).filter(|generation| *generation > Generation::NONE);
                    TaskReport::Adopted { node, start, generation, health }
                }
                Err(reason) => {
                    self.starts += 1;
                    let start = self.starts;
                    self.agents.insert(node.clone(), Agent { record, start, poller: None });
                    TaskReport::Lost { node, start, reason }
                }
            };
            let _ = self.reports.send(report);
        }
    }

    /// Polls an agent from now on.
    fn register(&mut self, node: &NodeName, record: AgentRecord) -> u64 {
        self.starts += 1;
        let target = PollTarget {
            node: node.clone(),
            start: self.starts,
            address: record.address,
            interval: self.settings.poll_interval,
            patience: self.settings.poll_patience,
            seen: Some(record.seen).filter(|seen| *seen != (0, 0)),
            end: self.allocation_end.subscribe(),
        };
        let poller = Some(Poller::spawn(self.client.clone(), target, self.settings.clock, self.polls.clone()));
        self.agents.insert(node.clone(), Agent { record, start: self.starts, poller });
        self.roster.agent_up(node, record.address);
        self.starts
    }

    fn take_report(&mut self, report: TaskReport) -> Option<FleetEvent> {
        match report {
            TaskReport::Started { node, address, pid, pulse, generation, health, clock_skew_ms } => {
                // If the process is the same as before, the events that it has reported are not requested again.
                let known = self.agents.get(&node).map(|agent| agent.record).filter(|record| record.pid == pid);
                let seen = known.map_or((0, 0), |record| record.seen);
                self.register(&node, AgentRecord { address, pid, pulse, seen });
                Some(FleetEvent::Up { node, address, generation, health, clock_skew_ms })
            }
            TaskReport::StartFailed(event) => Some(event),
            TaskReport::Adopted { node, start, generation, health } => {
                let agent = self.agents.get(&node).filter(|agent| agent.start == start)?;
                let address = agent.record.address;
                self.adopted.remove(&node);
                let health = Some(health);
                Some(FleetEvent::Up { node, address, generation, health, clock_skew_ms: None })
            }
            TaskReport::Lost { node, start, reason } => self.take_loss(node, start, reason),
            TaskReport::Checked { node, start, presence } => {
                self.agents.get(&node).filter(|agent| agent.start == start)?;
                Some(FleetEvent::Checked { node, presence })
            }
        }
    }

    fn take_poll(&mut self, report: PollReport) -> Option<FleetEvent> {
        match report {
            PollReport::Lost { node, start, reason } => self.take_loss(node, start, reason),
            PollReport::PollsRan(ran) => Some(FleetEvent::PollsRan { ran }),
            PollReport::Answered { node, start, sent, reply } => {
                let agent = self.agents.get_mut(&node).filter(|agent| agent.start == start)?;
                let seen = &mut agent.record.seen;
                let before = if seen.0 == reply.instance { seen.1 } else { 0 };
                let number = reply.events.iter().map(|event| event.number).max().unwrap_or(before);
                *seen = (reply.instance, number);
                Some(FleetEvent::Answered { node, sent, reply })
            }
            PollReport::Unchanged(answers) => {
                let current = |answer: &UnchangedAnswer| {
                    self.agents.get(&answer.node).is_some_and(|agent| agent.start == answer.start)
                };
                let answers = answers.into_iter().filter(current).map(|answer| (answer.node, answer.sent));
                Some(FleetEvent::Unchanged { answers: answers.collect() })
            }
        }
    }

    /// The loss of an agent; `None` if the agent was restarted since.
    fn take_loss(&mut self, node: NodeName, start: u64, reason: String) -> Option<FleetEvent> {
        if self.agents.get(&node)?.start != start {
            return None;
        }
        self.lose(&node);
        Some(FleetEvent::Lost { node, reason })
    }

    /// Stops polling an agent; reports about it that are still on their way are ignored.
    fn lose(&mut self, node: &NodeName) {
        self.adopted.remove(node);
        if let Some(agent) = self.agents.get_mut(node) {
            self.starts += 1;
            (agent.start, agent.poller) = (self.starts, None);
            self.roster.agent_lost(node);
        }
    }

    /// Gives a node up: the drain does not wait for its agent any more. Its processes are left as they are.
    pub fn stop_awaiting(&mut self, node: &NodeName) {
        self.lose(node);
        self.roster.node_down(node);
    }

    /// Makes sure that a node that went down cannot act for the job any more. Its agent is not polled any more, is
    /// killed through the resource manager where that is possible, and is ended together with its ranks as soon as it
    /// answers at `address`.
    pub fn fence(&mut self, node: &NodeName, address: Option<SocketAddr>) {
        self.adopted.remove(node);
        self.agents.remove(node);
        self.roster.node_down(node);
        let (allocation, name) = (Arc::clone(&self.allocation), node.clone());
        tokio::task::spawn_blocking(move || allocation.kill_agent(&name));
        if let Some(address) = address {
            self.fences.spawn(fence::end_returned_node(self.client.clone(), node.clone(), address));
        }
    }

    /// Ends all agents, and kills those that do not end. With `remove` they remove their directories.
    pub async fn end_all(&mut self, remove: bool) {
        let (known, _) = self.stop_all(remove).await;
        let allocation = Arc::clone(&self.allocation);
        let ended = tokio::task::spawn_blocking(move || allocation.terminate_agents(&known, STOP_WITHIN));
        let _ = ended.await;
    }

    /// As [`end_all`](Self::end_all), where this supervisor has the agents of `nodes` only, and others of the
    /// allocation go on. Returns the nodes whose agents have ended.
    pub async fn end_lent(&mut self, nodes: Vec<NodeName>, remove: bool) -> BTreeSet<NodeName> {
        let (known, stopped) = self.stop_all(remove).await;
        let allocation = Arc::clone(&self.allocation);
        let ended = tokio::task::spawn_blocking(move || allocation.end_agents(&nodes, &known, STOP_WITHIN));
        let _ = ended.await;
        stopped
    }

    /// Has all agents end; returns those that were known, and the nodes of those that agreed.
    async fn stop_all(&mut self, remove: bool) -> (Vec<(NodeName, u32)>, BTreeSet<NodeName>) {
        // No agent may come up after this.
        self.starting.shutdown().await;
        let agents = std::mem::take(&mut self.agents);
        let known: Vec<(NodeName, u32)> = agents.iter().map(|(node, agent)| (node.clone(), agent.record.pid)).collect();
        let up = agents.into_iter().filter(|(_, agent)| agent.poller.is_some());
        // Without pollers, which would report every agent that ends as lost.
        let up: Vec<_> = up.map(|(node, agent)| (node, agent.record.address)).collect();
        let client = &self.client;
        let stops = client.each(up, |(node, address)| async move {
            let request = StopRequest { remove };
            let stop = tokio::time::timeout(STOP_WITHIN, client.stop(address, &request));
            let stopped = matches!(stop.await, Ok(Ok(_)));
            if !stopped {
                tracing::info!(%node, "an agent did not stop when it was asked to, and is killed");
            }
            (node, stopped)
        });
        let stopped = stops.await.into_iter().filter(|(_, stopped)| *stopped).map(|(node, _)| node);
        (known, stopped.collect())
    }

    /// The agents for the next step, which [adopts](AgentSupervisor::adopt) them. Starts under way are cancelled.
    pub async fn hand_over(&mut self) -> BTreeMap<NodeName, AgentRecord> {
        self.starting.shutdown().await;
        // Registers agents that came up meanwhile; everything else is found out again when they are adopted.
        while let Ok(report) = self.reported.try_recv() {
            self.take_report(report);
        }
        self.records()
    }

    /// Sends a request to each of these agents that is up, in the background. An agent that does not answer is lost;
    /// every other result is passed to `done`. A request during which this process did not run is repeated: the lack of
    /// an answer proves nothing then, and neither does a connection that was closed meanwhile.
    pub fn request<'a, T, F>(
        &self,
        nodes: impl IntoIterator<Item = &'a NodeName>,
        request: impl Fn(AgentClient, NodeName, SocketAddr) -> F + Send + Sync + 'static,
        done: impl Fn(NodeName, Result<T, RequestError>) + Send + Sync + 'static,
    ) where
        T: Send,
        F: Future<Output = Result<T, RequestError>> + Send,
    {
        self.begin_request(nodes, |_, _| (), move |client, node, address, ()| request(client, node, address), done);
    }

    /// As [`request`](Self::request). `begin` is called for all agents before this returns; a bounded number of answers
    /// is awaited at a time.
    pub fn begin_request<'a, B, T, F>(
        &self,
        nodes: impl IntoIterator<Item = &'a NodeName>,
        begin: impl Fn(&AgentClient, SocketAddr) -> B + Send + Sync + 'static,
        request: impl Fn(AgentClient, NodeName, SocketAddr, B) -> F + Send + Sync + 'static,
        done: impl Fn(NodeName, Result<T, RequestError>) + Send + Sync + 'static,
    ) where
        B: Send + 'static,
        T: Send,
        F: Future<Output = Result<T, RequestError>> + Send,
    {
        let up = |node: &NodeName| {
            let Agent { start, record: AgentRecord { address, .. }, .. } = self.up(node)?;
            Some((node.clone(), *start, *address, begin(&self.client, *address)))
        };
        let agents: Vec<_> = nodes.into_iter().filter_map(up).collect();
        let (client, reports, missing) = (self.client.clone(), self.reports.clone(), self.polls.missing());
        tokio::spawn(async move {
            let (client, begin, request, done) = (&client, &begin, &request, &done);
            let (reports, missing) = (&reports, &missing);
            let sent = client.each(agents, |(node, start, address, begun)| async move {
                let mut begun = Some(begun);
                let answer = loop {
                    let before = missing.load(Ordering::Relaxed);
                    let this = begun.take().unwrap_or_else(|| begin(client, address));
                    match request(client.clone(), node.clone(), address, this).await {
                        Err(error) if !error.is_refusal() => {
                            // The pollers report what is missing when they run again.
                            tokio::time::sleep(2 * REPORT_EVERY.1).await;
                            if missing.load(Ordering::Relaxed).saturating_sub(before) < REPEAT_AFTER_MISSING {
                                break Err(error);
                            }
                        }
                        answer => break answer,
                    }
                };
                match answer {
                    Err(error) if !error.is_refusal() => {
                        let _ = reports.send(TaskReport::Lost { node, start, reason: error.brief() });
                    }
                    answer => done(node, answer),
                }
            });
            sent.await;
        });
    }

    /// Polls an agent that does not answer over another connection, and finds out whether its process exists and runs.
    /// Ends as `Checked`, unless the agent is lost or restarted meanwhile.
    pub fn check(&self, node: &NodeName) {
        let Some(agent) = self.up(node) else { return };
        if let Some(poller) = &agent.poller {
            poller.poll_elsewhere();
        }
        let (allocation, reports) = (Arc::clone(&self.allocation), self.reports.clone());
        let (node, start, address) = (node.clone(), agent.start, agent.record.address);
        let pulse = agent.record.pulse.map(|port| SocketAddr::new(address.ip(), port));
        let witnesses = self.witnesses(&node);
        tokio::spawn(async move {
            let mut presence = allocation.check_agent(&node, address).await;
            if let Some(pulse) = pulse
                && presence == AgentPresence::Present
                && !witnesses.that_find(pulse, Pulse::Stopped).await.is_empty()
            {
                presence = AgentPresence::Stopped;
            }
            let _ = reports.send(TaskReport::Checked { node, start, presence });
        });
    }

    /// Returns the reason when the machine of the agent that a node had cannot be reached, neither from here nor by
    /// other agents; this process alone would have to find that several times in a row.
    fn unreachable(&self, node: &NodeName) -> impl Future<Output = String> + use<> {
        let (address, witnesses) = (self.agents.get(node).map(|agent| agent.record.address), self.witnesses(node));
        async move {
            let Some(address) = address.filter(|_| !witnesses.agents.is_empty()) else {
                return std::future::pending().await;
            };
            let (begun, (shortest, longest)) = (Instant::now(), TRY_AGAIN);
            loop {
                if let ProbeResult::NoAnswer = reachable::probe(address, ANSWERS_WITHIN).await {
                    let others = witnesses.that_find(address, Pulse::NoAnswer).await;
                    if !others.is_empty() {
                        return format!("{} answers neither this node nor {}", address.ip(), others.join(" nor "));
                    }
                }
                tokio::time::sleep((begun.elapsed() / TRY_AGAIN_PART).clamp(shortest, longest)).await;
            }
        }
    }

    /// The agents that are asked what they find of this one: the next ones in the order of the names.
    fn witnesses(&self, node: &NodeName) -> Witnesses {
        let after = self.agents.range::<NodeName, _>((Bound::Excluded(node), Bound::Unbounded));
        let before = self.agents.range::<NodeName, _>((Bound::Unbounded, Bound::Excluded(node)));
        let up = after.chain(before).filter(|(_, agent)| agent.poller.is_some());
        let agents = up.take(WITNESSES).map(|(node, agent)| (node.clone(), agent.record.address)).collect();
        Witnesses { client: self.client.clone(), agents }
    }

    /// Polls these agents now, also if a poll is under way.
    pub fn poll_now<'a>(&self, nodes: impl IntoIterator<Item = &'a NodeName>) {
        for poller in nodes.into_iter().filter_map(|node| self.up(node)?.poller.as_ref()) {
            poller.poll_now();
        }
    }

    /// Sets the end of the allocation, which the agents receive with polls. True if it changed.
    pub fn allocation_ends(&self, end: Option<i64>) -> bool {
        self.allocation_end.send_if_modified(|known| std::mem::replace(known, end) != end)
    }

    fn up(&self, node: &NodeName) -> Option<&Agent> {
        self.agents.get(node).filter(|agent| agent.poller.is_some())
    }

    /// The agents that are up, for tasks that send requests to them.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// For requests that do not start, stop or lose agents.
    pub fn client(&self) -> &AgentClient {
        &self.client
    }

    /// The agent of a node whose process may run, for an orchestrator that takes over.
    pub fn record(&self, node: &NodeName) -> Option<AgentRecord> {
        self.agents.get(node).map(|agent| agent.record)
    }

    /// The agents whose processes may run, for an orchestrator that takes over.
    pub fn records(&self) -> BTreeMap<NodeName, AgentRecord> {
        self.agents.iter().map(|(node, agent)| (node.clone(), agent.record)).collect()
    }
}

/// Milliseconds by which a node's clock is ahead of this one, if that is too much.
fn clock_skew(node_ms: u64, own_ms: u64) -> Option<i64> {
    let ahead = i64::try_from(i128::from(node_ms) - i128::from(own_ms)).unwrap_or(i64::MAX);
    (Duration::from_millis(ahead.unsigned_abs()) > CLOCK_TOLERANCE).then_some(ahead)
}

/// Agents that are asked what they find of another one.
struct Witnesses {
    client: AgentClient,
    agents: Vec<(NodeName, SocketAddr)>,
}

impl Witnesses {
    /// The names of the witnesses that answer, if all of them find this at the address, and this process too.
    async fn that_find(&self, address: SocketAddr, what: Pulse) -> Vec<String> {
        let request = PulseRequest { address };
        let ask = |(node, witness): (NodeName, SocketAddr)| {
            let client = self.client.clone();
            async move { client.pulse(witness, &request).await.ok().map(|reply| (node, reply.found)) }
        };
        let (here, there) = tokio::join!(pulse::look(address), self.client.each(self.agents.clone(), ask));
        let there: BTreeMap<NodeName, Pulse> = there.into_iter().flatten().collect();
        match here == what && there.values().all(|found| *found == what) {
            true => there.keys().map(NodeName::to_string).collect(),
            false => Vec::new(),
        }
    }
}

/// Sends the same request to each agent.
pub fn to_each<R, F>(
    request: R,
    send: impl Fn(AgentClient, SocketAddr, Arc<R>) -> F,
) -> impl Fn(AgentClient, NodeName, SocketAddr) -> F {
    let request = Arc::new(request);
    move |client, _, address| send(client, address, Arc::clone(&request))
}

#[cfg(test)]
mod tests;
