//! The layout of variables in containers over a series of checkpoints (layouts A and F).
//!
//! The size of a container never changes. A variable that grows gets another container, in one new block at the end of
//! the file; one that shrinks keeps its containers, partly filled or empty. Blocks never move.

use std::collections::BTreeMap;

use super::blocks::{Block, ContainerEntry, MAX_CONTAINERS};
use super::layout::Layout;

/// A rule of the format that the variables violate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    #[error("variable {id} is listed twice")]
    Twice { id: i32 },
    /// A variable of an earlier checkpoint is missing; the format cannot remove a variable.
    #[error(
        "variable {id} of the previous checkpoint is missing; a variable can shrink to 0 bytes, but not be removed"
    )]
    Missing { id: i32 },
    /// The order of the variables changed. FTI v1.1 recovers by order, and would load the data of one variable into
    /// another.
    #[error("variable {id} was number {before} in protect order and is now number {now}; keep the order")]
    Order { id: i32, before: i32, now: i32 },
    /// The file would exceed the limits of the format.
    #[error("the checkpoint would have more than {MAX_CONTAINERS} containers, or more bytes than a file can have")]
    TooLarge,
}

/// The blocks of the checkpoint that follows one with the blocks `before` (empty for the first checkpoint), for
/// variables of these ids and sizes in protect order. Hashes are zero in new entries and outdated in old ones.
///
/// # Errors
/// When the variables do not fit those of the previous checkpoint.
pub fn next(before: &[Block], variables: &[(i32, u64)]) -> Result<Vec<Block>, ContainerError> {
    next_in(Layout::A, u64::MAX, before, variables)
}

/// As [`next`], in a layout of choice; no new container is larger than `largest` bytes.
///
/// # Errors
/// When the variables do not fit those of the previous checkpoint.
pub fn next_in(
    layout: Layout,
    largest: u64,
    before: &[Block],
    variables: &[(i32, u64)],
) -> Result<Vec<Block>, ContainerError> {
    let mut blocks = before.to_vec();
    let mut remaining = RemainingData::new(variables)?;
    for entry in blocks.iter_mut().flat_map(|block| &mut block.entries) {
        remaining.fill(entry)?;
    }
    let entries = remaining.new_entries(layout, i64::try_from(largest).unwrap_or(i64::MAX).max(1))?;
    if entries.is_empty() {
        return Ok(blocks);
    }
    let containers = blocks.iter().map(|block| block.entries.len()).sum::<usize>().saturating_add(entries.len());
    if containers > MAX_CONTAINERS {
        return Err(ContainerError::TooLarge);
    }
    let block = block(layout, &blocks, entries).ok_or(ContainerError::TooLarge)?;
    blocks.push(block);
    if layout.is_data_first() {
        place_metadata(layout, &mut blocks).ok_or(ContainerError::TooLarge)?;
    }
    Ok(blocks)
}

/// The size in bytes of a file with these blocks in layout A; `None` if it exceeds the limits.
pub fn end(blocks: &[Block]) -> Option<u64> {
    match blocks.last() {
        None => Some(Layout::A.meta_bytes() as u64),
        Some(block) => block.offset.checked_add(u64::try_from(block.dbsize).ok()?),
    }
}

/// Layouts with data first: the bytes of all containers.
pub fn data_end(blocks: &[Block]) -> Option<u64> {
    blocks.iter().try_fold(0_u64, |sum, block| sum.checked_add(u64::try_from(block.dbsize).ok()?))
}

/// Layouts with data first: the metadata of all blocks follow the data. Returns the offset of the file's metadata.
pub fn place_metadata(layout: Layout, blocks: &mut [Block]) -> Option<u64> {
    let mut at = data_end(blocks)?;
    for block in blocks {
        block.offset = at;
        let metadata = layout.head_bytes() + layout.entry_bytes() * block.entries.len();
        at = at.checked_add(metadata as u64)?;
    }
    Some(at)
}

