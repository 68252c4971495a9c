//! The life of a pair on one node: starts copies, wakes one, ends and replaces those that fail.
//!
//! `turn` decides who is awake; `tenure` holds the lease of a pair whose copies are on two nodes.

mod copy;
mod restore;
mod tenure;
#[cfg(test)]
mod tests;
mod turn;

use std::time::Duration;

use holdfast_model::pair::{
    CopyState, FailureCause, Grant, LeaseStatus, MirroredCheckpoint, PairChange, PairCommand, PairConfig, PairStatus,
    Side, Term,
};
use holdfast_model::rank_end::RankEnd;
use serde::{Deserialize, Serialize};

use copy::{Copy, Next, Phase};
use tenure::Tenure;

pub use copy::CopySnapshot;
pub use restore::{Found, HeldLease, Snapshot};

/// The copies that are on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LocalSides {
    Both,
    /// The other copy is on another node: this one is awake only under a lease.
    Only(Side),
}

impl LocalSides {
    pub fn contains(self, side: Side) -> bool {
        match self {
            LocalSides::Both => true,
            LocalSides::Only(only) => only == side,
        }
    }
}

/// What the agent, its copies or the orchestrator report to the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process was started, as [`Action::Start`] requested.
    Started {
        side: Side,
        incarnation: u64,
        pid: u32,
    },
    /// No process could be started.
    StartFailed {
        side: Side,
        incarnation: u64,
        reason: String,
    },
    /// The copy waits for its turn.
    Registered {
        side: Side,
        incarnation: u64,
    },
    /// The process is gone. `finished`: it had said that the work of the pair is done.
    Exited {
        side: Side,
        incarnation: u64,
        end: RankEnd,
        finished: bool,
    },
    /// The awake copy said that the work of the pair is done; it has no heartbeats from now on.
    Finishing {
        side: Side,
        incarnation: u64,
    },
    /// A copy that said that the work of the pair is done has more work after all.
    Resumed {
        side: Side,
        incarnation: u64,
    },
    /// The awake copy has no heartbeats.
    BeatsMissed {
        side: Side,
        incarnation: u64,
        misses: u32,
    },
    /// A time that [`PairMachine::next_deadline`] named has come.
    Tick,
    Command(PairCommand),
    /// From the orchestrator: the copy of this node may be awake.
    Lease(Grant),
    /// From the orchestrator: the copy of this node is to be ended, and the lease given back.
    Revoke(Term),
    /// The newest checkpoint of the other node that is here.
    Mirrored(MirroredCheckpoint),
    /// The pair finished on the other node.
    PeerFinished,
    /// The job ends: all copies are ended.
    End,
    /// The same without `stop_grace`, also for copies that were told to end before.
    EndAtOnce,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Starts a process for this copy.
    Start {
        side: Side,
        incarnation: u64,
    },
    /// Lets the waiting copy go on.
    Wake {
        side: Side,
        incarnation: u64,
    },
    /// Tells the copy to end: its word in shared memory, and SIGTERM to its process group.
    Stop {
        side: Side,
        incarnation: u64,
    },
    /// SIGKILL to the copy's process group.
    Kill {
        side: Side,
        incarnation: u64,
    },
    /// Watches the heartbeats of the copy, from now on.
    Watch {
        side: Side,
        incarnation: u64,
    },
    Unwatch {
        side: Side,
        incarnation: u64,
    },
    /// Suspends the jobs that are in the way of the woken replica.
    SuspendJobs,
    ResumeJobs,
    /// Sends the newest checkpoint to the other node, at once.
    FlushMirror,
    /// The lease ends at this time, for a copy that outlives its agent; `None`: there is no lease.
    HoldUntil {
        side: Side,
        until: Option<Duration>,
    },
    /// Tells users. Numbers of checkpoints and process ids in it are 0 where only the agent knows them.
    Report(PairChange),
}

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefused {
    #[error("the pair has finished")]
    Finished,
    #[error("the replica is {0}, not asleep: wait until it is, or restart it")]
    ReplicaNotAsleep(CopyState),
    #[error("the main was given up: restart it first")]
    MainGivenUp,
    #[error("the {0} is on another node")]
    NotHere(Side),
    #[error("the copies are on two nodes: the orchestrator's lease decides which one is awake")]
    TwoNodes,
}

