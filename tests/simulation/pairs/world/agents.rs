//! What the agents of the nodes do: the actions of the machines, processes, and checkpoints.

use std::collections::BTreeMap;

use holdfast_failover::{Action, Event, PairMachine};
use holdfast_model::pair::{CopyState, MirroredCheckpoint, PairChange, Side};
use holdfast_model::rank_end::RankEnd;

use super::super::node::{Agent, Process};
use super::{Defect, FAULTS_END, Happening, LONGEST_ON_ITS_WAY, Link, World};
use crate::queue::MS;

impl World {
    pub(super) fn start_agent(&mut self, number: usize) {
        if !self.nodes[number].up || self.nodes[number].agent.is_some() {
            return;
        }
        self.instances += 1;
        let instance = self.instances;
        let now = self.nodes[number].clock(self.now);
        self.nodes[number].agent =
            Some(Agent { instance, machines: Default::default(), epoch: 0, requests: BTreeMap::new() });
        for index in 0..self.pairs.len() {
            let pair = index as u32;
            let Some(sides) = self.pairs[index].sides(number) else { continue };
            // A new plan does not have it.
            if self.pairs[index].journalled && !self.nodes[number].disk.contains_key(&pair) {
                continue;
            }
            let (mut snapshot, found, held) = self.nodes[number].found(pair, sides);
            snapshot.finished &= self.defect != Some(Defect::FinishedForgotten);
            let config = self.pairs[index].config.clone();
            let (machine, actions) = PairMachine::restore(&config, sides, &snapshot, &found, held, now);
            if let Some(agent) = &mut self.nodes[number].agent {
                agent.machines.insert(pair, machine);
            }
            self.perform(number, pair, actions);
        }
    }

    pub(super) fn machine(&mut self, node: usize, pair: u32, event: Event) {
        let now = self.nodes[node].clock(self.now);
        let Some(machine) = self.nodes[node].agent.as_mut().and_then(|agent| agent.machines.get_mut(&pair)) else {
            return;
        };
        if self.traced && event != Event::Tick {
            println!("          node {node} pair {pair}: {event:?}");
        }
        let actions = machine.on(now, event);
        self.perform(node, pair, actions);
    }

    pub(super) fn perform(&mut self, number: usize, pair: u32, actions: Vec<Action>) {
        let any = !actions.is_empty();
        let machine = self.nodes[number].agent.as_ref().and_then(|agent| agent.machines.get(&pair));
        let Some((snapshot, held)) =
            machine.map(|machine| (machine.snapshot(), machine.status(pair).lease.and_then(|lease| lease.held)))
        else {
            return;
        };
        let before = self.nodes[number].disk.get(&pair).map(|(_, term)| *term).unwrap_or_default();
        // A copy that ended before the next term began has made its checkpoints in the term before.
        self.nodes[number].checkpoint(self.now, pair);
        self.nodes[number].disk.insert(pair, (snapshot, held.unwrap_or(before)));
        for action in actions {
            if self.traced {
                println!("          node {number} pair {pair}:   {action:?}");
            }
            self.act(number, pair, action);
        }
        let node = &self.nodes[number];
        let Some(agent) = &node.agent else { return };
        let instance = agent.instance;
        if let Some(at) = agent.machines.get(&pair).and_then(PairMachine::next_deadline) {
            let at = node.time_of(at).max(self.now + 1);
            if self.ticks.insert((number, pair, at)) {
                self.queue.enter(at, Happening::Tick { node: number, instance, pair });
            }
        }
        if any {
            self.answer(number);
        }
    }

