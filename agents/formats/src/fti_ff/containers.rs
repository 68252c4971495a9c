//! How variables are laid out in containers over a series of checkpoints (layout A).
//!
//! A container's size is fixed once it was made. A variable that grows gets a further container in one new block at
//! the end of the file; one that shrinks leaves its containers there, part filled or empty. Blocks never move.

use std::collections::{BTreeMap, BTreeSet};

use super::blocks::{Block, ContainerEntry, MAX_CONTAINERS};
use super::layout::Layout;

/// Bytes of the head of a block.
const HEAD: u64 = 12;
/// Bytes of the metadata of a container.
const ENTRY: u64 = 64;

/// A rule of the format that variables break.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// The same id twice.
    #[error("variable {id} is listed twice")]
    Twice {
        /// The id.
        id: i32,
    },
    /// A variable of an earlier checkpoint is not there; the format knows no end of a variable.
    #[error("variable {id} of the checkpoint before is missing; a variable can shrink to nothing, but not go away")]
    Missing {
        /// The id.
        id: i32,
    },
    /// The variables are in another order than before. FTI v1.1 goes by the order on recovery, and would put the data
    /// of one variable into another.
    #[error("variable {id} was number {before} in protect order and is now number {now}; keep the order")]
    Order {
        /// The id.
        id: i32,
        /// Its place before.
        before: i32,
        /// Its place now.
        now: i32,
    },
    /// The file would be longer than the format can say.
    #[error("the checkpoint would have more than {MAX_CONTAINERS} containers, or more bytes than a file can have")]
    TooLarge,
}

/// The blocks of the checkpoint that follows one with the blocks `before` (none for the first one), for variables of
/// these ids and sizes in protect order. Hashes are zeros in new entries and stale in old ones.
///
/// # Errors
/// When the variables do not fit those of the checkpoint before.
pub fn next(before: &[Block], variables: &[(i32, u64)]) -> Result<Vec<Block>, ContainerError> {
    let mut blocks = before.to_vec();
    let mut remaining = RemainingData::new(variables)?;
    for entry in blocks.iter_mut().flat_map(|block| &mut block.entries) {
        remaining.fill(entry)?;
    }
    let entries = remaining.new_entries()?;
    if entries.is_empty() {
        return Ok(blocks);
    }
    let containers = blocks.iter().map(|block| block.entries.len()).sum::<usize>().saturating_add(entries.len());
    if containers > MAX_CONTAINERS {
        return Err(ContainerError::TooLarge);
    }
    let offset = end(&blocks).ok_or(ContainerError::TooLarge)?;
    blocks.push(block(offset, entries).ok_or(ContainerError::TooLarge)?);
    Ok(blocks)
}

/// Bytes of a file with these blocks.
pub fn end(blocks: &[Block]) -> Option<u64> {
    match blocks.last() {
        None => Some(Layout::A.meta_bytes() as u64),
        Some(block) => block.offset.checked_add(u64::try_from(block.dbsize).ok()?),
    }
}

fn block(offset: u64, mut entries: Vec<ContainerEntry>) -> Option<Block> {
    let numvars = i32::try_from(entries.len()).ok()?;
    let metadata = HEAD + ENTRY * entries.len() as u64;
    let mut at = i64::try_from(offset.checked_add(metadata)?).ok()?;
    let first = at;
    for entry in &mut entries {
        entry.fptr = at;
        at = at.checked_add(entry.containersize)?;
    }
    let dbsize = (at - first).checked_add(i64::try_from(metadata).ok()?)?;
    Some(Block { offset, numvars, dbsize, entries })
}

/// What of each variable has no container yet.
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

    /// Puts into an old container what it takes.
    fn fill(&mut self, entry: &mut ContainerEntry) -> Result<(), ContainerError> {
        let variable = self.variables.get_mut(&entry.id).ok_or(ContainerError::Missing { id: entry.id })?;
        let filled = if variable.ended { 0 } else { variable.remaining.min(entry.containersize) };
        entry.hascontent = u8::from(!variable.ended);
        entry.chunksize = filled;
        // A container that is just filled ends the variable, too.
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

    /// The containers of the new block.
    fn new_entries(&self) -> Result<Vec<ContainerEntry>, ContainerError> {
        let mut entries = Vec::new();
        for (idx, (id, _)) in self.order.iter().enumerate() {
            let Some(variable) = self.variables.get(id).filter(|variable| variable.containers == 0 || variable.remaining > 0) else {
                continue;
            };
            entries.push(ContainerEntry {
                id: *id,
                idx: Some(i32::try_from(idx).map_err(|_| ContainerError::TooLarge)?),
                containerid: variable.containers,
                hascontent: 1,
                has_checkpoint: None,
                padding: [0; 3],
                dptr: variable.bytes,
                fptr: 0,
                chunksize: variable.remaining,
                containersize: variable.remaining,
                hash: [0; 16],
            });
        }
        Ok(entries)
    }
}

/// The ids in protect order, as the blocks of a checkpoint give it: what a restarted run has to keep.
pub fn protect_order(blocks: &[Block]) -> Vec<i32> {
    let entries = blocks.iter().flat_map(|block| &block.entries);
    let by_place: BTreeSet<(Option<i32>, i32)> = entries.map(|entry| (entry.idx, entry.id)).collect();
    by_place.into_iter().map(|(_, id)| id).collect()
}
