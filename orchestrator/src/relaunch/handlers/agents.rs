//! The rules for agents that come up, are lost and are restarted, and for nodes that go down.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_model::Generation;

use crate::allocation::AgentPresence;
use crate::events::LogEvent;
use crate::events::{DownReason, StopReason, TimedReason};
use crate::relaunch::action::Action;
use crate::relaunch::machine::Machine;
use crate::relaunch::node_state::{Due, LostAgent, NodeStatus, Starting};
use crate::relaunch::snapshot::Phase;

/// Shorter stalls of the orchestrator are not logged.
const REPORTED_STALL: Duration = Duration::from_secs(1);

impl Machine {
    pub(super) fn start_all_agents(&mut self, out: &mut Vec<Action>) {
        let now = self.contacts.time();
        for position in 0..self.state.nodes.len() {
            // It went down in a former step of the job.
            if self.state.nodes[position].is_down() {
                self.fence(position as u32, out);
                continue;
            }
            if self.state.nodes[position].is_not_lent() {
                continue;
            }
            self.state.nodes.change(position as u32).status = NodeStatus::Starting(Starting::first(now));
            out.push(Action::StartAgent { node: self.name(position as u32) });
        }
    }

    pub(super) fn agent_ready(
        &mut self,
        position: u32,
        address: SocketAddr,
        adopted: Option<Generation>,
        out: &mut Vec<Action>,
    ) {
        let name = self.name(position);
        let known = self.state.nodes[position as usize].address;
        match &self.state.nodes[position as usize].status {
            NodeStatus::Down { .. } => {
                // The node is not used again, but processes that may still run there have to end.
                self.set_address(position, address);
                return self.fence(position, out);
            }
            NodeStatus::Healthy if known == Some(address) => {
                self.note_contact(position, out);
                return;
            }
            _ => {}
        }
        // Its loss was received together with this: another start of the agent would end it.
        out.retain(|action| !matches!(action, Action::StartAgent { node } if *node == name));
        self.contacts.forget(position);
        self.contacts.answered(position);
        self.set_status(position, NodeStatus::Healthy);
        self.set_address(position, address);
        self.record(LogEvent::AgentReady { node: name.clone(), again: known.is_some() }, out);
        let current = self.generation();
        let newer = adopted.is_some_and(|adopted| adopted > self.state.head.generation);
        self.state.head.generation = self.state.head.generation.max(adopted.unwrap_or(Generation::NONE));
        match self.state.head.phase {
            // The agent would refuse this generation: it has a newer one.
            Phase::Preparing if newer => self.set_phase(Phase::Gathering),
            Phase::Preparing => {
                if self.state.waiting.contains(&position) {
                    self.pending_updates.prepare.insert(position);
                }
                if adopted == Some(current) {
                    self.pending_updates.adopted.insert(position);
                }
                self.pending_updates.moved.insert(position);
            }
            Phase::Running => {
                if adopted == Some(current) {
                    self.pending_updates.adopted.insert(position);
                } else {
                    self.pending_updates.prepare.insert(position);
                }
                self.pending_updates.moved.insert(position);
                if self.leader == Some(position) {
                    self.repeat_request(out);
                }
            }
            Phase::RunningBefore { .. } if self.state.unanswered.contains(&position) => {
                out.push(Action::PollNow { to: vec![name.clone()] });
            }
            Phase::Ending { .. } => {
                if self.state.unkilled.contains(&position) {
                    let reason = "the generation is over".to_owned();
                    out.push(Action::KillRanks { generation: current, to: vec![name.clone()], reason });
                }
                if self.state.unanswered.contains(&position) {
                    out.push(Action::PollNow { to: vec![name.clone()] });
                }
            }
            _ => {}
        }
    }

    /// An agent is up on a node that must not get ranks.
    pub(super) fn agent_unfit(
        &mut self,
        now: Duration,
        position: u32,
        address: SocketAddr,
        fault: String,
        out: &mut Vec<Action>,
    ) {
        self.set_address(position, address);
        if self.state.nodes[position as usize].is_down() {
            return self.fence(position, out);
        }
        self.set_status(position, NodeStatus::Healthy);
        self.set_down(now, position, DownReason::Health { fault }, out);
    }

