//! Faults that a virtual node injects into itself, so that a user can watch what Holdfast does, and tests hit the middle
//! of a step without guessing at times.

use holdfast_model::{CheckpointId, Generation};
use holdfast_wire::run::FaultPoint;
use rustix::process::{Signal, getpid, kill_process};

use crate::agent::Agent;

/// Kills the agent, and unless the fault is for the agent only also its ranks, if a fault is requested for this point.
pub fn reach(agent: &Agent, point: FaultPoint, checkpoint: CheckpointId) {
    let requested = &agent.start.fault_injections;
    let fault = requested
        .iter()
        .find(|fault| fault.point == point && fault.checkpoint.is_none_or(|requested| requested == checkpoint));
    let Some(fault) = fault else { return };
    tracing::warn!(?point, %checkpoint, "injected fault");
    if !fault.agent_only {
        agent.ranks.kill_now(Generation(u64::MAX));
    }
    let _ = kill_process(getpid(), Signal::KILL);
}

/// True if a fault is requested for this point: work then goes in steps small enough to have a middle.
pub fn is_requested(agent: &Agent, point: FaultPoint) -> bool {
    agent.start.fault_injections.iter().any(|fault| fault.point == point)
}
