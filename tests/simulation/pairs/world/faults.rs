//! Faults of copies, nodes, links and orchestrators, and their end.

use holdfast_failover::Event;
use holdfast_model::pair::{CopyState, PairCommand, Side};
use holdfast_model::rank_end::RankEnd;

use super::{FAULTS_END, Happening, Link, World};
use crate::queue::{MS, Time};

impl World {
    pub(super) fn fault(&mut self) {
        if self.now >= FAULTS_END {
            return;
        }
        let delay = 100 * MS + self.up_to(3_000);
        self.after(delay, Happening::Fault);
        // A fault may disturb what is being handed over.
        self.pairs.iter_mut().for_each(|spec| spec.left = None);
        let pair = self.dice.below(self.pairs.len() as u32);
        let number = self.dice.below(2_usize);
        let back = self.up_to(5_000);
        let kind = self.dice.below(100);
        match kind {
            0..40 => self.hurt_copy(pair, kind),
            40..52 => {
                if self.nodes[number].agent.take().is_some() {
                    self.after(back, Happening::AgentStarts { node: number });
                }
            }
            52..62 => {
                let longer = if self.dice.percent(40) { self.up_to(12_000) } else { 0 };
                self.crash(number, back + longer);
            }
            62..68 => {
                self.link = self.worse();
                self.after(back, Happening::LinkHeals);
            }
            68..92 => self.disturb_orchestrators(kind, back),
            _ => {
                let command = if self.dice.percent(50) { PairCommand::FailOver } else { PairCommand::FailBack };
                self.command(pair, command);
            }
        }
    }

    pub(super) fn worse(&mut self) -> Link {
        if self.dice.percent(60) { Link::Cut } else { Link::Bad }
    }

    /// One of the orchestrators dies, is stopped or cut off; another one may be started, before or after its return.
    pub(super) fn disturb_orchestrators(&mut self, kind: u64, back: Time) {
        let count = self.orchestrators.len();
        if count == 0 {
            return;
        }
        let chosen = self.dice.below(count);
        let Some(epoch) = self.orchestrators.keys().nth(chosen).copied() else { return };
        let another = self.up_to(5_000);
        match kind {
            68..74 => {
                self.orchestrators.remove(&epoch);
                self.after(back, Happening::OrchestratorStarts { cut_off: None });
                return;
            }
            74..79 => {
                if let Some(orchestrator) = self.orchestrators.get_mut(&epoch) {
                    orchestrator.paused.get_or_insert_default();
                }
                self.paused = Some(self.now);
                self.after(back, Happening::Resumes { epoch });
            }
            79..83 => {
                let prefix = self.worse();
                if let Some(orchestrator) = self.orchestrators.get_mut(&epoch) {
                    orchestrator.prefix = prefix;
                }
                self.after(back, Happening::LinksHeal { epoch });
            }
            _ => {
                let worse = [self.worse(), self.worse(), self.worse()];
                // Often it reaches one node, and its successor only the other one.
                let (which, cut_off) = (self.dice.below(4_usize), self.dice.below(2_usize));
                if which == 3 {
                    let another = Happening::OrchestratorStarts { cut_off: Some(1 - cut_off) };
                    self.after(500 * MS, another);
                }
                if let Some(orchestrator) = self.orchestrators.get_mut(&epoch) {
                    for node in (0..2).filter(|node| which == *node || which == 2) {
                        orchestrator.links[node] = worse[node];
                    }
                    if which == 3 {
                        orchestrator.links[cut_off] = Link::Cut;
                        orchestrator.prefix = worse[2];
                    }
                }
                self.after(back, Happening::LinksHeal { epoch });
            }
        }
        if self.dice.percent(60) {
            self.after(another, Happening::OrchestratorStarts { cut_off: None });
        }
    }

    /// Something happens to the copy that is awake, or to any other one.
    pub(super) fn hurt_copy(&mut self, pair: u32, kind: u64) {
        let awake = self.working(pair);
        let number = self.dice.below(2_usize);
        let side = Side::BOTH[self.dice.below(2_usize)];
        let (node, side) = match awake.first() {
            Some((node, side, _)) if self.dice.percent(70) => (*node, *side),
            _ => (number, side),
        };
        let pause = self.up_to(6_000);
        let Some(process) = self.nodes[node].processes.get_mut(&(pair, side)).filter(|process| process.alive) else {
            return;
        };
        let pid = process.pid;
        match kind {
            0..20 => self.end(node, pair, side, pid, RankEnd::Signal(11)),
            20..28 if process.state == CopyState::Awake => {
                // Checkpoints until now count.
                self.nodes[node].checkpoint(self.now, pair);
                if let Some(process) = self.process(node, pair, side, pid) {
                    process.hung = true;
                }
                self.after(3 * MS, Happening::Missed { node, pair, side, pid });
            }
            28..38 => {
                self.nodes[node].checkpoint(self.now, pair);
                if let Some(process) = self.process(node, pair, side, pid) {
                    process.stopped = true;
                }
                self.after(3 * MS, Happening::Missed { node, pair, side, pid });
                self.after(pause, Happening::Continues { node, pair, side, pid });
            }
            38.. if process.state == CopyState::Awake => self.end(node, pair, side, pid, RankEnd::SUCCESS),
            _ => {}
        }
    }

    /// The node goes down. Its disk stays, or is in memory.
    pub(super) fn crash(&mut self, number: usize, back: Time) {
        let keeps = self.dice.percent(50);
        let node = &mut self.nodes[number];
        if !node.up {
            return;
        }
        node.up = false;
        node.agent = None;
        node.processes.clear();
        node.checkpoints.clear();
        node.own.clear();
        node.crashed = Some(self.now);
        node.hold.clear();
        if !keeps {
            node.disk.clear();
        }
        for (index, spec) in self.pairs.iter_mut().enumerate() {
            let on_disk = self.nodes[number].disk.get(&(index as u32)).is_some_and(|(snapshot, _)| snapshot.finished);
            // Otherwise nobody knows it any more.
            if spec.finished_on == Some(number) && !spec.journalled {
                spec.finished = on_disk;
            }
        }
        self.after(back, Happening::NodeBoots { node: number });
    }

    pub(super) fn command(&mut self, pair: u32, command: PairCommand) {
        let spec = &self.pairs[pair as usize];
        let node = spec.nodes[0];
        if spec.is_local() {
            self.machine(node, pair, Event::Command(command));
            return;
        }
        let now = self.time();
        // All read the requests of users from the prefix directory.
        let epochs: Vec<_> = self.orchestrators.keys().copied().collect();
        for epoch in epochs {
            if let Some(orchestrator) = self.orchestrators.get_mut(&epoch)
                && orchestrator.is_well()
                && orchestrator.granter.check(pair, command).is_ok()
            {
                orchestrator.granter.command(now, pair, command);
                self.follow_granter(epoch);
            }
        }
    }

    /// Everything that is down returns; what a user moved away is moved back.
    pub(super) fn heal(&mut self) {
        self.link = Link::Good;
        let epochs: Vec<_> = self.orchestrators.keys().copied().collect();
        for epoch in epochs {
            self.happen(Happening::Resumes { epoch });
            self.happen(Happening::LinksHeal { epoch });
        }
        for node in 0..2 {
            if !self.nodes[node].up {
                self.happen(Happening::NodeBoots { node });
            }
            self.start_agent(node);
        }
        if !self.orchestrators.contains_key(&self.epoch) {
            self.start_orchestrator();
        }
        for pair in 0..self.pairs.len() as u32 {
            self.command(pair, PairCommand::FailBack);
        }
    }
}
