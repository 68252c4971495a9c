//! The end of a step: no rank is left running. The agents serve the next step of the job, or are ended too; and, unless
//! they hold the only copy of something, the nodes' directories are removed.

use std::sync::Arc;

use super::prefix_wait::PrefixWaitStep;
use super::state::Stage;
use super::step::{CHECK_EVERY, StepDriver};
use crate::events::LogEvent;
use crate::exit;

impl StepDriver<'_> {
    /// The nodes hold what another drain could save.
    fn keeps_data(&self) -> bool {
        self.record.state.keeps_data
    }

    /// Ends the drain and the ranks; whatever does not end by itself is killed. After the loop, however it ended.
    pub(super) async fn end_ranks(&mut self) {
        self.drain.abort();
        self.ranks.end(self.machine.generation()).await;
    }

    /// True if the next step of the job may begin.
    pub(super) fn is_finished(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.exit_code() == exit::FINISHED) && !self.keeps_data()
    }

    /// The agents are the next step's, whose state is on disk: this step is only noted as finished.
    pub(super) async fn leave_agents(&mut self) {
        self.record.state.stage = self.last_stage();
        self.record.finish(&mut self.machine, self.allocation.nodes(), |_| None);
        self.write_last_state().await;
    }

    /// The last step that runs: ends the agents, and gives the nodes back.
    pub(super) async fn end_job(&mut self) {
        self.agents.end_all(!self.keeps_data()).await;
        self.record.state.stage = self.last_stage();
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
        let records = self.agents.records();
        self.record.finish(&mut self.machine, self.allocation.nodes(), |node| records.get(node).copied());
        self.write_last_state().await;
    }

    /// Waits until the last state is on disk; not forever, visibly, and not after another signal.
    async fn write_last_state(&mut self) {
        let mut look = tokio::time::interval(CHECK_EVERY);
        while !self.record.is_complete() {
            tokio::select! {
                _ = self.record.released(&self.machine) => {}
                _ = self.signals.next() => break,
                _ = look.tick() => match self.prefix_wait.look() {
                    PrefixWaitStep::Wait => {}
                    PrefixWaitStep::Show => self.show_prefix_wait(),
                    PrefixWaitStep::GiveUp => break,
                },
            }
        }
        if !self.record.is_complete() {
            tracing::warn!("the prefix directory does not answer; the end of the job is not written down there");
        }
    }

    fn last_stage(&self) -> Stage {
        match &self.outcome {
            Some(_) if self.keeps_data() => {
                Stage::Undrained { reason: self.drain.failure().unwrap_or_default().to_owned() }
            }
            Some(outcome) => Stage::Finished { exit_code: outcome.exit_code(), message: outcome.to_string() },
            None => Stage::Finished { exit_code: exit::INTERNAL, message: "the loop broke off".to_owned() },
        }
    }
}
