//! Links between the members' agents and the leader's: messages keep their order and are lost when the link breaks.

use std::sync::Arc;

use holdfast_agent::collective::leader::LeaderEvent;
use holdfast_model::Rank;
use holdfast_wire::peer::{Outcome, ToLeader, ToMember};
use holdfast_wire::rank::Call;

use crate::names::{NodeIndex, name};
use crate::queue::{MS, Time};
use crate::world::{Life, SimulatedEvent, World, trace};

/// A link that is up.
pub struct Link {
    pub member: NodeIndex,
    pub leader: NodeIndex,
    pub member_instance: u64,
    pub leader_instance: u64,
    /// Arrival times of the last message to the leader and of the last one to the member.
    last: [Time; 2],
}

impl World {
    /// Connects a member's agent to the leader, or tries again later.
    pub fn connect(&mut self, at: NodeIndex, instance: u64) {
        let Some(agent) = self.agent(at, instance) else { return };
        let Some(part) = &mut agent.part else { return };
        if part.link.is_some() {
            return;
        }
        let (leader, generation) = (part.leader, part.plan.generation);
        let pause = part.pause;
        part.pause = (pause * 2).min(500 * MS);
        let known = agent.addresses.get(&leader).map(|(_, start)| *start);
        let node = &self.nodes[leader as usize];
        let found = node.agent.as_ref().filter(|agent| node.life == Life::Alive && Some(agent.start) == known);
        let leading = found.filter(|agent| agent.leading.as_ref().is_some_and(|it| it.generation == generation));
        let Some(leader_instance) = leading.map(|agent| agent.instance) else {
            return self.after(pause, SimulatedEvent::Connect(at, instance));
        };
        self.made_links += 1;
        let link = self.made_links;
        let last = [self.now; 2];
        self.links.insert(link, Link { member: at, leader, member_instance: instance, leader_instance, last });
        let part = self.nodes[at as usize].agent.as_mut().and_then(|agent| agent.part.as_mut());
        let Some(part) = part else { return };
        (part.link, part.pause) = (Some(link), 5 * MS);
        let repeated: Vec<ToLeader> = part.calls.iter().map(|(seq, calls)| calls_of(*seq, calls)).collect();
        self.leader_event(leader, LeaderEvent::LinkUp { node: name(at), link });
        for message in repeated {
            self.send_to_leader(link, message);
        }
    }

    pub fn send_to_leader(&mut self, link: u64, message: ToLeader) {
        if let Some(at) = self.arrival(link, 0) {
            self.queue.enter(at, SimulatedEvent::ToLeader(link, Box::new(message)));
        }
    }

    pub fn send_to_member(&mut self, link: u64, message: ToMember) {
        if let Some(at) = self.arrival(link, 1) {
            self.queue.enter(at, SimulatedEvent::ToMember(link, Box::new(message)));
        }
    }

    pub fn send_results(&mut self, link: u64, seq: u64, outcome: Arc<Outcome>) {
        if let Some(at) = self.arrival(link, 1) {
            self.queue.enter(at, SimulatedEvent::Results(link, seq, outcome));
        }
    }

    /// The arrival time of a message that is sent now, never before an earlier one.
    fn arrival(&mut self, link: u64, direction: usize) -> Option<Time> {
        let at = self.now + self.hop();
        let known = self.links.get_mut(&link)?;
        known.last[direction] = known.last[direction].max(at);
        Some(known.last[direction])
    }

    pub fn leader_receives(&mut self, link: u64, message: ToLeader) {
        let Some(known) = self.links.get(&link) else { return };
        let (leader, node) = (known.leader, name(known.member));
        self.leader_event(leader, LeaderEvent::Received { node, message });
    }

    pub fn member_receives(&mut self, link: u64, message: ToMember) {
        let Some(Link { member: at, member_instance: instance, .. }) = self.links.get(&link) else { return };
        let (at, instance) = (*at, *instance);
        match message {
            ToMember::Order { order, what } => self.order_arrives(at, instance, link, order, what),
            ToMember::Cancel { order } => self.cancel_order(at, instance, order),
            // Orders take as long with limits.
            ToMember::LiftLimits { .. } => {}
            ToMember::Results { seq, outcome } => self.results_arrive(link, seq, &Arc::new(outcome)),
        }
    }

    /// The results of a collective: the ranks of this node get their answers.
    pub fn results_arrive(&mut self, link: u64, seq: u64, outcome: &Arc<Outcome>) {
        let Some(known) = self.links.get(&link) else { return };
        let (at, instance) = (known.member, known.member_instance);
        let Some(part) = self.agent(at, instance).and_then(|agent| agent.part.as_mut()) else { return };
        let generation = part.plan.generation;
        let ranks: Vec<Rank> = part.calls.remove(&seq).into_iter().flatten().map(|(rank, _)| rank).collect();
        for rank in ranks {
            let delay = self.between(50, MS);
            let outcome = outcome.clone();
            self.after(delay, SimulatedEvent::RankReply { at, instance, generation, rank, seq, outcome });
        }
    }

    /// A link breaks: messages on the way are lost, and both ends detect it some time later.
    pub fn break_link(&mut self, link: u64) {
        let Some(Link { member, leader, member_instance, leader_instance, .. }) = self.links.remove(&link) else {
            return;
        };
        let delay = self.between(0, 20 * MS);
        self.after(delay, SimulatedEvent::LinkDown { leader, instance: leader_instance, member, link });
        let delay = self.between(0, 20 * MS);
        self.after(delay, SimulatedEvent::LinkLost { member, instance: member_instance, link });
    }

    /// All links of a node's agent break.
    pub fn break_links(&mut self, at: NodeIndex) {
        let Some(agent) = &self.nodes[at as usize].agent else { return };
        let own = agent.part.as_ref().and_then(|part| part.link);
        let members = agent.leading.iter().flat_map(|leading| leading.links.values().copied());
        let mut links: Vec<u64> = own.into_iter().chain(members).collect();
        links.sort_unstable();
        links.into_iter().for_each(|link| self.break_link(link));
    }

    pub fn link_down(&mut self, leader: NodeIndex, instance: u64, member: NodeIndex, link: u64) {
        if self.agent(leader, instance).is_some() {
            self.leader_event(leader, LeaderEvent::LinkDown { node: name(member), link });
        }
    }

    pub fn link_lost(&mut self, at: NodeIndex, instance: u64, link: u64) {
        let Some(part) = self.agent(at, instance).and_then(|agent| agent.part.as_mut()) else { return };
        if part.link != Some(link) {
            return;
        }
        part.link = None;
        // The leader, or its successor, sends its orders again.
        part.running.values_mut().for_each(|running| running.cancelled = true);
        trace!(self, "n{at}: its link to the leader is lost");
        let delay = self.between(100, 5 * MS);
        self.after(delay, SimulatedEvent::Connect(at, instance));
    }
}

/// The message with all calls of a sequence number.
pub fn calls_of(seq: u64, calls: &std::collections::BTreeMap<Rank, Call>) -> ToLeader {
    ToLeader::Calls { seq, calls: calls.iter().map(|(rank, call)| (*rank, call.clone())).collect() }
}
