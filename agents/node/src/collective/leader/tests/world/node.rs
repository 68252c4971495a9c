//! A simulated node: its cache, and how it carries orders out.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{
    CheckpointId, Dataset, Failure, FailureKind, HaltState, HeldFile, Holding, Inventory, Locations, NodeName,
    Protection, Rank, RankDescriptor, Scheme,
};
use holdfast_wire::peer::{DatasetFile, Order, OrderResult, SealedFiles};

/// The content of a node's cache.
pub(in super::super) struct Node {
    pub(in super::super) name: NodeName,
    pub(in super::super) ranks: Vec<Rank>,
    /// The name of the file that its ranks wrote, if not one for each rank.
    pub(in super::super) written: Option<String>,
    pub(in super::super) held: BTreeMap<CheckpointId, BTreeMap<Rank, Holding>>,
    pub(in super::super) flush: BTreeMap<CheckpointId, Locations>,
    pub(in super::super) datasets: BTreeMap<CheckpointId, Dataset>,
    pub(in super::super) halt: HaltState,
    /// Where its ranks read and write themselves.
    pub(in super::super) direct: Option<CheckpointId>,
    /// Files with another content than was written, which only reading them shows.
    pub(in super::super) damaged: BTreeSet<(CheckpointId, Rank)>,
    /// Datasets that were begun, and whose redundancy was not made.
    unencoded: BTreeSet<CheckpointId>,
}

impl Node {
    pub(super) fn of(name: &NodeName, ranks: &[Rank]) -> Node {
        Node {
            name: name.clone(),
            ranks: ranks.to_vec(),
            written: None,
            held: BTreeMap::new(),
            flush: BTreeMap::new(),
            datasets: BTreeMap::new(),
            halt: HaltState::default(),
            direct: None,
            damaged: BTreeSet::new(),
            unencoded: BTreeSet::new(),
        }
    }

    fn inventory(&self) -> Inventory {
        Inventory {
            node: Some(self.name.clone()),
            holdings: self.held.values().flat_map(BTreeMap::values).cloned().map(|one| self.protected(one)).collect(),
            flush: self.flush.clone(),
            datasets: self.datasets.clone(),
            nodes: None,
            faults: Vec::new(),
        }
    }

    /// The datasets of which it has files in the cache at `base`, or in any.
    pub(super) fn in_base(&self, base: Option<&str>) -> Vec<CheckpointId> {
        let is_there = |holding: &Holding| {
            let descriptor = holding.descriptor.as_ref().map(|known| known.descriptor.base.as_str());
            base.is_none_or(|base| descriptor == Some(base))
        };
        self.held.iter().filter(|(_, ranks)| ranks.values().any(is_there)).map(|(id, _)| *id).collect()
    }

    fn protected(&self, mut holding: Holding) -> Holding {
        let scheme = holding.descriptor.as_ref().filter(|_| holding.complete).map(|known| known.descriptor.scheme);
        let made = |scheme: &Scheme| {
            !["XOR", "RS"].contains(&scheme.as_str()) || !self.unencoded.contains(&holding.checkpoint)
        };
        holding.protection = scheme.filter(made).map_or(Protection::Nothing, Protection::Scheme);
        holding
    }

    fn hold(&mut self, checkpoint: CheckpointId, rank: Rank, complete: bool, descriptor: RankDescriptor) {
        let files = vec![HeldFile { name: format!("ckpt.{rank}"), size: 10 }];
        let (expected, descriptor) = (Some(1), Some(descriptor));
        let holding = Holding { expected, complete, descriptor, files, ..of(checkpoint, rank) };
        self.held.entry(checkpoint).or_default().insert(rank, holding);
    }

    fn listed(&self) -> BTreeMap<Rank, Vec<DatasetFile>> {
        let file = |rank| DatasetFile { name: format!("ckpt.{rank}"), size: 10, crc: None, output_path: None };
        self.ranks.iter().map(|rank| (*rank, vec![file(*rank)])).collect()
    }
}

