//! The rules for agents that come up, are lost and are restarted, and for nodes that go down.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_model::{Generation, NodeName};

use super::action::Action;
use super::machine::Machine;
use super::node_state::{Due, LostAgent, NodeStatus, Starting};
use super::snapshot::Phase;
use crate::events::LogEvent;
use crate::events::{DownReason, TimedReason};

impl Machine {
    pub(super) fn start_all_agents(&mut self, now: Duration, out: &mut Vec<Action>) {
        for position in 0..self.state.nodes.len() {
            // It went down in a former step of the job.
            if self.state.nodes[position].is_down() {
                self.fence(position as u32, out);
                continue;
            }
            self.state.nodes.change(position as u32).status = NodeStatus::Starting(Starting::first(now));
            out.push(Action::StartAgent { node: self.name(position as u32) });
            self.schedule_check(position as u32);
        }
    }

    /// Sets the timer of a node to the time when something is due there.
    pub(super) fn schedule_check(&mut self, position: u32) {
        let last_contact = self.last_contact[position as usize];
        if let Some(time) = self.state.nodes[position as usize].timer(last_contact, &self.config) {
            self.timers.set(position, time);
        }
    }

    fn set_status(&mut self, position: u32, status: NodeStatus) {
        let used = u32::from(self.is_used(position));
        let node = self.state.nodes.change(position);
        self.count.starting -= u32::from(node.is_starting());
        self.count.healthy -= u32::from(node.is_healthy());
        self.count.used -= used * u32::from(!node.is_down());
        node.status = status;
        self.count.starting += u32::from(node.is_starting());
        self.count.healthy += u32::from(node.is_healthy());
        self.count.used += used * u32::from(!node.is_down());
        if !node.is_healthy() {
            self.watchdog.forget(&self.state.names[position as usize]);
        }
        self.schedule_check(position);
    }

    fn set_address(&mut self, position: u32, address: SocketAddr) {
        if self.state.nodes[position as usize].address != Some(address) {
            let known = self.state.nodes.change(position).address.replace(address);
            self.count.reached += u32::from(known.is_none());
        }
    }

    /// Records an answer of a node's agent. False if the agent is not up.
    pub(super) fn note_contact(&mut self, now: Duration, position: u32) -> bool {
        let is_up = self.state.nodes[position as usize].is_healthy();
        if is_up {
            self.last_contact[position as usize] = now;
        }
        is_up
    }

    pub(super) fn agent_ready(
        &mut self,
        now: Duration,
        name: &NodeName,
        address: SocketAddr,
        adopted: Option<Generation>,
        out: &mut Vec<Action>,
    ) {
        let Some(position) = self.position(name) else {
            return;
        };
        let known = self.state.nodes[position as usize].address;
        match &self.state.nodes[position as usize].status {
            NodeStatus::Down { .. } => {
                // The node is not used again, but processes that may still run there have to end.
                self.set_address(position, address);
                return self.fence(position, out);
            }
            NodeStatus::Healthy if known == Some(address) => {
                self.note_contact(now, position);
                return;
            }
            _ => {}
        }
        self.last_contact[position as usize] = now;
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
        self.advance(now, out);
    }

    /// An agent is up on a node that must not get ranks.
    pub(super) fn agent_unfit(
        &mut self,
        now: Duration,
        name: &NodeName,
        address: SocketAddr,
        fault: String,
        out: &mut Vec<Action>,
    ) {
        let Some(position) = self.position(name) else {
            return;
        };
        self.set_address(position, address);
        if self.state.nodes[position as usize].is_down() {
            return self.fence(position, out);
        }
        self.last_contact[position as usize] = now;
        self.set_status(position, NodeStatus::Healthy);
        self.set_down(now, position, DownReason::Health { fault }, out);
    }

    pub(super) fn agent_start_failed(
        &mut self,
        now: Duration,
        name: &NodeName,
        reason: String,
        node_lost: bool,
        out: &mut Vec<Action>,
    ) {
        let Some(position) = self.position(name) else {
            return;
        };
        if !self.state.nodes[position as usize].is_starting() {
            return;
        }
        let NodeStatus::Starting(starting) = &mut self.state.nodes.change(position).status else {
            return;
        };
        match starting.failed(now, reason, node_lost, &self.config) {
            Some(cause) => self.set_down(now, position, cause, out),
            None => self.schedule_check(position),
        }
    }

    pub(super) fn agent_lost(&mut self, now: Duration, name: &NodeName, reason: String, out: &mut Vec<Action>) {
        if let Some(position) = self.position(name) {
            self.agent_is_lost(now, position, reason, out);
        }
    }

