//! Are the nodes up: agents that come, are lost, are restarted; nodes that go down.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use holdfast_model::{Generation, NodeName, Rank};

use super::action::Action;
use super::machine::Machine;
use super::nodes::{Due, Lost, Starting, Status};
use super::snapshot::Phase;
use crate::events::LogEvent;
use crate::events::{DownReason, Verdict};

impl Machine {
    pub(super) fn start_all_agents(&mut self, now: Duration, out: &mut Vec<Action>) {
        for position in 0..self.state.nodes.len() {
            // In a former step of the job.
            if self.state.nodes[position].is_down() {
                self.fence(position as u32, out);
                continue;
            }
            self.state.nodes[position].status = Status::Starting(Starting::first(now));
            out.push(Action::StartAgent { node: self.name(position as u32) });
            self.look_in_time(position as u32);
        }
    }

    /// Makes sure that the node is looked at when something is due there.
    fn look_in_time(&mut self, position: u32) {
        if let Some(timer) = self.state.nodes[position as usize].timer(&self.config) {
            let next = self.state.next_check.map_or(timer, |next| next.min(timer));
            self.state.next_check = Some(next);
        }
    }

    fn set_status(&mut self, position: u32, status: Status) {
        let node = &mut self.state.nodes[position as usize];
        self.starting -= u32::from(node.is_starting());
        self.healthy -= u32::from(node.is_healthy());
        node.status = status;
        if !node.is_healthy() {
            self.watch.forget(&self.state.names[position as usize]);
        }
        let node = &self.state.nodes[position as usize];
        self.starting += u32::from(node.is_starting());
        self.healthy += u32::from(node.is_healthy());
        self.look_in_time(position);
    }

