//! Agents come, are polled, and are lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{Generation, NodeName};
use holdfast_wire::agent::{Health, KillRequest, PollRequest, StopRequest};

use super::Driver;
use super::inputs::TaskResult;
use super::state::AgentRecord;
use crate::events::LogEvent;
use crate::fleet::clock::unix_millis;
use crate::fleet::{PollTarget, Poller, fan_out};
use crate::relaunch::Event;

/// An agent of an earlier orchestrator answers within this, or is started anew.
const ADOPT_WITHIN: Duration = Duration::from_secs(2);
/// How a new agent's node is, it says within this: it looks at its directories first, which takes a few seconds if their file
/// systems hang.
const ABOUT_ITSELF_WITHIN: Duration = Duration::from_secs(5);
/// A question about the node's health; the events stay for the poller.
const ABOUT_ITSELF: PollRequest = PollRequest { after: u64::MAX, wait_ms: 0, allocation_end: None };
/// Clocks may be so far apart; an agent's first line may be that old when it comes.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);
/// How often it is tried to reach what may still run on a node that is down.
const FENCE_EVERY: Duration = Duration::from_secs(2);
/// How long each attempt may take.
const FENCE_WITHIN: Duration = Duration::from_secs(3);

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
    Up {
        /// Where it listens.
        address: SocketAddr,
        /// Its process.
        pid: u32,
        /// The generation that it went on with.
        adopted: Option<Generation>,
        /// What it said of its node; `None` if it could not be asked yet.
        health: Option<Box<Health>>,
    },
    /// It is not.
    Failed { reason: String, node_gone: bool },
}

/// What an earlier orchestrator's agent said when it was asked.
#[derive(Debug)]
pub(super) enum Adopted {
    /// It lives.
    Up(Started),
    /// It does not answer, or it is another node's.
    Lost(String),
}

/// Milliseconds by which a node's clock is ahead of ours, if that is too much. Halt times, the end of the allocation and
/// the names of checkpoints are by the clock of the node that looks at it.
fn clock_skew(theirs_ms: u64, ours_ms: u64) -> Option<i64> {
    let ahead = i64::try_from(i128::from(theirs_ms) - i128::from(ours_ms)).unwrap_or(i64::MAX);
    (Duration::from_millis(ahead.unsigned_abs()) > CLOCK_TOLERANCE).then_some(ahead)
}

impl Driver {
    /// Starts an agent, or takes over the one that an earlier orchestrator started.
    pub(super) fn start_agent(&mut self, node: NodeName) {
        self.forget_agent(&node);
        if let Some(Adopted::Up(started)) = self.adopted.remove(&node) {
            let _ = self.results.send(TaskResult::Started { node, started });
            return;
        }
        let (allocation, client) = (Arc::clone(&self.context.allocation), self.context.client.clone());
        let template = self.context.template.clone();
        let (permits, results) = (Arc::clone(&self.start_permits), self.results.clone());
        let entries = self.entries.clone();
        while self.starting.try_join_next().is_some() {}
        self.starting.spawn(async move {
            // Never closed; without a permit the agent is started all the same.
            let _permit = permits.acquire_owned().await.ok();
            let started = match allocation.start_agent(&node, &template).await {
                Ok(agent) => {
                    let ready = agent.ready;
                    if let Some(ahead_ms) = ready.clock_ms.and_then(|theirs| clock_skew(theirs, unix_millis())) {
                        let _ = entries.send(LogEvent::ClockSkew { node: node.clone(), ahead_ms });
                    }
                    // A node that fails its health test must not be given ranks first.
                    let reply = client.poll(ready.address, &ABOUT_ITSELF, ABOUT_ITSELF_WITHIN).await;
                    let health = reply.ok().map(|reply| Box::new(reply.health));
                    Started::Up { address: ready.address, pid: ready.pid, adopted: ready.adopted, health }
                }
                Err(error) => Started::Failed { node_gone: error.is_node_gone(), reason: error.to_string() },
            };
            let _ = results.send(TaskResult::Started { node, started });
        });
    }

    /// After a take-over: asks the agents of the earlier orchestrator, all at once, before the machine wants anything of
    /// them: what is asked of an agent that is not known here would be lost.
    pub(super) async fn adopt_agents(&mut self) {
        let known: Vec<_> = self.context.state.running.iter().map(|(node, record)| (node.clone(), *record)).collect();
        let client = self.context.client.clone();
        let answers = fan_out(known, move |(node, record)| {
            let client = client.clone();
            async move {
                let AgentRecord { address, pid, .. } = record;
                let answer = match client.poll(address, &ABOUT_ITSELF, ADOPT_WITHIN).await {
                    Ok(reply) if reply.health.node == node => {
                        let adopted = Some(reply.health.generation).filter(|it| *it > Generation::NONE);
                        let health = Some(Box::new(reply.health));
                        Adopted::Up(Started::Up { address, pid, adopted, health })
                    }
                    Ok(reply) => Adopted::Lost(format!("{address} is the agent of {} now", reply.health.node)),
                    Err(error) => Adopted::Lost(error.seen()),
                };
                (node, address, pid, answer)
            }
        });
        for (node, address, pid, answer) in answers.await {
            if matches!(answer, Adopted::Up(_)) {
                self.start_polling(&node, address, pid);
            }
            self.adopted.insert(node, answer);
        }
    }