/// An entry without files of one rank.
fn of(checkpoint: CheckpointId, rank: Rank) -> Holding {
    Holding {
        checkpoint,
        rank,
        ranks: None,
        expected: None,
        complete: false,
        fault: None,
        protection: Protection::Nothing,
        partner_of: None,
        descriptor: None,
        files: Vec::new(),
    }
}

/// Carries an order out on one node; a transfer changes two.
pub(super) fn carry_out(
    nodes: &mut BTreeMap<NodeName, Node>,
    name: &NodeName,
    what: Order,
) -> Result<OrderResult, Failure> {
    let node = nodes.get_mut(name).unwrap();
    match what {
        Order::Inventory => return Ok(OrderResult::Inventory(node.inventory())),
        Order::Delete { checkpoints, all_but } => {
            let stays =
                |id: &CheckpointId| !checkpoints.contains(id) && all_but.as_ref().is_none_or(|keep| keep.contains(id));
            node.held.retain(|id, _| stays(id));
            node.datasets.retain(|id, _| stays(id));
            node.flush.retain(|id, _| !checkpoints.contains(id));
        }
        Order::Prepare { checkpoint, delete, members } => {
            delete.iter().for_each(|id| drop(node.held.remove(id)));
            node.unencoded.insert(checkpoint);
            members.into_iter().for_each(|member| node.hold(checkpoint, member.rank, false, member.descriptor));
        }
        Order::Seal { .. } => {
            let file = |rank: &Rank| node.written.clone().unwrap_or_else(|| format!("ckpt.{rank}"));
            let sealed = |rank: &Rank| SealedFiles { bytes: 10, names: vec![file(rank)] };
            return Ok(OrderResult::Sealed(node.ranks.iter().map(|rank| (*rank, sealed(rank))).collect()));
        }
        Order::Commit { checkpoint } => {
            let held = node.held.entry(checkpoint).or_default();
            held.values_mut().filter(|holding| holding.has_files()).for_each(|holding| holding.complete = true);
        }
        Order::Discard { checkpoint, ranks } => {
            let held = node.held.entry(checkpoint).or_default();
            ranks.iter().for_each(|rank| drop(held.remove(rank)));
            node.damaged.retain(|(id, rank)| *id != checkpoint || !ranks.contains(rank));
        }
        Order::Transfer { checkpoint, outgoing, .. } => {
            for step in outgoing {
                let held = nodes[name].held.get(&checkpoint).and_then(|held| held.get(&step.rank));
                let source = held.ok_or_else(|| missing(name, step.rank))?;
                if nodes[name].damaged.contains(&(checkpoint, step.rank)) {
                    return Err(is_damaged(name, step.rank));
                }
                let holding = Holding { partner_of: None, ..source.clone() };
                nodes.get_mut(&step.to).unwrap().held.entry(checkpoint).or_default().insert(step.rank, holding);
            }
        }
        Order::Encode { checkpoint, groups, only, .. } => {
            for group in groups {
                let (left, home) = &group.members[group.left as usize];
                if only.as_ref().is_some_and(|only| !only.contains(left)) {
                    continue;
                }
                let of_left = &nodes[home].held[&checkpoint][left];
                // A copy of all of its files, or of its descriptor alone.
                let stored = if group.scheme.as_str() == "PARTNER" {
                    Holding { partner_of: Some(home.clone()), ..of_left.clone() }
                } else {
                    Holding { descriptor: of_left.descriptor.clone(), ..of(checkpoint, *left) }
                };
                let node = nodes.get_mut(name).unwrap();
                node.unencoded.remove(&checkpoint);
                node.held.entry(checkpoint).or_default().insert(*left, stored);
            }
        }
        Order::Adopt { .. } | Order::CloseDirect { .. } => {}
        Order::Verify { checkpoint, ranks } => {
            let damaged = ranks.into_iter().filter(|rank| node.damaged.contains(&(checkpoint, *rank)));
            return Ok(OrderResult::Verified(damaged.map(|rank| (rank, damage(rank))).collect()));
        }
        Order::VerifyStored { checkpoint, files, .. } => {
            let damaged = files.into_keys().filter(|rank| node.damaged.contains(&(checkpoint, *rank)));
            return Ok(OrderResult::Verified(damaged.map(|rank| (rank, damage(rank))).collect()));
        }
        Order::Rebuild { checkpoint, groups } => {
            for rebuild in groups {
                let (rank, _) = rebuild.group.members[rebuild.group.member as usize];
                let is_sound = rebuild.group.members.iter().zip(0..).all(|((other, home), index)| {
                    rebuild.missing.contains(&index) || !nodes[home].damaged.contains(&(checkpoint, *other))
                });
                let node = nodes.get_mut(name).unwrap();
                if !is_sound && rebuild.missing.contains(&rebuild.group.member) {
                    // Nothing is installed: a survivor has not confirmed its files.
                    return Err(Failure::new(FailureKind::LostPeer, "a survivor ended"));
                }
                if rebuild.missing.contains(&rebuild.group.member) {
                    node.hold(checkpoint, rank, true, rebuild.descriptor);
                } else if !node.held[&checkpoint].get(&rank).is_some_and(|holding| holding.complete) {
                    return Err(missing(name, rank));
                } else if node.damaged.contains(&(checkpoint, rank)) {
                    return Err(is_damaged(name, rank));
                }
            }
        }
        Order::Fetch { checkpoint, ranks, .. } => {
            ranks.into_iter().for_each(|rank| node.hold(checkpoint, rank.member.rank, true, rank.member.descriptor));
        }
        Order::Flush { .. } | Order::SealDirect { .. } => return Ok(OrderResult::Flushed(node.listed())),
        Order::Describe { checkpoint, dataset } => drop(node.datasets.insert(checkpoint, dataset)),
        Order::OpenDirect { checkpoint, .. } | Order::ReadDirect { checkpoint, .. } => node.direct = Some(checkpoint),
        Order::Note { checkpoint, locations } => drop(node.flush.insert(checkpoint, locations)),
        Order::Halt { state } => node.halt = state,
    }
    Ok(OrderResult::Done)
}

