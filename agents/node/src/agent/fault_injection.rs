//! Injected failures of a virtual node: for demonstrations, and for tests that need a failure in the middle of a step.

use holdfast_model::{CheckpointId, Generation};
use holdfast_wire::run::FaultPoint;
use rustix::process::{Signal, getpid, kill_process};

use crate::agent::Agent;

/// Kills the agent, and the node's ranks unless `agent_only`, if a fault is requested at this point.
pub fn reach(agent: &Agent, point: FaultPoint, checkpoint: CheckpointId) {
    let requested = &agent.start.fault_injections;
    let fault = requested
        .iter()
        .find(|fault| fault.point == point && fault.checkpoint.is_none_or(|requested| requested == checkpoint));
    let Some(fault) = fault else { return };
    tracing::warn!(?point, %checkpoint, "injected_fault");
    if !fault.agent_only {
        agent.ranks.kill_now(Generation(u64::MAX));
    }
    let _ = kill_process(getpid(), Signal::KILL);
}

/// True if a fault is requested at this point: the work is then done in small steps, so that it has a middle.
pub fn is_requested(agent: &Agent, point: FaultPoint) -> bool {
    agent.start.fault_injections.iter().any(|fault| fault.point == point)
}