    /// Tells the machine of the agents that were taken over, but for those that it wanted started anyway.
    pub(super) async fn report_adopted(&mut self) {
        for (node, answer) in std::mem::take(&mut self.adopted) {
            match answer {
                Adopted::Up(Started::Up { address, adopted, health, .. }) => {
                    self.agent_is_up(node, address, adopted, health).await;
                }
                Adopted::Up(Started::Failed { reason, .. }) | Adopted::Lost(reason) => {
                    self.feed(Event::AgentLost { node, reason }).await;
                }
            }
        }
    }

    /// The end of [`Driver::start_agent`].
    pub(super) async fn agent_started(&mut self, node: NodeName, started: Started) {
        match started {
            Started::Up { address, pid, adopted, health } => {
                self.start_polling(&node, address, pid);
                self.agent_is_up(node, address, adopted, health).await;
            }
            Started::Failed { reason, node_gone } => {
                self.feed(Event::AgentStartFailed { node, reason, node_gone }).await;
            }
        }
    }

    /// Polls an agent from now on.
    fn start_polling(&mut self, node: &NodeName, address: SocketAddr, pid: u32) {
        self.starts += 1;
        // An agent that was taken over goes on where the other orchestrator stopped listening.
        let known = self.context.state.running.get(node).filter(|record| record.pid == pid).copied();
        let target = PollTarget {
            node: node.clone(),
            start: self.starts,
            address,
            interval: self.context.spec.health.poll,
            patience: self.context.spec.health.down_after,
            seen: known.map(|record| record.seen),
            end: self.end.subscribe(),
        };
        let poller = Poller::spawn(self.context.client.clone(), target, self.context.clock, self.polls.clone());
        self.agents.insert(node.clone(), AgentHandle { address, start: self.starts, poller });
        self.roster.arrived(node, address);
        let seen = known.map_or((0, 0), |record| record.seen);
        self.context.state.running.insert(node.clone(), AgentRecord { address, pid, seen });
    }

    async fn agent_is_up(
        &mut self,
        node: NodeName,
        address: SocketAddr,
        adopted: Option<Generation>,
        health: Option<Box<Health>>,
    ) {
        let event = match health.and_then(|health| self.fault_of(&health)) {
            Some(fault) => Event::AgentUnfit { node, address, fault },
            None => Event::AgentReady { node, address, adopted },
        };
        self.feed(event).await;
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
            self.context.screen.progress(node, &[]);
        }
    }

    /// A node that is down may come back (it was frozen, or cut off) with ranks of an old generation and an agent that
    /// knows nothing: both are ended as soon as they can be reached.
    pub(super) fn fence_node(&mut self, node: &NodeName, address: Option<SocketAddr>) {
        self.roster.down(node);
        self.agents.remove(node);
        self.adopted.remove(node);
        self.context.state.running.remove(node);
        self.context.screen.progress(node, &[]);
        // Its agent may live, but nothing that it reports counts any more: its ranks are to die now.
        let (allocation, name) = (Arc::clone(&self.context.allocation), node.clone());
        tokio::task::spawn_blocking(move || allocation.kill_agent(&name));
        let Some(address) = address else { return };
        let (client, node) = (self.context.client.clone(), node.clone());
        self.fences.spawn(async move {
            let request = KillRequest { generation: Generation(u64::MAX), reason: "the node is down".to_owned() };
            let question = PollRequest { after: u64::MAX, wait_ms: 0, allocation_end: None };
            loop {
                // On a machine of virtual nodes another node's agent may have got the address.
                if let Ok(reply) = client.poll(address, &question, FENCE_WITHIN).await {
                    if reply.health.node != node {
                        return;
                    }
                    let stop = StopRequest { remove: false };
                    if client.kill(address, &request).await.is_ok() && client.stop(address, &stop).await.is_ok() {
                        tracing::warn!(%node, "a node that is down is there again; its ranks and its agent were ended");
                        return;
                    }
                }
                tokio::time::sleep(FENCE_EVERY).await;
            }
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_has_a_direction_and_latency_is_no_skew() {
        assert_eq!(clock_skew(100_000, 100_900), None);
        assert_eq!(clock_skew(100_000, 137_000), Some(-37_000));
        assert_eq!(clock_skew(137_000, 100_000), Some(37_000));
    }
}
