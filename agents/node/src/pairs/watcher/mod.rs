//! The thread that watches all pairs of the node: their processes by pidfds, their heartbeats by a timer. It performs
//! what the pairs' machines decide, and does nothing that may block.

mod heartbeats;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

use holdfast_failover::{Action, BeatWatch, Event, Found, HeldLease, LocalSides, PairMachine, Watched};
use holdfast_model::Side;
use holdfast_model::pair::{CopyState, MirroredCheckpoint, PairChange, PairStatus, Term};
use holdfast_process::{ObservedProcess, ProcessId};
use holdfast_shm::{CopySlot, Registry, SlotState};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::environment;
use holdfast_wire::pairs::{AdoptedCopy, PairOnNode, PairsPlan, PeerOfPair, SidesOnNode};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::process::Signal;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use tokio::sync::oneshot;

use super::board::Board;
use super::clock;
use super::freezer;
use super::jobs::{Effects, Jobs};
use super::mirror::{Mirror, Task};
use super::process::{ProcessOwner, registered_program};
use super::requests::{CommandFault, Inbox, Request};
use super::start::{Start, Work};
use super::state::{PairState, State, StateChange};

/// Events that are taken at a time.
const EVENTS: usize = 256;
/// How often the numbers of heartbeats and checkpoints are published.
const PUBLISH: Duration = Duration::from_millis(200);
/// The data of epoll events: the position of a pair and its side, or one of these.
const TIMER: u64 = u64::MAX;
const REQUESTS: u64 = u64::MAX - 1;
const EARLY_TIMER: u64 = u64::MAX - 2;
const JOB: u64 = 1 << 32;

fn key(at: usize, side: Side) -> u64 {
    (at as u64) << 1 | side.index() as u64
}

/// The process of a copy, and what is known of it.
#[derive(Debug, Default)]
struct CopyRun {
    incarnation: u64,
    /// The process that was started: its end is the copy's end.
    process: Option<ObservedProcess>,
    /// The program that registered, if that is another process, and may be in another process group.
    program: Option<ObservedProcess>,
    starting: bool,
    registered: bool,
    /// It said that its work is done.
    finishing: bool,
    /// Sent as soon as it is started.
    signal: Option<Signal>,
    woken: Option<Duration>,
    /// Since when its missed heartbeats are excused.
    excused: Option<(u64, Duration)>,
}

impl CopyRun {
    /// Opens the program that has registered, while its number is its own.
    fn hold_program(&mut self, slot: &CopySlot) {
        if self.program.is_none() && slot.incarnation == self.incarnation {
            self.program = registered_program(slot, self.process.as_ref());
        }
    }

    /// Signals the copy's process groups, that of the started process now or as soon as it is started.
    fn signal(&mut self, signal: Signal) {
        match (&self.process, &self.program) {
            (Some(process), program) => {
                process.signal(signal);
                program.iter().for_each(|program| program.signal_beside(process, signal));
            }
            (None, Some(program)) => program.signal(signal),
            (None, None) => {}
        }
        if self.process.is_none() && self.starting {
            self.signal = Some(signal);
        }
    }
}

/// A pair on this node.
#[derive(Debug)]
struct Pair {
    index: u32,
    plan: PairOnNode,
    machine: PairMachine,
    runs: [CopyRun; 2],
    lease: Option<(Term, Duration)>,
    /// The term under which a copy of this node works, or worked last: its checkpoints are of this term, also while
    /// the lease of a later one is held.
    worked: Option<Term>,
    deadline: Option<Duration>,
    /// Missed heartbeats of copies that are not watched any more.
    missed: u64,
    saved: Option<PairState>,
    /// The newest checkpoint when a copy was woken last: it stores further ones at once.
    woken_at: Option<u64>,
}

impl Pair {
    /// The number and the state, unless this state was saved last: a renewed lease, for instance, changes nothing in
    /// it.
    fn unsaved(&mut self) -> Option<(u32, PairState)> {
        let of = |run: &CopyRun, process: &Option<ObservedProcess>| Some((run.incarnation, process.as_ref()?.id));
        let state = PairState {
            snapshot: self.machine.snapshot(),
            processes: self.runs.each_ref().map(|run| of(run, &run.process)),
            programs: self.runs.each_ref().map(|run| of(run, &run.program)),
            lease: self.lease.map(|(term, _)| term),
            worked: self.worked,
        };
        if self.saved.as_ref() == Some(&state) {
            return None;
        }
        self.saved = Some(state.clone());
        Some((self.index, state))
    }
}

