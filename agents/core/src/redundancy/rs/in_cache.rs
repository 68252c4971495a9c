//! Rebuilding with the files of the members on their nodes: along the chain of survivors, and through the new homes of
//! the lost members.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_model::RankDescriptor;

use super::{PARITY, header};
use crate::kvtree::Tree;
use crate::redundancy::files::MemberFiles;
use crate::redundancy::link::{LinkReceiver, LinkSender};
use crate::redundancy::lost_member::LostMember;
use crate::redundancy::member::{GroupMember, MemberTask};
use crate::redundancy::parity::greeting;
use crate::redundancy::parity::header::ParityHeader;
use crate::redundancy::parity::member::Member;
use crate::redundancy::parity::rebuild::{chain, rebuild_root, rebuild_survivor};
use crate::redundancy::parity::survivor::Survivor;
use crate::redundancy::piece::BufferPool;
use crate::redundancy::{RedundancyError, Result, inside};
use crate::store::OpenDataset;

/// Takes part in the rebuild of the `missing` members.
pub(super) fn rebuild(task: &MemberTask, missing: &[u32], node: &dyn GroupMember) -> Result<()> {
    for member in missing {
        task.rank_of(*member)?;
    }
    let order = chain(task.size(), missing);
    let Some(at) = order.iter().position(|member| *member == task.index) else { return Ok(()) };
    let (before, after) = (at.checked_sub(1).map(|at| order[at]), order.get(at + 1).copied());
    let pool = BufferPool::default();
    let right = after.map(|member| node.link_to(member, &pool)).transpose()?;
    let left = before.map(|member| node.link_from(member, &pool)).transpose()?;
    match (left, right) {
        (Some(left), right) if missing.contains(&task.index) => write_lost(task, missing, node, &pool, (left, right)),
        (left, Some(right)) if !missing.contains(&task.index) => pass_on(task, missing, node, &pool, (left, right)),
        // All members are missing.
        _ => {
            let (group_id, members) = (task.group_id, task.size());
            Err(RedundancyError::TooManyMissing { group_id, members, missing: missing.len() })
        }
    }
}

/// What the survivors know of the members that are rebuilt, and of their left neighbours: it grows along the chain.
struct Known {
    /// The header of the first survivor: what all headers of the set have in common.
    first: Tree,
    members: BTreeMap<u32, (MemberFiles, RankDescriptor)>,
}

impl Known {
    /// The members of which the rebuilt ones list the files.
    fn wanted(members: u32, failures: u32, missing: &[u32]) -> BTreeSet<u32> {
        missing.iter().flat_map(|lost| (0..=failures).map(move |left| (lost + members - left) % members)).collect()
    }

    fn send(&self, right: &mut dyn LinkSender) -> Result<()> {
        let mut parts = vec![greeting::of_tree(&self.first)];
        for (member, (files, descriptor)) in &self.members {
            parts.push(member.to_be_bytes().to_vec());
            parts.push(greeting::of_tree(&files.to_tree()));
            parts.push(greeting::of_descriptor(descriptor)?);
        }
        greeting::send(right, &parts)
    }

    fn receive(left: &mut dyn LinkReceiver) -> Result<Known> {
        let parts = greeting::receive(left)?;
        let (first, members) = parts.split_first().ok_or_else(greeting::too_short)?;
        let (members, rest) = members.as_chunks::<3>();
        if !rest.is_empty() {
            return Err(greeting::too_short());
        }
        let member = |[member, files, descriptor]: &[Vec<u8>; 3]| {
            let member = member.as_slice().try_into().map(u32::from_be_bytes).map_err(|_| greeting::too_short())?;
            let files = MemberFiles::from_tree(&greeting::to_tree(files)?, header::ORIGIN)?;
            Ok((member, (files, greeting::to_descriptor(descriptor)?)))
        };
        Ok(Known { first: greeting::to_tree(first)?, members: members.iter().map(member).collect::<Result<_>>()? })
    }
}

