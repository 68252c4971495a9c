//! Resource managers: which nodes a job has, until when, and how an agent is started on one.
//!
//! A resource manager is one folder and one line in the [`registry`], behind small traits, one for each subject:
//!
//! * [`AllocatedNodes`]: the identity of the allocation, its nodes and its end;
//! * [`AgentControl`]: starting, adopting, killing and ending agents;
//! * [`NodeAccess`]: how commands and launchers get onto a node;
//! * [`FaultInjection`]: failures that a spec orders for a fault_injection; only virtual nodes have any;
//! * [`Allocation`]: all of these, as one manager offers them.
//!
//! | folder, file | subject |
//! |---|---|
//! | [`local`] | virtual nodes on this machine, each a root directory and an agent process |
//! | [`slurm`] | the nodes of the Slurm job that this process runs in |
//! | [`ssh`] | machines that the spec lists, without any resource manager |
//! | [`agents`] | what an agent is told at its start |
//! | `reachable` | whether a machine answers whose agent is silent |
//! | [`RemoteShell`] | how a launcher's own daemons get onto a node |
//! | [`record`] | what a second orchestrator has to know of an allocation |

pub mod agents;
mod error;
pub mod local;
mod reachable;
pub mod record;
pub mod registry;
mod remote_shell;
pub mod slurm;
pub mod ssh;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast_model::{CheckpointId, NodeName};
use holdfast_wire::run::AgentReady;
use serde::{Deserialize, Serialize};

pub use agents::AgentTemplate;
pub use error::{AgentStartError, AllocationError};
pub use record::AllocationRecord;
pub use remote_shell::RemoteShell;

use crate::spec::{self, InjectedFault, ManagerFacts};

/// The default of [`AgentControl::restart_within`]: enough for a process that has to be started on a busy node.
const RESTART_WITHIN: Duration = Duration::from_secs(10);

/// The result of a call that takes its time.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A resource manager's line in the [`registry`].
#[derive(Debug)]
pub struct ManagerEntry {
    /// Its name, in a spec and in the job's state, and what reading a spec depends on.
    pub facts: ManagerFacts,
    /// Looks for what it needs on this machine, before anything is started.
    pub check: fn() -> Result<(), AllocationError>,
    /// What a dry run shows of the nodes, a line each.
    pub preview: fn(&AllocationRequest<'_>) -> Result<Vec<String>, AllocationError>,
    /// The nodes of a job that begins.
    pub open: for<'a> fn(AllocationRequest<'a>) -> PendingAllocation<'a>,
    /// The nodes of a job whose orchestrator is gone. Logs of agents go to the path.
    pub reopen: for<'a> fn(&'a AllocationRecord, Vec<InjectedFault>, PathBuf) -> PendingAllocation<'a>,
    /// True if the nodes are still there, and ours from here.
    pub is_there: fn(&AllocationRecord) -> bool,
    /// Where the nodes are, for messages.
    pub place: fn(&AllocationRecord) -> String,
}

/// An allocation that is being opened.
pub type PendingAllocation<'a> = Pending<'a, Result<Arc<dyn Allocation>, AllocationError>>;

/// What the nodes of a job are opened for.
#[derive(Clone, Debug)]
pub struct AllocationRequest<'a> {
    /// `allocation:` of the spec.
    pub spec: &'a spec::Allocation,
    /// A job id, for managers that give none.
    pub job_id: String,
    /// The user, for managers that name none.
    pub user: String,
    /// The nodes that the largest step takes.
    pub needed: u32,
    pub faults: Vec<InjectedFault>,
    pub prefix: &'a Path,
    /// The directory of the job's state, below the prefix.
    pub state: PathBuf,
    /// Where the logs of agents go.
    pub logs: PathBuf,
    /// The application of every step, found.
    pub programs: Vec<&'a Path>,
    /// The working directory of the ranks of every step.
    pub working_directories: Vec<&'a Path>,
}

/// An agent that reported that it is up.
#[derive(Clone, Debug)]
pub struct RunningAgent {
    pub ready: AgentReady,
    /// Its log file, for messages.
    pub log: PathBuf,
}