/// What changed beside pairs.
#[derive(Debug, Default)]
struct Changed {
    plan: bool,
    jobs: bool,
}

/// All pairs and jobs of the node.
#[derive(Debug)]
pub(super) struct Watcher {
    plan: PairsPlan,
    registry: Arc<Registry>,
    pairs: Vec<Pair>,
    /// The position in `pairs`, by the number of a pair in the job.
    positions: BTreeMap<u32, usize>,
    jobs: Jobs,
    watch: BeatWatch,
    /// When the heartbeats are read besides the regular times.
    early_look: Option<Duration>,
    /// For [`Self::early_look`]: a limit of a wait has whole milliseconds only.
    early_timer: OwnedFd,
    period: Duration,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// The timer's period, while it runs.
    timed: Option<Duration>,
    inbox: Inbox,
    work: Sender<Work>,
    board: Arc<Board>,
    mirror: Arc<Mirror>,
    registrations: u32,
    published: Duration,
    changed: Changed,
    /// Positions of pairs that changed. What is saved and published follows from the changes alone: 100 pairs take
    /// milliseconds, in which other copies may fail.
    touched: BTreeSet<usize>,
    starts: Vec<Start>,
    reports: Vec<AgentEvent>,
    stopping: Vec<oneshot::Sender<()>>,
}

/// The name of the pair with this number.
fn pair_name(pairs: &[Pair], index: u32) -> String {
    pairs.iter().find(|pair| pair.index == index).map(|pair| pair.plan.config.name.clone()).unwrap_or_default()
}

fn local(sides: SidesOnNode) -> LocalSides {
    sides.only().map_or(LocalSides::Both, LocalSides::Only)
}

/// What an earlier agent has left of a copy: its processes, as [`CopyRun`] has them.
fn found(
    registry: &Registry,
    index: u32,
    side: Side,
    kept: Option<&PairState>,
) -> (Option<Found>, [Option<ObservedProcess>; 2]) {
    let slot = registry.copy(index, side);
    let open = |saved: Option<(u64, ProcessId)>| {
        let (of, process) = saved.and_then(|(of, id)| Some((of, ObservedProcess::open(id)?)))?;
        if of != slot.incarnation {
            // No copy that this agent can wake, or tell to stop: it may be awake.
            tracing::warn!(pair = index, %side, pid = process.id.pid, "unexpected_copy_killed");
            process.signal(Signal::KILL);
        }
        (of == slot.incarnation).then_some(process)
    };
    let program = open(kept.and_then(|kept| kept.programs[side.index()]));
    let started = open(kept.and_then(|kept| kept.processes[side.index()]));
    if slot.incarnation == 0 {
        return (None, [None, None]);
    }
    // What has registered is this process or a child of it. A child may have outlived it.
    let program = program.or_else(|| registered_program(&slot, started.as_ref()));
    let (process, program) = match started {
        Some(started) => (Some(started), program),
        None => (program, None),
    };
    let snapshot = kept.and_then(|kept| side.select(kept.snapshot.main, kept.snapshot.replica));
    let ending = snapshot.is_some_and(|kept| kept.incarnation == slot.incarnation && kept.state == CopyState::Ending);
    let state = match slot.state {
        _ if ending => CopyState::Ending,
        SlotState::Awake | SlotState::Finished => CopyState::Awake,
        SlotState::Asleep if registry.is_woken(index, side) => CopyState::Awake,
        SlotState::Asleep => CopyState::Asleep,
        SlotState::Empty | SlotState::Starting | SlotState::Damaged => CopyState::Starting,
    };
    let finished = slot.state == SlotState::Finished;
    let pid = process.as_ref().map(|process| process.id.pid);
    (Some(Found { side, incarnation: slot.incarnation, pid, state, finished }), [process, program])
}

