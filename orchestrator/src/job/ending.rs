//! The end of a step. The ranks are ended. The agents are kept for the next step of the job, or ended too; the nodes'
//! directories are removed unless they hold files that another drain could save, or stay for another run.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_model::NodeName;
use tokio::sync::mpsc;

use super::release::{keep, release};
use super::site;
use super::start;
use super::state::{RunEnd, Stage};
use super::step::StepDriver;
use crate::allocation::Continuation;
use crate::events::LogEvent;
use crate::exit;
use crate::fleet::AgentRecord;
use crate::relaunch::Outcome;
use crate::spec::KeepCache;

impl StepDriver<'_> {
    /// True if the nodes hold files that another drain could save.
    fn keeps_data(&self) -> bool {
        self.record.state.keeps_data
    }

    /// True if the nodes keep control directories and caches for another run in this allocation: see `keep_cache`.
    fn keeps_cache(&self) -> bool {
        let unfinished = self.outcome.as_ref().is_some_and(|outcome| outcome.exit_code() == exit::NOT_FINISHED);
        let was_launched = self.machine.generation() > self.machine.finished_steps();
        let needed = start::nodes_needed(self.spec) as usize;
        let next = Continuation { spec: &self.spec.allocation, needed, left: self.machine.nodes_left() };
        self.spec.keep_cache == KeepCache::All
            && unfinished
            && was_launched
            && self.record.state.allocation.continues(self.allocation.manager(), &next)
    }

    /// Cancels the drain and ends the ranks, after the loop.
    pub(super) async fn end_ranks(&mut self) {
        self.drain.abort();
        if let Some(before) = self.before.take() {
            before.cancel();
        }
        self.ranks.end(self.machine.generation()).await;
        self.end_commands().await;
    }

    /// Waits, with a time limit, for the processes of commands that were cancelled.
    async fn end_commands(&mut self) {
        // Those of running commands are the other senders.
        let (unused, _) = mpsc::channel(1);
        self.commands.running = unused;
        if tokio::time::timeout(site::ENDED_WITHIN, self.commands_running.recv()).await.is_err() {
            tracing::warn!("commands of the user or the site do not end");
        }
    }

    /// True if no other step of the job may begin.
    pub(super) fn ends_job(&self) -> bool {
        self.keeps_data()
            || self.machine.is_halted()
            || self.outcome.as_ref().is_none_or(|outcome| outcome.stop.reason.ends_job())
    }

    /// The exit code of the step.
    pub(super) fn exit_code(&self) -> u8 {
        self.outcome.as_ref().map_or(exit::INTERNAL, Outcome::exit_code)
    }

    /// The agents are those of the next step, whose state is on disk: this step is only recorded as finished.
    pub(super) async fn leave_agents(&mut self) {
        self.record.state.stage = self.last_stage(false);
        let agents = self.allocation.nodes().iter().map(|node| (node.clone(), None)).collect();
        self.finish_record(agents).await;
    }

    /// The end of the last step: ends the agents, and releases the nodes.
    pub(super) async fn end_job(&mut self) {
        let keeps_cache = !self.keeps_data() && self.keeps_cache();
        self.agents.end_all(!self.keeps_data() && !keeps_cache).await;
        self.record.state.stage = self.last_stage(keeps_cache);
        self.report_kept(keeps_cache);
        if keeps_cache {
            keep(&*self.allocation);
        } else if !self.keeps_data() {
            release(Arc::clone(&self.allocation), &mut self.reporter).await;
        }
        self.record_agents().await;
    }

    /// The end of a step that runs beside others: ends its agents. Returns the nodes that others can use, and whether
    /// its own hold files of it.
    pub(super) async fn end_beside(&mut self) -> (BTreeSet<NodeName>, bool) {
        let keeps_cache = !self.keeps_data() && self.keeps_cache();
        let keeps = self.keeps_data() || keeps_cache;
        let nodes = self.machine.snapshot().lent().cloned().collect();
        let stopped = self.agents.end_lent(nodes, !keeps).await;
        self.record.state.stage = self.last_stage(keeps_cache);
        self.report_kept(keeps_cache);
        self.record_agents().await;
        (self.machine.snapshot().given_back(&stopped), keeps)
    }

    /// Reports what stays on the nodes.
    fn report_kept(&mut self, keeps_cache: bool) {
        let place = self.record.state.allocation.place();
        if self.keeps_data() {
            self.reporter.emit(LogEvent::DataKept { place, prefix: self.settings.prefix.clone() });
        } else if keeps_cache {
            self.reporter.emit(LogEvent::CacheKept { place });
        }
    }

    /// Writes the last state of the step, with its agents.
    async fn record_agents(&mut self) {
        let records = self.agents.records();
        let agents = self.allocation.nodes().iter().map(|node| (node.clone(), records.get(node).copied())).collect();
        self.finish_record(agents).await;
    }

    /// Writes the last state of the step.
    async fn finish_record(&mut self, agents: Vec<(NodeName, Option<AgentRecord>)>) {
        let changes = self.machine.take_changes();
        self.record.finish(changes, agents, (self.signals, &self.reporter.screen)).await;
    }

    fn last_stage(&self, keeps_cache: bool) -> Stage {
        match &self.outcome {
            Some(outcome) if self.keeps_data() => {
                let outcome = Outcome { drain: None, ..outcome.clone() };
                let ended = RunEnd { exit_code: outcome.exit_code(), message: outcome.to_string() };
                Stage::Undrained { reason: self.drain.failure().unwrap_or_default().to_owned(), ended: Some(ended) }
            }
            Some(outcome) if keeps_cache => {
                Stage::Kept { exit_code: outcome.exit_code(), message: outcome.to_string() }
            }
            Some(outcome) => Stage::Finished { exit_code: outcome.exit_code(), message: outcome.to_string() },
            None => {
                Stage::Finished { exit_code: exit::INTERNAL, message: "the loop ended without an outcome".to_owned() }
            }
        }
    }
}