/// A survivor: adds its part to what comes from the left, and passes it on.
fn pass_on(
    task: &MemberTask,
    missing: &[u32],
    node: &dyn GroupMember,
    pool: &BufferPool,
    (mut left, mut right): (Option<Box<dyn LinkReceiver>>, Box<dyn LinkSender>),
) -> Result<()> {
    let mut survivor = Survivor::of_member(&PARITY, task, node)?;
    let header = &survivor.file.header;
    let mut known = match &mut left {
        Some(left) => Known::receive(&mut **left)?,
        None => Known { first: survivor.file.tree.clone(), members: BTreeMap::new() },
    };
    let wanted = Known::wanted(task.size(), header.failures(), missing);
    for (member, files) in header.known().filter(|(member, _)| wanted.contains(member)) {
        if let Entry::Vacant(vacant) = known.members.entry(member) {
            vacant.insert((files.clone(), node.descriptor(task.rank_of(member)?)?));
        }
    }
    known.send(&mut *right)?;

    let member = member(task, header, node, pool);
    let total = member.chunk.saturating_mul(u64::from(member.members));
    let mut progress = |done| node.progress(done, total);
    let from_left = left.as_mut().map(|left| &mut **left as &mut dyn LinkReceiver);
    rebuild_survivor(&member, missing, &mut survivor, from_left, &mut *right, &mut progress)?;
    if let Some(left) = &mut left {
        left.finish().map_err(RedundancyError::left("rebuilding"))?;
    }
    right.finish().map_err(RedundancyError::right("rebuilding"))
}

/// The new home of a lost member: writes what is its own of what arrives, passes on the rest, and installs its files
/// when all survivors were sound.
fn write_lost(
    task: &MemberTask,
    missing: &[u32],
    node: &dyn GroupMember,
    pool: &BufferPool,
    (mut left, mut right): (Box<dyn LinkReceiver>, Option<Box<dyn LinkSender>>),
) -> Result<()> {
    let known = Known::receive(&mut *left)?;
    if let Some(right) = &mut right {
        known.send(&mut **right)?;
    }
    let first = ParityHeader::from_tree(&PARITY, &known.first, header::ORIGIN)?;
    let files = known.members.iter().map(|(member, (files, _))| (*member, files.clone())).collect();
    let header = header::of_member(&first, task.index, &files)?;
    let rank = task.rank()?;
    if header.checkpoint != task.checkpoint || header.current.rank != rank {
        let (of, found, id) = (header.current.rank, header.checkpoint, task.checkpoint);
        let why = format!("it is of rank {of} of checkpoint {found} where rank {rank} of {id} is due");
        return Err(RedundancyError::Header { origin: header::ORIGIN.into(), why });
    }
    let lost = header.lost_files(&header.to_tree_of_fixed_length(), task.group_id);
    let dataset: Arc<dyn OpenDataset> = inside::open_directory(node.directory())?;
    let lost = LostMember::create(&dataset, lost, &node.names_of_others())?;
    let member = member(task, &header, node, pool);
    let total = member.chunk.saturating_mul(u64::from(member.members));
    let mut progress = |done| node.progress(done, total);
    let to_right = right.as_mut().map(|right| &mut **right as &mut dyn LinkSender);
    let unconfirmed = rebuild_root(&member, missing, lost, &mut *left, to_right, &mut progress)?;
    left.finish().map_err(RedundancyError::left("rebuilding"))?;
    if let Some(right) = &mut right {
        right.finish().map_err(RedundancyError::right("rebuilding"))?;
    }
    for (neighbour, _) in header.known().skip(1) {
        if let Some((_, descriptor)) = known.members.get(&neighbour) {
            node.keep_descriptor(task.rank_of(neighbour)?, descriptor)?;
        }
    }
    // Entries before files; the redundancy file first, as the library does.
    let rebuilt = &unconfirmed.rebuilt;
    for meta in rebuilt.redundancy.iter().chain(&rebuilt.files) {
        node.add_file(&meta.file)?;
    }
    unconfirmed.install(node.with_crc()).map(drop)
}

fn member(task: &MemberTask, header: &ParityHeader, node: &dyn GroupMember, pool: &BufferPool) -> Member {
    let (failures, piece, pool) = (header.failures(), node.piece_bytes(), pool.clone());
    Member { failures, piece, pool, ..Member::new(task.index, task.size(), header.chunk) }
}
