//! A new agent takes over the copies of one that ended.

use std::time::Duration;

use holdfast_model::pair::{CopyState, FailureCause, MirroredCheckpoint, PairChange, PairConfig, Side, Term};
use holdfast_model::rank_end::RankEnd;
use serde::{Deserialize, Serialize};

use super::copy::{Copy, CopySnapshot, Next, Phase};
use super::tenure::Tenure;
use super::{Action, Course, LocalSides, Output, PairMachine};
use crate::back_off::BackOff;

/// What an agent keeps of a pair on disk, for its successor. It holds no times: they may be of another boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub main: Option<CopySnapshot>,
    pub replica: Option<CopySnapshot>,
    /// The replica stays awake until [`holdfast_model::pair::PairCommand::FailBack`].
    pub replica_preferred: bool,
    pub last_awake: Option<Side>,
    pub finished: bool,
    pub ended: bool,
    pub released: Term,
    pub released_cause: Option<FailureCause>,
    pub fail_overs: u64,
    pub fail_backs: u64,
    /// The checkpoint of the other node that is here, without its number: that changes too often.
    #[serde(default)]
    pub mirrored: MirroredCheckpoint,
}

/// A copy that a new agent finds in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub side: Side,
    pub incarnation: u64,
    /// The process exists, and has this id.
    pub pid: Option<u32>,
    /// By its own word: starting, asleep or awake. A copy that was told to stop is ending.
    pub state: CopyState,
    /// It has said that the work of the pair is done.
    pub finished: bool,
}

/// The lease under which a copy that is found awake works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLease {
    pub term: Term,
    /// By the clock of the machine, in the same boot.
    pub until: Duration,
}

impl PairMachine {
    /// What is kept on disk before an [`Action::Start`] is performed.
    pub fn snapshot(&self) -> Snapshot {
        let copy = |side| {
            let of = |copy: &Copy| CopySnapshot {
                state: copy.state(),
                incarnation: copy.incarnation,
                back_off: copy.back_off,
            };
            self.copy(side).map(of)
        };
        Snapshot {
            main: copy(Side::Main),
            replica: copy(Side::Replica),
            replica_preferred: self.preferred == Side::Replica,
            last_awake: self.last_awake,
            finished: self.course == Course::Finished,
            ended: self.course == Course::Ended,
            released: self.released,
            released_cause: self.released_cause.clone(),
            fail_overs: self.fail_overs,
            fail_backs: self.fail_backs,
            mirrored: MirroredCheckpoint { term: self.mirrored.term, sequence: 0 },
        }
    }

    /// The machine of a new agent. The snapshot's [`Snapshot::mirrored`] is what shared memory still has. `found` is
    /// what shared memory and the processes of the node say; `lease` is the one that was held, if its end is known. A
    /// copy that is awake without a lease, where one is needed, is killed.
    pub fn restore(
        config: &PairConfig,
        sides: LocalSides,
        snapshot: &Snapshot,
        found: &[Found],
        lease: Option<HeldLease>,
        now: Duration,
    ) -> (PairMachine, Vec<Action>) {
        let (mut machine, _) = PairMachine::new(config, sides, now);
        machine.preferred = if snapshot.replica_preferred { Side::Replica } else { Side::Main };
        machine.last_awake = snapshot.last_awake;
        machine.course = match (snapshot.finished, snapshot.ended) {
            (true, _) => Course::Finished,
            (false, true) => Course::Ended,
            (false, false) => Course::Runs,
        };
        machine.released = snapshot.released;
        machine.released_cause.clone_from(&snapshot.released_cause);
        machine.fail_overs = snapshot.fail_overs;
        machine.fail_backs = snapshot.fail_backs;
        machine.mirrored = snapshot.mirrored;
        machine.lease = lease
            .filter(|lease| lease.term > snapshot.released && sides != LocalSides::Both)
            .map(|held| Tenure { term: held.term, until: held.until, since: now, after: None, cause: None });
        let mut out = Output::default();
        let mut gone = Vec::new();
        for (side, kept) in Side::BOTH.into_iter().zip([snapshot.main, snapshot.replica]) {
            let kept = kept.unwrap_or_default();
            let here = found.iter().filter(|found| found.side == side).max_by_key(|found| found.incarnation).copied();
            machine.adopt(now, side, kept, here, &mut gone, &mut out);
        }
        machine.resolve_double(now, &mut out);
        for (side, incarnation, finished) in gone {
            machine.receive(now, super::Event::Exited { side, incarnation, end: RankEnd::Unknown, finished }, &mut out);
        }
        machine.expire_unleased(now, &mut out);
        machine.expire(now, &mut out);
        machine.settle(now, &mut out);
        (machine, out.into_actions())
    }

