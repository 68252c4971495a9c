//! Failures that a virtual node acts out, so that a user can watch what Holdfast does, and tests can hit the middle of
//! a step without guessing at times.

use holdfast_model::{CheckpointId, Generation};
use holdfast_wire::run::RehearsalPoint;
use rustix::process::{Signal, getpid, kill_process};

use crate::agent::Agent;

/// Dies here if the orchestrator asked for it.
pub fn point(agent: &Agent, point: RehearsalPoint, checkpoint: CheckpointId) {
    let armed =
        agent.start.rehearsals.iter().find(|rehearsal| {
            rehearsal.point == point && rehearsal.checkpoint.is_none_or(|wanted| wanted == checkpoint)
        });
    let Some(rehearsal) = armed else { return };
    tracing::warn!(?point, %checkpoint, "rehearsed failure");
    if !rehearsal.agent_only {
        agent.ranks.kill_now(Generation(u64::MAX));
    }
    let _ = kill_process(getpid(), Signal::KILL);
}

/// True if a failure is rehearsed at this point: work then goes in steps small enough to have a middle.
pub fn armed(agent: &Agent, point: RehearsalPoint) -> bool {
    agent.start.rehearsals.iter().any(|rehearsal| rehearsal.point == point)
}