    /// The agent ended or is silent. The generation goes on while the agent is restarted: its ranks may be unaffected.
    fn agent_is_lost(&mut self, now: Duration, position: u32, reason: String, out: &mut Vec<Action>) {
        let node = &self.state.nodes[position as usize];
        if !node.is_healthy() {
            return;
        }
        let (last_contact, restarts) = (self.last_contact[position as usize], node.restarts);
        if restarts >= self.config.agent_restarts {
            return self.set_down(now, position, DownReason::AgentUnstable { restarts, reason }, out);
        }
        self.state.nodes.change(position).restarts += 1;
        let name = self.name(position);
        self.record(LogEvent::AgentLost { node: name.clone(), reason: reason.clone() }, out);
        self.set_status(position, NodeStatus::Starting(Starting::again(now, LostAgent { last_contact, reason })));
        if self.state.head.phase == Phase::Preparing {
            self.state.waiting.insert(position);
        }
        out.push(Action::StartAgent { node: name });
    }

    pub(super) fn poll_answered(
        &mut self,
        now: Duration,
        name: &NodeName,
        sent: Duration,
        fault: Option<String>,
        out: &mut Vec<Action>,
    ) {
        let Some(position) = self.position(name) else {
            return;
        };
        if !self.note_contact(now, position) {
            return;
        }
        if let Some(fault) = fault {
            return self.set_down(now, position, DownReason::Health { fault }, out);
        }
        if let Phase::Ending { since } = self.state.head.phase
            && sent >= since
            && self.state.unanswered.remove(position)
        {
            self.advance(now, out);
        }
        if let Phase::RunningBefore { failed: Some(since) } = self.state.head.phase
            && sent >= since
            && self.state.unanswered.contains(&position)
        {
            return self.before_has_failed(now, out);
        }
        self.resolve_unknown_end(now, position, sent, out);
    }

    pub(super) fn node_down(&mut self, now: Duration, name: &NodeName, reason: DownReason, out: &mut Vec<Action>) {
        if let Some(position) = self.position(name) {
            self.set_down(now, position, reason, out);
        }
    }

    pub(super) fn health_fault(&mut self, now: Duration, name: &NodeName, fault: String, out: &mut Vec<Action>) {
        self.node_down(now, name, DownReason::Health { fault }, out);
    }

    /// The node is down for the rest of the allocation.
    pub(super) fn set_down(&mut self, now: Duration, position: u32, reason: DownReason, out: &mut Vec<Action>) {
        if self.state.nodes[position as usize].is_down() {
            return;
        }
        let name = self.name(position);
        let seen = format!("{name} is down");
        let ranks = self.ranks_on[position as usize].clone();
        self.record(LogEvent::NodeDown { node: name.clone(), reason: reason.clone(), ranks }, out);
        self.set_status(position, NodeStatus::Down { cause: TimedReason { reason, at: now } });
        self.fence(position, out);
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
                return self.end_generation(now, seen, out);
            }
            // A spare: the generation goes on, and its leader must not wait for the node.
            Phase::Running => {
                self.pending_updates.down.insert(position);
            }
            _ => {}
        }
        self.advance(now, out);
    }

    /// Has a down node fenced.
    pub(super) fn fence(&self, position: u32, out: &mut Vec<Action>) {
        let address = self.state.nodes[position as usize].address;
        out.push(Action::FenceNode { node: self.name(position), address });
    }

    /// Handles the nodes on which something is due.
    pub(super) fn check_nodes(&mut self, now: Duration, out: &mut Vec<Action>) {
        for position in self.timers.take_passed(now) {
            let last_contact = self.last_contact[position as usize];
            // During the drain the agents are busy copying, and are not polled.
            let due = match self.state.nodes[position as usize].due(now, last_contact, &self.config) {
                Some(Due::Silent) if self.state.head.phase == Phase::Draining => None,
                due => due,
            };
            match due {
                Some(Due::Silent) => {
                    let reason = format!("no answer for {:?}", self.config.down_after);
                    self.agent_is_lost(now, position, reason, out);
                }
                Some(Due::Retry) => {
                    if let NodeStatus::Starting(starting) = &mut self.state.nodes.change(position).status {
                        starting.retry = None;
                        starting.asked = now;
                    }
                    out.push(Action::StartAgent { node: self.name(position) });
                }
                Some(Due::Down(reason)) => self.set_down(now, position, reason, out),
                None => {}
            }
            if self.state.head.phase == Phase::Finished {
                return;
            }
            let node = &self.state.nodes[position as usize];
            if !(self.state.head.phase == Phase::Draining && node.is_healthy()) {
                self.schedule_check(position);
            }
        }
    }
}
