//! Rebuilding with the files of the members on their nodes, along the chain of survivors to the lost member's new home
//! (`SCR manual §11.4.6`).

use std::sync::Arc;

use super::PARITY;
use super::header::{HeaderOrder, rebuilt};
use crate::redundancy::link::LinkReceiver;
use crate::redundancy::lost_member::LostMember;
use crate::redundancy::member::{GroupMember, MemberTask};
use crate::redundancy::parity::greeting;
use crate::redundancy::parity::header::ParityHeader;
use crate::redundancy::parity::member::Member;
use crate::redundancy::parity::rebuild::{rebuild_root, rebuild_survivor};
use crate::redundancy::parity::survivor::Survivor;
use crate::redundancy::piece::BufferPool;
use crate::redundancy::{RedundancyError, Result, inside};
use crate::store::OpenDataset;

/// Takes part in the rebuild of member `missing`.
pub(super) fn rebuild(task: &MemberTask, missing: u32, node: &dyn GroupMember) -> Result<()> {
    task.rank_of(missing)?;
    if missing == task.index { write_lost(task, node) } else { pass_on(task, missing, node) }
}

/// A survivor: adds its part to what comes from the left, and passes it on.
///
/// In front of the pieces it sends the header of the lost member's right neighbour, where the chain begins, since it
/// lists the lost files; its own header, since the lost member needs that of its left neighbour, the last survivor; and
/// its own descriptor, which the lost member keeps.
fn pass_on(task: &MemberTask, missing: u32, node: &dyn GroupMember) -> Result<()> {
    let members = task.size();
    let mut survivor = Survivor::of_member(&PARITY, task, node)?;
    let chunk = survivor.file.header.chunk;
    let pool = BufferPool::default();
    let mut right = node.link_to((task.index + 1) % members, &pool)?;
    let mut left = match task.index {
        begins if begins == (missing + 1) % members => None,
        index => Some(node.link_from((index + members - 1) % members, &pool)?),
    };
    let first = match &mut left {
        Some(left) => {
            let first = greeting::receive(&mut **left)?.into_iter().next();
            first.ok_or_else(greeting::too_short)?
        }
        None => greeting::of_tree(&survivor.file.tree),
    };
    let own = greeting::of_descriptor(&node.descriptor(task.rank()?)?)?;
    greeting::send(&mut *right, &[first, greeting::of_tree(&survivor.file.tree), own])?;

    let member = member(task, chunk, node, &pool);
    let total = chunk.saturating_mul(u64::from(members));
    let mut progress = |done| node.progress(done, total);
    let from_left = left.as_mut().map(|left| &mut **left as &mut dyn LinkReceiver);
    rebuild_survivor(&member, &[missing], &mut survivor, from_left, &mut *right, &mut progress)?;
    if let Some(left) = &mut left {
        left.finish().map_err(RedundancyError::left("rebuilding"))?;
    }
    right.finish().map_err(RedundancyError::right("rebuilding"))
}

/// The lost member's new home: writes what arrives, and installs it when all survivors were sound.
fn write_lost(task: &MemberTask, node: &dyn GroupMember) -> Result<()> {
    let members = task.size();
    let left_member = (task.index + members - 1) % members;
    let pool = BufferPool::default();
    let mut left = node.link_from(left_member, &pool)?;
    let parts = greeting::receive(&mut *left)?;
    let [first, last, descriptor] = parts.as_slice() else { return Err(greeting::too_short()) };
    let descriptor = greeting::to_descriptor(descriptor)?;
    let header = rebuilt(&greeting::to_tree(first)?, &greeting::to_tree(last)?, HeaderOrder::Restart)?;
    let origin = "the set's remaining members";
    let parsed = ParityHeader::from_tree(&PARITY, &header, origin)?;
    let rank = task.rank()?;
    if parsed.checkpoint != task.checkpoint || parsed.current.rank != rank {
        let why = format!(
            "it is of rank {} of checkpoint {} where rank {rank} of {} is due",
            parsed.current.rank, parsed.checkpoint, task.checkpoint
        );
        return Err(RedundancyError::Header { origin: origin.into(), why });
    }
    let lost = parsed.lost_files(&header, task.group_id);
    let dataset: Arc<dyn OpenDataset> = inside::open_directory(node.directory())?;
    let lost = LostMember::create(&dataset, lost, &node.names_of_others())?;
    let member = member(task, parsed.chunk, node, &pool);
    let total = parsed.chunk.saturating_mul(u64::from(members));
    let unconfirmed =
        rebuild_root(&member, &[task.index], lost, &mut *left, None, &mut |done| node.progress(done, total))?;
    left.finish().map_err(RedundancyError::left("rebuilding"))?;
    node.keep_descriptor(task.rank_of(left_member)?, &descriptor)?;
    // Entries before files; the redundancy file first, as the library does.
    let rebuilt = &unconfirmed.rebuilt;
    for meta in rebuilt.redundancy.iter().chain(&rebuilt.files) {
        node.add_file(&meta.file)?;
    }
    unconfirmed.install(node.with_crc()).map(drop)
}

fn member(task: &MemberTask, chunk: u64, node: &dyn GroupMember, pool: &BufferPool) -> Member {
    Member { piece: node.piece_bytes(), pool: pool.clone(), ..Member::new(task.index, task.size(), chunk) }
}