impl CommandRefused {
    /// Whether a command can be obeyed by copies in these states; one without a state counts as absent.
    pub fn check(
        command: PairCommand,
        is_finished: bool,
        state: impl Fn(Side) -> Option<CopyState>,
    ) -> Result<(), CommandRefused> {
        match command {
            _ if is_finished => Err(CommandRefused::Finished),
            PairCommand::FailOver => match state(Side::Replica).unwrap_or_default() {
                CopyState::Asleep | CopyState::Awake => Ok(()),
                state => Err(CommandRefused::ReplicaNotAsleep(state)),
            },
            PairCommand::FailBack if state(Side::Main) == Some(CopyState::GivenUp) => Err(CommandRefused::MainGivenUp),
            PairCommand::FailBack | PairCommand::Restart(_) => Ok(()),
        }
    }
}

/// The failure, or the request, after which another copy is to be woken.
#[derive(Clone, Debug)]
struct Loss {
    cause: FailureCause,
    at: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Runs,
    Finished,
    /// The job ends: no copy is started any more.
    Ended,
}

/// One pair on one node.
#[derive(Clone, Debug)]
pub struct PairMachine {
    config: PairConfig,
    pub sides: LocalSides,
    copies: [Option<Copy>; 2],
    /// The side that is awake when both can be.
    preferred: Side,
    /// The side that was woken last.
    last_awake: Option<Side>,
    loss: Option<Loss>,
    course: Course,
    lease: Option<Tenure>,
    released: Term,
    released_cause: Option<FailureCause>,
    /// The newest checkpoint of the other node that is here.
    mirrored: MirroredCheckpoint,
    jobs_suspended: bool,
    fail_overs: u64,
    fail_backs: u64,
}

/// Actions of one event, reports last.
#[derive(Default)]
struct Output {
    actions: Vec<Action>,
    reports: Vec<PairChange>,
}

impl Output {
    fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn report(&mut self, change: PairChange) {
        self.reports.push(change);
    }

    fn into_actions(mut self) -> Vec<Action> {
        self.actions.extend(self.reports.into_iter().map(Action::Report));
        self.actions
    }
}

impl PairMachine {
    /// A pair whose copies are started now.
    pub fn new(config: &PairConfig, sides: LocalSides, now: Duration) -> (PairMachine, Vec<Action>) {
        let copy = |side| sides.contains(side).then(|| Copy::due(now));
        let mut machine = PairMachine {
            config: config.clone(),
            sides,
            copies: Side::BOTH.map(copy),
            preferred: Side::Main,
            last_awake: None,
            loss: None,
            course: Course::Runs,
            lease: None,
            released: Term::default(),
            released_cause: None,
            mirrored: MirroredCheckpoint::default(),
            jobs_suspended: false,
            fail_overs: 0,
            fail_backs: 0,
        };
        let mut out = Output::default();
        machine.settle(now, &mut out);
        (machine, out.into_actions())
    }

    /// Takes an event; returns what is to be done.
    pub fn on(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut out = Output::default();
        self.receive(now, event, &mut out);
        self.expire(now, &mut out);
        self.settle(now, &mut out);
        out.into_actions()
    }

