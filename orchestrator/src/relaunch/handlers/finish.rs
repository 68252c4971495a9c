//! The rules for the end of the loop: signals, the drain, the outcome.

use std::time::Duration;

use holdfast_model::Unplaced;

use super::lending::is_lack_of_nodes;
use crate::events::{DrainResult, LogEvent, StopReason, TimedReason};
use crate::relaunch::action::Action;
use crate::relaunch::machine::Machine;
use crate::relaunch::node_state::{NodeStatus, Starting, Unfit};
use crate::relaunch::outcome::{DroppedDatasets, Outcome};
use crate::relaunch::running_halt::HaltCause;
use crate::relaunch::snapshot::Phase;

impl Machine {
    pub(super) fn signalled(&mut self, now: Duration, name: String, out: &mut Vec<Action>) {
        self.state.head.signals = self.state.head.signals.saturating_add(1);
        let number = self.state.head.signals;
        let at_once = number > 2;
        self.record(LogEvent::Signal { name: name.clone(), number, at_once }, out);
        if at_once {
            return self.end_at_once(now, name, out);
        }
        let first = self.state.head.signal.get_or_insert_with(|| name.clone()).clone();
        if self.before_launch() {
            return self.stop(now, StopReason::Signal { name: first }, out);
        }
        if let Some(active) = &mut self.state.active {
            active.facts.signal = Some(first.clone());
        }
        if self.state.head.phase == Phase::Running {
            match number {
                1 => self.begin_halt(now, HaltCause::Signal, first, None, out),
                _ => self.kill_halted(now, HaltCause::Signal, format!("{name}, the second signal"), out),
            }
        }
    }

    /// The third signal: everything is ended now, without a drain. Files in the caches are kept.
    fn end_at_once(&mut self, now: Duration, name: String, out: &mut Vec<Action>) {
        if let Some(generation) = self.state.active.as_ref().map(|active| active.facts.generation) {
            let to = self.names_of(self.healthy_nodes().filter(|position| self.is_used(*position)));
            out.push(Action::KillRanks { generation, to, reason: format!("{name}, the third signal") });
            out.push(Action::CancelStep { generation });
        }
        self.cancel_before(out);
        if self.state.head.stop.is_none() {
            self.state.head.stop = Some(TimedReason { reason: StopReason::Signal { name }, at: now });
        }
        self.finish(None, Vec::new(), out);
    }

    fn cancel_before(&self, out: &mut Vec<Action>) {
        if let Phase::RunningBefore { failed: None } = self.state.head.phase {
            out.push(Action::CancelBefore);
        }
    }

    /// The loop is over, and the drain follows; unless others of the job's nodes may help.
    pub(super) fn stop(&mut self, now: Duration, reason: StopReason, out: &mut Vec<Action>) {
        match self.may_borrow() && is_lack_of_nodes(&reason) {
            true => self.await_nodes(out),
            false => self.stop_for(now, reason, out),
        }
    }

    /// The loop is over; the drain follows.
    pub(super) fn stop_for(&mut self, now: Duration, reason: StopReason, out: &mut Vec<Action>) {
        self.cancel_before(out);
        self.record(LogEvent::Stopping { reason: reason.clone() }, out);
        self.state.head.stop = Some(TimedReason { reason, at: now });
        self.retry_supersede(out);
        self.set_phase(Phase::Stopping);
    }

    pub(super) fn drain(&mut self, now: Duration, out: &mut Vec<Action>) {
        let Some(stop) = self.state.head.stop.as_ref().map(|stop| stop.reason.clone()) else { return };
        let restarted = self.restart_failed_nodes(out);
        if self.count.healthy == 0 && !restarted {
            return self.finish(None, Vec::new(), out);
        }
        out.push(self.drain_action(stop));
        self.state.head.drain_estimate.drain_began(now);
        self.set_phase(Phase::Draining);
    }

