//! The ranks of the running generation are halted: they end at their next checkpoint; those that do not get SIGTERM,
//! and those that still run after that are killed.
//!
//! ```text
//!  halt condition, signal, end of the allocation
//!     │ ranks use the checkpoint API             │ they do not
//!     ▼                                          ▼
//!  Requested ── halt_grace, less near the end ─▶ Terminating (SIGTERM) ── halt_grace or end ─▶ Killed (SIGKILL)
//! ```
//!
//! A rank that ends after SIGTERM, however it ends, does not end the others: all of them may write their files.

use std::time::Duration;

use crate::events::{LogEvent, StopReason};
use crate::relaunch::action::Action;
use crate::relaunch::machine::Machine;
use crate::relaunch::running_halt::{HaltCause, HaltStage, RunningHalt};
use crate::relaunch::snapshot::Phase;
use crate::spec::quantity::whole_millis;

/// The supervisor of a step reports its start within this time. A step that has not started then, because its launcher
/// waits for something, has no ranks that could take a checkpoint.
const START_REPORTED_WITHIN: Duration = Duration::from_secs(1);

impl Machine {
    pub(super) fn halt_set(
        &mut self,
        now: Duration,
        reason: String,
        immediate: bool,
        ends: Option<i64>,
        out: &mut Vec<Action>,
    ) {
        if self.state.head.halt.as_ref() != Some(&reason) {
            self.record(LogEvent::HaltSet { reason: reason.clone() }, out);
            self.state.head.halt = Some(reason.clone());
        }
        if self.before_launch() {
            self.stop(now, StopReason::Halted { reason }, out);
        } else if immediate {
            self.kill_halted(now, HaltCause::Condition, reason, out);
        } else {
            let ends = ends.map(|ends| self.on_own_scale(ends));
            self.begin_halt(now, HaltCause::Condition, reason, ends, out);
        }
    }

    pub(super) fn halt_cleared(&mut self, out: &mut Vec<Action>) {
        // The end of the application replaces the condition in the halt file: no further step begins nevertheless.
        let is_over = self.state.active.as_ref().is_some_and(|active| active.facts.finalized);
        if is_over || self.state.head.halt.take().is_none() {
            return;
        }
        self.record(LogEvent::HaltCleared, out);
        let Some(active) = &mut self.state.active else { return };
        let is_withdrawn = |halt: &mut RunningHalt| halt.cause == HaltCause::Condition && !halt.is_terminated();
        if active.facts.halt.take_if(is_withdrawn).is_some() {
            active.facts.halting = None;
            self.request_halt(None, out);
        } else if active.facts.halt.is_none() {
            active.facts.halting = None;
        }
    }

    pub(super) fn allocation_end(&mut self, now: Duration, end: Option<i64>, out: &mut Vec<Action>) {
        self.config.allocation_end = end;
        let over = self.halt_at().is_some_and(|limit| now >= limit);
        let Some(active) = self.state.active.as_mut().filter(|_| !over) else { return };
        let is_withdrawn = |halt: &mut RunningHalt| halt.cause == HaltCause::TimeLimit && !halt.is_terminated();
        // Ranks that have already been told at a checkpoint end.
        if active.facts.halting.is_none() && active.facts.halt.take_if(is_withdrawn).is_some() {
            self.request_halt(None, out);
        }
    }

    /// A time in seconds since the epoch, on the scale of `now`.
    fn on_own_scale(&self, time: i64) -> Duration {
        Duration::from_secs(u64::try_from(time.saturating_sub(self.config.started)).unwrap_or(0))
    }

    /// Begins to halt the ranks, or shortens the time that they have. `ends`: the time that the condition is about.
    pub(super) fn begin_halt(
        &mut self,
        now: Duration,
        cause: HaltCause,
        reason: String,
        ends: Option<Duration>,
        out: &mut Vec<Action>,
    ) {
        let Some(active) = self.state.active.as_ref().filter(|_| self.state.head.phase == Phase::Running) else {
            return;
        };
        let facts = &active.facts;
        // Ranks that have called finalize end by themselves, unless they must end.
        if facts.finalized && cause == HaltCause::Condition {
            return;
        }
        let can_checkpoint = facts.joined && !facts.finalized || cause == HaltCause::TimeLimit;
        let mut until = match facts.started {
            // The ranks may run already.
            false => now.saturating_add(START_REPORTED_WITHIN),
            true if can_checkpoint => self.checkpoint_until(now, ends),
            true => now,
        };
        match &facts.halt {
            Some(RunningHalt { stage: HaltStage::Requested { until: known }, .. }) => until = until.min(*known),
            Some(_) => return,
            None => {
                let within = until.saturating_sub(now);
                let (generation, reason) = (facts.generation, reason.clone());
                self.record(LogEvent::HaltRequested { generation, reason, within_ms: whole_millis(within) }, out);
            }
        }
        if let Some(active) = &mut self.state.active {
            let stage = HaltStage::Requested { until };
            match &mut active.facts.halt {
                Some(halt) => {
                    halt.stage = stage;
                    // A condition that is cleared withdraws its own halt only.
                    if halt.cause == HaltCause::Condition && cause != HaltCause::Condition {
                        (halt.cause, halt.reason) = (cause, reason.clone());
                    }
                }
                None => active.facts.halt = Some(RunningHalt { cause, reason: reason.clone(), stage }),
            }
        }
        // Also if ranks have not joined yet: they need not begin.
        self.request_halt(Some(reason), out);
        if until <= now {
            self.terminate_ranks(now, out);
        }
    }