    /// When [`Event::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        let copies = self.copies.iter().flatten().filter_map(Copy::deadline);
        copies.chain(self.preferred_until()).chain(self.lease_deadline()).min()
    }

    /// The state of the pair; heartbeats and checkpoints are filled in by the agent, which counts them.
    pub fn status(&self, pair: u32) -> PairStatus {
        let lease = LeaseStatus {
            held: self.lease.as_ref().map(|lease| lease.term),
            released: self.released,
            cause: self.released_cause.clone(),
            mirrored: self.mirrored,
            own_newest: 0,
            own_term: Term::default(),
        };
        PairStatus {
            pair,
            name: self.config.name.clone(),
            main: self.copy(Side::Main).map(Copy::status),
            replica: self.copy(Side::Replica).map(Copy::status),
            checkpoint: 0,
            checkpoint_age_ms: None,
            missed: 0,
            fail_overs: self.fail_overs,
            fail_backs: self.fail_backs,
            lease: (self.sides != LocalSides::Both).then_some(lease),
        }
    }

    /// The pair has finished, or its job: nothing is started any more.
    pub fn is_over(&self) -> bool {
        self.course != Course::Runs
    }

    /// A pair that is finished stays so.
    fn set_ended(&mut self) {
        if self.course == Course::Runs {
            self.course = Course::Ended;
        }
    }

    /// No process of the pair exists on this node.
    pub fn is_gone(&self) -> bool {
        !self.copies.iter().flatten().any(Copy::exists)
    }

    /// Changes the settings from now on; times that are running keep their end.
    pub fn configure(&mut self, config: &PairConfig) {
        self.config = config.clone();
    }

    /// Whether a command can be obeyed now.
    pub fn check(&self, command: PairCommand) -> Result<(), CommandRefused> {
        match command {
            PairCommand::Restart(side) if !self.is_over() && self.copy(side).is_none() => {
                Err(CommandRefused::NotHere(side))
            }
            PairCommand::FailOver | PairCommand::FailBack if !self.is_over() && self.sides != LocalSides::Both => {
                Err(CommandRefused::TwoNodes)
            }
            _ => CommandRefused::check(command, self.is_over(), |side| self.copy(side).map(Copy::state)),
        }
    }

    fn copy(&self, side: Side) -> Option<&Copy> {
        self.copies[side.index()].as_ref()
    }

    fn copy_mut(&mut self, side: Side) -> Option<&mut Copy> {
        self.copies[side.index()].as_mut()
    }

    /// The copy, if the event is about its present process.
    fn current(&mut self, side: Side, incarnation: u64) -> Option<&mut Copy> {
        self.copy_mut(side).filter(|copy| copy.incarnation == incarnation && copy.exists())
    }

    fn receive(&mut self, now: Duration, event: Event, out: &mut Output) {
        match event {
            Event::Started { side, incarnation, pid } => {
                if let Some(copy) = self.current(side, incarnation) {
                    copy.pid = Some(pid);
                    out.report(PairChange::Started { side, pid, incarnation });
                }
            }
            Event::StartFailed { side, incarnation, reason } => {
                if self.current(side, incarnation).is_some() {
                    self.fail(now, side, FailureCause::NotStarted { reason }, Process::Gone, out);
                }
            }
            Event::Registered { side, incarnation } => {
                let Some(copy) = self.current(side, incarnation) else { return };
                if matches!(copy.phase, Phase::Starting { .. }) {
                    copy.phase = Phase::Asleep;
                    copy.registered = Some(now);
                    out.report(PairChange::Asleep { side });
                }
            }
            Event::Exited { side, incarnation, end, finished } => {
                if self.current(side, incarnation).is_some() {
                    self.exited(now, side, end, finished, out);
                }
            }
            Event::Finishing { side, incarnation } => {
                let by = now + self.config.start_within;
                let Some(copy) = self.current(side, incarnation) else { return };
                if copy.phase == (Phase::Awake { finishing: None }) {
                    copy.phase = Phase::Awake { finishing: Some(by) };
                    out.push(Action::Unwatch { side, incarnation });
                }
            }
            Event::Resumed { side, incarnation } => {
                let Some(copy) = self.current(side, incarnation) else { return };
                if matches!(copy.phase, Phase::Awake { finishing: Some(_) }) {
                    copy.phase = Phase::Awake { finishing: None };
                    out.push(Action::Watch { side, incarnation });
                }
            }
            Event::BeatsMissed { side, incarnation, misses } => {
                let Some(copy) = self.current(side, incarnation) else { return };
                if copy.phase == (Phase::Awake { finishing: None }) {
                    self.fail(now, side, FailureCause::Hang { misses }, Process::Exists, out);
                }
            }
            Event::Tick => {}
            Event::Command(command) => {
                if self.check(command).is_ok() {
                    self.command(now, command, out);
                }
            }
            Event::Lease(grant) => self.granted(now, grant, out),
            Event::Revoke(term) => self.revoked(now, term, out),
            Event::Mirrored(checkpoint) => self.mirrored = self.mirrored.max(checkpoint),
            Event::PeerFinished => {
                if self.sides != LocalSides::Both && self.course == Course::Runs {
                    self.course = Course::Finished;
                }
            }
            Event::End => self.set_ended(),
            Event::EndAtOnce => {
                self.set_ended();
                self.end_all(now, out);
                for copy in self.copies.iter_mut().flatten() {
                    if let Phase::Ending { kill_at: Some(at), .. } = &mut copy.phase {
                        *at = now;
                    }
                }
            }
        }
    }

    fn exited(&mut self, now: Duration, side: Side, end: RankEnd, finished: bool, out: &mut Output) {
        let runs = self.course == Course::Runs;
        let Some(copy) = self.copy_mut(side) else { return };
        let incarnation = copy.incarnation;
        match copy.phase {
            // It was killed because it did not end when its work was done, and had more work after all.
            Phase::Ending { was_awake: true, next: Next::Nothing, .. } if runs && !finished => {
                copy.phase = Phase::Awake { finishing: None };
                self.fail(now, side, FailureCause::Exit { end }, Process::Gone, out);
            }
            // Who was told to end has done so in any way; its work was done before, or goes on elsewhere.
            Phase::Ending { was_awake, next, .. } => {
                if was_awake && finished {
                    self.finish(side, out);
                    return;
                }
                copy.phase = match next {
                    Next::Start(at) => Phase::Due(at.max(now)),
                    Next::Nothing => Phase::Absent,
                    Next::GiveUp => Phase::GivenUp,
                };
                if was_awake && self.sides != LocalSides::Both {
                    out.push(Action::FlushMirror);
                }
            }
            // A script around a program that was killed may also end with exit code 0. The exit status of a process
            // that another agent has started is unknown.
            Phase::Awake { .. } if finished && matches!(end, RankEnd::SUCCESS | RankEnd::Unknown) => {
                out.push(Action::Unwatch { side, incarnation });
                self.finish(side, out);
            }
            _ => self.fail(now, side, FailureCause::Exit { end }, Process::Gone, out),
        }
    }

    fn finish(&mut self, side: Side, out: &mut Output) {
        if let Some(copy) = self.copy_mut(side) {
            copy.phase = Phase::Finished;
        }
        if self.course == Course::Runs {
            self.course = Course::Finished;
        }
        out.report(PairChange::Finished { side });
    }

    /// The copy failed. A process that still exists is killed; it counts as asleep from then on.
    fn fail(&mut self, now: Duration, side: Side, cause: FailureCause, process: Process, out: &mut Output) {
        let policy = self.config.restart;
        let two_nodes = self.sides != LocalSides::Both;
        let Some(copy) = self.copy_mut(side) else { return };
        let (state, was_awake, incarnation) = (copy.state(), copy.is_awake(), copy.incarnation);
        let up = copy.registered.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        let pause = copy.back_off.failed(&policy, up);
        let failures = copy.back_off.failures;
        let next = pause.map_or(Next::GiveUp, |pause| Next::Start(now + pause));
        copy.phase = match (process, next) {
            (Process::Exists, next) => {
                out.push(Action::Kill { side, incarnation });
                // Between nodes, the lease is kept until the process is gone. Within a node, SIGKILL is enough: the
                // process has no further instruction, also if its end takes long.
                Phase::Ending { kill_at: None, was_awake: was_awake && two_nodes, next }
            }
            (Process::Gone, Next::Start(at)) => Phase::Due(at),
            (Process::Gone, Next::Nothing) => Phase::Absent,
            (Process::Gone, Next::GiveUp) => Phase::GivenUp,
        };
        copy.registered = None;
        if was_awake {
            out.push(Action::Unwatch { side, incarnation });
            if two_nodes && process == Process::Gone {
                out.push(Action::FlushMirror);
            }
            self.released_cause = Some(cause.clone());
            self.loss = Some(Loss { cause: cause.clone(), at: now });
            if side == Side::Replica {
                self.preferred = Side::Main;
            }
        }
        out.report(PairChange::Failed { side, state, cause });
        if pause.is_none() {
            out.report(PairChange::GivenUp { side, failures });
        }
    }

    fn command(&mut self, now: Duration, command: PairCommand, out: &mut Output) {
        match command {
            PairCommand::FailOver => {
                self.preferred = Side::Replica;
                if self.copy(Side::Main).is_some_and(Copy::is_awake) {
                    self.loss = Some(Loss { cause: FailureCause::Command, at: now });
                }
            }
            PairCommand::FailBack => {
                self.preferred = Side::Main;
                if let Some(copy) = self.copy_mut(Side::Main)
                    && matches!(copy.phase, Phase::Due(_) | Phase::Absent)
                {
                    copy.phase = Phase::Due(now);
                }
            }
            PairCommand::Restart(side) => self.restart(now, side, out),
        }
    }

    fn restart(&mut self, now: Duration, side: Side, out: &mut Output) {
        let two_nodes = self.sides != LocalSides::Both;
        let Some(copy) = self.copy_mut(side) else { return };
        copy.back_off.failures = 0;
        let next = Next::Start(now);
        let (state, was_awake, incarnation) = (copy.state(), copy.is_awake(), copy.incarnation);
        match copy.phase {
            Phase::Absent | Phase::Due(_) | Phase::GivenUp | Phase::Finished => copy.phase = Phase::Due(now),
            Phase::Ending { kill_at, was_awake, .. } => copy.phase = Phase::Ending { kill_at, was_awake, next },
            Phase::Starting { .. } | Phase::Asleep | Phase::Awake { .. } => {
                copy.phase = Phase::Ending { kill_at: None, was_awake: was_awake && two_nodes, next };
                copy.registered = None;
                out.push(Action::Kill { side, incarnation });
                if was_awake {
                    out.push(Action::Unwatch { side, incarnation });
                    self.released_cause = Some(FailureCause::Command);
                    self.loss = Some(Loss { cause: FailureCause::Command, at: now });
                }
                out.report(PairChange::Failed { side, state, cause: FailureCause::Command });
            }
        }
    }

    /// Tells a copy to end: first asks, then kills.
    fn stop(&mut self, now: Duration, side: Side, next: Next, out: &mut Output) {
        let kill_at = Some(now + self.config.stop_grace);
        let Some(copy) = self.copy_mut(side) else { return };
        let (was_awake, incarnation) = (copy.is_awake(), copy.incarnation);
        copy.phase = Phase::Ending { kill_at, was_awake, next };
        copy.registered = None;
        out.push(Action::Stop { side, incarnation });
        if was_awake {
            out.push(Action::Unwatch { side, incarnation });
        }
    }

    /// Applies the deadlines that have passed.
    fn expire(&mut self, now: Duration, out: &mut Output) {
        self.expire_lease(now, out);
        for side in Side::BOTH {
            let Some(copy) = self.copy_mut(side) else { continue };
            let incarnation = copy.incarnation;
            match copy.phase {
                Phase::Starting { by, .. } if by <= now => {
                    self.fail(now, side, FailureCause::NotRegistered, Process::Exists, out);
                }
                Phase::Ending { kill_at: Some(at), was_awake, next } if at <= now => {
                    copy.phase = Phase::Ending { kill_at: None, was_awake, next };
                    out.push(Action::Kill { side, incarnation });
                }
                // Its work is done, as it said; only its end takes too long.
                Phase::Awake { finishing: Some(by) } if by <= now => {
                    copy.phase = Phase::Ending { kill_at: None, was_awake: true, next: Next::Nothing };
                    out.push(Action::Kill { side, incarnation });
                }
                _ => {}
            }
        }
    }
}

/// Whether a copy that failed still has a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    Exists,
    Gone,
}
