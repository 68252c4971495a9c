//! The data exchange of a joint step when all members have joined: computes from their disks what each member writes.

use std::sync::Arc;

use holdfast_core::redundancy::registry;
use holdfast_model::{CheckpointId, Failure, FailureKind, Rank, RankDescriptor};
use holdfast_wire::peer::GroupWork;

use crate::content::{Content, FileName, Parity, Rebuilt, Survivor};
use crate::names::NodeIndex;
use crate::orders::lost_peer;
use crate::store::{Disk, File, Held};

/// The change of a member's store at the end of a joint step.
pub enum Effect {
    Nothing,
    Failed(Failure),
    /// The member's own redundancy file.
    Parity {
        checkpoint: CheckpointId,
        rank: Rank,
        file: File,
        left: Vec<Neighbour>,
    },
    /// A rank's files: the member's own, or a copy for a neighbour.
    Files {
        checkpoint: CheckpointId,
        rank: Rank,
        held: Held,
        left: Vec<Neighbour>,
        sender: Option<Sender>,
    },
    /// The acknowledgement: the receiver has all files of a rank.
    Received,
}

/// A left neighbour and its descriptor, which is kept with the redundancy.
pub type Neighbour = (Rank, Option<Arc<RankDescriptor>>);

/// The node and the process that wait for an acknowledgement.
pub type Sender = (NodeIndex, u64);

/// Stores a neighbour's descriptor and leaves the neighbour's files as they are.
pub fn keep_descriptor(disk: &mut Disk, checkpoint: CheckpointId, of: Rank, descriptor: Option<Arc<RankDescriptor>>) {
    disk.held(checkpoint, of).descriptor = descriptor;
}

fn descriptor_of(disk: &Disk, checkpoint: CheckpointId, rank: Rank) -> Option<Arc<RankDescriptor>> {
    disk.get(checkpoint, rank)?.descriptor.clone()
}

/// A checksum does not match.
pub fn damaged_file() -> Failure {
    Failure::new(FailureKind::Damaged, "a file does not match its checksum")
}

/// Why a rank's files cannot be sent.
fn fault(held: &Held, verified: bool) -> Option<Failure> {
    fault_of(held.files.iter(), verified)
}

/// Why these files cannot be read.
fn fault_of<'a>(mut files: impl Iterator<Item = &'a File> + Clone, verified: bool) -> Option<Failure> {
    if files.clone().all(|file| file.can_be_read(verified)) {
        return None;
    }
    let present = files.all(|file| file.can_be_read(false));
    Some(if present { damaged_file() } else { Failure::new(FailureKind::Io, "a file cannot be read") })
}

fn failed(count: usize, failure: &Failure) -> Vec<Option<Effect>> {
    (0..count).map(|_| Some(Effect::Failed(failure.clone()))).collect()
}

/// One member fails, and the others lose it.
fn failed_at(member: usize, count: usize, failure: Failure) -> Vec<Option<Effect>> {
    let mut effects = failed(count, &lost_peer());
    effects[member] = Some(Effect::Failed(failure));
    effects
}

/// Sends a rank's files to its node, or copies those of `partner_of` to the node of its right neighbour. The sender is
/// done when the receiver has acknowledged them.
pub fn transfer(
    checkpoint: CheckpointId,
    rank: Rank,
    from: &Disk,
    sender: (NodeIndex, u64),
    verified: bool,
    partner_of: Option<NodeIndex>,
) -> Vec<Option<Effect>> {
    let source = from.get(checkpoint, rank).cloned().unwrap_or_default();
    if let Some(failure) = fault(&source, verified) {
        return failed_at(0, 2, failure.of_rank(rank));
    }
    let held = Held { expected: Some(source.files.len() as u32), partner_of, ..source };
    vec![None, Some(Effect::Files { checkpoint, rank, held, left: Vec::new(), sender: Some(sender) })]
}

/// How many members of a group can be lost.
fn tolerance(checkpoint: CheckpointId, group: &GroupWork, disks: &[&Disk]) -> u32 {
    let scheme = registry::get(group.scheme).unwrap();
    let descriptors =
        group.members.iter().zip(disks).filter_map(|((rank, _), disk)| descriptor_of(disk, checkpoint, *rank));
    descriptors.map(|descriptor| scheme.tolerance(&descriptor)).next().unwrap_or(1)
}