    /// Until when the ranks may reach their next checkpoint. As much time follows until they are killed, if there is so
    /// much.
    fn checkpoint_until(&self, now: Duration, ends: Option<Duration>) -> Duration {
        let grace = self.config.halt_grace;
        let until = now.saturating_add(grace);
        // Before a known end there is no reason for haste.
        let before_end = ends.map(|ends| ends.saturating_sub(self.drain_reserve()).saturating_sub(grace));
        let until = before_end.map_or(until, |limit| until.max(limit));
        let latest = |limit: Duration| limit.saturating_sub(grace.min(limit.saturating_sub(now) / 2));
        self.run_until().map_or(until, |limit| until.min(latest(limit)))
    }

    /// Sends SIGTERM to the ranks.
    pub(super) fn terminate_ranks(&mut self, now: Duration, out: &mut Vec<Action>) {
        let limit = now.saturating_add(self.config.halt_grace);
        let until = self.run_until().map_or(limit, |end| limit.min(end));
        let Some(active) = self.state.active.as_mut() else { return };
        let generation = active.facts.generation;
        let Some(halt) = active.facts.halt.as_mut() else { return };
        halt.stage = HaltStage::Terminating { until };
        let reason = halt.reason.clone();
        let within_ms = whole_millis(until.saturating_sub(now));
        self.record(LogEvent::RanksTerminated { generation, reason: reason.clone(), within_ms }, out);
        self.send_terminate(out);
        if until <= now {
            self.kill_after_grace(now, out);
        }
    }

    fn send_terminate(&self, out: &mut Vec<Action>) {
        let Some(halt) = self.state.active.as_ref().and_then(|active| active.facts.halt.as_ref()) else { return };
        let to = self.names_of(self.healthy_nodes().filter(|position| self.is_used(*position)));
        if !to.is_empty() {
            out.push(Action::TerminateRanks { generation: self.generation(), to, reason: halt.reason.clone() });
        }
    }

    fn kill_after_grace(&mut self, now: Duration, out: &mut Vec<Action>) {
        let Some(halt) = self.state.active.as_ref().and_then(|active| active.facts.halt.as_ref()) else { return };
        let (cause, reason) = (halt.cause, halt.reason.clone());
        self.kill_halted(now, cause, reason, out);
    }

    /// Kills the ranks of the running generation without further delay.
    pub(super) fn kill_halted(&mut self, now: Duration, cause: HaltCause, reason: String, out: &mut Vec<Action>) {
        let Some(active) = self.state.active.as_mut().filter(|_| self.state.head.phase == Phase::Running) else {
            return;
        };
        let halt = active.facts.halt.get_or_insert(RunningHalt { cause, reason, stage: HaltStage::Killed });
        halt.stage = HaltStage::Killed;
        let seen = format!("halted: {}", halt.reason);
        self.end_generation(now, seen, out);
    }

    /// What is due while ranks run.
    pub(super) fn check_halt(&mut self, now: Duration, out: &mut Vec<Action>) {
        let over = |limit: Option<Duration>| limit.is_some_and(|limit| now >= limit);
        if over(self.run_until()) {
            return self.kill_halted(now, HaltCause::TimeLimit, self.end_is_near(now), out);
        }
        let stage = self.state.active.as_ref().and_then(|active| Some(active.facts.halt.as_ref()?.stage));
        match stage {
            None if over(self.halt_at()) => {
                self.begin_halt(now, HaltCause::TimeLimit, self.end_is_near(now), None, out);
            }
            Some(HaltStage::Requested { until }) if now >= until => {
                let started = self.state.active.as_ref().is_some_and(|active| active.facts.started);
                if started { self.terminate_ranks(now, out) } else { self.kill_after_grace(now, out) }
            }
            Some(HaltStage::Terminating { until }) if now >= until => self.kill_after_grace(now, out),
            _ => {}
        }
    }

    /// When something is due while ranks run.
    pub(super) fn halt_deadline(&self) -> Option<Duration> {
        let stage = self.state.active.as_ref().and_then(|active| Some(active.facts.halt.as_ref()?.stage));
        let due = match stage {
            None => self.halt_at(),
            Some(HaltStage::Requested { until } | HaltStage::Terminating { until }) => Some(until),
            Some(HaltStage::Killed) => None,
        };
        due.into_iter().chain(self.run_until()).min()
    }

    fn end_is_near(&self, now: Duration) -> String {
        let left = self.config.end().unwrap_or_default().saturating_sub(now).as_secs();
        let reserve = self.drain_reserve().as_secs();
        format!("the allocation ends in {left} s, of which {reserve} s are kept for the drain")
    }

    /// After a take-over: the requests may not have been sent.
    pub(super) fn repeat_halt(&self, out: &mut Vec<Action>) {
        if self.state.active.as_ref().is_some_and(|active| active.is_terminated()) {
            self.send_terminate(out);
        }
        self.repeat_request(out);
    }

    /// The leader's agent was restarted, and has no request any more.
    pub(super) fn repeat_request(&self, out: &mut Vec<Action>) {
        let halt = self.state.active.as_ref().and_then(|active| active.facts.halt.as_ref());
        if let Some(RunningHalt { reason, stage: HaltStage::Requested { .. }, .. }) = halt {
            self.request_halt(Some(reason.clone()), out);
        }
    }

    fn request_halt(&self, reason: Option<String>, out: &mut Vec<Action>) {
        let leader = self.leader.filter(|leader| self.state.nodes[*leader as usize].is_healthy());
        if let Some(leader) = leader {
            out.push(Action::RequestHalt { generation: self.generation(), to: self.name(leader), reason });
        }
    }
}
