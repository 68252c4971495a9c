//! Resource managers: the nodes of a job, the end of the allocation, and the start of agents.
//!
//! A resource manager is one folder and one line in the [`registry`], behind small traits:
//!
//! * [`AllocatedNodes`]: the identity of the allocation, its nodes and its end;
//! * [`AgentControl`]: starting, adopting, killing and terminating agents;
//! * [`NodeAccess`]: how commands and launchers reach a node;
//! * [`FaultInjection`]: faults of the spec; virtual nodes only;
//! * [`Allocation`]: all of these.
//!
//! | folder, file | subject |
//! |---|---|
//! | [`local`] | virtual nodes on this machine, each a root directory and an agent process |
//! | [`slurm`] | the nodes of the Slurm job of this process |
//! | [`ssh`] | machines that the spec lists, without a resource manager |
//! | [`agents`] | the start message and the handshake of agents |
//! | `reachable` | whether a machine with a silent agent still answers |
//! | [`RemoteShell`] | how a launcher starts its own daemons on a node |
//! | [`record`] | what a successor of the orchestrator needs to know of an allocation |

pub mod agents;
mod error;
pub mod local;
mod reachable;
pub mod record;
pub mod registry;
mod remote_shell;
pub mod slurm;
pub mod ssh;

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_model::{CheckpointId, NodeName};
use holdfast_wire::run::AgentReady;
use serde::{Deserialize, Serialize};

pub use agents::{AgentSettings, AgentTemplate};
pub use error::{AgentStartError, AllocationError};
pub use record::AllocationRecord;
pub use remote_shell::RemoteShell;

use reachable::ProbeResult;

use crate::spec::{self, InjectedFault, ManagerFacts};

/// The default of [`AgentControl::restart_within`]: enough to start a process on a busy node.
const RESTART_WITHIN: Duration = Duration::from_secs(10);

/// The result of an asynchronous call.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A resource manager in the [`registry`].
#[derive(Debug)]
pub struct ManagerEntry {
    /// The name, in a spec and in the job's state, and what reading a spec depends on.
    pub facts: ManagerFacts,
    /// Checks the requirements on this machine before anything is started.
    pub check: fn() -> Result<(), AllocationError>,
    /// What a dry run shows for the nodes.
    pub preview: fn(&AllocationRequest<'_>) -> Result<AllocationPreview, AllocationError>,
    /// Opens the nodes of a new job.
    pub open: for<'a> fn(AllocationRequest<'a>) -> PendingAllocation<'a>,
    /// Opens the nodes of a job whose orchestrator ended. Logs of agents go to the path.
    pub reopen: for<'a> fn(&'a AllocationRecord, Vec<InjectedFault>, PathBuf) -> PendingAllocation<'a>,
    /// True if the nodes still exist and can be used from here.
    pub is_available: fn(&AllocationRecord) -> bool,
    /// True if another run continues in these nodes, after one that left the job unfinished. False where it would use
    /// other nodes, or can get better ones.
    pub continues: fn(&AllocationRecord, &Continuation<'_>) -> bool,
    /// A description of the nodes for messages.
    pub place: fn(&AllocationRecord) -> String,
}

/// What a dry run shows for the nodes of a job.
#[derive(Debug, Default)]
pub struct AllocationPreview {
    pub lines: Vec<String>,
    /// Why the nodes could not be opened.
    pub refusal: Option<AllocationError>,
}

/// Another run in nodes that a run left.
#[derive(Clone, Copy, Debug)]
pub struct Continuation<'a> {
    /// The `allocation:` section of its spec.
    pub spec: &'a spec::Allocation,
    /// Nodes that it needs.
    pub needed: usize,
    /// Nodes that are not down.
    pub left: usize,
}

/// True if an allocation with this end, seconds since the epoch, has ended.
fn has_ended(end: Option<u64>) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    end.is_some_and(|end| end <= now)
}

/// An allocation that is being opened.
pub type PendingAllocation<'a> = Pending<'a, Result<Arc<dyn Allocation>, AllocationError>>;

/// Requirements of a new job.
#[derive(Clone, Debug)]
pub struct AllocationRequest<'a> {
    /// The `allocation:` section of the spec.
    pub spec: &'a spec::Allocation,
    /// A job id, for managers that do not provide one.
    pub job_id: String,
    /// The user, for managers that do not provide one.
    pub user: String,
    /// The user that a parameter sets, also where the manager provides one.
    pub given_user: Option<String>,
    /// Nodes of the largest step.
    pub needed: u32,
    pub faults: Vec<InjectedFault>,
    pub prefix: &'a Path,
    /// The directory of the job's state, below the prefix.
    pub state: PathBuf,
    /// The directory for the logs of agents.
    pub logs: PathBuf,
    /// The executable of every step.
    pub programs: Vec<&'a Path>,
    /// The working directory of the ranks of every step.
    pub working_directories: Vec<&'a Path>,
}

/// An agent that is ready.
#[derive(Clone, Debug)]
pub struct RunningAgent {
    pub ready: AgentReady,
    /// The log file, for messages.
    pub log: PathBuf,
}

/// All functions of a resource manager.
pub trait Allocation: AllocatedNodes + AgentControl + NodeAccess {
    /// `None` where faults cannot be injected.
    fn fault_injection(&self) -> Option<&dyn FaultInjection> {
        None
    }
}

