//! The end of a step: nothing is left running, neither ranks nor agents; and, unless they hold the only copy of something,
//! the nodes' directories are removed.

use std::sync::Arc;

use super::state::Stage;
use super::step::StepDriver;
use crate::events::LogEvent;

impl StepDriver<'_> {
    /// Ends the drain, the ranks and the agents; whatever does not end by itself is killed.
    pub(super) async fn end_processes(&mut self) {
        self.drain.abort();
        self.ranks.end(self.record.state.generation).await;
        self.agents.end_all(!self.keeps_data()).await;
    }

    /// The nodes hold what another drain could save.
    fn keeps_data(&self) -> bool {
        self.record.state.keeps_data
    }

    /// After the loop, however it ended.
    pub(super) async fn clean_up(&mut self) {
        if self.agents.may_have_any() {
            self.end_processes().await;
        }
        self.record.state.stage = match &self.outcome {
            Some(_) if self.keeps_data() => {
                Stage::Undrained { reason: self.drain.failure().unwrap_or_default().to_owned() }
            }
            Some(outcome) => Stage::Finished { exit_code: outcome.exit_code(), message: outcome.to_string() },
            None => Stage::Finished { exit_code: crate::exit::INTERNAL, message: "the loop broke off".to_owned() },
        };
        if self.keeps_data() {
            let place = self.record.state.allocation.place();
            self.reporter.emit(LogEvent::DataKept { place, prefix: self.settings.prefix.clone() });
        } else {
            let allocation = Arc::clone(&self.allocation);
            let failure = match tokio::task::spawn_blocking(move || allocation.release()).await {
                Ok(released) => released.err().map(|error| error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            if let Some(reason) = failure {
                self.reporter.emit(LogEvent::ReleaseFailed { reason });
            }
        }
        self.record.write(&self.machine, &self.agents);
    }
}