/// The block after `before`. With data first, its metadata is placed later.
fn block(layout: Layout, before: &[Block], mut entries: Vec<ContainerEntry>) -> Option<Block> {
    let numvars = i32::try_from(entries.len()).ok()?;
    let (offset, metadata, end) = match layout.is_data_first() {
        true => (0, 0, data_end(before)?),
        false => (end(before)?, layout.head_bytes() + layout.entry_bytes() * entries.len(), end(before)?),
    };
    let first = i64::try_from(end).ok()?;
    let mut at = first.checked_add(i64::try_from(metadata).ok()?)?;
    for entry in &mut entries {
        entry.fptr = at;
        at = at.checked_add(entry.containersize)?;
    }
    Some(Block { offset, numvars, dbsize: at - first, entries })
}

/// The data of each variable that is not assigned to a container yet.
struct RemainingData<'a> {
    order: &'a [(i32, u64)],
    variables: BTreeMap<i32, RemainingVariable>,
}

struct RemainingVariable {
    remaining: i64,
    ended: bool,
    containers: i32,
    bytes: i64,
}

impl<'a> RemainingData<'a> {
    fn new(order: &'a [(i32, u64)]) -> Result<RemainingData<'a>, ContainerError> {
        let mut variables = BTreeMap::new();
        for (id, size) in order {
            let remaining = i64::try_from(*size).map_err(|_| ContainerError::TooLarge)?;
            if variables.insert(*id, RemainingVariable { remaining, ended: false, containers: 0, bytes: 0 }).is_some() {
                return Err(ContainerError::Twice { id: *id });
            }
        }
        Ok(RemainingData { order, variables })
    }

    /// Assigns data to an existing container.
    fn fill(&mut self, entry: &mut ContainerEntry) -> Result<(), ContainerError> {
        let variable = self.variables.get_mut(&entry.id).ok_or(ContainerError::Missing { id: entry.id })?;
        let filled = if variable.ended { 0 } else { variable.remaining.min(entry.containersize) };
        entry.hascontent = u8::from(!variable.ended);
        entry.chunksize = filled;
        entry.has_checkpoint = entry.has_checkpoint.map(|_| 1);
        // A container that is filled exactly also ends the variable.
        variable.ended |= variable.remaining <= entry.containersize;
        variable.remaining -= filled;
        variable.containers = variable.containers.saturating_add(1);
        variable.bytes = variable.bytes.checked_add(entry.containersize).ok_or(ContainerError::TooLarge)?;
        let now = self.order.iter().position(|(id, _)| *id == entry.id).and_then(|now| i32::try_from(now).ok());
        match (entry.idx, now) {
            (Some(before), Some(now)) if before != now => Err(ContainerError::Order { id: entry.id, before, now }),
            _ => Ok(()),
        }
    }

    /// The entries of the new block.
    fn new_entries(&self, layout: Layout, largest: i64) -> Result<Vec<ContainerEntry>, ContainerError> {
        let mut entries = Vec::new();
        let idx_of = |idx: usize| match layout.has_index() {
            true => i32::try_from(idx).map(Some).map_err(|_| ContainerError::TooLarge),
            false => Ok(None),
        };
        for (idx, (id, _)) in self.order.iter().enumerate() {
            let Some(variable) =
                self.variables.get(id).filter(|variable| variable.containers == 0 || variable.remaining > 0)
            else {
                continue;
            };
            let (mut containerid, mut dptr, mut remaining) = (variable.containers, variable.bytes, variable.remaining);
            loop {
                let size = remaining.min(largest);
                entries.push(ContainerEntry {
                    id: *id,
                    idx: idx_of(idx)?,
                    containerid,
                    hascontent: 1,
                    has_checkpoint: (layout != Layout::A).then_some(0),
                    padding: [0; 3],
                    dptr,
                    fptr: 0,
                    chunksize: size,
                    containersize: size,
                    hash: [0; 16],
                });
                remaining -= size;
                if remaining == 0 {
                    break;
                }
                if entries.len() > MAX_CONTAINERS {
                    return Err(ContainerError::TooLarge);
                }
                containerid = containerid.saturating_add(1);
                dptr = dptr.checked_add(size).ok_or(ContainerError::TooLarge)?;
            }
        }
        Ok(entries)
    }
}