    pub(super) fn act(&mut self, node: usize, pair: u32, action: Action) {
        match action {
            Action::Start { side, incarnation } => self.spawn(node, pair, side, incarnation),
            Action::Wake { side, incarnation } => self.wake(node, pair, side, incarnation),
            Action::Stop { side, incarnation } => {
                self.check_hand_over(node, pair, side);
                let ignores = self.dice.percent(20);
                let delay = self.up_to(40);
                let Some(process) = self.nodes[node].processes.get(&(pair, side)) else { return };
                if process.incarnation == incarnation && !process.stopped && !ignores {
                    let (pid, end) = (process.pid, RankEnd::Signal(15));
                    self.after(delay, Happening::Ends { node, pair, side, pid, end });
                }
            }
            Action::Kill { side, incarnation } => {
                let Some(process) = self.nodes[node].processes.get(&(pair, side)) else { return };
                if process.incarnation == incarnation {
                    let (pid, end) = (process.pid, RankEnd::Signal(9));
                    if self.defect == Some(Defect::KilledLate) {
                        self.after(300 * MS, Happening::Ends { node, pair, side, pid, end });
                    } else {
                        self.end(node, pair, side, pid, end);
                    }
                }
            }
            Action::Watch { side, .. } => {
                if let Some(process) = self.nodes[node].processes.get(&(pair, side))
                    && (process.hung || process.stopped)
                {
                    let pid = process.pid;
                    self.after(3 * MS, Happening::Missed { node, pair, side, pid });
                }
            }
            Action::HoldUntil { until, .. } => match until {
                Some(until) => {
                    self.nodes[node].hold.insert(pair, until);
                    let at = self.nodes[node].time_of(until) + MS;
                    self.queue.enter(at.max(self.now), Happening::HoldEnds { node, pair });
                }
                None => {
                    self.nodes[node].hold.remove(&pair);
                }
            },
            Action::FlushMirror => self.mirror(node, pair, false),
            Action::Report(change) => self.reported(&change),
            Action::Unwatch { .. } | Action::SuspendJobs | Action::ResumeJobs => {}
        }
    }

    pub(super) fn reported(&mut self, change: &PairChange) {
        match change {
            PairChange::FailOver { .. } => self.tally.fail_overs += 1,
            PairChange::FailBack { .. } => self.tally.fail_backs += 1,
            PairChange::LeaseExpired { .. } => self.tally.fenced += 1,
            PairChange::Finished { .. } => self.tally.finished += 1,
            _ => {}
        }
    }

    pub(super) fn spawn(&mut self, node: usize, pair: u32, side: Side, incarnation: u64) {
        let old = self.nodes[node].processes.get(&(pair, side));
        assert!(old.is_none_or(|old| !old.alive), "pair {pair}: the {side} is started while {old:?} exists");
        self.pids += 1;
        let pid = self.pids;
        let process = Process {
            incarnation,
            pid,
            state: CopyState::Starting,
            alive: true,
            stopped: false,
            hung: false,
            finished: false,
            end: RankEnd::Unknown,
            woken: 0,
            from: MirroredCheckpoint::default(),
        };
        self.nodes[node].processes.insert((pair, side), process);
        let faulty = self.now < FAULTS_END;
        let delay = 5 * MS + self.up_to(300);
        match self.dice.below(100) {
            0..3 if faulty => {}
            3..6 if faulty => {
                self.after(delay, Happening::Ends { node, pair, side, pid, end: RankEnd::Code(1) });
            }
            _ => self.after(delay, Happening::Registers { node, pair, side, pid }),
        }
        self.machine(node, pair, Event::Started { side, incarnation, pid });
    }

    pub(super) fn wake(&mut self, number: usize, pair: u32, side: Side, incarnation: u64) {
        let now = self.now;
        let from = self.nodes[number].checkpoint(now, pair);
        let spec = &mut self.pairs[pair as usize];
        let left = spec.left.take().filter(|_| side == Side::Main && !spec.is_local());
        let Some(process) = self.nodes[number].processes.get_mut(&(pair, side)) else { return };
        if process.incarnation != incarnation || !process.alive {
            return;
        }
        assert_eq!(process.state, CopyState::Asleep, "pair {pair}: a copy is woken");
        // A lease that was on its way lets a copy be woken once more.
        let late = spec.reported_at.is_some_and(|at| spec.journalled && now > at + LONGEST_ON_ITS_WAY);
        assert!(!late, "pair {pair}: the {side} is woken, although the pair has finished");
        process.state = CopyState::Awake;
        process.woken = now;
        process.from = from;
        if let Some(left) = left {
            self.tally.handed_over += 1;
            assert!(from >= left, "pair {pair}: the main goes on from {from:?}, not from the replica's {left:?}");
        }
        self.after(0, Happening::Mirror { node: number, pair });
    }

