//! Agents come, are polled, and are lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::ids::{Generation, NodeName};
use holdfast_wire::agent::PollRequest;

use super::Driver;
use super::news::Effect;
use super::state::AgentRecord;
use crate::fleet::{PollTarget, Poller};
use crate::relaunch::Event;

/// An agent of an earlier orchestrator answers within this, or is started anew.
const ADOPT_WITHIN: Duration = Duration::from_secs(2);

/// An agent that is there.
#[derive(Debug)]
pub(super) struct AgentHandle {
    pub(super) address: SocketAddr,
    /// Counts starts, so that news of an agent before the last start is told apart.
    pub(super) start: u64,
    pub(super) poller: Poller,
}

/// How a start ended.
#[derive(Debug)]
pub(super) enum Started {
    /// It is there.
    Up { address: SocketAddr, pid: u32, adopted: Option<Generation> },
    /// It is not.
    Failed { reason: String, node_gone: bool },
}

impl Driver {
    /// Starts an agent, or takes over the one that an earlier orchestrator started.
    pub(super) fn start_agent(&mut self, node: NodeName) {
        self.forget_agent(&node);
        let known = self.adoptable.remove(&node).then(|| self.parts.state.running.get(&node).copied()).flatten();
        let (allocation, client) = (Arc::clone(&self.parts.allocation), self.parts.client.clone());
        let template = self.parts.template.clone();
        let (permits, effects) = (Arc::clone(&self.start_permits), self.effects.clone());
        tokio::spawn(async move {
            // Never closed; without a permit the agent is started all the same.
            let _permit = permits.acquire_owned().await.ok();
            if let Some(AgentRecord { address, pid, .. }) = known {
                let question = PollRequest { after: 0, wait_ms: 0 };
                if let Ok(reply) = client.poll(address, &question, ADOPT_WITHIN).await
                    && reply.health.node == node
                {
                    let adopted = Some(reply.health.generation).filter(|it| *it > Generation::NONE);
                    let _ = effects.send(Effect::Started { node, started: Started::Up { address, pid, adopted } });
                    return;
                }
            }
            let started = match allocation.start_agent(&node, &template).await {
                Ok(agent) => {
                    let ready = agent.ready;
                    Started::Up { address: ready.address, pid: ready.pid, adopted: ready.adopted }
                }
                Err(error) => Started::Failed { node_gone: error.is_node_gone(), reason: error.to_string() },
            };
            let _ = effects.send(Effect::Started { node, started });
        });
    }

    /// After a take-over: asks the agents of the earlier orchestrator, all at once. Those that the machine wants started
    /// anyway are asked then.
    pub(super) fn adopt_agents(&mut self) {
        for node in std::mem::take(&mut self.adoptable) {
            let Some(AgentRecord { address, pid, .. }) = self.parts.state.running.get(&node).copied() else { continue };
            let (client, effects) = (self.parts.client.clone(), self.effects.clone());
            tokio::spawn(async move {
                let question = PollRequest { after: 0, wait_ms: 0 };
                let effect = match client.poll(address, &question, ADOPT_WITHIN).await {
                    Ok(reply) if reply.health.node == node => {
                        let adopted = Some(reply.health.generation).filter(|it| *it > Generation::NONE);
                        Effect::Started { node, started: Started::Up { address, pid, adopted } }
                    }
                    Ok(reply) => {
                        let reason = format!("{address} is the agent of {} now", reply.health.node);
                        Effect::Event(Event::AgentLost { node, reason })
                    }
                    Err(error) => Effect::Event(Event::AgentLost { node, reason: error.seen() }),
                };
                let _ = effects.send(effect);
            });
        }
    }

    /// The end of [`Driver::start_agent`].
    pub(super) async fn agent_started(&mut self, node: NodeName, started: Started) {
        match started {
            Started::Up { address, pid, adopted } => {
                self.starts += 1;
                // An agent that was taken over goes on where the other orchestrator stopped listening.
                let known = self.parts.state.running.get(&node).filter(|record| record.pid == pid).copied();
                let target = PollTarget {
                    node: node.clone(),
                    start: self.starts,
                    address,
                    interval: self.parts.spec.health.poll,
                    patience: self.parts.spec.health.down_after,
                    seen: known.map(|record| record.seen),
                };
                let poller = Poller::spawn(self.parts.client.clone(), target, self.parts.clock, self.polls.clone());
                self.agents.insert(node.clone(), AgentHandle { address, start: self.starts, poller });
                self.roster.arrived(&node, address);
                let seen = known.map_or((0, 0), |record| record.seen);
                self.parts.state.running.insert(node.clone(), AgentRecord { address, pid, seen });
                self.feed(Event::AgentReady { node, address, adopted }).await;
            }
            Started::Failed { reason, node_gone } => {
                self.feed(Event::AgentStartFailed { node, reason, node_gone }).await;
            }
        }
    }

    /// Something shows that an agent is lost; ignored if it was started again since.
    pub(super) async fn agent_lost(&mut self, node: NodeName, start: u64, reason: String) {
        if self.agents.get(&node).is_some_and(|agent| agent.start == start) {
            self.forget_agent(&node);
            self.feed(Event::AgentLost { node, reason }).await;
        }
    }

    fn forget_agent(&mut self, node: &NodeName) {
        if self.agents.remove(node).is_some() {
            self.roster.lost(node);
            self.parts.screen.progress(node, &[]);
        }
    }

    /// These agents, as far as they are there: name, start, address.
    pub(super) fn reachable<'a>(
        &'a self,
        nodes: impl IntoIterator<Item = &'a NodeName>,
    ) -> Vec<(NodeName, u64, SocketAddr)> {
        let reach = |node: &NodeName| self.agents.get(node).map(|agent| (node.clone(), agent.start, agent.address));
        nodes.into_iter().filter_map(reach).collect()
    }
}
