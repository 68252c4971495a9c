//! Injected faults: of nodes, agents, disks, files, links, ranks and the prefix directory; and interference by users
//! and the resource manager.

use holdfast::events::DownReason;
use holdfast::relaunch::Event;
use holdfast_core::control::halt::reason;
use holdfast_model::{NodeName, Rank, RankEnd};
use holdfast_wire::agent::QuietRank;

use crate::content::Content;
use crate::names::{NodeIndex, address, name};
use crate::queue::MS;
use crate::scenario::ms;
use crate::store::DiskFault;
use crate::world::{Life, PrefixState, SimulatedEvent, World, trace};

impl World {
    pub fn inject_fault(&mut self) {
        if self.injected_faults >= self.scenario.faults.most {
            return;
        }
        self.injected_faults += 1;
        if self.injected_faults < self.scenario.faults.most {
            let pause = self.dice.below(2 * self.scenario.faults.every);
            self.after(pause, SimulatedEvent::InjectFault);
        }
        let at = self.dice.below(self.scenario.nodes);
        if self.dice.percent(15) {
            return self.delays(at);
        }
        let kinds = if self.scenario.faults.interference { 100 } else { 68 };
        match self.dice.below(kinds) {
            0..8 => self.rack_dies(at),
            8..22 => self.node_dies(at),
            22..42 if self.nodes[at as usize].agent.is_some() => {
                trace!(self, "n{at}: its agent dies alone");
                self.agent_dies(at);
                self.notice_agent_loss(at, "killed");
            }
            42..52 => self.freeze(at),
            52..58 => self.disk_breaks(at),
            58..60 => self.loses_file(at),
            60..62 => self.damages_file(at),
            62..68 => self.some_link_breaks(),
            68..76 => {
                if let Some((generation, rank)) = self.some_rank() {
                    let end = if self.dice.percent(50) { RankEnd::Code(1) } else { RankEnd::Signal(11) };
                    self.rank_ends(generation, rank, end);
                }
            }
            76..79 => self.hang(),
            79..87 if self.scenario.faults.prefix_fails => self.prefix_fails(),
            87..90 => {
                let reason = DownReason::ResourceManager { state: "drained".into() };
                self.notify(Event::NodeDown { node: name(at), reason });
            }
            90 => self.user_halts(),
            91 => {
                let end = self.dice.percent(70).then(|| (self.now / 1_000_000) as i64 + self.dice.below(20_i64));
                self.notify(Event::AllocationEnd { end });
            }
            92 => self.notify(Event::Signal { name: "SIGTERM".into() }),
            93 => {
                // A user asks for a halt at the next checkpoint.
                let left = Some(self.dice.below(3_i64));
                for node in &mut self.nodes {
                    node.disk.halt.checkpoints_left = left;
                }
                self.write_halts();
            }
            // A late event of an unknown node.
            94 => {
                let event = Event::AgentReady { address: address(at, 999), node: NodeName::new("m1"), adopted: None };
                self.notify(event);
            }
            _ => {}
        }
    }

    /// A user halts the job.
    pub fn user_halts(&mut self) {
        trace!(self, "a user halts the job");
        self.halt_immediately = self.dice.percent(20);
        // Other nodes do not answer the user's command.
        for node in self.nodes.iter_mut().filter(|node| node.life == Life::Alive && node.agent.is_some()) {
            if node.disk.halt.reason.is_none() {
                node.disk.halt.reason = Some(reason::JOB_HALTED.to_owned());
                node.disk.halted_by_user = true;
            }
        }
        self.write_halts();
        // The halt may be withdrawn.
        if self.dice.percent(50) {
            let delay = self.between(0, 4000 * MS);
            self.after(delay, SimulatedEvent::UnsetHalt);
        }
    }

    /// A user may halt the job while the leader sends its conditions to all nodes, as it does after a checkpoint.
    pub fn halts_at_checkpoint(&mut self) {
        let faults = &self.scenario.faults;
        if faults.interference && self.injected_faults < faults.most && self.dice.below(60) == 0 {
            self.injected_faults += 1;
            let delay = self.between(0, 5 * MS);
            self.after(delay, SimulatedEvent::UserHalts);
        }
    }

    /// A user removes the reason to halt.
    pub fn unset_halt(&mut self) {
        trace!(self, "a user withdraws the halt");
        for node in &mut self.nodes {
            node.disk.halt.reason.take_if(|reason| reason == reason::JOB_HALTED);
            node.disk.halted_by_user = false;
        }
        self.write_halts();
    }

    /// Delays that lose nothing: the orchestrator does not run, a node or all nodes are slow.
    fn delays(&mut self, at: NodeIndex) {
        if self.dice.percent(50) {
            let lasts = [self.between(200 * MS, 5000 * MS), 20_000 * MS, 60_000 * MS];
            let lasts = lasts[self.dice.below(3_usize)];
            return self.orchestrator_stalls(lasts);
        }
        let (slow, lasts) = (self.between(100 * MS, 2500 * MS), self.between(1000 * MS, 30_000 * MS));
        let slow_nodes = if self.dice.percent(50) { at..at + 1 } else { 0..self.scenario.nodes };
        trace!(self, "nodes {slow_nodes:?} are slow by {} ms for {} ms", slow / MS, lasts / MS);
        for node in &mut self.nodes[slow_nodes.start as usize..slow_nodes.end as usize] {
            (node.slow, node.slow_until) = (slow, self.now + lasts);
        }
        self.oracle.slow_nodes = true;
    }

