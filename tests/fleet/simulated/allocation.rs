//! A resource manager for simulated agents: they are up from the beginning, and a lost one is gone with its node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast::allocation::{
    AgentControl, AgentStartError, AgentTemplate, AllocatedNodes, Allocation, AllocationRecord, Identity, NodeAccess,
    Pending, RemoteShell, RunningAgent,
};
use holdfast_model::NodeName;
use holdfast_wire::VERSION;
use holdfast_wire::run::{AgentReady, TrustMaterial};
use parking_lot::Mutex;

use super::{address, node};

const JOB: &str = "4711";
const USER: &str = "user1";

/// The nodes of the simulated agents behind one port.
pub struct Simulated {
    identity: Identity,
    port: u16,
    /// Nodes that had their agent: none is started twice.
    started: Mutex<BTreeSet<NodeName>>,
}

impl Simulated {
    pub fn new(count: usize, port: u16) -> Arc<Self> {
        let nodes = (0..count).map(node).collect();
        let identity = Identity { job_id: JOB.to_owned(), user: USER.to_owned(), nodes };
        Arc::new(Simulated { identity, port, started: Mutex::default() })
    }
}

impl Allocation for Simulated {}

impl AllocatedNodes for Simulated {
    fn manager(&self) -> &'static str {
        "simulated"
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn down_nodes(&self) -> Vec<(NodeName, String)> {
        Vec::new()
    }

    fn end(&self) -> Option<SystemTime> {
        None
    }

    fn own_node(&self) -> Option<NodeName> {
        None
    }

    fn record(&self) -> AllocationRecord {
        AllocationRecord::new(self.manager(), &self.identity, &())
    }
}

impl AgentControl for Simulated {
    fn starts_at_once(&self) -> usize {
        64
    }

    fn start_agent<'a>(
        &'a self,
        name: &'a NodeName,
        _template: &'a AgentTemplate,
    ) -> Pending<'a, Result<RunningAgent, AgentStartError>> {
        Box::pin(async move {
            let known = (0..self.identity.nodes.len()).find(|index| self.identity.nodes[*index] == *name);
            let Some(index) = known.filter(|_| self.started.lock().insert(name.clone())) else {
                return Err(AgentStartError::NodeGone { node: name.clone(), reason: "it was lost".to_owned() });
            };
            let ready = AgentReady {
                version: VERSION,
                node: name.clone(),
                address: address(index, self.port),
                pid: 0,
                adopted: None,
                clock_ms: None,
            };
            Ok(RunningAgent { ready, log: "/dev/null".into() })
        })
    }

    fn adopt_agent(&self, _node: &NodeName, _pid: u32) {}

    fn kill_agent(&self, _node: &NodeName) {}

    fn terminate_agents(&self, _agents: &[(NodeName, u32)], _patience: Duration) {}
}

impl NodeAccess for Simulated {
    fn command_prefix(&self, _node: &NodeName) -> Vec<String> {
        Vec::new()
    }

    fn remote_shell(&self, _node: &NodeName) -> Option<RemoteShell> {
        None
    }
}

/// What agents of such nodes would be started with.
pub fn template(trust: TrustMaterial) -> AgentTemplate {
    AgentTemplate {
        job: "simulated".to_owned(),
        job_id: JOB.to_owned(),
        user: USER.to_owned(),
        control_base: "/tmp".to_owned(),
        control_bytes: None,
        cache_bases: BTreeMap::new(),
        trust,
    }
}
