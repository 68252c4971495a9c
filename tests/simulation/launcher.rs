//! The launcher: starts the ranks of a generation, reports their ends, kills them.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast::relaunch::Event;
use holdfast_model::{Generation, Placement, Rank, RankEnd};

use crate::application::{Application, RankState};
use crate::names::{At, position};
use crate::queue::MS;
use crate::world::{Happening, Life, World, trace};

impl World {
    /// The launcher starts the ranks.
    pub fn launch(&mut self, generation: Generation, placement: Arc<Placement>) {
        if self.dice.percent(2) {
            return self.tell(Event::LaunchFailed { generation, reason: "no launcher".into() });
        }
        trace!(self, "generation {generation} is launched");
        let world = placement.ranks();
        let rank = RankState::new();
        let mut application = Application {
            homes: vec![0; world as usize],
            by_home: BTreeMap::new(),
            ranks: vec![rank; world as usize],
            living: 0,
            reported: Vec::new(),
            ended: false,
        };
        let mut begun = Vec::new();
        for node in placement.used() {
            let at = position(&node.name).unwrap();
            let killed = self.nodes[at as usize].killed;
            // An agent that killed the ranks of this generation refuses it; one that knows a newer plan, too.
            let accepted = self.serving(at) == Some(generation) && killed < Some(generation);
            let lives = self.nodes[at as usize].life != Life::Dead;
            application.by_home.insert(at, node.ranks.clone());
            for rank in &node.ranks {
                application.homes[rank.index()] = at;
                if lives && accepted {
                    application.ranks[rank.index()].alive = true;
                    application.living += 1;
                    begun.push(*rank);
                }
            }
            if lives && accepted {
                self.nodes[at as usize].ranks = Some(generation);
            }
        }
        let missing: Vec<Rank> = (0..world).map(Rank).filter(|rank| !application.ranks[rank.index()].alive).collect();
        self.applications.insert(generation, application);
        self.report(generation, Event::StepStarted { generation });
        for rank in begun {
            let delay = self.between(MS, 15 * MS);
            self.after(delay, Happening::RankStep { generation, rank, turn: 0 });
        }
        // Refused by the agent of its node, or the node is gone.
        for rank in missing {
            self.report(generation, Event::RankExited { generation, rank, end: RankEnd::Code(1) });
        }
    }

    /// The launcher reports something, and would report it again.
    fn report(&mut self, generation: Generation, event: Event) {
        if let Some(application) = self.applications.get_mut(&generation).filter(|it| !it.ended) {
            application.reported.push(event.clone());
            self.tell(event);
        }
    }

    /// A rank's process ends by itself.
    pub fn rank_ends(&mut self, generation: Generation, rank: Rank, end: RankEnd) {
        let Some(application) = self.applications.get_mut(&generation) else { return };
        let state = &mut application.ranks[rank.index()];
        if !std::mem::replace(&mut state.alive, false) {
            return;
        }
        application.living -= 1;
        let (at, living) = (application.homes[rank.index()], application.living);
        trace!(self, "rank {rank} of generation {generation} ends with {end}");
        self.report(generation, Event::RankExited { generation, rank, end });
        self.note_empty(at, generation);
        if living == 0 {
            self.report(generation, Event::StepEnded { generation, end: RankEnd::SUCCESS });
        }
    }

    /// No rank may be left on a node.
    fn note_empty(&mut self, at: At, generation: Generation) {
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
    pub fn kill_ranks(&mut self, at: At, upto: Generation) {
        let Some(generation) = self.nodes[at as usize].ranks.filter(|ranks| *ranks <= upto) else { return };
        self.nodes[at as usize].ranks = None;
        let Some(application) = self.applications.get_mut(&generation) else { return };
        let mut killed = application.by_home.get(&at).cloned().unwrap_or_default();
        killed.retain(|rank| std::mem::replace(&mut application.ranks[rank.index()].alive, false));
        application.living -= killed.len() as u32;
        let living = application.living;
        for rank in killed {
            self.report(generation, Event::RankExited { generation, rank, end: RankEnd::Signal(9) });
        }
        if living == 0 {
            self.report(generation, Event::StepEnded { generation, end: RankEnd::Signal(9) });
        }
    }

    /// The node with its ranks is gone; the launcher notices, or does not.
    pub fn ranks_vanish(&mut self, at: At) {
        if self.dice.percent(60) {
            self.kill_ranks(at, Generation(u64::MAX));
        } else if let Some(generation) = self.nodes[at as usize].ranks.take() {
            let Some(application) = self.applications.get_mut(&generation) else { return };
            for rank in application.by_home.get(&at).into_iter().flatten() {
                if std::mem::replace(&mut application.ranks[rank.index()].alive, false) {
                    application.living -= 1;
                }
            }
        }
    }

    /// The launcher's step is cancelled: it kills what it reaches.
    pub fn cancel_step(&mut self, generation: Generation) {
        let Some(application) = self.applications.get_mut(&generation) else { return };
        application.ended = true;
        let homes: Vec<At> = application.by_home.keys().copied().collect();
        for at in homes {
            if self.nodes[at as usize].life == Life::Alive && self.nodes[at as usize].ranks == Some(generation) {
                self.kill_ranks(at, generation);
            }
        }
    }
}
