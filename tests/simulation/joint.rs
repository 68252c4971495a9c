//! Orders that agents carry out together: each group, or each rank that moves, is one joint step. When all members have
//! joined, data are exchanged, and each member writes its own result some time later.

use std::sync::Arc;

use holdfast_model::{CheckpointId, Failure, FailureKind, Generation, Rank};
use holdfast_wire::peer::{GroupRebuild, GroupWork, Member, OrderResult, RankTransfer};

use crate::content::keeps_copies;
use crate::exchange::{Effect, keep_descriptor, parity, rebuild, transfer};
use crate::names::{NodeIndex, position};
use crate::orders::{cancelled, lost_peer};
use crate::queue::MS;
use crate::store::{Disk, File};
use crate::world::{Defect, Life, SimulatedEvent, World, trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JointKey {
    /// Leaders of different generations may use the same numbers.
    pub generation: Generation,
    pub order: u64,
    /// The group or the rank.
    tag: u32,
}

/// Set in the key of a transfer, and of a copy to a neighbour.
const TRANSFER: u32 = 1 << 31;
const COPY: u32 = 1 << 30;

pub struct Joint {
    checkpoint: CheckpointId,
    kind: JointKind,
    /// The members that are known.
    members: Vec<Option<NodeIndex>>,
    /// The agent process of each member that has joined.
    joined: Vec<Option<u64>>,
    /// A member has failed: others that join fail, too.
    failed: bool,
}

pub enum JointKind {
    Encode {
        group: GroupWork,
    },
    Rebuild {
        group: GroupWork,
        missing: Vec<u32>,
    },
    /// From member 0 to member 1.
    Transfer {
        rank: Rank,
    },
    /// From member 0 to member 1, its right neighbour.
    Copy {
        rank: Rank,
    },
}

impl World {
    pub fn join_encode(
        &mut self,
        at: NodeIndex,
        instance: u64,
        order: u64,
        checkpoint: CheckpointId,
        groups: Vec<GroupWork>,
        only: Option<Vec<Rank>>,
    ) {
        let is_copied = |rank: Rank| only.as_ref().is_none_or(|only| only.contains(&rank));
        let mut steps = Vec::new();
        for group in groups {
            let member = group.member as usize;
            if !keeps_copies(group.scheme) {
                steps.push((group.group_id, member, nodes_of(&group), JointKind::Encode { group }));
                continue;
            }
            let node = |member: u32| {
                let (rank, node) = &group.members[member as usize];
                (*rank, position(node))
            };
            let (own, left) = (node(group.member), node(group.left));
            let copy = |(rank, from): (Rank, Option<NodeIndex>), place, to| {
                (COPY | rank.0, place, vec![from, to], JointKind::Copy { rank })
            };
            steps.extend(is_copied(own.0).then(|| copy(own, 0, node(group.right).1)));
            steps.extend(is_copied(left.0).then(|| copy(left, 1, own.1)));
        }
        self.open_parts(at, instance, order, steps.len());
        for (tag, member, members, kind) in steps {
            self.join(at, instance, self.key(at, order, tag), member, checkpoint, members, kind);
        }
    }

    pub fn join_rebuild(
        &mut self,
        at: NodeIndex,
        instance: u64,
        order: u64,
        checkpoint: CheckpointId,
        groups: Vec<GroupRebuild>,
    ) {
        self.open_parts(at, instance, order, groups.len());
        for GroupRebuild { group, missing, descriptor } in groups {
            let (tag, member, members) = (group.group_id, group.member as usize, nodes_of(&group));
            if self.files.is_none() && missing.contains(&group.member) && !self.disk_fails(at, true) {
                // The lost rank's entry is made before files arrive.
                let rank = group.members[member].0;
                let disk = &mut self.nodes[at as usize].disk;
                disk.delete_rank(checkpoint, rank);
                disk.held(checkpoint, rank).descriptor = Some(Arc::new(descriptor));
            }
            self.join(
                at,
                instance,
                self.key(at, order, tag),
                member,
                checkpoint,
                members,
                JointKind::Rebuild { group, missing },
            );
        }
    }

    pub fn join_transfer(
        &mut self,
        at: NodeIndex,
        instance: u64,
        order: u64,
        checkpoint: CheckpointId,
        outgoing: Vec<RankTransfer>,
        incoming: Vec<Member>,
    ) {
        self.open_parts(at, instance, order, outgoing.len() + incoming.len());
        for RankTransfer { rank, to } in outgoing {
            let members = vec![Some(at), position(&to)];
            let key = self.key(at, order, TRANSFER | rank.0);
            self.join(at, instance, key, 0, checkpoint, members, JointKind::Transfer { rank });
        }
        for Member { rank, .. } in incoming {
            let key = self.key(at, order, TRANSFER | rank.0);
            self.join(at, instance, key, 1, checkpoint, vec![None, Some(at)], JointKind::Transfer { rank });
        }
    }

    fn key(&self, at: NodeIndex, order: u64, tag: u32) -> JointKey {
        JointKey { generation: self.serving(at).unwrap_or(Generation::NONE), order, tag }
    }

    fn open_parts(&mut self, at: NodeIndex, instance: u64, order: u64, parts: usize) {
        let Some(part) = self.agent(at, instance).and_then(|agent| agent.part.as_mut()) else { return };
        let Some(running) = part.running.get_mut(&order) else { return };
        running.open = parts as u32;
        if parts == 0 {
            self.order_done(at, instance, order, Ok(OrderResult::Done));
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn join(
        &mut self,
        at: NodeIndex,
        instance: u64,
        key: JointKey,
        member: usize,
        checkpoint: CheckpointId,
        members: Vec<Option<NodeIndex>>,
        kind: JointKind,
    ) {
        if self.disk_fails(at, true) {
            self.oracle.disk_failures += 1;
            let failure = Failure::new(FailureKind::Io, "the disk fails");
            return self.part_ends(at, instance, key.order, Err(failure));
        }
        if let Some(running) =
            self.agent(at, instance).and_then(|agent| agent.part.as_mut()?.running.get_mut(&key.order))
        {
            running.joints.push(key.tag);
        }
        let first = !self.joints.contains_key(&key);
        let joint = self.joints.entry(key).or_insert_with(|| {
            let joined = vec![None; members.len()];
            let kind = JointKind::Transfer { rank: Rank(0) };
            Joint { checkpoint, kind, members: members.clone(), joined, failed: false }
        });
        if first || member == 0 {
            joint.kind = kind;
        }
        for (known, given) in joint.members.iter_mut().zip(members) {
            *known = known.or(given);
        }
        joint.joined[member] = Some(instance);
        trace!(
            self,
            "n{at}: joins {:x} as {member}: {:?}",
            key.tag,
            self.joints[&key].joined.iter().map(Option::is_some).collect::<Vec<_>>()
        );
        let joint = &self.joints[&key];
        if joint.failed {
            self.fail_joint(key, lost_peer());
        } else if joint.joined.iter().all(Option::is_some) {
            let delay = self.between(300, 10 * MS);
            self.after(delay, SimulatedEvent::Exchange(key));
        } else if first {
            let delay = self.between(100 * MS, 400 * MS);
            self.after(delay, SimulatedEvent::CheckJoint(key, 0));
        }
    }

    /// True if this process of a node's agent still carries out an order.
    fn works_on(&self, at: NodeIndex, instance: u64, order: u64) -> bool {
        let agent = self.nodes[at as usize].agent.as_ref().filter(|agent| agent.instance == instance);
        let running = agent.and_then(|agent| agent.part.as_ref()?.running.get(&order));
        running.is_some_and(|running| !running.cancelled)
    }

    /// Fails the step if a member that is waited for was lost.
    pub fn check_joint(&mut self, key: JointKey, tries: u32) {
        let Some(joint) = self.joints.get(&key).filter(|joint| !joint.failed) else { return };
        let lost = |(member, joined): (&Option<NodeIndex>, &Option<u64>)| match (member, joined) {
            (Some(at), Some(instance)) => !self.works_on(*at, *instance, key.order),
            (Some(at), None) => {
                let node = &self.nodes[*at as usize];
                node.life == Life::Dead || node.agent.is_none()
            }
            (None, _) => false,
        };
        if tries > 75 || joint.members.iter().zip(&joint.joined).any(lost) {
            self.fail_joint(key, lost_peer());
        } else if joint.joined.iter().any(Option::is_none) {
            self.after(400 * MS, SimulatedEvent::CheckJoint(key, tries + 1));
        }
    }

    /// A joint step fails for all members that have joined.
    fn fail_joint(&mut self, key: JointKey, failure: Failure) {
        let Some(joint) = self.joints.get_mut(&key) else { return };
        joint.failed = true;
        let joined: Vec<(NodeIndex, u64)> = joint
            .members
            .iter()
            .zip(&mut joint.joined)
            .filter_map(|(at, instance)| Some(((*at)?, instance.take()?)))
            .collect();
        for (at, instance) in joined {
            let effect = Box::new(Effect::Failed(failure.clone()));
            let delay = self.between(100, 2 * MS);
            self.after(
                delay,
                SimulatedEvent::Effect { at, instance, generation: key.generation, order: key.order, effect },
            );
        }
    }

    /// The order is cancelled: the other members of its joint steps lose a peer.
    pub fn leave_joints(&mut self, at: NodeIndex, instance: u64, order: u64) {
        let Some(part) = self.agent(at, instance).and_then(|agent| agent.part.as_mut()) else { return };
        let tags = part.running.get_mut(&order).map(|running| std::mem::take(&mut running.joints));
        for tag in tags.into_iter().flatten() {
            self.fail_joint(self.key(at, order, tag), lost_peer());
        }
        self.order_done(at, instance, order, Err(cancelled()));
    }

    /// All members have joined: data are exchanged.
    pub fn exchange(&mut self, key: JointKey) {
        let Some(joint) = self.joints.get(&key).filter(|joint| !joint.failed) else { return };
        let members: Vec<(NodeIndex, u64)> =
            joint.members.iter().zip(&joint.joined).filter_map(|(at, instance)| Some(((*at)?, (*instance)?))).collect();
        if members.iter().any(|(at, _)| self.nodes[*at as usize].life == Life::Frozen) {
            return self.after(200 * MS, SimulatedEvent::Exchange(key));
        }
        if members.iter().any(|(at, instance)| !self.works_on(*at, *instance, key.order)) {
            return self.fail_joint(key, lost_peer());
        }
        let Some(joint) = self.joints.remove(&key) else { return };
        if self.files.is_some() {
            return self.exchange_on_files(key, joint.checkpoint, &joint.kind, &members);
        }
        let disks: Vec<&Disk> = members.iter().map(|(at, _)| &self.nodes[*at as usize].disk).collect();
        let verified = self.scenario.has_checksums();
        let effects = match &joint.kind {
            JointKind::Copy { rank } => {
                transfer(joint.checkpoint, *rank, disks[0], members[0], verified, Some(members[0].0))
            }
            JointKind::Encode { group } => parity(joint.checkpoint, group, &disks, verified),
            JointKind::Rebuild { group, missing } => rebuild(joint.checkpoint, group, missing, &disks, verified),
            JointKind::Transfer { rank } => transfer(joint.checkpoint, *rank, disks[0], members[0], verified, None),
        };
        let is_damaged =
            |effect: &Option<Effect>| matches!(effect, Some(Effect::Failed(why)) if why.kind == FailureKind::Damaged);
        if effects.iter().any(is_damaged) {
            self.oracle.disk_failures += 1;
        }
        for ((at, instance), effect) in members.into_iter().zip(effects) {
            let Some(effect) = effect else { continue };
            let delay = self.between(200, 8 * MS);
            self.after(
                delay,
                SimulatedEvent::Effect {
                    at,
                    instance,
                    generation: key.generation,
                    order: key.order,
                    effect: Box::new(effect),
                },
            );
        }
    }

    pub fn take_effect(&mut self, at: NodeIndex, instance: u64, generation: Generation, order: u64, effect: Effect) {
        if self.serving(at) != Some(generation) || !self.works_on(at, instance, order) {
            return;
        }
        let midway = self.dies_midway(at);
        if self.disk_fails(at, true) {
            self.oracle.disk_failures += 1;
            let failure = Failure::new(FailureKind::Io, "the disk fails");
            return self.part_ends(at, instance, order, Err(failure));
        }
        let disk = &mut self.nodes[at as usize].disk;
        let mut result = Ok(());
        match effect {
            Effect::Nothing | Effect::Received => {}
            Effect::Failed(failure) => result = Err(failure),
            Effect::Parity { checkpoint, rank, file, left } => {
                for (neighbour, descriptor) in left {
                    keep_descriptor(disk, checkpoint, neighbour, descriptor);
                }
                if self.defect != Some(Defect::EncodingNotMade) {
                    disk.held(checkpoint, rank).put(File { sealed: !midway, ..file });
                }
            }
            Effect::Files { checkpoint, rank, mut held, left, sender } => {
                if midway && !left.is_empty() {
                    // The number of expected files is written last.
                    held.expected = None;
                }
                for (neighbour, descriptor) in left {
                    keep_descriptor(disk, checkpoint, neighbour, descriptor);
                }
                if midway {
                    held.files.truncate(held.files.len() / 2);
                }
                if self.defect == Some(Defect::OldFilesKept) {
                    let older = disk.held.iter().rfind(|((id, of), _)| *id < checkpoint && *of == rank);
                    held.files = older.map_or(held.files, |(_, older)| older.files.clone());
                    held.expected = Some(held.files.len() as u32);
                }
                disk.held.insert((checkpoint, rank), held);
                if let Some((at, instance)) = sender.filter(|_| !midway) {
                    let delay = self.hop();
                    let effect = Box::new(Effect::Received);
                    self.after(delay, SimulatedEvent::Effect { at, instance, generation, order, effect });
                }
            }
        }
        if !midway {
            self.part_ends(at, instance, order, result);
        }
    }

    /// One group or transfer of an order is finished here.
    fn part_ends(&mut self, at: NodeIndex, instance: u64, order: u64, result: Result<(), Failure>) {
        let Some(part) = self.agent(at, instance).and_then(|agent| agent.part.as_mut()) else { return };
        let Some(running) = part.running.get_mut(&order) else { return };
        running.open = running.open.saturating_sub(1);
        if let Err(failure) = result {
            running.failure.get_or_insert(failure);
        }
        if running.open == 0 {
            let failure = running.failure.take();
            trace!(self, "n{at}: joint order {} ends", order % 100_000);
            self.order_done(at, instance, order, failure.map_or(Ok(OrderResult::Done), Err));
        }
    }
}

fn nodes_of(group: &GroupWork) -> Vec<Option<NodeIndex>> {
    group.members.iter().map(|(_, node)| position(node)).collect()
}