/// Everything that a resource manager offers.
pub trait Allocation: AllocatedNodes + AgentControl + NodeAccess {
    /// Ordered failures; `None` where failures are never injected.
    fn fault_injection(&self) -> Option<&dyn FaultInjection> {
        None
    }
}

/// Whose nodes these are, and which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub job_id: String,
    pub user: String,
    /// The nodes, in the manager's order.
    pub nodes: Vec<NodeName>,
}

/// The identity of an allocation, its nodes and its end.
pub trait AllocatedNodes: Send + Sync {
    /// The resource manager's name, as in a spec.
    fn manager(&self) -> &'static str;

    /// Whose nodes these are, and which.
    fn identity(&self) -> &Identity;

    /// The job id: part of the names of control, cache and checkpoint directories.
    fn job_id(&self) -> &str {
        &self.identity().job_id
    }

    /// The user whose job it is: part of directory names.
    fn user(&self) -> &str {
        &self.identity().user
    }

    /// All nodes, in the manager's order, down nodes included.
    fn nodes(&self) -> &[NodeName] {
        &self.identity().nodes
    }

    /// The nodes that the manager itself reports as down, each with its reason.
    fn down_nodes(&self) -> Vec<(NodeName, String)>;

    /// When the allocation ends, if that is known. May change during a run.
    fn end(&self) -> Option<SystemTime>;

    /// The node that this process runs on, if it is part of the allocation.
    fn own_node(&self) -> Option<NodeName>;

    /// What a second orchestrator has to know.
    fn record(&self) -> AllocationRecord;

    /// Gives back what the manager made for this job. All agents have ended before.
    ///
    /// # Errors
    /// A directory could not be removed.
    fn release(&self) -> Result<(), AllocationError> {
        Ok(())
    }
}

/// The life of agents, as far as the resource manager takes part in it.
pub trait AgentControl: Send + Sync {
    /// The number of agents that may be started at a time.
    fn starts_at_once(&self) -> usize;

    /// The longest that [`AgentControl::start_agent`] may take on a node that had an agent before.
    fn restart_within(&self) -> Duration {
        RESTART_WITHIN
    }

    /// Starts an agent on a node, and waits until it reports that it is up. An agent that this node had before is dead,
    /// or is killed first.
    ///
    /// # Errors
    /// [`AgentStartError::NodeLost`] if the node itself is lost; everything else may be tried again.
    fn start_agent<'a>(
        &'a self,
        node: &'a NodeName,
        template: &'a AgentTemplate,
    ) -> Pending<'a, Result<RunningAgent, AgentStartError>>;

    /// Registers the process of an agent that another orchestrator started, so that it can be ended.
    fn adopt_agent(&self, node: &NodeName, pid: u32);

    /// Kills the agent of a node, if it lives and can be reached.
    fn kill_agent(&self, node: &NodeName);

    /// Waits until agents that were asked to end are gone, and kills those that are not; `agents` are all that were
    /// known. Blocks for `patience`, or little more.
    fn terminate_agents(&self, agents: &[(NodeName, u32)], patience: Duration);
}

/// How commands and launchers get onto a node.
pub trait NodeAccess: Send + Sync {
    /// The words in front of a command that is to run on a node; none if it can only run here.
    fn command_prefix(&self, node: &NodeName) -> Vec<String>;

    /// How a launcher that starts daemons of its own gets onto a node; none if there are no machines but this.
    fn remote_shell(&self, node: &NodeName) -> Option<RemoteShell>;
}

/// Failures that a spec orders for a rehearsal on virtual nodes.
pub trait FaultInjection: Send + Sync {
    /// The failures that an observation makes due. They count as injected from here on.
    fn due_faults(&self, observation: Observation) -> Vec<Fault>;

    /// Kills the agent of the fault's node and, unless only the agent dies, takes the node away. The caller kills the
    /// node's ranks.
    fn inject_fault(&self, fault: &Fault);
}

/// Progress of the job that may make an ordered failure due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The time since the application was launched first.
    SinceLaunch(Duration),
    /// A checkpoint is complete and protected.
    Protected(CheckpointId),
}

/// An ordered failure that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its position in the spec, from 0.
    pub number: usize,
    /// The node that fails.
    pub node: NodeName,
    /// Only the agent dies.
    pub agent_only: bool,
}