    /// Restarts the agents of nodes that failed a test of the site: such a node gets no ranks, but its files may be the
    /// only ones. If they cannot even be read, its agent does not come up in time, and the drain does without it.
    /// Returns whether there is one.
    fn restart_failed_nodes(&mut self, out: &mut Vec<Action>) -> bool {
        if self.state.head.launches == 0 {
            return false;
        }
        let (now, generation) = (self.contacts.time(), self.state.head.generation);
        let mut any = false;
        for position in 0..self.state.nodes.len() as u32 {
            let node = &self.state.nodes[position as usize];
            let NodeStatus::Down { cause } = &node.status else { continue };
            // An agent that was never up has nothing.
            if !node.failed_test || node.address.is_none() {
                continue;
            }
            let unfit = Unfit { generation, reason: cause.reason.to_string() };
            let unfit = TimedReason { reason: unfit, at: cause.at };
            let node = self.state.nodes.change(position);
            (node.unfit, node.failed_test) = (Some(unfit), false);
            self.set_status(position, NodeStatus::Starting(Starting::first(now)));
            out.push(Action::StartAgent { node: self.name(position) });
            any = true;
        }
        any
    }

    pub(super) fn drain_action(&self, stop: StopReason) -> Action {
        let (mut healthy, mut starting, mut down) = (Vec::new(), Vec::new(), Vec::new());
        for (name, node) in self.state.names.iter().zip(&self.state.nodes) {
            // An agent that was never up has nothing.
            let nodes = match &node.status {
                NodeStatus::Healthy => &mut healthy,
                NodeStatus::Starting(_) if node.address.is_some() => &mut starting,
                NodeStatus::Starting(_) | NodeStatus::Down { .. } => &mut down,
                NodeStatus::NotLent => continue,
            };
            nodes.push(name.clone());
        }
        let continues = self.state.head.superseding.is_complete();
        Action::Drain { stop, healthy, starting, down, continues }
    }

    pub(super) fn drained(
        &mut self,
        now: Duration,
        result: DrainResult,
        unplaced: Vec<Unplaced>,
        out: &mut Vec<Action>,
    ) {
        if self.state.head.phase == Phase::Draining {
            self.state.head.drain_estimate.drained(now, &result);
            self.record(LogEvent::Drained { result: result.clone() }, out);
            self.finish(Some(result), unplaced, out);
        }
    }

    fn finish(&mut self, drain: Option<DrainResult>, unplaced: Vec<Unplaced>, out: &mut Vec<Action>) {
        let Some(stop) = self.state.head.stop.clone() else {
            return;
        };
        let outcome = Outcome {
            stop,
            drain: drain.clone(),
            generation: self.state.head.generation,
            launches: self.state.head.launches,
            newest: self.state.head.newest,
            dropped: self.state.head.datasets.dropped.clone(),
            unplaced,
            unprotected: self.config.silent_api_after.is_some()
                && !self.state.head.api_called
                && self.state.head.newest.is_none()
                && self.state.head.launches > 0,
        };
        if let Some(DroppedDatasets { count, last, reason }) = outcome.dropped.clone() {
            self.record(LogEvent::AllDatasetsDropped { count, checkpoint: last, reason }, out);
        }
        let (exit_code, message) = (outcome.exit_code(), outcome.to_string());
        self.record(LogEvent::Finished { exit_code, message, interval: None }, out);
        self.end_agents(out);
        self.state.head.drain = drain;
        self.state.head.outcome = Some(outcome.clone());
        self.set_phase(Phase::Finished);
        out.push(Action::Finish(outcome));
    }

    /// Ends every agent that is up or being started; those of down nodes are fenced.
    pub(super) fn end_agents(&self, out: &mut Vec<Action>) {
        let nodes = (0u32..).zip(&self.state.nodes);
        let left = nodes.filter(|(_, node)| !node.is_out());
        let to = self.names_of(left.map(|(position, _)| position));
        if !to.is_empty() {
            out.push(Action::StopAgents { to });
        }
    }
}