impl Watcher {
    /// Starts all pairs and jobs of a plan; those that an earlier agent has left go on.
    pub fn new(
        plan: PairsPlan,
        kept: Option<State>,
        registry: Arc<Registry>,
        inbox: Inbox,
        work: Sender<Work>,
        (board, mirror): (Arc<Board>, Arc<Mirror>),
    ) -> std::io::Result<(Watcher, Vec<AdoptedCopy>)> {
        let now = clock::now();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        let early_timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &early_timer, EventData::new_u64(EARLY_TIMER), EventFlags::IN)?;
        epoll::add(&epoll, inbox.readable(), EventData::new_u64(REQUESTS), EventFlags::IN)?;
        let period = plan.pairs.iter().map(|pair| pair.config.period).min().unwrap_or(PUBLISH);
        let job = |name: &str| kept.as_ref().and_then(|kept| kept.jobs.get(name)).cloned().unwrap_or_default();
        let (jobs, running_jobs, effects) = Jobs::new(&plan.jobs, job, now);
        let mut watcher = Watcher {
            pairs: Vec::with_capacity(plan.pairs.len()),
            positions: plan.pairs.iter().zip(0..).map(|(pair, at)| (pair.index, at)).collect(),
            jobs,
            watch: BeatWatch::new(period),
            early_look: None,
            early_timer,
            period,
            epoll,
            timer,
            timed: None,
            inbox,
            work,
            board,
            mirror,
            registrations: registry.registrations().wrapping_sub(1),
            registry,
            published: now,
            changed: Changed { plan: false, jobs: true },
            touched: (0..plan.pairs.len()).collect(),
            starts: Vec::new(),
            reports: Vec::new(),
            stopping: Vec::new(),
            plan,
        };
        let mut adopted = Vec::new();
        let mut first = Vec::new();
        for (at, pair) in watcher.plan.pairs.clone().into_iter().enumerate() {
            let state = kept.as_ref().and_then(|kept| kept.pairs.get(&pair.index));
            let sides = local(pair.sides);
            let (mut runs, mut all_found) = ([CopyRun::default(), CopyRun::default()], Vec::new());
            for side in Side::BOTH.into_iter().filter(|side| sides.contains(*side)) {
                let (found, [process, program]) = found(&watcher.registry, pair.index, side, state);
                if let Some(process) = &process {
                    adopted.push(AdoptedCopy { pair: pair.index, side, pid: process.id.pid });
                }
                if let Some(Found { incarnation, pid: None, .. }) = found {
                    watcher.registry.fence(pair.index, side, incarnation);
                }
                let run = &mut runs[side.index()];
                run.incarnation = found.map_or(0, |found| found.incarnation);
                (run.process, run.program) = (process, program);
                run.registered = found.is_some_and(|found| found.state != CopyState::Starting);
                all_found.extend(found);
            }
            let held = pair.sides.only().and_then(|side| watcher.registry.held_until(pair.index, side));
            // The registry is newer than the state; without a lease in it, none is held.
            let lease = state.and_then(|state| state.lease).zip(held);
            let lease = lease.map(|(term, until)| (term, Duration::from_nanos(until)));
            let is_finished = watcher.plan.finished.contains(&pair.index);
            let (machine, actions) = match (state, all_found.is_empty()) {
                (None, true) if !is_finished => PairMachine::new(&pair.config, sides, now),
                _ => {
                    let mut snapshot = state.map(|state| state.snapshot.clone()).unwrap_or_default();
                    snapshot.mirrored = mirrored_before(&watcher.registry, pair.index, snapshot.mirrored);
                    snapshot.finished |= is_finished;
                    let held = lease.map(|(term, until)| HeldLease { term, until });
                    PairMachine::restore(&pair.config, sides, &snapshot, &all_found, held, now)
                }
            };
            // The registry knows of a copy that was woken just before the agent ended.
            let is_awake = all_found.iter().any(|found| found.state == CopyState::Awake);
            let under = lease.map(|(term, _)| term).filter(|_| is_awake);
            let worked = under.max(state.and_then(|state| state.worked));
            if let Some(term) = worked {
                watcher.mirror.worked(pair.index, term);
            }
            watcher.pairs.push(Pair {
                index: pair.index,
                plan: pair,
                machine,
                runs,
                lease,
                worked,
                deadline: None,
                missed: 0,
                saved: None,
                woken_at: None,
            });
            first.push((at, actions));
        }
        for at in 0..watcher.pairs.len() {
            Side::BOTH.into_iter().for_each(|side| watcher.follow(at, side));
        }
        running_jobs.into_iter().for_each(|at| watcher.follow_job(at));
        watcher.take_effects(effects);
        for (at, actions) in first {
            watcher.perform(at, now, actions);
        }
        watcher.jobs.resume_adopted();
        watcher.settle(now);
        Ok((watcher, adopted))
    }

    /// Runs until everything was ended on request, or the agent ends.
    pub fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            self.set_timer();
            let now = clock::now();
            let timeout =
                self.deadline().map(|at| at.saturating_sub(now)).and_then(|left| Timespec::try_from(left).ok());
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "pairs_not_watched");
                    return;
                }
            }
            let now = clock::now();
            let mut timer = false;
            for event in &events {
                match event.data.u64() {
                    TIMER => timer = true,
                    // It fires once, and is ready until it is set again or read.
                    EARLY_TIMER => {
                        let _ = rustix::io::read(&self.early_timer, &mut [0; 8]);
                    }
                    REQUESTS => {}
                    ended => self.ended(now, ended),
                }
            }
            if timer {
                let mut expirations = [0; 8];
                let _ = rustix::io::read(&self.timer, &mut expirations);
            }
            self.beats(now);
            self.registrations(now);
            self.take_requests(now);
            self.tick(now);
            self.settle(now);
            if self.is_done() {
                self.stopping.drain(..).for_each(|reply| {
                    let _ = reply.send(());
                });
                return;
            }
        }
    }

    fn ended(&mut self, now: Duration, data: u64) {
        if data & JOB != 0 {
            let effects = self.jobs.exited((data & !JOB) as usize, now);
            self.take_effects(effects);
            return;
        }
        let (at, side) = ((data >> 1) as usize, Side::BOTH[(data & 1) as usize]);
        // What time has decided comes first: a copy whose lease has run out also ends by itself.
        if self.pairs.get(at).and_then(|pair| pair.deadline).is_some_and(|deadline| deadline <= now) {
            self.feed(at, now, Event::Tick);
        }
        let Some(pair) = self.pairs.get_mut(at) else { return };
        let run = &mut pair.runs[side.index()];
        let Some(process) = run.process.take() else { return };
        let incarnation = run.incarnation;
        let end = process.reap();
        // It is not awake any more: the checkpoints of another node are accepted. A program that has not registered yet
        // will not be awake, and one that has, and is in another process group, works no longer.
        self.registry.fence(pair.index, side, incarnation);
        let slot = self.registry.copy(pair.index, side);
        let finished = slot.incarnation == incarnation && slot.state == SlotState::Finished;
        run.hold_program(&slot);
        if let Some(program) = run.program.take() {
            program.signal_beside(&process, Signal::KILL);
        }
        // What is called without a process has no effect: the descriptor leaves the set when it is closed.
        drop(process);
        self.feed(at, now, Event::Exited { side, incarnation, end, finished });
    }

    /// Copies that wait for their turn now.
    fn registrations(&mut self, now: Duration) {
        let count = self.registry.registrations();
        if count == self.registrations {
            return;
        }
        self.registrations = count;
        for at in 0..self.pairs.len() {
            for side in Side::BOTH {
                let pair = &self.pairs[at];
                let slot = self.registry.copy(pair.index, side);
                let run = &pair.runs[side.index()];
                let current = slot.incarnation == run.incarnation && !run.registered;
                if current && slot.incarnation != 0 && slot.state == SlotState::Asleep {
                    let run = &mut self.pairs[at].runs[side.index()];
                    run.registered = true;
                    run.hold_program(&slot);
                    self.feed(at, now, Event::Registered { side, incarnation: slot.incarnation });
                }
            }
        }
    }

    fn take_requests(&mut self, now: Duration) {
        self.inbox.clear();
        while let Some(request) = self.inbox.next() {
            match request {
                Request::Started { owner: ProcessOwner::Copy { at, side, incarnation }, process } => {
                    self.started(at, side, incarnation, now, process);
                }
                Request::Started { owner: ProcessOwner::Job { at }, process } => {
                    let effects = self.jobs.started(at, process, now, |pair| pair_name(&self.pairs, pair));
                    self.follow_job(at);
                    self.take_effects(effects);
                }
                Request::Plan(plan) => {
                    for (pair, planned) in self.pairs.iter_mut().zip(&plan.pairs) {
                        pair.plan.peer = planned.peer;
                        pair.plan.config = planned.config.clone();
                        pair.machine.configure(&planned.config);
                        for side in Side::BOTH {
                            self.watch.set_misses(pair.index, side, planned.config.misses);
                        }
                    }
                    self.jobs.configure(&plan.jobs);
                    self.plan = plan;
                    self.changed = Changed { plan: true, jobs: true };
                    self.touched.extend(0..self.pairs.len());
                }
                Request::Leases { leases, revoke, finished } => {
                    let finished = finished.into_iter().map(|pair| (pair, Event::PeerFinished));
                    let revoked = revoke.into_iter().map(|revoked| (revoked.pair, Event::Revoke(revoked.term)));
                    let grants = leases.into_iter().map(|grant| (grant.pair, Event::Lease(grant)));
                    for (pair, event) in revoked.chain(finished).chain(grants) {
                        if let Some(at) = self.positions.get(&pair) {
                            self.feed(*at, now, event);
                        }
                    }
                }
                Request::Peers(peers) => {
                    for PeerOfPair { pair, address } in peers {
                        let Some(at) = self.positions.get(&pair).copied() else { continue };
                        if let Some(pair) = self.pairs.get_mut(at) {
                            pair.plan.peer = Some(address);
                            self.touched.insert(at);
                        }
                    }
                }
                Request::Mirrored { pair, checkpoint } => {
                    if let Some(at) = self.positions.get(&pair) {
                        self.feed(*at, now, Event::Mirrored(checkpoint));
                    }
                }
                Request::Command { pair, command, reply } => {
                    let _ = reply.send(self.command(pair, command, now));
                }
                Request::Stop { at_once, reply } => {
                    self.stopping.push(reply);
                    for at in 0..self.pairs.len() {
                        let end = if at_once { Event::EndAtOnce } else { Event::End };
                        self.feed(at, now, end);
                    }
                    let graces = self.plan.pairs.iter().map(|pair| pair.config.stop_grace);
                    let grace = if at_once { Duration::ZERO } else { graces.max().unwrap_or(Duration::from_secs(1)) };
                    self.jobs.end(now, grace);
                    self.changed.jobs = true;
                }
            }
        }
    }

    fn started(
        &mut self,
        at: usize,
        side: Side,
        incarnation: u64,
        now: Duration,
        process: Result<ObservedProcess, String>,
    ) {
        let Some(pair) = self.pairs.get_mut(at) else { return };
        let run = &mut pair.runs[side.index()];
        run.starting = false;
        match process {
            Ok(process) => {
                let pid = process.id.pid;
                if let Some(signal) = run.signal.take() {
                    process.signal(signal);
                }
                run.program.take_if(|program| program.id == process.id);
                run.process = Some(process);
                self.follow(at, side);
                self.feed(at, now, Event::Started { side, incarnation, pid });
            }
            Err(reason) => {
                self.feed(at, now, Event::StartFailed { side, incarnation, reason });
            }
        }
    }

    fn command(
        &mut self,
        pair: u32,
        command: holdfast_model::pair::PairCommand,
        now: Duration,
    ) -> Result<PairStatus, CommandFault> {
        let at = *self.positions.get(&pair).ok_or(CommandFault::NoSuchPair(pair))?;
        let status = self.status(at).ok_or(CommandFault::NoSuchPair(pair))?;
        self.pairs.get(at).ok_or(CommandFault::NoSuchPair(pair))?.machine.check(command)?;
        self.feed(at, now, Event::Command(command));
        Ok(status)
    }

    /// Applies the deadlines that have passed.
    fn tick(&mut self, now: Duration) {
        for at in 0..self.pairs.len() {
            if self.pairs[at].deadline.is_some_and(|deadline| deadline <= now) {
                self.feed(at, now, Event::Tick);
            }
        }
        if self.jobs.next_deadline().is_some_and(|deadline| deadline <= now) {
            let effects = self.jobs.tick(now);
            self.take_effects(effects);
        }
    }

    fn feed(&mut self, at: usize, now: Duration, event: Event) {
        let Some(pair) = self.pairs.get_mut(at) else { return };
        let actions = pair.machine.on(now, event);
        pair.deadline = pair.machine.next_deadline();
        self.touched.insert(at);
        self.perform(at, now, actions);
    }

    fn perform(&mut self, at: usize, now: Duration, actions: Vec<Action>) {
        for action in actions {
            self.perform_one(at, now, action);
        }
        if let Some(pair) = self.pairs.get_mut(at) {
            pair.deadline = pair.machine.next_deadline();
        }
    }

    fn perform_one(&mut self, at: usize, now: Duration, action: Action) {
        let Some(pair) = self.pairs.get_mut(at) else { return };
        let (index, config) = (pair.index, &pair.plan.config);
        match action {
            Action::Start { side, incarnation } => {
                self.registry.expect(index, side, incarnation);
                // Which forgets the lease of the copy before.
                hold(&self.registry, pair, side);
                pair.runs[side.index()] = CopyRun { incarnation, starting: true, ..CopyRun::default() };
                let command = side.select(&config.main, &config.replica).clone();
                let environment = vec![
                    (environment::PAIR, config.name.clone()),
                    (environment::PAIR_NUMBER, index.to_string()),
                    (environment::PAIR_INDEX, config.spec_index.to_string()),
                    (environment::PAIR_SIDE, side.to_string()),
                    (environment::PAIR_INCARNATION, incarnation.to_string()),
                    (environment::PAIRS, self.board.registry.display().to_string()),
                    (environment::PAIR_PERIOD, config.period.as_micros().to_string()),
                ];
                let output = format!("{}.{side}.log", config.name);
                let owner = ProcessOwner::Copy { at, side, incarnation };
                self.starts.push(Start { owner, command, environment, output });
            }
            Action::Wake { side, incarnation } => {
                if let Some((term, _)) = pair.lease {
                    pair.worked = Some(term);
                    self.mirror.worked(index, term);
                }
                pair.woken_at = Some(newest_checkpoint(&self.registry, index));
                self.registry.wake(index, side, incarnation);
                pair.runs[side.index()].woken = Some(now);
            }
            Action::Stop { side, incarnation } => {
                self.registry.request_stop(index, side, incarnation);
                let slot = self.registry.copy(index, side);
                signal(&mut pair.runs[side.index()], incarnation, &slot, Signal::TERM);
            }
            Action::Kill { side, incarnation } => {
                self.registry.fence(index, side, incarnation);
                let slot = self.registry.copy(index, side);
                signal(&mut pair.runs[side.index()], incarnation, &slot, Signal::KILL);
            }
            Action::Watch { side, incarnation } => {
                let watched = Watched { incarnation, period: config.period, misses: config.misses };
                pair.missed += self.watch.counts(index, side).1;
                self.watch.watch(index, side, watched, self.registry.beats(index, side));
            }
            Action::Unwatch { side, .. } => {
                pair.missed += self.watch.counts(index, side).1;
                self.watch.unwatch(index, side);
            }
            Action::SuspendJobs => {
                let suspends = config.suspends.clone();
                let effects = self.jobs.suspend(index, suspends.as_deref(), |pair| pair_name(&self.pairs, pair));
                self.take_effects(effects);
            }
            Action::ResumeJobs => {
                let effects = self.jobs.resume(index, |pair| pair_name(&self.pairs, pair));
                self.take_effects(effects);
            }
            Action::FlushMirror => self.mirror.flush(),
            Action::HoldUntil { side, until } => {
                let status = pair.machine.status(index);
                let term = status.lease.as_ref().and_then(|lease| lease.held);
                pair.lease = term.zip(until);
                // A copy that sleeps has made nothing under this lease, and may have to wait for the last checkpoint of
                // the other node.
                let is_awake = status.copy(side).is_some_and(|copy| copy.state == CopyState::Awake);
                if let Some(term) = term.filter(|term| is_awake && pair.worked != Some(*term)) {
                    pair.worked = Some(term);
                    self.mirror.worked(index, term);
                }
                hold(&self.registry, pair, side);
            }
            Action::Report(change) => {
                let change = self.completed(at, now, change);
                if let Some(pair) = self.pairs.get(at) {
                    self.reports.push(event(pair.plan.config.name.clone(), change));
                }
            }
        }
    }

    /// A report with what only the watcher knows.
    fn completed(&self, at: usize, now: Duration, mut change: PairChange) -> PairChange {
        let Some(pair) = self.pairs.get(at) else { return change };
        let goes_on_from = pair.woken_at.unwrap_or_else(|| newest_checkpoint(&self.registry, pair.index));
        let since = || u64::try_from(clock::now().saturating_sub(now).as_micros()).unwrap_or(u64::MAX);
        match &mut change {
            PairChange::Awake { checkpoint, .. } => *checkpoint = goes_on_from,
            PairChange::FailOver { checkpoint, micros, .. } | PairChange::FailBack { checkpoint, micros } => {
                *checkpoint = goes_on_from;
                *micros = micros.saturating_add(since());
            }
            _ => {}
        }
        change
    }

    fn take_effects(&mut self, effects: Effects) {
        self.changed.jobs = true;
        self.reports.extend(effects.reports.into_iter().map(|(name, change)| event(name, change)));
        for at in effects.start {
            let Some(config) = self.jobs.config(at) else { continue };
            let output = format!("{}.log", config.name);
            let (command, environment) = (config.command.clone(), Vec::new());
            self.starts.push(Start { owner: ProcessOwner::Job { at }, command, environment, output });
        }
    }

    /// Watches for the end of a process.
    fn follow(&self, at: usize, side: Side) {
        if let Some(process) = self.pairs.get(at).and_then(|pair| pair.runs[side.index()].process.as_ref()) {
            self.add(process, key(at, side));
        }
    }

    fn follow_job(&self, at: usize) {
        if let Some(process) = self.jobs.process(at) {
            self.add(process, JOB | at as u64);
        }
    }

    fn add(&self, process: &ObservedProcess, data: u64) {
        if let Err(error) = epoll::add(&self.epoll, process.ended(), EventData::new_u64(data), EventFlags::IN) {
            tracing::error!(pid = process.id.pid, %error, "process_not_watched");
        }
    }

    /// Saves and publishes what has changed, then has processes started.
    fn settle(&mut self, now: Duration) {
        let Changed { plan, jobs } = mem::take(&mut self.changed);
        let touched = mem::take(&mut self.touched);
        let due = now.saturating_sub(self.published) >= PUBLISH;
        if due || jobs || !touched.is_empty() {
            let with_status = |at: usize| Some((at, self.status(at)?));
            let pairs = match due {
                true => (0..self.pairs.len()).filter_map(with_status).collect(),
                false => touched.iter().copied().filter_map(with_status).collect(),
            };
            self.board.publish(pairs, self.jobs.statuses());
        }
        if due {
            self.published = now;
            freezer::remove_left();
        }
        if !touched.is_empty() {
            for peer in self.mirror.send(self.pairs.iter().filter_map(mirrored).collect()) {
                let _ = self.work.send(Work::Mirror(self.mirror.clone(), peer));
            }
        }
        let saved = StateChange {
            plan: plan.then(|| self.plan.clone()),
            pairs: touched.into_iter().filter_map(|at| self.pairs.get_mut(at)?.unsaved()).collect(),
            jobs: jobs.then(|| self.jobs.states().collect()),
        };
        if !saved.is_empty() {
            let _ = self.work.send(Work::Save(Box::new(saved)));
        }
        for start in self.starts.drain(..) {
            let _ = self.work.send(Work::Start(start));
        }
        for event in self.reports.drain(..) {
            let _ = self.work.send(Work::Report(event));
        }
    }

    fn status(&self, at: usize) -> Option<PairStatus> {
        let pair = self.pairs.get(at)?;
        let mut status = pair.machine.status(pair.index);
        if let Some(newest) = self.registry.newest(pair.index) {
            let age = clock::now().saturating_sub(Duration::from_nanos(newest.stored_at));
            status.checkpoint = newest.sequence;
            status.checkpoint_age_ms = u64::try_from(age.as_millis()).ok();
            if let Some(lease) = status.lease.as_mut().filter(|_| newest.side.is_some()) {
                lease.own_newest = newest.sequence;
                lease.own_term = pair.worked.unwrap_or_default();
            }
        }
        status.missed = pair.missed;
        for (side, copy) in [(Side::Main, &mut status.main), (Side::Replica, &mut status.replica)] {
            if let Some(copy) = copy {
                (copy.beats, copy.missed) = self.watch.counts(pair.index, side);
                status.missed += copy.missed;
            }
        }
        Some(status)
    }

    fn deadline(&self) -> Option<Duration> {
        let pairs = self.pairs.iter().filter_map(|pair| pair.deadline);
        pairs.chain(self.jobs.next_deadline()).chain([self.published + PUBLISH]).min()
    }

    /// All were ended on request, and are gone.
    fn is_done(&self) -> bool {
        let gone =
            |pair: &Pair| pair.machine.is_gone() && pair.runs.iter().all(|run| run.process.is_none() && !run.starting);
        !self.stopping.is_empty() && self.jobs.are_gone() && self.pairs.iter().all(gone)
    }
}

