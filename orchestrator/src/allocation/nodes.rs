//! The nodes of a job, as a resource manager has opened them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use holdfast_model::NodeName;
use holdfast_wire::reachable::ProbeResult;
use holdfast_wire::run::AgentReady;
use serde::{Deserialize, Serialize};

use super::agents::start_error::AgentStartError;
use super::agents::template::AgentTemplate;
use super::error::AllocationError;
use super::reachable;
use super::record::{AllocationIdentity, AllocationRecord};

/// The default of [`Allocation::restart_within`]: enough to start a process on a busy node.
const RESTART_WITHIN: Duration = Duration::from_secs(10);

/// The allocation: its identity, its nodes and its end; the life cycle of agents; how commands and launchers reach a
/// node; and nodes that an injected fault took along.
pub trait Allocation: Send + Sync {
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
    fn down_nodes(&self) -> Vec<(NodeName, String)> {
        Vec::new()
    }

    /// The end of the allocation, if it is known. It may change during a run.
    fn end(&self) -> Option<SystemTime> {
        None
    }

    /// The words with which the manager's last two answers denied that the allocation exists.
    fn denial(&self) -> Option<String> {
        None
    }

    /// Asks the manager whether the allocation exists: the words with which it denies that; `None` if it does not, or
    /// does not answer.
    fn ask_denial(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { None })
    }

    /// The leaf switch of each node, for `failure_domain: topology`.
    fn switches(&self) -> BoxFuture<'_, Result<BTreeMap<NodeName, String>, AllocationError>> {
        Box::pin(async { Err(AllocationError::NoTopology) })
    }

    /// The node that this process runs on, if it is part of the allocation.
    fn own_node(&self) -> Option<NodeName> {
        None
    }

    /// What a successor of this orchestrator needs to know.
    fn record(&self) -> AllocationRecord;

    /// The nodes stay for another run of the job, which was drained. Records until when, where the end of the
    /// allocation does not remove them.
    ///
    /// # Errors
    /// The record could not be written.
    fn keep(&self) -> Result<(), AllocationError> {
        Ok(())
    }

    /// Releases what the manager created for this job. All agents have ended before.
    ///
    /// # Errors
    /// A directory could not be removed.
    fn release(&self) -> Result<(), AllocationError> {
        Ok(())
    }

    /// Maximum number of agents that are being started at a time.
    fn starts_at_once(&self) -> usize;

    /// Time limit of [`Allocation::start_agent`] on a node that had an agent before.
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
    ) -> BoxFuture<'a, Result<AgentReady, AgentStartError>>;

    /// Registers the process of an agent that another orchestrator started, so that it can be terminated.
    fn adopt_agent(&self, node: &NodeName, pid: u32);

    /// Finds out whether the agent of a node still exists. By default by its address: the kernel of a running machine
    /// accepts connections for a process that is stopped, and refuses them when it has ended.
    fn check_agent<'a>(&'a self, _node: &'a NodeName, address: SocketAddr) -> BoxFuture<'a, AgentPresence> {
        Box::pin(async move {
            match reachable::probe(address).await {
                ProbeResult::Accepted(_) => AgentPresence::Present,
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

    /// As [`terminate_agents`](Self::terminate_agents), for some of the nodes: agents of the others go on. By default
    /// only those end that do so by themselves.
    fn end_agents(&self, _nodes: &[NodeName], _agents: &[(NodeName, u32)], _patience: Duration) {}

    /// The prefix of a command that runs on a node; empty if it can only run here.
    fn command_prefix(&self, _node: &NodeName) -> Vec<String> {
        Vec::new()
    }

    /// How a launcher starts its own daemons on a node.
    fn remote_shell(&self, _node: &NodeName) -> Option<RemoteShell> {
        None
    }

    /// Variables of the ranks on a node that others do not have; `None` if nodes are separate machines.
    fn rank_variables(&self, _node: &NodeName) -> Option<BTreeMap<String, String>> {
        None
    }

    /// A fault of the spec took the node along: its agent is not started again. Where the manager makes the nodes, it
    /// deletes what is left of this one. Blocks.
    fn lose_node(&self, _node: &NodeName) {}

    /// A fault of the spec is about to kill the agent of a node: it does not end by itself.
    fn agent_is_killed(&self, _node: &NodeName) {}

    /// The numbers of the faults of the spec that agents have injected themselves.
    fn injected_faults(&self) -> BTreeSet<usize> {
        BTreeSet::new()
    }
}

/// Whether the process of an agent that does not answer exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentPresence {
    /// It exists, or at least its machine accepts connections for it.
    Present,
    /// It exists and has stopped, as this process and other agents find: its machine accepts connections for it, and no
    /// thread of it uses them.
    Stopped,
    /// It has ended: its machine answers, and nothing listens at its address.
    Ended,
    /// Its machine does not answer.
    NoAnswer,
}

/// The prefix of a command line for a shell on a node: how a launcher that starts its own daemons (mpirun) reaches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteShell {
    /// A program and its options; the command line follows as the last argument.
    pub words: Vec<String>,
    /// True if the command line inherits the environment of this program.
    pub inherits: bool,
}
