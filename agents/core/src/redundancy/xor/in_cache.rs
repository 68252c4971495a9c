//! Encoding and rebuilding with the files of the members on their nodes: around a ring (`SCR manual §11.8.2`), and
//! along the chain of survivors to the lost member's new home (§11.4.6).

use std::io::BufWriter;
use std::sync::Arc;

use holdfast_model::RankDescriptor;

use super::encode::{Member, encode_member};
use super::header::{HeaderOrder, XorHeader, chunk_size, rebuilt};
use super::name::XorName;
use super::rebuild::{Survivor, rebuild_root, rebuild_survivor};
use crate::kvtree::{Tree, file as hash_file};
use crate::redundancy::files::MemberFiles;
use crate::redundancy::link::{LinkReceiver, LinkSender};
use crate::redundancy::logical::LogicalFile;
use crate::redundancy::lost_member::LostMember;
use crate::redundancy::member::{GroupMember, MemberTask};
use crate::redundancy::piece::BufferPool;
use crate::redundancy::{RedundancyError, inside};
use crate::regular_file;
use crate::store::OpenDataset;

type Result<T, E = RedundancyError> = std::result::Result<T, E>;

/// What is gathered of an XOR file before it is written.
const LARGEST_BUFFER: usize = 1 << 20;

const GREETING: &str = "exchanging the lists of files";

/// Makes the own XOR file. Before the first piece each member sends its list of files and its descriptor to the right:
/// its right neighbour keeps both.
pub(super) fn encode(task: &MemberTask, node: &dyn GroupMember) -> Result<()> {
    let current = node.files()?;
    let mut data = LogicalFile::open(node.directory(), task.index, &current)?;
    let pool = BufferPool::new();
    let mut right = node.link_to(task.right, &pool)?;
    // Before anything is sent: a list of files can be longer than what a connection buffers before it is read.
    let mut left = node.link_from(task.left, &pool)?;
    send_greeting(&mut *right, [&current.to_tree()], &node.descriptor()?)?;
    let ([partner], descriptor) = receive_greeting(&mut *left)?;
    let partner = MemberFiles::from_tree(&partner, "the left neighbour")?;
    let left_rank = task.rank_of(task.left)?;
    if partner.rank != left_rank {
        let why = format!("it is of rank {} where rank {left_rank} is the left neighbour", partner.rank);
        return Err(RedundancyError::Header { origin: "the left neighbour".into(), why });
    }
    node.keep_descriptor(left_rank, &descriptor)?;

    let chunk = chunk_size(task.largest, task.size());
    let mut header = XorHeader {
        chunk,
        checkpoint: task.checkpoint,
        ranks: task.ranks,
        members: task.members.clone(),
        current,
        partner,
    };
    let path = node.add_file(&own_name(task))?;
    let file = regular_file::create(&path).map_err(RedundancyError::io("create", &path))?;
    let buffer = usize::try_from(chunk).map_or(LARGEST_BUFFER, |chunk| chunk.clamp(4 << 10, LARGEST_BUFFER));
    let mut out = BufWriter::with_capacity(buffer, file);
    let recorded: Vec<Option<u32>> = header.current.files.iter().map(|meta| meta.crc).collect();
    let member = Member { checksums: node.with_crc(), ..member(task, chunk, node, &pool) };
    let mut progress = |done| node.progress(done, chunk);
    let written =
        encode_member(&member, &mut header, &mut data, &mut *left, &mut *right, (&path, &mut out), &mut progress)?;
    right.finish().map_err(RedundancyError::right("encoding"))?;
    left.finish().map_err(RedundancyError::left("encoding"))?;
    out.into_inner().map_err(|error| RedundancyError::io("write", &path)(error.into_error()))?;
    for (meta, recorded) in header.current.files.iter().zip(recorded) {
        if meta.crc != recorded {
            meta.write_unsynced(&node.directory().join(&meta.file))?;
        }
    }
    Ok(written.meta(&header, node.with_crc()).write_unsynced(&path)?)
}

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
    let mut survivor = open_survivor(task, node)?;
    let chunk = survivor.xor.header.chunk;
    let pool = BufferPool::new();
    let mut right = node.link_to((task.index + 1) % members, &pool)?;
    let mut left = match task.index {
        begins if begins == (missing + 1) % members => None,
        index => Some(node.link_from((index + members - 1) % members, &pool)?),
    };
    let first = match &mut left {
        Some(left) => {
            let ([first, _], _) = receive_greeting(&mut **left)?;
            first
        }
        None => survivor.xor.tree.clone(),
    };
    send_greeting(&mut *right, [&first, &survivor.xor.tree], &node.descriptor()?)?;

    let member = member(task, chunk, node, &pool);
    let total = chunk.saturating_mul(u64::from(members));
    let mut progress = |done| node.progress(done, total);
    let from_left = left.as_mut().map(|left| &mut **left as &mut dyn LinkReceiver);
    rebuild_survivor(&member, &mut survivor, from_left, &mut *right, &mut progress)?;
    if let Some(left) = &mut left {
        left.finish().map_err(RedundancyError::left("rebuilding"))?;
    }
    right.finish().map_err(RedundancyError::right("rebuilding"))
}

