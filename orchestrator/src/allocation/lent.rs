//! The part of an allocation that a job has lent to one of its steps, for a drain of that step: the other nodes may
//! hold the files of other steps.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use holdfast_model::NodeName;
use holdfast_wire::run::AgentReady;

use super::agents::start_error::AgentStartError;
use super::agents::template::AgentTemplate;
use super::error::AllocationError;
use super::nodes::{AgentPresence, Allocation, RemoteShell};
use super::record::{AllocationIdentity, AllocationRecord};

/// The nodes of a step. What belongs to the whole allocation is not released: other steps may still use it.
pub struct LentNodes {
    allocation: Arc<dyn Allocation>,
    identity: AllocationIdentity,
}

impl LentNodes {
    pub fn new(allocation: Arc<dyn Allocation>, nodes: Vec<NodeName>) -> Self {
        let identity = AllocationIdentity { nodes, ..allocation.identity().clone() };
        LentNodes { allocation, identity }
    }
}

impl Allocation for LentNodes {
    fn manager(&self) -> &'static str {
        self.allocation.manager()
    }

    fn identity(&self) -> &AllocationIdentity {
        &self.identity
    }

    fn allocation_id(&self) -> String {
        self.allocation.allocation_id()
    }

    fn down_nodes(&self) -> Vec<(NodeName, String)> {
        self.allocation.down_nodes()
    }

    fn end(&self) -> Option<SystemTime> {
        self.allocation.end()
    }

    fn denial(&self) -> Option<String> {
        self.allocation.denial()
    }

    fn ask_denial(&self) -> BoxFuture<'_, Option<String>> {
        self.allocation.ask_denial()
    }

    fn switches(&self) -> BoxFuture<'_, Result<BTreeMap<NodeName, String>, AllocationError>> {
        self.allocation.switches()
    }

    fn own_node(&self) -> Option<NodeName> {
        self.allocation.own_node()
    }

    fn record(&self) -> AllocationRecord {
        self.allocation.record()
    }

    fn starts_at_once(&self) -> usize {
        self.allocation.starts_at_once()
    }

    fn restart_within(&self) -> Duration {
        self.allocation.restart_within()
    }

    fn start_agent<'a>(
        &'a self,
        node: &'a NodeName,
        template: &'a AgentTemplate,
    ) -> BoxFuture<'a, Result<AgentReady, AgentStartError>> {
        self.allocation.start_agent(node, template)
    }

    fn adopt_agent(&self, node: &NodeName, pid: u32) {
        self.allocation.adopt_agent(node, pid);
    }

    fn check_agent<'a>(&'a self, node: &'a NodeName, address: SocketAddr) -> BoxFuture<'a, AgentPresence> {
        self.allocation.check_agent(node, address)
    }

    fn kill_agent(&self, node: &NodeName) {
        self.allocation.kill_agent(node);
    }

    fn terminate_agents(&self, agents: &[(NodeName, u32)], patience: Duration) {
        self.allocation.end_agents(&self.identity.nodes, agents, patience);
    }

    fn end_agents(&self, nodes: &[NodeName], agents: &[(NodeName, u32)], patience: Duration) {
        self.allocation.end_agents(nodes, agents, patience);
    }

    fn command_prefix(&self, node: &NodeName) -> Vec<String> {
        self.allocation.command_prefix(node)
    }

    fn remote_shell(&self, node: &NodeName) -> Option<RemoteShell> {
        self.allocation.remote_shell(node)
    }

    fn rank_variables(&self, node: &NodeName) -> Option<BTreeMap<String, String>> {
        self.allocation.rank_variables(node)
    }

    fn lose_node(&self, node: &NodeName) {
        self.allocation.lose_node(node);
    }

    fn agent_is_killed(&self, node: &NodeName) {
        self.allocation.agent_is_killed(node);
    }

    fn injected_faults(&self) -> BTreeSet<usize> {
        self.allocation.injected_faults()
    }
}
