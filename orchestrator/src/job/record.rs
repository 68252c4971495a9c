//! The job's state as it is written for a successor.

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdfast_model::NodeName;

use super::state::JobState;
use crate::fleet::{AgentRecord, AgentSupervisor};
use crate::relaunch::Machine;

/// The state of the job, and whether it is on disk.
pub(super) struct JobRecord {
    pub(super) state: JobState,
    prefix: PathBuf,
    is_written: bool,
}

impl JobRecord {
    pub(super) fn new(state: JobState, prefix: PathBuf) -> Self {
        JobRecord { state, prefix, is_written: false }
    }

    /// Writes the state if the machine's decisions changed since it was written last.
    pub(super) fn write_if_changed(&mut self, machine: &mut Machine, agents: &AgentSupervisor) {
        let changed = !machine.take_changes().is_empty();
        if changed || !self.is_written {
            self.write(machine, agents.records());
        }
    }

    /// Writes the state, with the agents that are this step's. One that cannot be written (prefix full) must not stop the job: only a take-over would miss it.
    pub(super) fn write(&mut self, machine: &Machine, agents: BTreeMap<NodeName, AgentRecord>) {
        self.is_written = true;
        self.state.running = agents;
        self.state.snapshot = Some(machine.snapshot());
        self.state.explanation = Some(machine.explain());
        self.state.orchestrator = std::process::id();
        let written = tokio::task::block_in_place(|| self.state.write(&self.prefix));
        if let Err(error) = written {
            tracing::warn!(%error, "the job's state could not be written; it could not be taken over now");
        }
    }
}
