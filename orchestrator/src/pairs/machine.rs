//! The decisions of the orchestrator about a job with pairs: which agents are started again and when, which of them are
//! sent their plans, when the job ends.
//!
//! An agent that is lost is always started again: its copies go on meanwhile, and its successor adopts them. A node
//! that comes back is used again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use holdfast_failover::lease::{Answer, Granter, Orders, SplitPair};
use holdfast_model::NodeName;
use holdfast_model::pair::{JobStatus, PairCommand, PairStatus};
use holdfast_wire::pairs::PairsReport;

use super::overview::Overview;
use super::placement::PairPlace;
use crate::exit;

/// Before the second attempt to start an agent; doubled with each that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between attempts: the time after which a node that came back is used at the latest.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The job ends if no agent has ever come up after so many attempts on each node.
const ATTEMPTS_AT_FIRST: u32 = 5;
/// The end waits so long for the ends of copies, beyond their grace.
const STOPPED_WITHIN: Duration = Duration::from_secs(10);
/// And so long after a second signal.
const STOPPED_AT_ONCE: Duration = Duration::from_secs(3);

/// What the machine needs to know of the job.
#[derive(Clone, Debug)]
pub struct AgentsConfig {
    /// The nodes that have copies or jobs.
    pub nodes: BTreeSet<NodeName>,
    pub pairs: Vec<PairPlace>,
    /// Pairs that an earlier orchestrator saw finished.
    pub finished: BTreeSet<u32>,
    /// Pairs on two nodes whose replica was to be awake in the time of an earlier orchestrator.
    pub replica_preferred: BTreeSet<u32>,
    /// Higher than that of every earlier orchestrator of the job, and on disk.
    pub epoch: u64,
    /// The time of a lease.
    pub lease: Duration,
    /// How long a copy may take to register.
    pub start_within: Duration,
    /// The longest grace of a copy.
    pub stop_grace: Duration,
    /// When a node without an agent is rebooted; `None`: never.
    pub reboot: Option<RebootRule>,
}

/// When a node is rebooted.
#[derive(Clone, Debug)]
pub struct RebootRule {
    /// After so long without an agent, and between two attempts.
    pub after: Duration,
    /// Attempts for one loss.
    pub attempts: u32,
    /// The node on which the orchestrator runs is not.
    pub own_node: Option<NodeName>,
}

/// What agents, users and the clock report to the machine.
#[derive(Clone, Debug)]
pub enum Event {
    /// The agent is up: started, or adopted from an earlier orchestrator.
    AgentUp {
        node: NodeName,
        address: SocketAddr,
    },
    AgentStartFailed {
        node: NodeName,
        reason: String,
    },
    /// The command that reboots the node has ended, and how it failed.
    Rebooted {
        node: NodeName,
        failure: Option<String>,
    },
    /// Its connection broke, or it does not answer.
    AgentLost {
        node: NodeName,
        reason: String,
    },
    /// The plan of the node is in force.
    Planned {
        node: NodeName,
    },
    PlanRefused {
        node: NodeName,
        reason: String,
        /// For its content: it would be refused again.
        is_final: bool,
    },
    Reported {
        node: NodeName,
        report: PairsReport,
        /// When the request was sent.
        asked: Duration,
    },
    /// The job's record has this orchestrator's epoch, as was found by reading it at this time or later.
    Confirmed {
        since: Duration,
    },
    /// Another orchestrator has taken the job over.
    Replaced,
    /// All copies and jobs of the node have ended.
    Stopped {
        node: NodeName,
    },
    /// The user's request for a pair whose copies are on two nodes.
    Requested {
        pair: u32,
        command: PairCommand,
        number: u64,
    },
    /// The user or the end of the allocation ends the job.
    Halt {
        reason: String,
        /// Without the grace of copies and jobs.
        at_once: bool,
    },
    Signal {
        name: &'static str,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    StartAgent {
        node: NodeName,
    },
    /// Send the plan; ends as `Planned`, `PlanRefused` or `AgentLost`.
    SendPlan {
        node: NodeName,
    },
    /// Request reports of the node from now on; the requests carry these orders.
    Follow {
        node: NodeName,
        orders: Orders,
    },
    /// The next request carries these orders; one that is under way is replaced.
    Order {
        node: NodeName,
        orders: Orders,
    },
    /// No reports of the node any more.
    Unfollow {
        node: NodeName,
    },
    /// Tell the nodes with the other copies of this node's pairs where its agent listens.
    AnnouncePeer {
        node: NodeName,
    },
    /// An agent could not be started, or refused its plan.
    ReportFailure {
        node: NodeName,
        reason: String,
    },
    /// Read the epoch in the job's record now; ends as `Confirmed` or `Replaced`. It is read regularly, too.
    Confirm,
    /// The request with this number was taken up.
    RecordRequest {
        number: u64,
    },
    /// Which replicas are preferred has changed.
    RecordPreferred,
    /// These pairs are finished, which a successor has to know.
    RecordFinished,
    /// The job is being ended.
    End {
        reason: String,
    },
    /// Run the site's command that reboots the node; ends as `Rebooted`.
    Reboot {
        node: NodeName,
    },
    /// End all copies and jobs of the node; ends as `Stopped` or `AgentLost`.
    Stop {
        node: NodeName,
        /// Kill them, also those that were told to end.
        at_once: bool,
    },
    Finish(Outcome),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairsEnd {
    #[error("all pairs are finished")]
    Finished,
    /// All other pairs are finished; both copies of these failed too often.
    #[error(
        "both copies failed too often: {}{}",
        pairs.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", "),
        if pairs.len() > 8 { ", …" } else { "" }
    )]
    GivenUp { pairs: Vec<String> },
    #[error("halted: {reason}")]
    Halted { reason: String },
    #[error("ended by {name}")]
    Signal { name: &'static str },
    /// No node accepted its plan, or one refused its content.
    #[error("{node} cannot run its pairs: {reason}")]
    PlanRefused { node: NodeName, reason: String, is_final: bool },
    #[error("no agent could be started; the last attempt, on {node}: {reason}")]
    NoAgents { node: NodeName, reason: String },
    #[error("another orchestrator has taken the job over and goes on with it")]
    Replaced,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub end: PairsEnd,
    /// Nodes on which copies may still run: their agents did not answer.
    pub unreachable: Vec<NodeName>,
}