/// Enters in the registry until when a copy may be awake, for the case that no agent is left to end it. A copy of a
/// split pair without a lease must not be awake at all.
fn hold(registry: &Registry, pair: &Pair, side: Side) {
    if pair.machine.sides != LocalSides::Both {
        let until = pair.lease.map_or(Duration::from_nanos(1), |(_, until)| until);
        registry.hold_until(pair.index, side, Some(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX)));
    }
}

/// 0 if there is none.
fn newest_checkpoint(registry: &Registry, index: u32) -> u64 {
    registry.newest(index).map_or(0, |newest| newest.sequence)
}

/// The checkpoint of the other node that an earlier agent has received, if shared memory still has it.
fn mirrored_before(registry: &Registry, index: u32, known: MirroredCheckpoint) -> MirroredCheckpoint {
    let newest = registry.newest(index).filter(|newest| newest.side.is_none());
    newest.map_or_else(MirroredCheckpoint::default, |newest| MirroredCheckpoint { sequence: newest.sequence, ..known })
}

/// What of a pair is sent to its other node.
fn mirrored(pair: &Pair) -> Option<Task> {
    let period = pair.plan.config.checkpoint_period;
    Some(Task { pair: pair.index, term: pair.worked?, peer: pair.plan.peer?, period })
}

