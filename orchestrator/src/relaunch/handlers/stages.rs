//! The rules from the first agent to the launch: gather agents, read halt conditions, place ranks, prepare, launch.

use std::time::Duration;

use holdfast_model::{Generation, NodeName, Rank};

use crate::events::LogEvent;
use crate::events::{DownReason, StopReason, TimedReason};
use crate::relaunch::action::Action;
use crate::relaunch::classify::ActiveGeneration;
use crate::relaunch::event::BeforeFailure;
use crate::relaunch::machine::{Machine, NotHalted, PendingUpdates};
use crate::relaunch::node_state::{NodeState, NodeStatus};
use crate::relaunch::placement::{Demand, place};
use crate::relaunch::snapshot::{HaltCheckBefore, PastGeneration, Phase};

/// Reports of the halt conditions count for so long after the ranks were to be killed.
const HALT_REPORTS_COUNT_FOR: Duration = Duration::from_secs(10);

impl Machine {
    /// The nodes that a launch needs.
    pub(super) fn needed(&self) -> u32 {
        self.config.needed()
    }

    /// Why nothing can be launched any more.
    pub(super) fn obstacle(&self, now: Duration) -> Option<StopReason> {
        if let Some(name) = &self.state.head.signal {
            return Some(StopReason::Signal { name: name.clone() });
        }
        if let Some(reason) = &self.state.head.halt {
            return Some(StopReason::Halted { reason: reason.clone() });
        }
        if self.launch_until().is_some_and(|limit| now >= limit) {
            return Some(StopReason::TimeLimit);
        }
        if self.state.head.launches == 0 {
            // Before the first launch waiting loses nothing, and shows whether some nodes are unfit or all.
            if self.count.starting > 0 {
                return None;
            }
            if self.count.healthy == 0 && self.count.reached > 0 {
                return Some(self.too_few(0));
            }
        }
        let left = self.usable();
        let own = self.config.own_node.as_ref().and_then(|node| self.position(node));
        // If no agent could be started at all, the fault is not that of this node.
        let own = own.filter(|_| self.count.reached > 0 || left > 0);
        let own = own.map(|own| (own, &self.state.nodes[own as usize]));
        // This process needs no agent on its node: an excluded one may be down.
        if let Some((own, _)) = own.filter(|(_, node)| node.is_down() && !node.is_excluded()) {
            return Some(StopReason::OwnNodeDown { node: self.name(own) });
        }
        if left >= self.needed() {
            return None;
        }
        if self.count.reached == 0 {
            // No agent is up yet: the others will show whether single nodes are at fault, or something that all need.
            if left > 0 {
                return None;
            }
            let first = self.state.nodes.iter().find_map(|node| match &node.status {
                NodeStatus::Down { cause, .. } => Some(cause.reason.to_string()),
                _ => None,
            });
            return Some(StopReason::NoAgents {
                reason: first.unwrap_or_else(|| "the allocation has no nodes".into()),
            });
        }
        Some(self.too_few(left))
    }

    /// Too few nodes are left. If no generation has begun because agents refused it (for example because only some
    /// nodes have the prefix directory), or because no node is fit, another allocation would not help.
    fn too_few(&self, healthy: u32) -> StopReason {
        let refused = self.state.names.iter().zip(&self.state.nodes).find_map(|(name, node)| match &node.status {
            NodeStatus::Down { cause: TimedReason { reason, .. }, .. }
                if healthy == 0 || matches!(reason, DownReason::Refused { .. }) =>
            {
                Some(StopReason::CannotBegin { node: name.clone(), reason: reason.to_string() })
            }
            _ => None,
        });
        let too_few = StopReason::TooFewNodes { healthy, needed: self.needed() };
        refused.filter(|_| self.state.head.launches == 0).unwrap_or(too_few)
    }

    /// Goes on to the halt conditions when no agent is being started any more.
    pub(super) fn gather(&mut self, now: Duration, out: &mut Vec<Action>) {
        if let Some(reason) = self.obstacle(now) {
            let no_nodes = matches!(reason, StopReason::TooFewNodes { .. } | StopReason::OwnNodeDown { .. });
            if no_nodes && self.count.healthy == 0 && self.state.head.launches > 0 {
                return self.check_allocation(out);
            }
            self.stop(now, reason, out);
        } else if self.count.starting == 0 {
            self.ask_halt(now, HaltCheckBefore::Launching, out);
        }
    }