impl Outcome {
    /// The exit code: see [`crate::exit`].
    pub fn exit_code(&self) -> u8 {
        match self.end {
            PairsEnd::Finished => exit::FINISHED,
            PairsEnd::GivenUp { .. } => exit::APPLICATION_ERROR,
            PairsEnd::PlanRefused { is_final: true, .. } => exit::CONFIGURATION,
            PairsEnd::Halted { .. }
            | PairsEnd::Signal { .. }
            | PairsEnd::PlanRefused { .. }
            | PairsEnd::NoAgents { .. } => exit::NOT_FINISHED,
            PairsEnd::Replaced => exit::UNAVAILABLE,
        }
    }

    /// Another orchestrator has the job: nothing of it may be touched any more.
    pub fn is_replaced(&self) -> bool {
        self.end == PairsEnd::Replaced
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.end.fmt(f)?;
        if !self.unreachable.is_empty() {
            let nodes: Vec<&str> = self.unreachable.iter().map(NodeName::as_str).collect();
            write!(f, "; copies may still run on {}, whose agents do not answer", nodes.join(", "))?;
        }
        match self.end {
            // Checkpoints are in the memory of the nodes only.
            PairsEnd::Halted { .. } | PairsEnd::Signal { .. } => {
                f.write_str("; the next `holdfast run` goes on from the saved checkpoints")
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Debug)]
enum Agent {
    /// It is being started or adopted.
    Starting,
    /// It is started at this time.
    Lost {
        start_at: Duration,
    },
    Up {
        address: SocketAddr,
        plan: Plan,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Sent,
    InForce,
    /// It, or the request to end all copies, is sent again at this time.
    Refused {
        again_at: Duration,
        /// The plan is in force: the other request was refused, or not answered.
        in_force: bool,
    },
}

impl Plan {
    fn is_due(self, now: Duration) -> bool {
        matches!(self, Plan::Refused { again_at, .. } if again_at <= now)
    }
}

#[derive(Clone, Debug)]
struct Node {
    agent: Agent,
    /// Attempts to start the agent, or to send the plan, that failed one after the other.
    failures: u32,
    was_up: bool,
    /// A plan was in force, here or in an earlier orchestrator's time.
    was_planned: bool,
    /// The agent may have copies that are not ended.
    stopped: bool,
    report: Option<(Vec<PairStatus>, Vec<JobStatus>)>,
    /// When it is rebooted, unless its agent comes back.
    reboot_at: Option<Duration>,
    /// Reboots since it had an agent.
    reboots: u32,
}

impl Node {
    /// The node has lost its agent, or a reboot was tried: when the next one is due.
    fn plan_reboot(&mut self, now: Duration, name: &NodeName, rule: Option<&RebootRule>) {
        let rule = rule.filter(|rule| rule.own_node.as_ref() != Some(name) && self.reboots < rule.attempts);
        self.reboot_at = rule.filter(|_| self.was_up).map(|rule| now + rule.after);
    }
}

#[derive(Clone, Debug)]
enum Phase {
    Running,
    Ending { end: PairsEnd, until: Duration, at_once: bool },
    Ended,
}

/// The state of the job.
#[derive(Clone, Debug)]
pub struct Machine {
    config: AgentsConfig,
    nodes: BTreeMap<NodeName, Node>,
    finished: BTreeSet<u32>,
    /// As it was recorded last.
    replica_preferred: BTreeSet<u32>,
    /// The leases of pairs whose copies are on two nodes.
    granter: Granter,
    /// The last time at which the leases were decided.
    granted_at: Duration,
    phase: Phase,
}

impl Machine {
    /// The job, and its first actions. `adopted` are nodes whose agents may still run: each ends as `AgentUp` or
    /// `AgentLost`.
    pub fn new(config: AgentsConfig, adopted: &BTreeSet<NodeName>, now: Duration) -> (Self, Vec<Action>) {
        let node = |name: &NodeName| {
            // The copies of an earlier orchestrator may run.
            let was_up = adopted.contains(name);
            let agent = Agent::Starting;
            let (was_planned, stopped, report, reboot_at) = (was_up, false, None, None);
            let node = Node { agent, failures: 0, was_up, was_planned, stopped, report, reboot_at, reboots: 0 };
            (name.clone(), node)
        };
        let nodes = config.nodes.iter().map(node).collect();
        let starts = config.nodes.iter().filter(|name| !adopted.contains(*name));
        let actions = starts.map(|name| Action::StartAgent { node: name.clone() }).collect();
        let finished = config.finished.clone();
        let number = |node: &NodeName| number_of(&config.nodes, node);
        let split = (0..).zip(&config.pairs).filter(|(pair, place)| place.is_split() && !finished.contains(pair));
        let split = split.filter_map(|(pair, place)| {
            let nodes = [number(&place.main)?, number(&place.replica)?];
            Some((pair, SplitPair { nodes, start_within: config.start_within }))
        });
        let replica_preferred = config.replica_preferred.clone();
        let mut granter = Granter::new(config.epoch, config.lease, now, split, &replica_preferred);
        if !adopted.is_empty() {
            granter.takes_over();
        }
        (
            Machine { nodes, finished, replica_preferred, granter, granted_at: now, phase: Phase::Running, config },
            actions,
        )
    }

    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::AgentUp { node, address } => self.agent_up(node, address, &mut actions),
            Event::AgentStartFailed { node, reason } => self.start_failed(now, node, reason, &mut actions),
            Event::AgentLost { node, .. } => self.agent_lost(now, node, &mut actions),
            Event::Rebooted { node: name, .. } => {
                if let Some(node) = self.nodes.get_mut(&name)
                    && !matches!(node.agent, Agent::Up { .. })
                {
                    node.plan_reboot(now, &name, self.config.reboot.as_ref());
                }
            }
            Event::Planned { node } => self.planned(now, node, &mut actions),
            Event::Requested { pair, command, number } => {
                self.granter.command(now, pair, command);
                self.replica_preferred = self.granter.replica_preferred();
                actions.push(Action::RecordRequest { number });
            }
            Event::PlanRefused { node, reason, is_final } => {
                self.plan_refused(now, node, (reason, is_final), &mut actions);
            }
            Event::Reported { node, report, asked } => self.reported(now, &node, report, asked, &mut actions),
            Event::Confirmed { since } => self.granter.confirmed(now, since),
            Event::Replaced => {
                if !matches!(self.phase, Phase::Ended) {
                    self.phase = Phase::Ended;
                    actions.push(Action::Finish(Outcome { end: PairsEnd::Replaced, unreachable: Vec::new() }));
                }
            }
            Event::Stopped { node } => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.stopped = true;
                }
            }
            Event::Halt { reason, at_once } => {
                self.end(now, PairsEnd::Halted { reason }, &mut actions);
                if at_once {
                    self.end_at_once(now, STOPPED_WITHIN, &mut actions);
                }
            }
            Event::Signal { name } => match &self.phase {
                Phase::Running => self.end(now, PairsEnd::Signal { name }, &mut actions),
                Phase::Ending { .. } => self.end_at_once(now, STOPPED_AT_ONCE, &mut actions),
                Phase::Ended => {}
            },
        }
        self.send_urgent(now, &mut actions);
        self.finish(now, &mut actions);
        actions
    }

    /// Sends new orders to the nodes that are followed.
    fn send_urgent(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        let preferred = self.granter.replica_preferred();
        if preferred != self.replica_preferred {
            self.replica_preferred = preferred;
            actions.push(Action::RecordPreferred);
        }
        let urgent: Vec<u32> = self.granter.urgent().collect();
        let names: Vec<NodeName> = self.config.nodes.iter().cloned().collect();
        for number in urgent {
            let Some(node) = names.get(number as usize) else { continue };
            let is_followed =
                matches!(self.nodes.get(node), Some(Node { agent: Agent::Up { plan: Plan::InForce, .. }, .. }));
            if is_followed {
                let orders = self.granter.orders(now, number);
                actions.push(Action::Order { node: node.clone(), orders });
            }
        }
    }

    /// Handles deadlines that have passed.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if matches!(self.phase, Phase::Running) {
            self.granter.tick(now);
            self.granted_at = now;
        }
        self.try_again(now, &mut actions);
        self.send_urgent(now, &mut actions);
        self.finish(now, &mut actions);
        actions
    }

    /// Tries again what has failed.
    fn try_again(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let ends = match self.phase {
            Phase::Running => None,
            Phase::Ending { at_once, .. } => Some(at_once),
            Phase::Ended => return,
        };
        if ends.is_none() {
            for (name, node) in self.nodes.iter_mut().filter(|(_, node)| node.reboot_at.is_some_and(|at| at <= now)) {
                (node.reboot_at, node.reboots) = (None, node.reboots.saturating_add(1));
                actions.push(Action::Reboot { node: name.clone() });
            }
        }
        for (name, node) in self.nodes.iter_mut().filter(|(_, node)| ends.is_none() || !node.stopped) {
            match &mut node.agent {
                Agent::Lost { start_at } if *start_at <= now => {
                    node.agent = Agent::Starting;
                    actions.push(Action::StartAgent { node: name.clone() });
                }
                Agent::Up { plan, .. } if plan.is_due(now) => match (*plan, ends) {
                    (Plan::Refused { in_force: true, .. }, Some(at_once)) => {
                        *plan = Plan::InForce;
                        actions.push(Action::Stop { node: name.clone(), at_once });
                    }
                    _ => {
                        *plan = Plan::Sent;
                        actions.push(Action::SendPlan { node: name.clone() });
                    }
                },
                _ => {}
            }
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        let again = |node: &Node| match node.agent {
            Agent::Lost { start_at } => Some(start_at),
            Agent::Up { plan: Plan::Refused { again_at, .. }, .. } => Some(again_at),
            Agent::Starting | Agent::Up { .. } => None,
        };
        match &self.phase {
            Phase::Running => self
                .nodes
                .values()
                .flat_map(|node| again(node).into_iter().chain(node.reboot_at))
                // A time that has passed changes nothing without a report.
                .chain(self.granter.next_deadline().filter(|at| *at > self.granted_at))
                .min(),
            Phase::Ending { until, .. } => {
                let again = self.nodes.values().filter(|node| !node.stopped).filter_map(again);
                again.chain([*until]).min()
            }
            Phase::Ended => None,
        }
    }

    fn agent_up(&mut self, name: NodeName, address: SocketAddr, actions: &mut Vec<Action>) {
        let Some(node) = self.nodes.get_mut(&name) else { return };
        node.was_up = true;
        node.reboot_at = None;
        node.agent = Agent::Up { address, plan: Plan::Sent };
        match self.phase {
            Phase::Running => {
                actions.push(Action::SendPlan { node: name.clone() });
                actions.push(Action::AnnouncePeer { node: name });
            }
            // An agent that was being started; it adopts the copies only to end them.
            Phase::Ending { .. } => actions.push(Action::SendPlan { node: name }),
            Phase::Ended => {}
        }
    }

    fn start_failed(&mut self, now: Duration, name: NodeName, reason: String, actions: &mut Vec<Action>) {
        let Some(node) = self.nodes.get_mut(&name) else { return };
        node.failures = node.failures.saturating_add(1);
        node.agent = Agent::Lost { start_at: now + pause(node.failures) };
        // It has started nothing.
        node.stopped |= !node.was_up && matches!(self.phase, Phase::Ending { .. });
        actions.push(Action::ReportFailure { node: name.clone(), reason: reason.clone() });
        let is_hopeless = |node: &Node| !node.was_up && node.failures >= ATTEMPTS_AT_FIRST;
        if self.nodes.values().all(is_hopeless) {
            self.end(now, PairsEnd::NoAgents { node: name, reason }, actions);
        }
    }

    fn agent_lost(&mut self, now: Duration, name: NodeName, actions: &mut Vec<Action>) {
        let Some(node) = self.nodes.get_mut(&name) else { return };
        if matches!(node.agent, Agent::Lost { .. }) {
            return;
        }
        node.agent = Agent::Lost { start_at: now };
        node.plan_reboot(now, &name, self.config.reboot.as_ref());
        actions.push(Action::Unfollow { node: name.clone() });
        match self.phase {
            Phase::Running => actions.extend(self.tick(now)),
            // Its copies go on without it.
            Phase::Ending { .. } if !node.stopped => {
                node.agent = Agent::Starting;
                actions.push(Action::StartAgent { node: name });
            }
            Phase::Ending { .. } | Phase::Ended => {}
        }
    }

    fn planned(&mut self, now: Duration, name: NodeName, actions: &mut Vec<Action>) {
        let Some(node) = self.nodes.get_mut(&name) else { return };
        let Agent::Up { plan, .. } = &mut node.agent else { return };
        *plan = Plan::InForce;
        node.was_planned = true;
        (node.failures, node.reboots) = (0, 0);
        match self.phase {
            Phase::Running => {
                let orders = number_of(&self.config.nodes, &name).map(|number| self.granter.orders(now, number));
                actions.push(Action::Follow { node: name, orders: orders.unwrap_or_default() });
            }
            Phase::Ending { at_once, .. } => actions.push(Action::Stop { node: name, at_once }),
            Phase::Ended => {}
        }
    }

    fn plan_refused(
        &mut self,
        now: Duration,
        name: NodeName,
        (reason, is_final): (String, bool),
        actions: &mut Vec<Action>,
    ) {
        let Some(node) = self.nodes.get_mut(&name) else { return };
        let Agent::Up { plan, .. } = &mut node.agent else { return };
        node.failures = node.failures.saturating_add(1);
        *plan = Plan::Refused { again_at: now + pause(node.failures), in_force: *plan == Plan::InForce };
        // Copies that an earlier plan has started go on.
        if is_final && !node.was_planned {
            self.end(now, PairsEnd::PlanRefused { node: name, reason, is_final }, actions);
            return;
        }
        actions.push(Action::ReportFailure { node: name.clone(), reason: reason.clone() });
        let is_hopeless = |node: &Node| !node.was_planned && node.failures >= ATTEMPTS_AT_FIRST;
        if self.nodes.values().all(is_hopeless) {
            self.end(now, PairsEnd::PlanRefused { node: name, reason, is_final: false }, actions);
        }
    }

    fn reported(
        &mut self,
        now: Duration,
        name: &NodeName,
        report: PairsReport,
        asked: Duration,
        actions: &mut Vec<Action>,
    ) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        if let Some(number) = number_of(&self.config.nodes, name) {
            let clock = Duration::from_millis(report.clock);
            let answer = Answer { instance: report.instance, clock, asked, pairs: &report.pairs };
            self.granter.answered(now, number, answer);
            if self.granter.awaits_confirmation() {
                actions.push(Action::Confirm);
            }
            // The node waits for the next request with the renewed leases.
            let orders = self.granter.orders(now, number);
            actions.push(Action::Order { node: name.clone(), orders });
        }
        node.report = Some((report.pairs, report.jobs));
        let overview = self.overview();
        let before = self.finished.len();
        self.finished.extend(overview.pairs.iter().filter(|pair| pair.is_finished()).map(|pair| pair.pair));
        if self.finished.len() > before {
            actions.push(Action::RecordFinished);
        }
        let others: Vec<_> = overview.pairs.iter().filter(|pair| !self.finished.contains(&pair.pair)).collect();
        if others.is_empty() {
            self.end(now, PairsEnd::Finished, actions);
        } else if others.iter().all(|pair| pair.is_given_up()) {
            let pairs = others.iter().map(|pair| pair.name.clone()).collect();
            self.end(now, PairsEnd::GivenUp { pairs }, actions);
        }
    }

    fn end(&mut self, now: Duration, end: PairsEnd, actions: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        actions.push(Action::End { reason: end.to_string() });
        self.phase = Phase::Ending { end, until: now + self.config.stop_grace + STOPPED_WITHIN, at_once: false };
        for (name, node) in &mut self.nodes {
            match node.agent {
                Agent::Up { plan: Plan::InForce, .. } => {
                    actions.push(Action::Unfollow { node: name.clone() });
                    actions.push(Action::Stop { node: name.clone(), at_once: false });
                }
                // Without a plan it has started nothing; another agent of the node may have.
                Agent::Up { plan: Plan::Refused { .. }, .. } if !node.was_planned => node.stopped = true,
                Agent::Up { plan: Plan::Refused { .. }, .. } => {
                    node.agent = Agent::Starting;
                    actions.push(Action::StartAgent { node: name.clone() });
                }
                Agent::Up { plan: Plan::Sent, .. } => {}
                Agent::Lost { .. } if !node.was_up => node.stopped = true,
                // Its copies go on without an agent: another one ends them.
                Agent::Lost { .. } => {
                    node.agent = Agent::Starting;
                    actions.push(Action::StartAgent { node: name.clone() });
                }
                Agent::Starting => {}
            }
        }
    }

    /// Does not wait for the grace of copies and jobs any more.
    fn end_at_once(&mut self, now: Duration, within: Duration, actions: &mut Vec<Action>) {
        let Phase::Ending { until, at_once, .. } = &mut self.phase else { return };
        *until = (*until).min(now + within);
        if *at_once {
            return;
        }
        *at_once = true;
        for (name, node) in self.nodes.iter().filter(|(_, node)| !node.stopped) {
            if matches!(node.agent, Agent::Up { plan: Plan::InForce, .. }) {
                actions.retain(|action| !matches!(action, Action::Stop { node, .. } if node == name));
                actions.push(Action::Stop { node: name.clone(), at_once: true });
            }
        }
    }

    fn finish(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let Phase::Ending { end, until, .. } = &self.phase else { return };
        let all_stopped = self.nodes.values().all(|node| node.stopped);
        if !all_stopped && now < *until {
            return;
        }
        let left = self.nodes.iter().filter(|(_, node)| !node.stopped && node.was_up);
        let outcome = Outcome { end: end.clone(), unreachable: left.map(|(name, _)| name.clone()).collect() };
        self.phase = Phase::Ended;
        actions.push(Action::Finish(outcome));
    }

    /// The state of all pairs and jobs as last reported.
    pub fn overview(&self) -> Overview {
        let reports = self.nodes.iter().filter_map(|(name, node)| Some((name.clone(), node.report.clone()?)));
        Overview::new(&self.config.pairs, &self.finished, &reports.collect())
    }

    /// The pairs that are finished.
    pub fn finished(&self) -> &BTreeSet<u32> {
        &self.finished
    }

    /// The pairs on two nodes whose replica is to be awake.
    pub fn replica_preferred(&self) -> BTreeSet<u32> {
        self.replica_preferred.clone()
    }

    /// The agents that are up.
    pub fn agents(&self) -> BTreeMap<NodeName, SocketAddr> {
        let up = |(name, node): (&NodeName, &Node)| match node.agent {
            Agent::Up { address, .. } => Some((name.clone(), address)),
            Agent::Starting | Agent::Lost { .. } => None,
        };
        self.nodes.iter().filter_map(up).collect()
    }

    /// Whether a halt has an effect: the job is not being ended yet, or not without a grace.
    pub fn obeys_halt(&self, at_once: bool) -> bool {
        match self.phase {
            Phase::Running => true,
            Phase::Ending { at_once: before, .. } => at_once && !before,
            Phase::Ended => false,
        }
    }

    /// True while the job is being ended.
    pub fn is_ending(&self) -> bool {
        !matches!(self.phase, Phase::Running)
    }
}