/// The left neighbours of a member, of whom it keeps the descriptors: as many as can be lost.
fn lefts(checkpoint: CheckpointId, group: &GroupWork, member: usize, disks: &[&Disk]) -> Vec<Neighbour> {
    let size = group.members.len();
    let left = (1..=tolerance(checkpoint, group, disks) as usize).map(|distance| (member + size - distance) % size);
    let known = left.map(|left| (group.members[left].0, descriptor_of(disks[left], checkpoint, group.members[left].0)));
    known.collect()
}

/// Computes the parity of all members for each of them.
pub fn parity(checkpoint: CheckpointId, group: &GroupWork, disks: &[&Disk], verified: bool) -> Vec<Option<Effect>> {
    let application_fault = |(rank, disk): (Rank, &Disk)| {
        disk.get(checkpoint, rank).and_then(|held| fault_of(held.application(), verified))
    };
    let members = || group.members.iter().zip(disks).map(|((rank, _), disk)| (*rank, *disk));
    let faults: Vec<Option<Failure>> = members().map(application_fault).collect();
    if faults.iter().any(Option::is_some) {
        return faults.into_iter().map(|fault| Some(Effect::Failed(fault.unwrap_or_else(lost_peer)))).collect();
    }
    let written = |(rank, disk): (Rank, &Disk)| disk.get(checkpoint, rank).map(Held::written).unwrap_or_default();
    let tolerance = tolerance(checkpoint, group, disks);
    let parity = Arc::new(Parity { tolerance, members: members().map(written).collect() });
    let size = group.members.len();
    let effect = |member: usize| {
        let name = parity_name(group, member);
        let file = File { name, content: Content::Parity(parity.clone()), sealed: true, there: true };
        let left = lefts(checkpoint, group, member, disks);
        Effect::Parity { checkpoint, rank: group.members[member].0, file, left }
    };
    (0..size).map(|member| Some(effect(member))).collect()
}

fn parity_name(group: &GroupWork, member: usize) -> FileName {
    let (scheme, group_id, members) = (group.scheme, group.group_id, group.members.len() as u32);
    FileName::Parity { scheme, group_id, members, member: member as u32 }
}

/// Computes the lost members' files from those of the others.
pub fn rebuild(
    checkpoint: CheckpointId,
    group: &GroupWork,
    missing: &[u32],
    disks: &[&Disk],
    verified: bool,
) -> Vec<Option<Effect>> {
    let size = group.members.len();
    let is_lost = |member: usize| missing.contains(&(member as u32));
    let mut survivors = Vec::new();
    for (member, (rank, _)) in group.members.iter().enumerate().filter(|(member, _)| !is_lost(*member)) {
        let held = disks[member].get(checkpoint, *rank);
        if let Some(failure) = held.and_then(|held| fault(held, verified)) {
            return failed_at(member, size, failure.of_rank(*rank));
        }
        let parity = held.and_then(Held::parity).filter(|file| file.there && file.sealed);
        let content = parity.map(|file| file.content.clone());
        let files = held.map(Held::written).unwrap_or_default();
        survivors.push(Survivor { member, parity: content, files });
    }
    let mut effects = Vec::new();
    for member in 0..size {
        if !is_lost(member) {
            effects.push(Some(Effect::Nothing));
            continue;
        }
        let Rebuilt::Files { files, parity } = Parity::rebuild(&survivors, member) else {
            return failed(size, &Failure::new(FailureKind::Damaged, "the survivors are not enough"));
        };
        let rank = group.members[member].0;
        let file = |(name, content)| File { name, content, sealed: true, there: true };
        let files: Vec<File> =
            files.into_iter().map(file).chain([file((parity_name(group, member), parity))]).collect();
        let held = Held {
            descriptor: descriptor_of(disks[member], checkpoint, rank),
            expected: Some(files.len() as u32),
            partner_of: None,
            files,
        };
        let left = lefts(checkpoint, group, member, disks);
        effects.push(Some(Effect::Files { checkpoint, rank, held, left, sender: None }));
    }
    effects
}
