//! Orders that several agents carry out together, each on a thread: groups encode and rebuild, files of ranks move.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::thread;

use holdfast_model::{CheckpointId, FailureKind};
use holdfast_wire::peer::{GroupWork, Order};

use super::faults::{CallFault, PlannedFault, with_fault};
use crate::exchange::Effect;
use crate::joint::{JointKey, JointKind};
use crate::names::{NodeIndex, name};
use crate::orders::OrderOutcome;
use crate::queue::MS;
use crate::world::{Defect, SimulatedEvent, World};

/// The part of an order that is one joint step.
fn part_of(what: &Order, kind: &JointKind, sends: bool) -> Order {
    let mut part = what.clone();
    match (&mut part, kind) {
        (Order::Encode { groups, .. }, JointKind::Encode { group: known }) => {
            groups.retain(|group| group.group_id == known.group_id);
        }
        (Order::Encode { groups, only, .. }, JointKind::Copy { rank }) => {
            let of = |group: &GroupWork| if sends { group.member } else { group.left };
            groups.retain(|group| group.members[of(group) as usize].0 == *rank);
            *only = Some(vec![*rank]);
        }
        (Order::Rebuild { groups, .. }, JointKind::Rebuild { group: known, .. }) => {
            groups.retain(|rebuild| rebuild.group.group_id == known.group_id);
        }
        (Order::Transfer { outgoing, incoming, .. }, JointKind::Transfer { rank }) => {
            outgoing.retain(|transfer| sends && transfer.rank == *rank);
            incoming.retain(|member| !sends && member.rank == *rank);
        }
        (order, _) => panic!("{order:?} is for one agent"),
    }
    part
}

impl World {
    /// All members have joined: each does its part. At most one agent is killed, or has a call that fails.
    pub fn exchange_on_files(
        &mut self,
        key: JointKey,
        checkpoint: CheckpointId,
        kind: &JointKind,
        members: &[(NodeIndex, u64)],
    ) {
        // An agent carries out its part for all members on its node at once.
        let mut working: Vec<(NodeIndex, Order, Option<PlannedFault>)> = Vec::new();
        for (place, (at, instance)) in members.iter().enumerate() {
            if working.iter().any(|(other, ..)| other == at) {
                continue;
            }
            let is_alone = members.iter().filter(|(other, _)| other == at).count() == 1;
            let is_first = working.iter().all(|(_, _, fault)| fault.is_none());
            let fault = if is_alone && is_first { self.plan_call_fault() } else { None };
            let what = self.agent(*at, *instance).and_then(|agent| agent.part.as_ref()?.running.get(&key.order));
            working.push((*at, part_of(&what.unwrap().what, kind, place == 0), fault));
        }
        let nodes: Vec<NodeIndex> = members.iter().map(|(at, _)| *at).collect();
        let (mut groups, mut senders) = (BTreeMap::new(), BTreeMap::new());
        let group = match kind {
            JointKind::Encode { group } | JointKind::Rebuild { group, .. } => Some(group),
            JointKind::Copy { rank } | JointKind::Transfer { rank } => {
                senders.insert(*rank, name(nodes[0]));
                None
            }
        };
        groups.extend(group.map(|group| (group.group_id, nodes.iter().map(|at| name(*at)).collect())));
        let Some(files) = &mut self.files else { return };
        files.tally.steps += working.len() as u64;
        files.network.begin(groups, senders);
        let files = &*files;
        let results: BTreeMap<NodeIndex, (OrderOutcome, Option<CallFault>)> = thread::scope(|scope| {
            let part = |(at, part, fault)| {
                let agent = files.node(at).agent.as_ref().unwrap();
                let work = move || {
                    let done = with_fault(fault, || agent.order(key.order, part));
                    files.network.end(&name(at));
                    done
                };
                (at, scope.spawn(work))
            };
            let working: Vec<_> = working.into_iter().map(part).collect();
            let joined = |(at, thread): (_, thread::ScopedJoinHandle<'_, _>)| {
                (at, thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            };
            working.into_iter().map(joined).collect()
        });
        nodes.iter().for_each(|at| self.read_back(*at));
        if self.defect == Some(Defect::RedundancyWrong) && matches!(kind, JointKind::Encode { .. }) {
            self.spoil_redundancy(nodes[0], checkpoint);
        }
        if let Some(group) = group {
            self.note_encoded(checkpoint, group, &nodes);
        }
        for (at, (_, fault)) in &results {
            self.agent_fault_happened(*at, *fault);
        }
        for (at, instance) in members.iter().copied() {
            if self.agent(at, instance).is_none() {
                continue;
            }
            let effect = match results[&at].0.clone() {
                Ok(_) => Effect::Nothing,
                Err(failure) => {
                    if failure.kind == FailureKind::Damaged {
                        self.oracle.disk_failures += 1;
                    }
                    Effect::Failed(failure)
                }
            };
            let delay = self.between(200, 8 * MS);
            let (generation, order, effect) = (key.generation, key.order, Box::new(effect));
            self.after(delay, SimulatedEvent::Effect { at, instance, generation, order, effect });
        }
    }
}
