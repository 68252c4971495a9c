//! The lease of a pair whose copies are on two nodes, as one node holds it.

use std::time::Duration;

use holdfast_model::pair::{FailureCause, Grant, MirroredCheckpoint, PairChange, Side, Term};

use super::copy::{Copy, Next, Phase};
use super::{Action, LocalSides, Loss, Output, PairMachine};

/// The longest time that a copy waits for the last checkpoint of the other node.
const MIRROR_WAIT: Duration = Duration::from_secs(1);

/// The permission that this node holds.
#[derive(Clone, Debug)]
pub(super) struct Tenure {
    pub(super) term: Term,
    pub(super) until: Duration,
    pub(super) since: Duration,
    pub(super) after: Option<MirroredCheckpoint>,
    /// Why the other node's copy is no longer awake; `None`: there was none.
    pub(super) cause: Option<FailureCause>,
}

impl PairMachine {
    fn local(&self) -> Option<Side> {
        match self.sides {
            LocalSides::Both => None,
            LocalSides::Only(side) => Some(side),
        }
    }

    /// A copy may be woken now.
    pub(super) fn permitted(&self, now: Duration) -> bool {
        if self.sides == LocalSides::Both {
            return true;
        }
        self.lease.as_ref().is_some_and(|lease| now < lease.until && self.mirror_wait(lease).is_none_or(|at| at <= now))
    }

    /// Until when the copy waits for the last checkpoint of the other node.
    fn mirror_wait(&self, lease: &Tenure) -> Option<Duration> {
        lease.after.filter(|checkpoint| *checkpoint > self.mirrored).map(|_| lease.since + MIRROR_WAIT)
    }

    pub(super) fn lease_deadline(&self) -> Option<Duration> {
        let lease = self.lease.as_ref()?;
        let asleep = self.copies.iter().flatten().any(Copy::is_asleep);
        let wait = self.mirror_wait(lease).filter(|_| asleep);
        Some(wait.map_or(lease.until, |at| at.min(lease.until)))
    }

    /// The side that was awake on the other node before, and why it no longer is.
    pub(super) fn predecessor(&self) -> (Option<Side>, Option<Loss>) {
        let other = self.local().map(Side::other);
        match &self.lease {
            Some(Tenure { cause: Some(cause), since, .. }) => (other, Some(Loss { cause: cause.clone(), at: *since })),
            _ => (None, None),
        }
    }

    pub(super) fn granted(&mut self, now: Duration, grant: Grant, out: &mut Output) {
        let Some(side) = self.local() else { return };
        let Grant { term, until, after, cause, .. } = grant;
        if term <= self.released || until <= now || self.is_over() {
            return;
        }
        match &mut self.lease {
            Some(held) if held.term == term => held.until = held.until.max(until),
            Some(held) if held.term > term => return,
            held => *held = Some(Tenure { term, until, since: now, after, cause }),
        }
        let until = self.lease.as_ref().map(|lease| lease.until);
        out.push(Action::HoldUntil { side, until });
    }

    pub(super) fn revoked(&mut self, now: Duration, term: Term, out: &mut Output) {
        let Some(side) = self.local() else { return };
        match &self.lease {
            Some(held) if held.term <= term => {
                self.released_cause = Some(FailureCause::Lease);
                if self.copy(side).is_some_and(Copy::is_awake) {
                    self.stop(now, side, Next::Start(now), out);
                } else if !self.copy(side).is_some_and(Copy::may_work) {
                    self.release(out);
                }
            }
            // A grant of this term that is still on its way is refused.
            None => self.released = self.released.max(term),
            Some(_) => {}
        }
    }

    /// The lease ran out: a copy that works is killed at once.
    pub(super) fn expire_lease(&mut self, now: Duration, out: &mut Output) {
        let Some(side) = self.local() else { return };
        if self.lease.as_ref().is_none_or(|lease| now < lease.until) {
            return;
        }
        self.released_cause = Some(FailureCause::Lease);
        let Some(copy) = self.copy_mut(side) else { return };
        let incarnation = copy.incarnation;
        let watched = copy.is_awake();
        let next = match copy.phase {
            Phase::Awake { .. } => Some(Next::Start(now)),
            Phase::Ending { kill_at: Some(_), was_awake: true, next } => Some(next),
            _ => None,
        };
        if let Some(next) = next {
            copy.phase = Phase::Ending { kill_at: None, was_awake: true, next };
            copy.registered = None;
            out.push(Action::Kill { side, incarnation });
            if watched {
                out.push(Action::Unwatch { side, incarnation });
            }
            out.report(PairChange::LeaseExpired { side });
        }
        self.release(out);
    }

    /// Gives the lease back when no copy uses it.
    pub(super) fn settle_lease(&mut self, out: &mut Output) {
        let Some(side) = self.local() else { return };
        let used = |copy: &Copy| copy.is_awake() || copy.may_work() || copy.is_asleep();
        if self.lease.is_some() && (self.is_over_and_gone(side) || !self.copy(side).is_some_and(used)) {
            self.release(out);
        }
    }

    fn is_over_and_gone(&self, side: Side) -> bool {
        self.is_over() && !self.copy(side).is_some_and(Copy::exists)
    }

    fn release(&mut self, out: &mut Output) {
        if let (Some(side), Some(lease)) = (self.local(), self.lease.take()) {
            self.released = self.released.max(lease.term);
            out.push(Action::HoldUntil { side, until: None });
        }
    }
}