    /// Nothing is in the way of handing a checkpoint over.
    pub(super) fn is_undisturbed(&self) -> bool {
        let links = self.orchestrators.values().all(|one| one.links == [Link::Good; 2] && one.is_well());
        links && self.link == Link::Good && self.nodes.iter().all(|node| node.agent.is_some())
    }

    pub(super) fn end(&mut self, node: usize, pair: u32, side: Side, pid: u32, end: RankEnd) {
        let newest = self.nodes[node].checkpoint(self.now, pair);
        let Some(process) = self.process(node, pair, side, pid).filter(|process| process.alive) else { return };
        process.alive = false;
        process.end = end;
        process.finished = end == RankEnd::SUCCESS;
        let (asked, was_awake) = (end == RankEnd::Signal(15), process.state == CopyState::Awake);
        let undisturbed = self.is_undisturbed();
        if was_awake {
            let term = self.nodes[node].disk.get(&pair).map(|(_, term)| *term).unwrap_or_default();
            let newest = MirroredCheckpoint { term, sequence: newest.sequence };
            let spec = &mut self.pairs[pair as usize];
            spec.left = (asked && undisturbed && side == Side::Replica && newest.sequence > 0).then_some(newest);
            if end == RankEnd::SUCCESS {
                spec.finished = true;
                spec.finished_on = Some(node);
            }
        }
        let delay = if self.dice.percent(5) { self.up_to(700) } else { self.up_to(4) };
        self.after(delay, Happening::Gone { node, pair, side, pid });
    }

    /// A copy whose lease is over ends itself, also without an agent.
    pub(super) fn end_hold(&mut self, number: usize, pair: u32) {
        let node = &self.nodes[number];
        let over = node.hold.get(&pair).is_some_and(|until| *until <= node.clock(self.now));
        if !node.up || !over || self.defect == Some(Defect::NotFenced) {
            return;
        }
        for side in Side::BOTH {
            if let Some(process) = self.nodes[number].processes.get(&(pair, side))
                && process.works()
            {
                let pid = process.pid;
                self.tally.fenced += 1;
                self.end(number, pair, side, pid, RankEnd::Signal(9));
            }
        }
    }

    /// Sends the newest checkpoint to the other node; again after a while, as long as a copy is awake.
    pub(super) fn mirror(&mut self, number: usize, pair: u32, repeated: bool) {
        let works = self.working(pair).iter().any(|(node, ..)| *node == number);
        if self.pairs[pair as usize].is_local() || repeated && !works {
            return;
        }
        let newest = self.nodes[number].checkpoint(self.now, pair);
        let term = self.nodes[number].disk.get(&pair).map(|(_, term)| *term).unwrap_or_default();
        if self.nodes[number].agent.is_some() && newest.sequence > 0 {
            let checkpoint = MirroredCheckpoint { term, sequence: newest.sequence };
            if let Some(delay) = self.delay(self.link) {
                self.after(delay, Happening::Mirrored { node: 1 - number, pair, checkpoint });
            }
        }
        if repeated {
            self.after(300 * MS, Happening::Mirror { node: number, pair });
        }
    }

    pub(super) fn mirrored(&mut self, number: usize, pair: u32, checkpoint: MirroredCheckpoint) {
        let by_number = self.defect == Some(Defect::MirrorByNumber);
        if self.nodes[number].agent.is_none() || !self.nodes[number].up {
            return;
        }
        let kept = self.nodes[number].checkpoint(self.now, pair);
        // A copy that is awake here has a later term.
        let working = self.working(pair).iter().any(|(node, ..)| *node == number);
        let newer = if by_number { checkpoint.sequence > kept.sequence } else { checkpoint > kept };
        if newer && !working {
            self.nodes[number].checkpoints.insert(pair, checkpoint);
            self.nodes[number].own.remove(&pair);
            self.machine(number, pair, Event::Mirrored(checkpoint));
        }
    }
}