    /// Asks for the halt conditions. What the agents reported when the ranks had ended counts once: later conditions
    /// are reported with polls.
    pub(super) fn ask_halt(&mut self, now: Duration, before: HaltCheckBefore, out: &mut Vec<Action>) {
        self.set_phase(Phase::AskingHalt { before });
        let NotHalted { since, nodes } = std::mem::take(&mut self.not_halted);
        let is_fresh = now.saturating_sub(since) <= HALT_REPORTS_COUNT_FOR;
        let except = nodes.into_iter().filter(|position| is_fresh && self.state.nodes[*position as usize].is_healthy());
        out.push(Action::AskHalt { except: self.names_of(except) });
    }

    pub(super) fn halt_answered(
        &mut self,
        now: Duration,
        met: Option<String>,
        silent: &[NodeName],
        out: &mut Vec<Action>,
    ) {
        let Phase::AskingHalt { before } = self.state.head.phase else {
            return;
        };
        if let Some(reason) = met {
            return self.halt_set(now, reason, false, None, out);
        }
        // Silence is no answer. An agent that is lost is found to be lost by its polls.
        let healthy =
            |node: &NodeName| self.position(node).is_some_and(|at| self.state.nodes[at as usize].is_healthy());
        if silent.iter().any(healthy) {
            return out.push(Action::AskHalt { except: Vec::new() });
        }
        match before {
            HaltCheckBefore::Settling => {
                self.set_phase(Phase::Settling { until: now.saturating_add(self.delay()) });
            }
            // Nodes may have gone down since they were counted.
            HaltCheckBefore::Launching => match self.obstacle(now) {
                Some(reason) => self.stop(now, reason, out),
                None if self.count.starting > 0 => self.state.head.phase = Phase::Gathering,
                None if self.config.before && !self.state.head.before_done => self.run_before(out),
                None => self.prepare(now, out),
            },
        }
    }

    /// True while no ranks run and the loop has not stopped.
    pub(super) fn before_launch(&self) -> bool {
        use Phase::{AskingHalt, AwaitingNodes, CheckingAllocation, Gathering, Preparing, RunningBefore, Settling};
        matches!(
            self.state.head.phase,
            Gathering
                | AskingHalt { .. }
                | AwaitingNodes
                | RunningBefore { .. }
                | CheckingAllocation
                | Settling { .. }
                | Preparing
        )
    }

    /// Runs the commands of `before:`, once in an allocation, on the nodes that are healthy.
    fn run_before(&mut self, out: &mut Vec<Action>) {
        self.set_phase(Phase::RunningBefore { failed: None });
        out.push(Action::RunBefore { on: self.names_of(self.healthy_nodes()) });
    }

    /// After a failure, the nodes on which the command failed are polled: if they are down, that is the cause, and the
    /// command is run again on other nodes. Otherwise nothing is launched.
    pub(super) fn before_ended(&mut self, now: Duration, failure: Option<BeforeFailure>, out: &mut Vec<Action>) {
        if self.state.head.phase != (Phase::RunningBefore { failed: None }) {
            return;
        }
        let Some(BeforeFailure { nodes, reason }) = failure else {
            self.state.head.before_done = true;
            self.set_phase(Phase::Gathering);
            return;
        };
        if nodes.is_empty() {
            return self.stop(now, StopReason::BeforeFailed { reason }, out);
        }
        let left = nodes.iter().filter_map(|node| self.position(node));
        let left: Vec<u32> = left.filter(|position| !self.state.nodes[*position as usize].is_out()).collect();
        self.set_phase(Phase::RunningBefore { failed: Some(now) });
        self.state.head.before_failure = Some(reason);
        let up = left.iter().copied().filter(|position| self.state.nodes[*position as usize].is_healthy());
        let to = self.names_of(up);
        self.state.unanswered.replace(left);
        if !to.is_empty() {
            out.push(Action::PollNow { to });
        }
    }

    /// While the commands of `before:` run, or after one `failed`.
    pub(super) fn check_before(&mut self, now: Duration, failed: bool, out: &mut Vec<Action>) {
        if let Some(reason) = self.obstacle(now) {
            self.stop(now, reason, out);
        } else if failed && self.state.unanswered.is_empty() {
            self.set_phase(Phase::Gathering);
        }
    }