    /// All nodes of the rack of a node die at once.
    fn rack_dies(&mut self, at: NodeIndex) {
        let first = at - at % self.scenario.in_rack;
        for at in first..(first + self.scenario.in_rack).min(self.scenario.nodes) {
            self.node_dies(at);
        }
    }

    pub fn node_dies(&mut self, at: NodeIndex) {
        if self.nodes[at as usize].life == Life::Dead {
            return;
        }
        trace!(self, "n{at}: the node dies");
        self.break_links(at);
        self.ranks_vanish(at);
        let node = &mut self.nodes[at as usize];
        (node.life, node.agent, node.damaged) = (Life::Dead, None, true);
        if let Some(files) = &mut self.files {
            files.node_is_lost(at);
        }
        node.waiting.clear();
        node.disk = crate::store::Disk::default();
        let died = self.running_time();
        let node = &mut self.nodes[at as usize];
        (node.undisturbed, node.died) = (false, Some(died));
        if self.dice.percent(70) {
            self.notify(Event::AgentLost { node: name(at), reason: "connection closed".into() });
        } else {
            self.nodes[at as usize].unreachable = self.dice.percent(50);
        }
    }

    fn freeze(&mut self, at: NodeIndex) {
        if self.nodes[at as usize].life == Life::Alive {
            trace!(self, "n{at}: the node freezes");
            let unreachable = self.dice.percent(50);
            let node = &mut self.nodes[at as usize];
            (node.life, node.unreachable, node.undisturbed) = (Life::Frozen, unreachable, false);
            let delay = match self.dice.below(3) {
                0 => self.between(50 * MS, 500 * MS),
                1 => self.between(500 * MS, 3000 * MS),
                _ => self.between(3000 * MS, 30_000 * MS),
            };
            self.after(delay, SimulatedEvent::Thaw(at));
        }
    }

    pub fn thaw(&mut self, at: NodeIndex) {
        if self.nodes[at as usize].life == Life::Frozen {
            trace!(self, "n{at}: the node runs again");
            (self.nodes[at as usize].life, self.nodes[at as usize].unreachable) = (Life::Alive, false);
            for event in std::mem::take(&mut self.nodes[at as usize].waiting) {
                self.after(1, event);
            }
        }
    }

    fn disk_breaks(&mut self, at: NodeIndex) {
        let fault = if self.dice.percent(50) { DiskFault::Full } else { DiskFault::Broken };
        trace!(self, "n{at}: its disk is {fault:?}");
        let node = &mut self.nodes[at as usize];
        node.disk.fault = Some(fault);
        node.damaged = true;
    }

    /// Deletes a file in cache.
    fn loses_file(&mut self, at: NodeIndex) {
        self.read_back(at);
        let node = &mut self.nodes[at as usize];
        if let Some(((checkpoint, rank), held)) = node.disk.held.iter_mut().next_back()
            && let Some(file) = held.files.first_mut()
        {
            file.there = false;
            node.damaged = true;
            let (checkpoint, rank, name) = (*checkpoint, *rank, file.name);
            self.harm_on_files(at, (checkpoint, rank, name), false);
            trace!(self, "n{at}: loses a file of rank {rank} of checkpoint {checkpoint}");
        }
    }

    /// Changes the bytes of a file of a complete checkpoint in cache.
    fn damages_file(&mut self, at: NodeIndex) {
        self.read_back(at);
        let part = self.dice.below(16_usize);
        let node = &mut self.nodes[at as usize];
        let complete = node.disk.held.iter_mut().filter(|(_, held)| held.is_complete() && !held.files.is_empty());
        if let Some(((checkpoint, rank), held)) = complete.last() {
            let part = part % held.files.len();
            held.files[part].content = Content::Damaged;
            node.damaged = true;
            let name = held.files[part].name;
            self.oracle.undetected |= !self.scenario.has_checksums();
            let (checkpoint, rank) = (*checkpoint, *rank);
            self.harm_on_files(at, (checkpoint, rank, name), true);
            trace!(self, "n{at}: a file of rank {rank} of checkpoint {checkpoint} is damaged");
        }
    }

    fn some_link_breaks(&mut self) {
        let mut links: Vec<u64> = self.links.keys().copied().collect();
        links.sort_unstable();
        if !links.is_empty() {
            let link = links[self.dice.below(links.len())];
            trace!(self, "link {link} breaks");
            self.break_link(link);
        }
    }

    /// All agents report that their ranks make no progress.
    fn hang(&mut self) {
        let generation = self.orchestrator.machine.generation();
        let Some(application) = self.applications.get(&generation) else { return };
        let quiet = |rank| QuietRank { rank, waiting_in: None, quiet_for: ms(60_000), idle_for: ms(60_000) };
        let mut events = Vec::new();
        for (at, rank) in application.homes.iter().zip(0u32..) {
            let ranks = vec![quiet(Rank(rank))];
            events.push(Event::RanksQuiet { node: name(*at), generation, ranks });
        }
        events.into_iter().for_each(|event| self.notify(event));
    }

    fn prefix_fails(&mut self) {
        let lasts = self.between(50 * MS, 8000 * MS);
        self.prefix_state =
            if self.dice.percent(50) { PrefixState::Fails } else { PrefixState::Hangs(self.now + lasts) };
        trace!(self, "the prefix directory: {:?}", self.prefix_state);
        self.after(lasts, SimulatedEvent::PrefixWorksAgain);
    }
}