fn missing(node: &NodeName, rank: Rank) -> Failure {
    Failure::new(FailureKind::NotFound, format!("{node} has nothing of rank {rank}"))
}

fn damage(rank: Rank) -> String {
    format!("ckpt.{rank} is damaged")
}

fn is_damaged(node: &NodeName, rank: Rank) -> Failure {
    Failure::new(FailureKind::Damaged, damage(rank)).on_node(node).of_rank(rank)
}

pub(super) fn name(order: &Order) -> &'static str {
    match order {
        Order::Inventory => "inventory",
        Order::Delete { .. } => "delete",
        Order::Prepare { .. } => "prepare",
        Order::Seal { .. } => "seal",
        Order::Encode { .. } => "encode",
        Order::Commit { .. } => "commit",
        Order::Discard { .. } => "discard",
        Order::Transfer { .. } => "transfer",
        Order::Adopt { .. } => "adopt",
        Order::Verify { .. } => "verify",
        Order::Rebuild { .. } => "rebuild",
        Order::Fetch { .. } => "fetch",
        Order::Flush { .. } => "flush",
        Order::VerifyStored { .. } => "verify_stored",
        Order::Describe { .. } => "describe",
        Order::OpenDirect { .. } => "open_direct",
        Order::SealDirect { .. } => "seal_direct",
        Order::CloseDirect { .. } => "close_direct",
        Order::ReadDirect { .. } => "read_direct",
        Order::Note { .. } => "note",
        Order::Halt { .. } => "halt",
    }
}