    fn prepare(&mut self, now: Duration, out: &mut Vec<Action>) {
        let demand = Demand {
            ranks: self.config.ranks,
            ranks_per_node: self.config.ranks_per_node,
            nodes: self.config.nodes_needed,
        };
        let usable: Vec<bool> = self.state.nodes.iter().map(NodeState::is_usable).collect();
        let Some(homes) = place(&demand, &self.state.homes, &usable, &self.domains) else {
            let reason = self.too_few(self.usable());
            return self.stop(now, reason, out);
        };
        let before = self.state.homes.iter().zip(&homes).zip(0u32..);
        let moved = before.filter(|((old, new), _)| old != new).map(|(_, rank)| Rank(rank)).collect();
        self.state.homes.replace(homes);
        self.index_homes();
        self.state.head.generation = self.state.head.generation.next();
        self.state.head.unusable = None;
        let generation = self.state.head.generation;
        let used = (0u32..).zip(&self.ranks_on).filter(|(_, ranks)| !ranks.is_empty());
        let used: Vec<u32> = used.map(|(position, _)| position).collect();
        let spares = usable.iter().filter(|usable| **usable).count() as u32 - used.len() as u32;
        self.record(LogEvent::GenerationPlaced { generation, nodes: self.names_of(used), spares, moved }, out);
        self.set_phase(Phase::Preparing);
        let healthy: Vec<u32> = self.healthy_nodes().collect();
        let to = self.names_of(healthy.iter().copied());
        self.state.waiting.replace(healthy);
        // The placement has the present addresses of all.
        self.pending_updates = PendingUpdates::default();
        out.push(Action::Prepare { generation, placement: self.current_placement(), to });
    }

    pub(super) fn run_prepared(&mut self, position: u32, generation: Generation, out: &mut Vec<Action>) {
        let current = self.state.head.generation;
        if self.note_contact(position, out) && self.state.head.phase == Phase::Preparing && generation == current {
            self.state.waiting.remove(position);
        }
    }

    pub(super) fn run_refused(
        &mut self,
        now: Duration,
        position: u32,
        generation: Generation,
        reason: String,
        out: &mut Vec<Action>,
    ) {
        // The refusal of an older generation is intended.
        if generation == self.generation() && !self.is_over() {
            self.set_down(now, position, DownReason::Refused { reason }, out);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state.head.phase, Phase::Stopping | Phase::Draining | Phase::Finished)
    }

    pub(super) fn launch(&mut self, now: Duration, out: &mut Vec<Action>) {
        if let Some(reason) = self.obstacle(now) {
            return self.stop(now, reason, out);
        }
        let generation = self.state.head.generation;
        let relaunches = self.state.head.launches;
        self.state.head.launches += 1;
        self.state.active = Some(ActiveGeneration::new(generation, now, self.state.head.secured));
        self.state.history.push(PastGeneration { generation, launched: now, ..PastGeneration::default() });
        self.set_phase(Phase::Running);
        self.watchdog.begin(now);
        self.waits.begin();
        self.record(LogEvent::GenerationLaunched { generation, relaunches }, out);
        out.push(Action::Launch { generation, placement: self.current_placement() });
    }

    /// Handles limits of time that have passed.
    /// When it is reported that no rank has called the checkpoint API: once in a run of a program that never does,
    /// else once in each generation.
    pub(super) fn api_silence_at(&self) -> Option<Duration> {
        let head = &self.state.head;
        let active = self.state.active.as_ref().filter(|_| head.phase == Phase::Running)?;
        let reported = head.silence_reported_in;
        let is_reported = reported == Some(head.generation) || (reported.is_some() && !head.api_called);
        let after = self.config.silent_api_after.filter(|_| !active.facts.connected && !is_reported)?;
        Some(active.facts.launched.saturating_add(after))
    }

    fn check_api_calls(&mut self, now: Duration, out: &mut Vec<Action>) {
        if self.api_silence_at().is_some_and(|at| now >= at) {
            let (generation, called_before) = (self.generation(), self.state.head.api_called);
            self.state.head.silence_reported_in = Some(generation);
            self.record(LogEvent::ApiNotCalled { generation, called_before }, out);
        }
    }

    pub(super) fn check_clock(&mut self, now: Duration, out: &mut Vec<Action>) {
        let over = |limit: Option<Duration>| limit.is_some_and(|limit| now >= limit);
        if self.before_launch() && over(self.launch_until()) {
            self.stop(now, StopReason::TimeLimit, out);
        } else if self.state.head.phase == Phase::Running {
            self.check_halt(now, out);
            self.check_api_calls(now, out);
            self.check_waits(now, out);
        } else if let Phase::Settling { until } = self.state.head.phase
            && now >= until
        {
            self.set_phase(Phase::Gathering);
        }
    }
}