    fn adopt(
        &mut self,
        now: Duration,
        side: Side,
        kept: CopySnapshot,
        found: Option<Found>,
        gone: &mut Vec<(Side, u64, bool)>,
        out: &mut Output,
    ) {
        let (grace, within) = (self.config.stop_grace, self.config.start_within);
        let Some(copy) = self.copy_mut(side) else { return };
        copy.incarnation = kept.incarnation.max(found.map_or(0, |found| found.incarnation));
        copy.back_off = BackOff { failures: kept.back_off.failures };
        let incarnation = copy.incarnation;
        let as_kept = |state| match state {
            CopyState::Starting => Phase::Starting { since: now, by: now + within },
            CopyState::Asleep => Phase::Asleep,
            CopyState::Awake => Phase::Awake { finishing: None },
            CopyState::Ending => Phase::Ending { kill_at: Some(now + grace), was_awake: true, next: Next::Start(now) },
            CopyState::Finished => Phase::Finished,
            CopyState::GivenUp => Phase::GivenUp,
            CopyState::Absent => Phase::Due(now),
        };
        match found.filter(|found| found.incarnation == incarnation) {
            Some(Found { pid: Some(pid), state, .. }) => {
                copy.phase = match state {
                    // The state of a process that exists.
                    CopyState::Absent | CopyState::Finished | CopyState::GivenUp => as_kept(CopyState::Starting),
                    state => as_kept(state),
                };
                copy.pid = Some(pid);
                copy.registered = (!matches!(copy.phase, Phase::Starting { .. })).then_some(now);
                let adopted = copy.state();
                match copy.phase {
                    Phase::Awake { .. } => {
                        self.last_awake = Some(side);
                        out.push(Action::Watch { side, incarnation });
                    }
                    // It may not have received the request of the other agent.
                    Phase::Ending { .. } => out.push(Action::Stop { side, incarnation }),
                    _ => {}
                }
                out.report(PairChange::Adopted { side, pid, incarnation, state: adopted });
            }
            other => {
                copy.phase = as_kept(kept.state);
                if copy.exists() {
                    // It ended while no agent ran. Where shared memory knows more than the disk, that counts.
                    if let Some(found) = other
                        && found.state == CopyState::Awake
                        && !matches!(copy.phase, Phase::Ending { .. })
                    {
                        copy.phase = as_kept(CopyState::Awake);
                    }
                    gone.push((side, incarnation, other.is_some_and(|found| found.finished)));
                }
            }
        }
    }

    /// Two copies that say that they are awake: the main was killed, and its replica woken, as the agent ended; the
    /// main may not be gone yet.
    fn resolve_double(&mut self, now: Duration, out: &mut Output) {
        if self.copies.iter().flatten().filter(|copy| copy.is_awake()).count() == 2 {
            self.fail(now, Side::Main, FailureCause::Exit { end: RankEnd::Unknown }, super::Process::Exists, out);
        }
        self.loss = None;
    }

    /// A copy works, and nothing says until when it may.
    fn expire_unleased(&mut self, now: Duration, out: &mut Output) {
        let LocalSides::Only(side) = self.sides else { return };
        let Some(copy) = self.copy_mut(side).filter(|copy| copy.is_awake()) else { return };
        let incarnation = copy.incarnation;
        if self.lease.is_none() {
            if let Some(copy) = self.copy_mut(side) {
                copy.phase = Phase::Ending { kill_at: None, was_awake: true, next: Next::Start(now) };
                copy.registered = None;
            }
            out.push(Action::Kill { side, incarnation });
            out.push(Action::Unwatch { side, incarnation });
            out.report(PairChange::LeaseExpired { side });
        }
    }
}