    /// The node was heard of. False if it is not up.
    pub(super) fn heard(&mut self, now: Duration, position: u32) -> bool {
        match &mut self.state.nodes[position as usize].status {
            Status::Healthy { heard } => {
                *heard = now;
                true
            }
            _ => false,
        }
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
            Status::Down { .. } => {
                // It is not used again, but what may still run there has to end.
                self.state.nodes[position as usize].address = Some(address);
                return self.fence(position, out);
            }
            Status::Healthy { .. } if known == Some(address) => {
                self.heard(now, position);
                return;
            }
            _ => {}
        }
        self.set_status(position, Status::Healthy { heard: now });
        self.state.nodes[position as usize].address = Some(address);
        self.record(LogEvent::AgentReady { node: name.clone(), again: known.is_some() }, out);
        let current = self.generation();
        let newer = adopted.is_some_and(|adopted| adopted > self.state.generation);
        self.state.generation = self.state.generation.max(adopted.unwrap_or(Generation::NONE));
        match &self.state.phase {
            // Its ranks would be refused there: the number is taken.
            Phase::Preparing { .. } if newer => self.state.phase = Phase::Gathering,
            Phase::Preparing { waiting } => {
                if waiting.contains(&position) {
                    let placement = self.placed();
                    out.push(Action::Prepare { generation: current, placement, to: vec![name.clone()] });
                }
                self.update_peers(position, current, adopted, out);
            }
            Phase::Running => {
                if adopted != Some(current) {
                    let placement = self.placed();
                    out.push(Action::Prepare { generation: current, placement, to: vec![name.clone()] });
                }
                self.update_peers(position, current, adopted, out);
            }
            Phase::Ending { unkilled, unheard, .. } => {
                if unkilled.contains(&position) {
                    let reason = "the generation is over".to_owned();
                    out.push(Action::KillRanks { generation: current, to: vec![name.clone()], reason });
                }
                if unheard.contains(&position) {
                    out.push(Action::PollNow { to: vec![name.clone()] });
                }
            }
            _ => {}
        }
        self.advance(now, out);
    }

    /// An agent is up, on a node that must not get ranks.
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
        self.state.nodes[position as usize].address = Some(address);
        if self.state.nodes[position as usize].is_down() {
            return self.fence(position, out);
        }
        self.set_status(position, Status::Healthy { heard: now });
        self.set_down(now, position, DownReason::Health { fault }, out);
    }

    /// Sends the new address of a restarted agent to those that need it: the leader's, which passes it on with its orders, or,
    /// if it is the leader's own, all others. An agent that went on from what is on its disk gets what has changed since.
    fn update_peers(&self, position: u32, generation: Generation, adopted: Option<Generation>, out: &mut Vec<Action>) {
        let node = &self.state.nodes[position as usize];
        let (Some(leader), Some(address)) = (self.leader(), node.address) else {
            return;
        };
        let update = |addresses, down, to: Vec<u32>| Action::UpdatePeers {
            generation,
            addresses,
            down: self.names_of(down),
            to: self.names_of(to),
        };
        let changed = BTreeMap::from([(self.name(position), address)]);
        let mut others = self.healthy_nodes().filter(|other| *other != position);
        let leads = position == leader;
        let to: Vec<u32> =
            if leads { others.collect() } else { others.find(|other| *other == leader).into_iter().collect() };
        if !to.is_empty() {
            out.push(update(changed, Vec::new(), to));
        }
        if adopted != Some(generation) {
            return;
        }
        if leads {
            let addresses = self.agents().map(|(name, address)| (name.clone(), address)).collect();
            let down = (0u32..).zip(&self.state.nodes).filter(|(_, node)| node.is_down()).map(|(at, _)| at);
            out.push(update(addresses, down.collect(), vec![position]));
        } else if let Some(address) = self.state.nodes[leader as usize].address {
            out.push(update(BTreeMap::from([(self.name(leader), address)]), Vec::new(), vec![position]));
        }
    }

    pub(super) fn agent_start_failed(
        &mut self,
        now: Duration,
        name: &NodeName,
        reason: String,
        node_gone: bool,
        out: &mut Vec<Action>,
    ) {
        let Some(position) = self.position(name) else {
            return;
        };
        let Status::Starting(starting) = &mut self.state.nodes[position as usize].status else {
            return;
        };
        match starting.failed(now, reason, node_gone, &self.config) {
            Some(verdict) => self.set_down(now, position, verdict, out),
            None => self.look_in_time(position),
        }
    }

    pub(super) fn agent_lost(&mut self, now: Duration, name: &NodeName, reason: String, out: &mut Vec<Action>) {
        if let Some(position) = self.position(name) {
            self.lose(now, position, reason, out);
        }
    }

    /// The agent is gone or silent. The run goes on while it is restarted: its ranks may be well.
    fn lose(&mut self, now: Duration, position: u32, reason: String, out: &mut Vec<Action>) {
        let node = &mut self.state.nodes[position as usize];
        let Status::Healthy { heard } = node.status else {
            return;
        };
        if node.restarts >= self.config.agent_restarts {
            let restarts = node.restarts;
            return self.set_down(now, position, DownReason::AgentUnstable { restarts, reason }, out);
        }
        node.restarts += 1;
        let name = self.name(position);
        self.record(LogEvent::AgentLost { node: name.clone(), reason: reason.clone() }, out);
        self.set_status(position, Status::Starting(Starting::again(now, Lost { heard, reason })));
        if let Phase::Preparing { waiting } = &mut self.state.phase {
            waiting.insert(position);
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
        if !self.heard(now, position) {
            return;
        }
        if let Some(fault) = fault {
            return self.set_down(now, position, DownReason::Health { fault }, out);
        }
        if let Phase::Ending { since, unheard, .. } = &mut self.state.phase
            && sent >= *since
            && unheard.remove(&position)
        {
            self.advance(now, out);
        }
        self.settle_doubt(now, position, sent, out);
    }

    pub(super) fn node_down(&mut self, now: Duration, name: &NodeName, reason: DownReason, out: &mut Vec<Action>) {
        if let Some(position) = self.position(name) {
            self.set_down(now, position, reason, out);
        }
    }

    pub(super) fn health_fault(&mut self, now: Duration, name: &NodeName, fault: String, out: &mut Vec<Action>) {
        self.node_down(now, name, DownReason::Health { fault }, out);
    }

    /// The verdict, for the rest of the allocation.
    pub(super) fn set_down(&mut self, now: Duration, position: u32, reason: DownReason, out: &mut Vec<Action>) {
        if self.state.nodes[position as usize].is_down() {
            return;
        }
        let name = self.name(position);
        let seen = format!("{name} is down: {reason}");
        let homes = (0u32..).zip(&self.state.homes);
        let ranks = homes.filter(|(_, home)| **home == position).map(|(rank, _)| Rank(rank)).collect();
        self.record(LogEvent::NodeDown { node: name.clone(), reason: reason.clone(), ranks }, out);
        self.set_status(position, Status::Down { verdict: Verdict { reason, at: now } });
        self.fence(position, out);
        let used = self.used[position as usize];
        match &mut self.state.phase {
            // Agents that have taken the plan on would wait for the node, whether it has ranks or not.
            Phase::Preparing { .. } => self.state.phase = Phase::Gathering,
            Phase::Ending { unkilled, unheard, .. } => {
                unkilled.remove(&position);
                unheard.remove(&position);
                if let Some(run) = self.state.run.as_mut().filter(|_| used) {
                    run.down.insert(name);
                }
            }
            Phase::Running if used => {
                if let Some(run) = self.state.run.as_mut() {
                    run.down.insert(name);
                }
                return self.end_run(now, seen, out);
            }
            // A spare: the run goes on, and its leader must not wait for it.
            Phase::Running => {
                let leader = self.leader();
                let to = self.names_of(self.healthy_nodes().filter(|node| Some(*node) == leader));
                if !to.is_empty() {
                    let generation = self.state.generation;
                    out.push(Action::UpdatePeers { generation, addresses: BTreeMap::new(), down: vec![name], to });
                }
            }
            _ => {}
        }
        self.advance(now, out);
    }

    /// What a down node costs, whatever the phase.
    pub(super) fn fence(&self, position: u32, out: &mut Vec<Action>) {
        let address = self.state.nodes[position as usize].address;
        out.push(Action::FenceNode { node: self.name(position), address });
    }

    /// Looks at all nodes if something may be due.
    pub(super) fn check_nodes(&mut self, now: Duration, out: &mut Vec<Action>) {
        if self.state.next_check.is_none_or(|next| now < next) {
            return;
        }
        self.state.next_check = None;
        for position in 0..self.state.nodes.len() as u32 {
            // During the drain the agents are busy, and nobody polls them.
            let due = match self.state.nodes[position as usize].due(now, &self.config) {
                Some(Due::Silent) if self.state.phase == Phase::Draining => None,
                due => due,
            };
            match due {
                Some(Due::Silent) => {
                    let reason = format!("no answer for {:?}", self.config.down_after);
                    self.lose(now, position, reason, out);
                }
                Some(Due::Retry) => {
                    if let Status::Starting(starting) = &mut self.state.nodes[position as usize].status {
                        starting.retry = None;
                        starting.asked = now;
                    }
                    out.push(Action::StartAgent { node: self.name(position) });
                }
                Some(Due::Down(reason)) => self.set_down(now, position, reason, out),
                None => {}
            }
            if self.state.phase == Phase::Finished {
                return;
            }
            let node = &self.state.nodes[position as usize];
            if !(self.state.phase == Phase::Draining && node.is_healthy()) {
                self.look_in_time(position);
            }
        }
    }
}
