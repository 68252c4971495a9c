//! Injected faults.

use std::time::Duration;

use holdfast_model::{CheckpointId, NodeName};

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
    /// A checkpoint is complete, and protected if its scheme protects it.
    Checkpoint(CheckpointId),
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