    pub(super) fn agent_start_failed(
        &mut self,
        now: Duration,
        position: u32,
        reason: String,
        node_lost: bool,
        out: &mut Vec<Action>,
    ) {
        if !self.state.nodes[position as usize].is_starting() {
            return;
        }
        let NodeStatus::Starting(starting) = &mut self.state.nodes.change(position).status else {
            return;
        };
        self.restarting.remove(&position);
        if let Some(cause) = starting.failed(self.contacts.time(), reason, node_lost, &self.config) {
            self.set_down(now, position, cause, out);
        }
    }

    /// The agent has ended, or was silent for too long. The generation goes on while the agent is restarted: its ranks
    /// may be unaffected.
    pub(super) fn agent_lost(
        &mut self,
        now: Duration,
        position: u32,
        reason: String,
        presence: &AgentPresence,
        out: &mut Vec<Action>,
    ) {
        let (ended, stopped) = (*presence == AgentPresence::Ended, *presence == AgentPresence::Stopped);
        let node = &self.state.nodes[position as usize];
        if !node.is_healthy() {
            return;
        }
        let (time, last_contact, restarts) = (self.contacts.time(), self.contacts.last(position), node.restarts);
        if restarts >= self.config.agent_restarts {
            return self.set_down(now, position, DownReason::AgentUnstable { restarts, reason }, out);
        }
        if ended
            && self.is_used(position)
            && let Some(active) = &mut self.state.active
        {
            active.facts.agent_ended = Some(now);
        }
        let due = self.state.nodes.change(position).plan_restart(time);
        self.record(LogEvent::AgentLost { node: self.name(position), reason: reason.clone() }, out);
        let lost = LostAgent { last_contact, reason, ended, stopped, restarted: None };
        self.set_status(position, NodeStatus::Starting(Starting::again(time, due, lost)));
        if self.state.head.phase == Phase::Preparing {
            self.state.waiting.insert(position);
        }
        if due <= time {
            self.start_again(position, out);
        }
    }

    pub(super) fn poll_answered(
        &mut self,
        now: Duration,
        position: u32,
        sent: Duration,
        fault: Option<String>,
        out: &mut Vec<Action>,
    ) {
        if !self.note_contact(position, out) {
            return;
        }
        self.contacts.observe(position, now, sent, &self.config);
        if let Some(fault) = fault {
            return self.set_down(now, position, DownReason::Health { fault }, out);
        }
        if let Phase::Ending { since } = self.state.head.phase
            && sent >= since
        {
            self.state.unanswered.remove(position);
        }
        if let Phase::RunningBefore { failed: Some(since) } = self.state.head.phase
            && sent >= since
            && self.state.unanswered.contains(&position)
        {
            // The node is up: the command itself failed.
            let reason = self.state.head.before_failure.take().unwrap_or_default();
            return self.stop(now, StopReason::BeforeFailed { reason }, out);
        }
        self.resolve_unknown_end(now, position, sent, out);
    }

    /// The node is down until the drain: its agent reported no fault.
    pub(super) fn health_test_failed(&mut self, now: Duration, position: u32, fault: String, out: &mut Vec<Action>) {
        if !self.state.nodes[position as usize].is_out() {
            self.set_down(now, position, DownReason::Health { fault }, out);
            self.state.nodes.change(position).failed_test = true;
        }
    }

    /// The node is down for the rest of the allocation.
    pub(super) fn set_down(&mut self, now: Duration, position: u32, reason: DownReason, out: &mut Vec<Action>) {
        if self.state.nodes[position as usize].is_out() {
            return;
        }
        let name = self.name(position);
        let seen = format!("{name} is down");
        let ranks = self.ranks_on[position as usize].clone();
        self.record(LogEvent::NodeDown { node: name.clone(), reason: reason.clone(), ranks }, out);
        self.set_status(position, NodeStatus::Down { cause: TimedReason { reason, at: now } });
        self.fence(position, out);
        self.want_nodes(out);
        let used = self.is_used(position);
        match self.state.head.phase {
            // Agents that have accepted the plan would wait for the node, whether it has ranks or not.
            Phase::Preparing => self.set_phase(Phase::Gathering),
            Phase::RunningBefore { .. } => drop(self.state.unanswered.remove(position)),
            Phase::Ending { .. } => {
                self.state.unkilled.remove(position);
                self.state.unanswered.remove(position);
                if let Some(active) = self.state.active.as_mut().filter(|_| used) {
                    active.down.insert(position);
                }
            }
            Phase::Running if used => {
                if let Some(active) = self.state.active.as_mut() {
                    active.down.insert(position);
                }
                self.end_generation(now, seen, out);
            }
            // A spare: the generation goes on, and its leader must not wait for the node.
            Phase::Running => {
                self.pending_updates.down.insert(position);
            }
            _ => {}
        }
    }

