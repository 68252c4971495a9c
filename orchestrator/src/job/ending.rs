//! Nothing is left running: ranks, step, agents; and, unless they hold the only copy of something, the nodes' directories.

use std::sync::Arc;
use std::time::Duration;

use holdfast_model::NodeName;
use holdfast_wire::agent::StopRequest;

use super::state::Stage;
use super::{Driver, state};
use crate::events::{DrainResult, LogEvent};
use crate::fleet::fan_out;
use crate::launch::step;
use crate::relaunch::Outcome;

/// An agent that was told to stop gets so long, then it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(3);

impl Driver {
    /// Ends the drain, the step and the agents; whatever does not end by itself is killed.
    pub(super) async fn stop_agents(&mut self, to: &[NodeName]) {
        self.agents_stopped = true;
        if let Some(drain) = self.drain.take() {
            drain.abort();
        }
        self.stop_step().await;
        // None that is being started comes up later; those that are killed below were noted before they were up.
        self.starting.shutdown().await;
        let agents = self.reachable(to);
        let client = self.context.client.clone();
        let (remove, allocation) = (!self.keeps_data(), Arc::clone(&self.context.allocation));
        // The pollers would report every agent that ends as lost.
        self.agents.clear();
        let stops = fan_out(agents, move |(node, _, address)| {
            let client = client.clone();
            async move {
                let request = StopRequest { remove };
                let stop = client.stop(address, &request);
                let stopped = tokio::time::timeout(STOP_WITHIN, stop).await;
                if !matches!(stopped, Ok(Ok(_))) {
                    tracing::info!(%node, "an agent does not stop by itself");
                }
            }
        });
        stops.await;
        let known: Vec<(NodeName, u32)> =
            self.context.state.running.iter().map(|(node, record)| (node.clone(), record.pid)).collect();
        let ended = tokio::task::spawn_blocking(move || allocation.terminate_agents(&known, STOP_WITHIN));
        let _ = ended.await;
        self.context.state.running.clear();
    }

    async fn stop_step(&mut self) {
        if let Some(running) = self.running.take()
            && !running.has_ended()
        {
            let _ = tokio::task::spawn_blocking(running.canceller()).await;
        }
        // Also one whose end was not followed.
        let directory = state::generation_directory(&self.context.prefix, self.context.state.generation);
        if step::is_supervised(&directory) {
            tracing::warn!(directory = %directory.display(), "a step does not end although it was cancelled");
        }
    }

    /// The nodes hold what another drain could save.
    pub(super) fn keeps_data(&self) -> bool {
        self.context.state.keeps_data
    }

    /// After the loop, however it ended.
    pub(super) async fn clean_up(&mut self, outcome: Option<&Outcome>) {
        let all: Vec<NodeName> = self.agents.keys().cloned().collect();
        if !self.agents_stopped || !all.is_empty() {
            self.stop_agents(&all).await;
        }
        self.context.state.stage = match outcome {
            Some(_) if self.keeps_data() => {
                let reason = match self.drained.as_ref().map(|report| &report.result) {
                    Some(DrainResult::Incomplete { reason, .. } | DrainResult::Failed { reason }) => reason.clone(),
                    _ => String::new(),
                };
                Stage::Undrained { reason }
            }
            Some(outcome) => Stage::Finished { exit_code: outcome.exit_code(), message: outcome.to_string() },
            None => Stage::Finished { exit_code: crate::exit::INTERNAL, message: "the loop broke off".to_owned() },
        };
        if self.keeps_data() {
            let place = self.context.state.allocation.place();
            self.emit(LogEvent::DataKept { place, prefix: self.context.prefix.clone() });
        } else {
            let allocation = Arc::clone(&self.context.allocation);
            let failure = match tokio::task::spawn_blocking(move || allocation.release()).await {
                Ok(released) => released.err().map(|error| error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            if let Some(reason) = failure {
                self.emit(LogEvent::ReleaseFailed { reason });
            }
        }
        self.write_state();
    }
}