pub(super) fn event(name: String, change: PairChange) -> AgentEvent {
    AgentEvent::Pair { name, at: SystemTime::now().into(), change }
}

/// Signals a copy, now or as soon as it is started.
fn signal(run: &mut CopyRun, incarnation: u64, slot: &CopySlot, signal: Signal) {
    if run.incarnation == incarnation {
        run.hold_program(slot);
        run.signal(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::{Child, Command};

    use holdfast_shm::{Layout, Seat};

    fn sleeper() -> (Child, ProcessId) {
        let child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let id = ProcessId::of(child.id()).unwrap();
        (child, id)
    }

    fn of_main(incarnation: u64, id: ProcessId) -> PairState {
        PairState { processes: [Some((incarnation, id)), None], ..PairState::default() }
    }

    #[test]
    fn what_is_left_of_a_copy_is_adopted_or_killed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("registry");
        let layout = Layout { pairs: 1, checkpoint_bytes: vec![8], ring: 2 };
        let registry = Registry::create(&path, &layout, "job").unwrap();
        let found = |kept: Option<&PairState>| {
            let (found, [process, _]) = found(&registry, 0, Side::Main, kept);
            (found.map(|found| (found.incarnation, found.pid)), process.map(|process| process.id.pid))
        };
        let own = std::process::id();
        // The state has a process, and the registry expects none: its control words are damaged.
        let (mut child, id) = sleeper();
        assert_eq!(found(Some(&of_main(1, id))), (None, None));
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        // A copy has registered; the script that has started it has ended.
        registry.expect(0, Side::Main, 2);
        let seat = Seat::take(&path, 0, Side::Main, 2).unwrap();
        assert_eq!(found(Some(&of_main(2, id))), (Some((2, Some(own))), Some(own)));
        // The script still runs: its end is the copy's end.
        let (mut child, id) = sleeper();
        assert_eq!(found(Some(&of_main(2, id))), (Some((2, Some(id.pid))), Some(id.pid)));
        assert_eq!(ProcessId::of(id.pid), Some(id));
        // It is of another copy than the one that is expected.
        assert_eq!(found(Some(&of_main(1, id))), (Some((2, Some(own))), Some(own)));
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        drop(seat);
    }
}
