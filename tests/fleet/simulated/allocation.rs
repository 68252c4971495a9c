//! A resource manager for simulated agents: they are up from the beginning, and an agent is lost with its node.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast::allocation::{
    AgentSettings, AgentStartError, AgentTemplate, Allocation, AllocationIdentity, AllocationRecord, RemoteShell,
};
use holdfast_model::NodeName;
use holdfast_wire::VERSION;
use holdfast_wire::run::{AgentReady, TrustMaterial};
use parking_lot::Mutex;

use super::{Failure, address, node};

const JOB: &str = "4711";
const USER: &str = "user1";

/// The process of the simulated agents, which may be this one.
pub trait Agency: Send + Sync {
    /// Serves the agents with a job's certificate; the port of all.
    fn serve(&self, trust: &TrustMaterial) -> Result<u16, Failure>;

    /// The ranks of a generation run.
    fn ranks_started(&self, generation: u64) -> Result<(), Failure>;

    /// The application has called finalize.
    fn finalize(&self) -> Result<(), Failure>;

    /// A node is lost with its agent.
    fn lose(&self, index: usize) -> Result<(), Failure>;
}

/// The nodes of the simulated agents.
pub struct Simulated {
    identity: AllocationIdentity,
    indices: HashMap<NodeName, usize>,
    agency: Box<dyn Agency>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of all agents, once the first was started.
    port: Option<u16>,
    /// Nodes whose agent was started: none is started twice.
    started: HashSet<usize>,
    /// Nodes on which a start never ends.
    hung: HashSet<usize>,
}

impl Simulated {
    pub fn new(count: usize, agency: Box<dyn Agency>) -> Arc<Self> {
        let nodes: Vec<NodeName> = (0..count).map(node).collect();
        let indices = nodes.iter().cloned().zip(0..).collect();
        let identity = AllocationIdentity { job_id: JOB.to_owned(), token: None, user: USER.to_owned(), nodes };
        Arc::new(Simulated { identity, indices, agency, state: Mutex::default() })
    }

    /// A start on this node never ends, as with a manager that does not know yet that it is lost.
    #[allow(dead_code, reason = "not used by the benchmark, which includes this module")]
    pub fn hang(&self, index: usize) {
        self.state.lock().hung.insert(index);
    }

    /// The process of the agents.
    pub fn agency(&self) -> &dyn Agency {
        &*self.agency
    }

    fn start(&self, name: &NodeName, trust: &TrustMaterial) -> Result<SocketAddr, String> {
        let index = *self.indices.get(name).ok_or("there is no such node")?;
        let mut state = self.state.lock();
        if !state.started.insert(index) {
            return Err("it was lost".to_owned());
        }
        let port = match state.port {
            Some(port) => port,
            None => *state.port.insert(self.agency.serve(trust).map_err(|error| error.to_string())?),
        };
        Ok(address(index, port))
    }
}

impl Allocation for Simulated {
    fn manager(&self) -> &'static str {
        "simulated"
    }

    fn identity(&self) -> &AllocationIdentity {
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

    fn starts_at_once(&self) -> usize {
        64
    }

    fn start_agent<'a>(
        &'a self,
        name: &'a NodeName,
        template: &'a AgentTemplate,
    ) -> Pin<Box<dyn Future<Output = Result<AgentReady, AgentStartError>> + Send + 'a>> {
        Box::pin(async move {
            let hangs = self.indices.get(name).is_some_and(|index| self.state.lock().hung.contains(index));
            if hangs {
                std::future::pending::<()>().await;
            }
            let gone = |reason| AgentStartError::NodeLost { node: name.clone(), reason };
            let address = self.start(name, &template.trust).map_err(gone)?;
            let (node, version) = (name.clone(), VERSION);
            let ready = AgentReady { version, node, address, pid: 0, adopted: None, clock_ms: None, pulse: None };
            Ok(ready)
        })
    }

    fn adopt_agent(&self, _node: &NodeName, _pid: u32) {}

    fn kill_agent(&self, _node: &NodeName) {}

    fn terminate_agents(&self, _agents: &[(NodeName, u32)], _patience: Duration) {}

    fn command_prefix(&self, _node: &NodeName) -> Vec<String> {
        Vec::new()
    }

    fn remote_shell(&self, _node: &NodeName) -> Option<RemoteShell> {
        None
    }
}

/// The start message of the agents of these nodes.
pub fn template(trust: TrustMaterial) -> AgentTemplate {
    AgentTemplate {
        settings: AgentSettings {
            job: "simulated".to_owned(),
            job_id: JOB.to_owned(),
            step: None,
            allocation: None,
            user: USER.to_owned(),
            prefixes: Vec::new(),
            control_base: "/tmp".to_owned(),
            control_bytes: None,
            cache_bases: BTreeMap::new(),
            disk_timeout: Duration::from_secs(30),
        },
        trust,
        drains_only: false,
    }
}
