//! Calls of all ranks, gathered at the leader and carried out by orders to every agent.

use std::sync::Arc;

use holdfast_wire::agent::{PeersUpdate, RunAccepted};
use holdfast_wire::run::RunPlan;

use crate::agent::Agent;

/// The run and its collectives.
#[derive(Debug, Default)]
pub struct Collectives {}

impl Collectives {
    /// The run in force.
    pub fn plan(&self) -> Option<Arc<RunPlan>> {
        None
    }
}

/// Why a run could not be taken on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A newer generation is in force.
    #[error("generation {asked} is over: this agent serves generation {serving}")]
    Old {
        /// What was asked for.
        asked: holdfast_wire::Generation,
        /// What is in force.
        serving: holdfast_wire::Generation,
    },
}

/// Takes on a generation: kills older ranks, records the plan, connects to the leader.
pub async fn begin_run(_agent: &Arc<Agent>, _plan: RunPlan) -> Result<RunAccepted, RunError> {
    Err(RunError::Old { asked: holdfast_wire::Generation::NONE, serving: holdfast_wire::Generation::NONE })
}

/// Agents of the run listen elsewhere now.
pub fn update_peers(_agent: &Arc<Agent>, _update: PeersUpdate) {}

/// Takes the run up again that the control directory knows of, after the agent was restarted.
pub async fn adopt(_agent: &Arc<Agent>) -> Option<holdfast_wire::Generation> {
    None
}
