//! The launcher: starts the ranks of a generation, reports their ends, kills them.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast::launch::Obstacle;
use holdfast::relaunch::Event;
use holdfast_model::{Generation, Placement, Rank, RankEnd};

use crate::application::{Application, RankState};
use crate::names::{NodeIndex, position};
use crate::queue::MS;
use crate::world::{Life, SimulatedEvent, World, trace};

impl World {
    /// The launcher starts the ranks.
    pub fn launch(&mut self, generation: Generation, placement: Arc<Placement>) {
        if self.dice.percent(2) {
            let obstacles = [Obstacle::Job, Obstacle::Manager, Obstacle::UnknownAllocation];
            let obstacle = obstacles[self.dice.below(3) as usize];
            return self.notify(Event::LaunchFailed { generation, reason: "no launcher".into(), obstacle });
        }
        trace!(self, "generation {generation} is launched");
        if generation > Generation(1) && self.dice.percent(self.scenario.faults.in_restarts) {
            // While the files of the checkpoint are moved and rebuilt.
            let delay = self.between(20 * MS, 150 * MS);
            self.after(delay, SimulatedEvent::InjectFault);
        }
        let world = placement.ranks();
        let rank = RankState::new();
        let mut application = Application {
            homes: vec![0; world as usize],
            by_home: BTreeMap::new(),
            ranks: vec![rank; world as usize],
            alive_ranks: 0,
            reported: Vec::new(),
            ended: false,
        };
        let mut begun = Vec::new();
        for node in placement.used() {
            let at = position(&node.name).unwrap();
            let killed = self.nodes[at as usize].killed;
            // An agent refuses a generation whose ranks it has killed, and one older than its plan.
            let accepted = self.serving(at) == Some(generation) && killed < Some(generation);
            let alive = self.nodes[at as usize].life != Life::Dead;
            application.by_home.insert(at, node.ranks.clone());
            for rank in &node.ranks {
                application.homes[rank.index()] = at;
                if alive && accepted {
                    application.ranks[rank.index()].alive = true;
                    application.alive_ranks += 1;
                    begun.push(*rank);
                }
            }
            if alive && accepted {
                self.nodes[at as usize].ranks = Some(generation);
            }
        }
        let missing: Vec<Rank> = (0..world).map(Rank).filter(|rank| !application.ranks[rank.index()].alive).collect();
        self.applications.insert(generation, application);
        self.report(generation, Event::StepStarted { generation });
        for rank in begun {
            let delay = self.between(MS, 15 * MS);
            self.after(delay, SimulatedEvent::RankStep { generation, rank, turn: 0 });
        }
        // Refused by the node's agent, or the node is dead.
        for rank in missing {
            self.report(generation, Event::RankExited { generation, rank, end: RankEnd::Code(1) });
        }
    }

    /// The launcher reports an event, and repeats it to a new orchestrator.
    fn report(&mut self, generation: Generation, event: Event) {
        if let Some(application) = self.applications.get_mut(&generation).filter(|it| !it.ended) {
            application.reported.push(event.clone());
            self.notify(event);
        }
    }

    /// A rank's process exits.
    pub fn rank_ends(&mut self, generation: Generation, rank: Rank, end: RankEnd) {
        let Some(application) = self.applications.get_mut(&generation) else { return };
        let state = &mut application.ranks[rank.index()];
        if !std::mem::replace(&mut state.alive, false) {
            return;
        }
        application.alive_ranks -= 1;
        let (at, alive_ranks) = (application.homes[rank.index()], application.alive_ranks);
        trace!(self, "rank {rank} of generation {generation} ends with {end}");
        self.report(generation, Event::RankExited { generation, rank, end });
        self.note_empty(at, generation);
        if alive_ranks == 0 {
            self.report(generation, Event::StepEnded { generation, end: RankEnd::SUCCESS });
        }
    }

    /// Records that a node has no ranks any more, if that is so.
    fn note_empty(&mut self, at: NodeIndex, generation: Generation) {
        let Some(application) = self.applications.get(&generation) else { return };
        let mut here = application.by_home.get(&at).into_iter().flatten();
        if here.any(|rank| application.ranks[rank.index()].alive) {
            return;
        }
        if self.nodes[at as usize].ranks == Some(generation) {
            self.nodes[at as usize].ranks = None;
        }
    }

    /// The ranks of a node, of this generation and older ones, are killed.
    pub fn kill_ranks(&mut self, at: NodeIndex, upto: Generation) {
        let Some(generation) = self.nodes[at as usize].ranks.filter(|ranks| *ranks <= upto) else { return };
        self.nodes[at as usize].ranks = None;
        let Some(application) = self.applications.get_mut(&generation) else { return };
        let mut killed = application.by_home.get(&at).cloned().unwrap_or_default();
        killed.retain(|rank| std::mem::replace(&mut application.ranks[rank.index()].alive, false));
        application.alive_ranks -= killed.len() as u32;
        let alive_ranks = application.alive_ranks;
        for rank in killed {
            self.report(generation, Event::RankExited { generation, rank, end: RankEnd::Signal(9) });
        }
        if alive_ranks == 0 {
            self.report(generation, Event::StepEnded { generation, end: RankEnd::Signal(9) });
        }
    }

    /// The ranks of a dead node end; the launcher detects it or does not.
    pub fn ranks_vanish(&mut self, at: NodeIndex) {
        if self.dice.percent(60) {
            self.kill_ranks(at, Generation(u64::MAX));
        } else if let Some(generation) = self.nodes[at as usize].ranks.take() {
            let Some(application) = self.applications.get_mut(&generation) else { return };
            for rank in application.by_home.get(&at).into_iter().flatten() {
                if std::mem::replace(&mut application.ranks[rank.index()].alive, false) {
                    application.alive_ranks -= 1;
                }
            }
        }
    }

    /// The launcher's step is cancelled: it kills the ranks on nodes that it reaches.
    pub fn cancel_step(&mut self, generation: Generation) {
        let Some(application) = self.applications.get_mut(&generation) else { return };
        application.ended = true;
        let homes: Vec<NodeIndex> = application.by_home.keys().copied().collect();
        for at in homes {
            if self.nodes[at as usize].life == Life::Alive && self.nodes[at as usize].ranks == Some(generation) {
                self.kill_ranks(at, generation);
            }
        }
    }
}