    /// Handles the nodes on which something is due, when running time has passed.
    pub(super) fn check_nodes(&mut self, now: Duration, out: &mut Vec<Action>) {
        if !std::mem::take(&mut self.unchecked) {
            return;
        }
        let time = self.contacts.time();
        self.contacts.begin_checks();
        for position in 0..self.state.nodes.len() as u32 {
            let node = &self.state.nodes[position as usize];
            match node.due(time, &self.config) {
                Some(Due::Retry) => self.start_again(position, out),
                Some(Due::Down(reason)) => self.set_down(now, position, reason, out),
                None if node.is_healthy() => self.check_silence(now, position, out),
                None => {}
            }
        }
        self.report_silence(out);
    }

    /// Starts an agent again that is due, unless too many are being restarted or other answers are late.
    fn start_again(&mut self, position: u32, out: &mut Vec<Action>) {
        let time = self.contacts.time();
        let NodeStatus::Starting(starting) = &self.state.nodes[position as usize].status else { return };
        if let Some(lost) = &starting.lost {
            let overdue = starting.retry.is_none_or(|due| due.saturating_add(self.config.replace_after) <= time);
            let late = !lost.ended && !overdue && self.contacts.answers_are_late(self.count.healthy, &self.config);
            if late || self.restarting.len() >= self.config.restarts_at_once as usize {
                return;
            }
            self.restarting.insert(position);
        }
        if let NodeStatus::Starting(starting) = &mut self.state.nodes.change(position).status {
            starting.begin(time);
        }
        out.push(Action::StartAgent { node: self.name(position) });
    }

    /// Suspects an agent that is silent, has suspected agents checked, and gives up those that are silent for too long.
    fn check_silence(&mut self, now: Duration, position: u32, out: &mut Vec<Action>) {
        if self.contacts.suspect(position, &self.config) {
            self.state.nodes.change(position).silent_since = Some(self.contacts.last(position));
        }
        if !self.contacts.check_is_due(position) {
            return;
        }
        out.push(Action::CheckAgent { node: self.name(position) });
        self.give_up_silent(now, position, out);
    }

    fn give_up_silent(&mut self, now: Duration, position: u32, out: &mut Vec<Action>) {
        if let Some(reason) = self.contacts.given_up(position, self.count.healthy, &self.config) {
            let presence = self.contacts.suspects.get(&position).and_then(|suspicion| suspicion.presence.clone());
            self.agent_lost(now, position, reason, &presence.unwrap_or(AgentPresence::Present), out);
        }
    }

    pub(super) fn agent_checked(
        &mut self,
        now: Duration,
        position: u32,
        presence: AgentPresence,
        out: &mut Vec<Action>,
    ) {
        if let Some(suspicion) = self.contacts.suspects.get_mut(&position) {
            suspicion.presence = Some(presence);
            self.give_up_silent(now, position, out);
        }
    }

    /// Logs new suspicions: one by one, or once if most agents are silent.
    fn report_silence(&mut self, out: &mut Vec<Action>) {
        let up = self.count.healthy;
        if self.contacts.most_are_silent(up) {
            if !std::mem::replace(&mut self.contacts.most_logged, true) {
                let silent = self.contacts.suspects.len() as u32;
                self.record(LogEvent::MostAgentsSilent { silent, agents: up }, out);
            }
            return;
        }
        self.contacts.most_logged = false;
        let unlogged = self.contacts.suspects.iter().filter(|(_, suspicion)| !suspicion.logged);
        let unlogged: Vec<u32> = unlogged.map(|(position, _)| *position).collect();
        for position in unlogged {
            let millis = self.contacts.silence(position).as_millis() as u64;
            self.record(LogEvent::AgentSilent { node: self.name(position), millis }, out);
            if let Some(suspicion) = self.contacts.suspects.get_mut(&position) {
                suspicion.logged = true;
            }
        }
    }

    pub(super) fn polls_ran(&mut self, now: Duration, ran: Duration, out: &mut Vec<Action>) {
        self.unchecked = true;
        if let Some(stall) = self.contacts.advance(now, ran, &self.config)
            && stall >= REPORTED_STALL
        {
            self.record(LogEvent::OrchestratorStalled { millis: stall.as_millis() as u64 }, out);
        }
    }
}