/// The own files. An own XOR file whose header cannot be used is a damaged file of this member.
fn open_survivor(task: &MemberTask, node: &dyn GroupMember) -> Result<Survivor> {
    let name = own_name(task);
    Survivor::open(node.directory(), &name).map_err(|error| match error {
        RedundancyError::Header { why, .. } => {
            let (member, path) = (task.index, node.directory().join(&name));
            match task.rank() {
                Ok(rank) => RedundancyError::MemberDamaged { member, rank, path, why },
                Err(error) => error,
            }
        }
        error => error,
    })
}

/// The lost member's new home: writes what arrives, and installs it when all survivors were sound.
fn write_lost(task: &MemberTask, node: &dyn GroupMember) -> Result<()> {
    let members = task.size();
    let left_member = (task.index + members - 1) % members;
    let pool = BufferPool::new();
    let mut left = node.link_from(left_member, &pool)?;
    let ([first, last], descriptor) = receive_greeting(&mut *left)?;
    let header = rebuilt(&first, &last, HeaderOrder::Restart)?;
    let origin = "the set's remaining members";
    let parsed = XorHeader::from_tree(&header, origin)?;
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
    let unconfirmed = rebuild_root(&member, lost, &mut *left, &mut |done| node.progress(done, total))?;
    left.finish().map_err(RedundancyError::left("rebuilding"))?;
    node.keep_descriptor(task.rank_of(left_member)?, &descriptor)?;
    // Entries before files; the redundancy file first, as the library does.
    let rebuilt = &unconfirmed.rebuilt;
    for meta in rebuilt.redundancy.iter().chain(&rebuilt.files) {
        node.add_file(&meta.file)?;
    }
    unconfirmed.install(node.with_crc()).map(drop)
}

fn own_name(task: &MemberTask) -> String {
    XorName { group_id: task.group_id, members: task.size(), index: task.index }.to_string()
}

fn member(task: &MemberTask, chunk: u64, node: &dyn GroupMember, pool: &BufferPool) -> Member {
    Member { piece: node.piece_bytes(), pool: pool.clone(), ..Member::new(task.index, task.size(), chunk) }
}

/// One message, since a link need not hold more before the other end receives: each part after its length, 4 bytes.
fn send_greeting<const TREES: usize>(
    right: &mut dyn LinkSender,
    trees: [&Tree; TREES],
    descriptor: &RankDescriptor,
) -> Result<()> {
    let mut message = Vec::new();
    let descriptor = serde_json::to_vec(descriptor).map_err(unusable)?;
    for part in trees.map(hash_file::encode).iter().chain([&descriptor]) {
        message.extend(u32::try_from(part.len()).map_err(unusable)?.to_be_bytes());
        message.extend(part);
    }
    right.send(message).map_err(RedundancyError::right(GREETING))
}

fn receive_greeting<const TREES: usize>(left: &mut dyn LinkReceiver) -> Result<([Tree; TREES], RankDescriptor)> {
    let message = left.receive().map_err(RedundancyError::left(GREETING))?;
    let mut rest = message.as_slice();
    let mut part = || {
        let (length, behind) = rest.split_first_chunk().ok_or_else(|| unusable("its greeting is too short"))?;
        let length = u32::from_be_bytes(*length) as usize;
        let (part, behind) = behind.split_at_checked(length).ok_or_else(|| unusable("its greeting is too short"))?;
        rest = behind;
        Ok::<_, RedundancyError>(part)
    };
    let mut trees = std::array::from_fn(|_| Tree::new());
    for tree in &mut trees {
        (*tree, _) = hash_file::decode(part()?).map_err(unusable)?;
    }
    Ok((trees, serde_json::from_slice(part()?).map_err(unusable)?))
}

fn unusable(error: impl std::fmt::Display) -> RedundancyError {
    RedundancyError::Header { origin: "the left neighbour".into(), why: error.to_string() }
}