/// The job and its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationIdentity {
    pub job_id: String,
    pub user: String,
    /// The nodes, in the manager's order.
    pub nodes: Vec<NodeName>,
}

/// The identity of an allocation, its nodes and its end.
pub trait AllocatedNodes: Send + Sync {
    /// The resource manager's name, as in a spec.
    fn manager(&self) -> &'static str;

    /// The job and its nodes.
    fn identity(&self) -> &AllocationIdentity;

    /// The job id: part of the names of control, cache and checkpoint directories.
    fn job_id(&self) -> &str {
        &self.identity().job_id
    }

    /// Unique to the allocation: the job id, unless the manager uses it again for another one.
    fn allocation_id(&self) -> String {
        self.job_id().to_owned()
    }

    /// The user of the job: part of directory names.
    fn user(&self) -> &str {
        &self.identity().user
    }

    /// All nodes, in the manager's order, down nodes included.
    fn nodes(&self) -> &[NodeName] {
        &self.identity().nodes
    }

    /// The nodes that the manager reports as down, each with its reason.
    fn down_nodes(&self) -> Vec<(NodeName, String)>;

    /// The end of the allocation, if it is known. It may change during a run.
    fn end(&self) -> Option<SystemTime>;

    /// The node that this process runs on, if it is part of the allocation.
    fn own_node(&self) -> Option<NodeName>;

    /// What a successor of this orchestrator needs to know.
    fn record(&self) -> AllocationRecord;

    /// Releases what the manager created for this job. All agents have ended before.
    ///
    /// # Errors
    /// A directory could not be removed.
    fn release(&self) -> Result<(), AllocationError> {
        Ok(())
    }
}

/// The part of the resource manager in the life cycle of agents.
pub trait AgentControl: Send + Sync {
    /// Maximum number of agents that are being started at a time.
    fn starts_at_once(&self) -> usize;

    /// Time limit of [`AgentControl::start_agent`] on a node that had an agent before.
    fn restart_within(&self) -> Duration {
        RESTART_WITHIN
    }

    /// Starts an agent on a node and waits until it is ready. An earlier agent of this node is killed first if it is
    /// alive.
    ///
    /// # Errors
    /// [`AgentStartError::NodeLost`] if the node itself is lost; after any other error the start may be retried.
    fn start_agent<'a>(
        &'a self,
        node: &'a NodeName,
        template: &'a AgentTemplate,
    ) -> Pending<'a, Result<RunningAgent, AgentStartError>>;

    /// Registers the process of an agent that another orchestrator started, so that it can be terminated.
    fn adopt_agent(&self, node: &NodeName, pid: u32);

    /// Finds out whether the agent of a node still exists. By default by its address: the kernel of a running machine
    /// accepts connections for a process that is stopped, and refuses them when it has ended.
    fn check_agent<'a>(&'a self, _node: &'a NodeName, address: SocketAddr) -> Pending<'a, AgentPresence> {
        Box::pin(async move {
            match reachable::probe(address).await {
                ProbeResult::Accepted => AgentPresence::Present,
                ProbeResult::Refused => AgentPresence::Ended,
                ProbeResult::NoAnswer => AgentPresence::NoAnswer,
            }
        })
    }

    /// Kills the agent of a node, if it is alive and can be reached.
    fn kill_agent(&self, node: &NodeName);

    /// Waits for the end of agents that were asked to end, and kills the others; `agents` are all known agents. Blocks
    /// for about `patience`.
    fn terminate_agents(&self, agents: &[(NodeName, u32)], patience: Duration);
}

/// Whether the process of an agent that does not answer exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentPresence {
    /// It exists, or at least its machine accepts connections for it.
    Present,
    /// It has ended: its machine answers, and nothing listens at its address.
    Ended,
    /// Its machine does not answer.
    NoAnswer,
}

/// How commands and launchers reach a node.
pub trait NodeAccess: Send + Sync {
    /// The prefix of a command that runs on a node; empty if it can only run here.
    fn command_prefix(&self, node: &NodeName) -> Vec<String>;

    /// How a launcher starts its own daemons on a node.
    fn remote_shell(&self, node: &NodeName) -> Option<RemoteShell>;

    /// Variables of the ranks on a node that others do not have; `None` if nodes are separate machines.
    fn rank_variables(&self, _node: &NodeName) -> Option<BTreeMap<String, String>> {
        None
    }
}

/// Injects the faults of the spec on virtual nodes.
pub trait FaultInjection: Send + Sync {
    /// The faults that are due after an observation. From now on they count as injected.
    fn due_faults(&self, observation: Observation) -> Vec<Fault>;

    /// Kills the agent of the fault's node and, unless only the agent is to die, deletes the node. The caller kills the
    /// node's ranks.
    fn inject_fault(&self, fault: &Fault);
}

/// Progress of the job on which the moment of a fault depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The time since the first launch of the application.
    SinceLaunch(Duration),
    /// A checkpoint is complete and protected.
    Protected(CheckpointId),
}

/// A fault that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its index in the spec.
    pub number: usize,
    /// The node that fails.
    pub node: NodeName,
    /// Only the agent dies.
    pub agent_only: bool,
}
