//! Which copy is awake, and which are started.

use std::time::Duration;

use holdfast_model::pair::{FailureCause, PairChange, Side};

use super::copy::{Copy, Next, Phase};
use super::{Action, Course, LocalSides, Loss, Output, PairMachine};

/// The longest time that a replica waits for a main that was started again when none is awake.
const MAIN_FIRST: Duration = Duration::from_millis(200);

impl PairMachine {
    /// Brings the copies to where they should be.
    pub(super) fn settle(&mut self, now: Duration, out: &mut Output) {
        if self.course == Course::Runs {
            self.take_turn(now, out);
            self.start_due(now, out);
        } else {
            self.end_all(now, out);
        }
        self.settle_lease(out);
        self.settle_jobs(out);
    }

    fn take_turn(&mut self, now: Duration, out: &mut Output) {
        let awake = Side::BOTH.into_iter().find(|side| self.copy(*side).is_some_and(Copy::is_awake));
        if let Some(side) = awake {
            let other = side.other();
            let handed_over = other == self.preferred && self.copy(other).is_some_and(Copy::is_asleep);
            let finishing = self.copy(side).is_some_and(|copy| copy.phase != Phase::Awake { finishing: None });
            if handed_over && !finishing {
                if self.loss.is_none() {
                    self.loss = Some(Loss { cause: FailureCause::Command, at: now });
                }
                // A copy that was awake never sleeps again: it ends, and a new one takes its place.
                self.stop(now, side, Next::Start(now), out);
            }
            return;
        }
        if self.copies.iter().flatten().any(Copy::may_work) || !self.permitted(now) {
            return;
        }
        let order = [self.preferred, self.preferred.other()];
        let Some(side) = order.into_iter().find(|side| self.copy(*side).is_some_and(Copy::is_asleep)) else { return };
        if side != self.preferred && self.preferred_until().is_some_and(|until| now < until) {
            return;
        }
        self.wake(now, side, out);
    }

    /// Until when the other copy waits for the preferred one, which is about to register.
    ///
    /// At the start of the pair that is as long as a start may take. Later, when both have failed and were started
    /// again, it is short: it saves the replica from being woken and ended for the main at once.
    pub(super) fn preferred_until(&self) -> Option<Duration> {
        if self.sides != LocalSides::Both || !self.copy(self.preferred.other())?.is_asleep() {
            return None;
        }
        match self.copy(self.preferred)?.phase {
            Phase::Starting { by, .. } if self.last_awake.is_none() => Some(by),
            Phase::Starting { since, .. } => Some(since + MAIN_FIRST),
            _ => None,
        }
    }

    fn wake(&mut self, now: Duration, side: Side, out: &mut Output) {
        let Some(copy) = self.copy_mut(side) else { return };
        let incarnation = copy.incarnation;
        copy.phase = Phase::Awake { finishing: None };
        out.push(Action::Wake { side, incarnation });
        out.push(Action::Watch { side, incarnation });
        let (from, loss) = match self.sides {
            LocalSides::Both => (self.last_awake, self.loss.take()),
            LocalSides::Only(_) => self.predecessor(),
        };
        let micros = loss.as_ref().map_or(0, |loss| now.saturating_sub(loss.at).as_micros());
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        self.last_awake = Some(side);
        self.loss = None;
        out.report(match (from, side) {
            (Some(Side::Main), Side::Replica) => {
                self.fail_overs += 1;
                let cause = loss.map_or(FailureCause::Command, |loss| loss.cause);
                PairChange::FailOver { cause, checkpoint: 0, micros }
            }
            (Some(Side::Replica), Side::Main) => {
                self.fail_backs += 1;
                PairChange::FailBack { checkpoint: 0, micros }
            }
            _ => PairChange::Awake { side, checkpoint: 0 },
        });
    }

    fn start_due(&mut self, now: Duration, out: &mut Output) {
        let by = now + self.config.start_within;
        for side in Side::BOTH {
            let Some(copy) = self.copy_mut(side) else { continue };
            if matches!(copy.phase, Phase::Due(at) if at <= now) {
                copy.incarnation += 1;
                copy.pid = None;
                copy.registered = None;
                copy.phase = Phase::Starting { since: now, by };
                out.push(Action::Start { side, incarnation: copy.incarnation });
            }
        }
    }

    /// The pair has finished, or the job ends.
    pub(super) fn end_all(&mut self, now: Duration, out: &mut Output) {
        for side in Side::BOTH {
            let Some(copy) = self.copy_mut(side) else { continue };
            match copy.phase {
                Phase::Starting { .. } | Phase::Asleep | Phase::Awake { .. } => {
                    self.stop(now, side, Next::Nothing, out);
                }
                Phase::Ending { kill_at, was_awake, .. } => {
                    copy.phase = Phase::Ending { kill_at, was_awake, next: Next::Nothing };
                }
                Phase::Due(_) => copy.phase = Phase::Absent,
                Phase::Absent | Phase::Finished | Phase::GivenUp => {}
            }
        }
    }

    /// Jobs are suspended while a replica of another node's main works here.
    fn settle_jobs(&mut self, out: &mut Output) {
        let works = |copy: &Copy| copy.is_awake() || copy.may_work();
        let needed = self.sides == LocalSides::Only(Side::Replica) && self.copy(Side::Replica).is_some_and(works);
        if needed != self.jobs_suspended {
            self.jobs_suspended = needed;
            out.push(if needed { Action::SuspendJobs } else { Action::ResumeJobs });
        }
    }
}
