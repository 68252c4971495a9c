//! Resource managers behind one trait: who lends the nodes, which of them are dead, how an agent gets onto one.
//!
//! * [`Allocation`]: what the rest of the orchestrator knows of a resource manager;
//! * [`local`]: virtual nodes on this machine, each a root directory and an agent process;
//! * [`slurm`]: the nodes of the Slurm job that we run in;
//! * [`ssh`]: machines that the spec lists, without any resource manager;
//! * `reachable`: is there a machine behind an agent that went silent?
//! * [`RemoteShell`]: the way onto a node for a launcher's own daemons;
//! * [`record`]: what a second orchestrator has to know of an allocation;
//! * [`chaos`]: the failures that the local manager rehearses, as a pure schedule;
//! * [`process`]: looking at and ending processes of this machine without hitting a stranger.

pub mod chaos;
mod error;
pub mod local;
pub(crate) mod log;
pub mod process;
mod reachable;
pub mod record;
mod remote_shell;
pub mod slurm;
pub mod ssh;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use holdfast_core::ids::NodeName;
use holdfast_wire::run::AgentReady;

pub use chaos::{Observation, Strike};
pub use error::{AgentStartError, AllocationError};
pub use record::AllocationRecord;
pub use remote_shell::RemoteShell;

use crate::fleet::AgentTemplate;

/// A process that has to be started may take longer than an answer; a dead node refuses at once.
const RESTART_WITHIN: Duration = Duration::from_secs(10);

/// The answer of a manager that takes its time.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An agent that has said that it is up.
#[derive(Clone, Debug)]
pub struct RunningAgent {
    /// What it said.
    pub ready: AgentReady,
    /// Where its log goes, for messages.
    pub log: PathBuf,
}

/// The nodes that a resource manager lent us, for a time.
pub trait Allocation: Send + Sync {
    /// The resource manager's name, as in a spec.
    fn manager(&self) -> &'static str;

    /// The job id: part of the names of control, cache and checkpoint directories.
    fn job_id(&self) -> &str;

    /// The user whose job it is: part of directory names.
    fn user(&self) -> &str;

    /// All nodes, in the manager's order, dead ones included.
    fn nodes(&self) -> &[NodeName];

    /// The nodes that the manager itself says are down, each with its reason.
    fn down_nodes(&self) -> Vec<(NodeName, String)>;

    /// When the allocation ends, if that is known. May change while we run.
    fn end(&self) -> Option<SystemTime>;

    /// The node that this process runs on, if it is one of the allocation.
    fn own_node(&self) -> Option<NodeName>;

    /// What a second orchestrator has to know.
    fn record(&self) -> AllocationRecord;

    /// So many agents may be started at a time.
    fn starts_at_once(&self) -> usize;

    /// How long [`Allocation::start_agent`] may take where the node had an agent before; longer, and something is stuck.
    fn restart_within(&self) -> Duration {
        RESTART_WITHIN
    }

    /// The words in front of a command that is to run on a node; none if it can only run here.
    fn reach(&self, node: &NodeName) -> Vec<String>;

    /// How a launcher that starts daemons of its own gets onto a node; none if there are no machines but this.
    fn remote_shell(&self, node: &NodeName) -> Option<RemoteShell>;

    /// What stands in front of a node's paths here, if anything: virtual nodes.
    fn root_of(&self, _node: &NodeName) -> Option<PathBuf> {
        None
    }

    /// Starts an agent on a node, and waits until it says that it is up. An agent that this node had before is dead,
    /// or is killed first.
    ///
    /// # Errors
    /// [`AgentStartError::NodeGone`] if the node itself is lost; everything else may be tried again.
    fn start_agent<'a>(
        &'a self,
        node: &'a NodeName,
        template: &'a AgentTemplate,
    ) -> Pending<'a, Result<RunningAgent, AgentStartError>>;

    /// The process of an agent that another orchestrator started, so that it can be ended.
    fn adopt_agent(&self, node: &NodeName, pid: u32);

    /// Ends the agent of a node at once, if it lives and can be reached.
    fn kill_agent(&self, node: &NodeName);

    /// Waits until the agents are gone that were told to end, and ends those that do not; these were known. Blocks for
    /// `patience` at most, or little more.
    fn see_off(&self, agents: &[(NodeName, u32)], patience: Duration);

    /// Tells the manager what happens, and gets the rehearsed failures that are due. Only the local manager has any.
    fn observe(&self, _observation: Observation) -> Vec<Strike> {
        Vec::new()
    }

    /// Carries out a rehearsed failure; the caller kills the ranks of the node.
    fn strike(&self, _strike: &Strike) {}

    /// Gives back what the manager made for this job. The agents are gone by then.
    ///
    /// # Errors
    /// A directory could not be removed.
    fn release(&self) -> Result<(), AllocationError> {
        Ok(())
    }
}