/// The number of a node for the leases.
fn number_of(nodes: &BTreeSet<NodeName>, node: &NodeName) -> Option<u32> {
    nodes.iter().position(|other| other == node).and_then(|position| u32::try_from(position).ok())
}

/// The pause after so many failures.
fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7);

    fn machine(adopted: &[&str]) -> (Machine, Vec<Action>) {
        let place = PairPlace { name: "a".to_owned(), main: "n0".into(), replica: "n0".into() };
        let config = AgentsConfig {
            nodes: [NodeName::from("n0")].into(),
            pairs: vec![place],
            finished: BTreeSet::new(),
            replica_preferred: BTreeSet::new(),
            epoch: 1,
            lease: Duration::from_secs(2),
            start_within: Duration::from_secs(30),
            stop_grace: Duration::from_millis(50),
            reboot: Some(RebootRule { after: Duration::from_secs(60), attempts: 2, own_node: None }),
        };
        let adopted = adopted.iter().map(|node| NodeName::from(*node)).collect();
        Machine::new(config, &adopted, Duration::ZERO)
    }

    fn node() -> NodeName {
        "n0".into()
    }

    #[test]
    fn an_agent_that_is_lost_is_started_at_once_and_after_failures_with_pauses() {
        let (mut machine, actions) = machine(&[]);
        assert_eq!(actions, [Action::StartAgent { node: node() }]);
        let at = Duration::from_secs;
        let up = machine.handle(at(1), Event::AgentUp { node: node(), address: ADDRESS });
        assert_eq!(up, [Action::SendPlan { node: node() }, Action::AnnouncePeer { node: node() }]);
        machine.handle(at(1), Event::Planned { node: node() });
        let lost = machine.handle(at(2), Event::AgentLost { node: node(), reason: "gone".to_owned() });
        assert_eq!(lost, [Action::Unfollow { node: node() }, Action::StartAgent { node: node() }]);
        machine.handle(at(2), Event::AgentStartFailed { node: node(), reason: "busy".to_owned() });
        assert_eq!(machine.deadline(), Some(at(2) + FIRST_PAUSE));
        assert_eq!(machine.tick(at(2)), []);
        assert_eq!(machine.tick(at(2) + FIRST_PAUSE), [Action::StartAgent { node: node() }]);
    }

    #[test]
    fn a_node_without_an_agent_is_rebooted_as_often_as_permitted_for_each_loss() {
        let (mut machine, _) = machine(&[]);
        let at = Duration::from_secs;
        let reboot = Action::Reboot { node: node() };
        let mut lost_at = at(1);
        for _ in 0..2 {
            machine.handle(lost_at, Event::AgentUp { node: node(), address: ADDRESS });
            machine.handle(lost_at, Event::Planned { node: node() });
            machine.handle(lost_at, Event::AgentLost { node: node(), reason: "gone".to_owned() });
            assert!(!machine.tick(lost_at + at(59)).contains(&reboot));
            assert!(machine.tick(lost_at + at(60)).contains(&reboot));
            machine.handle(lost_at + at(70), Event::Rebooted { node: node(), failure: None });
            assert!(!machine.tick(lost_at + at(129)).contains(&reboot), "it may take a while until the agent is up");
            assert!(machine.tick(lost_at + at(130)).contains(&reboot));
            machine.handle(lost_at + at(131), Event::Rebooted { node: node(), failure: None });
            assert!(!machine.tick(lost_at + at(1000)).contains(&reboot));
            lost_at += at(2000);
        }
        // An agent that comes back in time.
        machine.handle(lost_at, Event::AgentUp { node: node(), address: ADDRESS });
        machine.handle(lost_at, Event::AgentLost { node: node(), reason: "gone".to_owned() });
        machine.handle(lost_at + at(5), Event::AgentUp { node: node(), address: ADDRESS });
        assert!(!machine.tick(lost_at + at(60)).contains(&reboot));
    }

    #[test]
    fn a_plan_that_was_never_accepted_ends_the_job_after_some_attempts() {
        for accepted_before in [false, true] {
            let (mut machine, _) = machine(&[]);
            let mut at = Duration::from_secs(1);
            machine.handle(at, Event::AgentUp { node: node(), address: ADDRESS });
            if accepted_before {
                machine.handle(at, Event::Planned { node: node() });
                machine.handle(at, Event::AgentLost { node: node(), reason: "gone".to_owned() });
                machine.handle(at, Event::AgentUp { node: node(), address: ADDRESS });
            }
            let mut last = Vec::new();
            for _ in 0..ATTEMPTS_AT_FIRST {
                last = machine
                    .handle(at, Event::PlanRefused { node: node(), reason: "CPU 7".to_owned(), is_final: false });
                at += LONGEST_PAUSE;
                machine.tick(at);
            }
            let outcomes = found!(last, Action::Finish(outcome) => outcome);
            // The copies of a node that had a plan go on: it is sent again.
            assert_eq!(outcomes.is_empty(), accepted_before, "{last:?}");
            let text = "n0 cannot run its pairs: CPU 7";
            assert!(outcomes.iter().all(|outcome| outcome.to_string() == text && outcome.exit_code() == 75));
        }
    }

    #[test]
    fn the_end_waits_for_copies_whose_agent_has_to_be_started_again() {
        let (mut machine, _) = machine(&["n0"]);
        let at = Duration::from_secs;
        machine.handle(at(1), Event::AgentLost { node: node(), reason: "gone".to_owned() });
        machine.handle(at(1), Event::AgentStartFailed { node: node(), reason: "busy".to_owned() });
        let ended = machine.handle(at(2), Event::Signal { name: "SIGTERM" });
        assert!(ended.contains(&Action::StartAgent { node: node() }), "{ended:?}");
        machine.handle(at(2), Event::AgentUp { node: node(), address: ADDRESS });
        assert_eq!(
            machine.handle(at(2), Event::Planned { node: node() }),
            [Action::Stop { node: node(), at_once: false }]
        );
        let finished = machine.handle(at(2), Event::Stopped { node: node() });
        let [Action::Finish(outcome)] = &finished[..] else { panic!("{finished:?}") };
        assert_eq!((outcome.exit_code(), outcome.unreachable.len()), (exit::NOT_FINISHED, 0));
    }

    #[test]
    fn the_end_repeats_what_has_failed() {
        let (mut machine, _) = machine(&["n0"]);
        let (at, ms) = (Duration::from_secs, Duration::from_millis);
        machine.handle(at(1), Event::AgentUp { node: node(), address: ADDRESS });
        machine.handle(at(1), Event::Planned { node: node() });
        let ended = machine.handle(at(2), Event::Signal { name: "SIGTERM" });
        assert!(ended.contains(&Action::Stop { node: node(), at_once: false }), "{ended:?}");
        // The request to end all copies.
        machine.handle(at(2), Event::PlanRefused { node: node(), reason: "no answer".to_owned(), is_final: false });
        assert_eq!(machine.deadline(), Some(at(2) + FIRST_PAUSE));
        assert_eq!(machine.tick(at(2)), []);
        assert_eq!(machine.tick(at(2) + FIRST_PAUSE), [Action::Stop { node: node(), at_once: false }]);
        // The start of an agent, and its plan.
        machine.handle(at(3), Event::AgentLost { node: node(), reason: "gone".to_owned() });
        machine.handle(at(3), Event::AgentStartFailed { node: node(), reason: "busy".to_owned() });
        assert_eq!(machine.deadline(), Some(at(3) + 2 * FIRST_PAUSE));
        assert_eq!(machine.tick(at(3) + 2 * FIRST_PAUSE), [Action::StartAgent { node: node() }]);
        machine.handle(at(4), Event::AgentUp { node: node(), address: ADDRESS });
        machine.handle(at(4), Event::PlanRefused { node: node(), reason: "busy".to_owned(), is_final: false });
        assert_eq!(machine.tick(at(4) + 4 * FIRST_PAUSE), [Action::SendPlan { node: node() }]);
        machine.handle(at(6), Event::Planned { node: node() });
        let finished = machine.handle(at(6) + ms(1), Event::Stopped { node: node() });
        assert!(matches!(&finished[..], [Action::Finish(outcome)] if outcome.unreachable.is_empty()), "{finished:?}");
    }

    #[test]
    fn a_second_signal_and_an_immediate_halt_stop_at_once() {
        let stop = |at_once| Action::Stop { node: node(), at_once };
        let running = || {
            let (mut machine, _) = machine(&[]);
            machine.handle(Duration::ZERO, Event::AgentUp { node: node(), address: ADDRESS });
            machine.handle(Duration::ZERO, Event::Planned { node: node() });
            machine
        };
        let stops = |actions: Vec<Action>| {
            actions.into_iter().filter(|action| matches!(action, Action::Stop { .. })).collect::<Vec<_>>()
        };
        let (mut machine, signal) = (running(), || Event::Signal { name: "SIGINT" });
        assert_eq!(stops(machine.handle(Duration::ZERO, signal())), [stop(false)]);
        assert_eq!(stops(machine.handle(Duration::ZERO, signal())), [stop(true)]);
        assert_eq!(stops(machine.handle(Duration::ZERO, signal())), []);
        let halt = Event::Halt { reason: "enough".to_owned(), at_once: true };
        assert_eq!(stops(running().handle(Duration::ZERO, halt.clone())), [stop(true)]);
        // Also when the job is ending with the grace.
        let mut machine = running();
        machine.handle(Duration::ZERO, signal());
        assert_eq!([false, true].map(|at_once| machine.obeys_halt(at_once)), [false, true]);
        assert_eq!(stops(machine.handle(Duration::ZERO, halt)), [stop(true)]);
        assert!(!machine.obeys_halt(true));
    }

    #[test]
    fn content_that_is_refused_ends_the_job_at_once() {
        let (mut machine, _) = machine(&[]);
        machine.handle(Duration::ZERO, Event::AgentUp { node: node(), address: ADDRESS });
        let refused = Event::PlanRefused { node: node(), reason: "CPU 7".to_owned(), is_final: true };
        let actions = machine.handle(Duration::ZERO, refused);
        let Some(Action::Finish(outcome)) = actions.last() else { panic!("{actions:?}") };
        assert_eq!((outcome.exit_code(), outcome.to_string().as_str()), (78, "n0 cannot run its pairs: CPU 7"));
    }

    #[test]
    fn an_end_without_an_answer_names_the_node() {
        let (mut machine, _) = machine(&["n0"]);
        machine.handle(Duration::ZERO, Event::Halt { reason: "enough".to_owned(), at_once: false });
        let end = machine.deadline().unwrap();
        let finished = machine.tick(end);
        let [Action::Finish(outcome)] = &finished[..] else { panic!("{finished:?}") };
        assert_eq!(outcome.unreachable, [node()]);
        assert!(outcome.to_string().contains("copies may still run on n0"), "{outcome}");
    }
}
