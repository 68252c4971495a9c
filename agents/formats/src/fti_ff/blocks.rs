//! Blocks of variable metadata: parsing with every number checked, and the rules between blocks.

use std::collections::BTreeMap;

use super::layout::{Fields, FileMeta, Layout};
use crate::error::FormatsError;
use crate::file_check::{Damage, MAX_LISTED};
use crate::input::Input;

/// The largest number of containers read from one file: ten times that of 10,000 variables that grew 100 times each.
pub const MAX_CONTAINERS: usize = 1 << 20;

/// The metadata of one container (`FTIFF_dbvar`). Numbers are as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerEntry {
    /// The id given to `FTI_Protect`.
    pub id: i32,
    /// Position of the variable in protect order; not stored from layout D on.
    pub idx: Option<i32>,
    /// Number of the container in its variable, from 0.
    pub containerid: i32,
    /// 1 if the container holds data, 0 if not; other values are not a C `bool`.
    pub hascontent: u8,
    /// From layout B on: the container existed before this checkpoint.
    pub has_checkpoint: Option<u8>,
    /// Padding of the C structure in layout A: arbitrary, and covered by the checksum.
    pub padding: [u8; 3],
    /// Offset of the container in the variable, in bytes.
    pub dptr: i64,
    /// Offset of the container in the file, in bytes.
    pub fptr: i64,
    /// Used bytes of the container.
    pub chunksize: i64,
    /// Size of the container in bytes.
    pub containersize: i64,
    /// MD5 of the used bytes.
    pub hash: [u8; 16],
}

impl ContainerEntry {
    /// Parses one entry; `None` if there are too few bytes.
    pub fn parse(layout: Layout, bytes: &[u8]) -> Option<ContainerEntry> {
        let mut fields = Fields(bytes.get(..layout.entry_bytes())?);
        let id = fields.int()?;
        let idx = if layout.has_index() { Some(fields.int()?) } else { None };
        let containerid = fields.int()?;
        let [hascontent] = fields.bytes()?;
        let (mut padding, mut has_checkpoint) = ([0; 3], None);
        if layout == Layout::A {
            padding = fields.bytes()?;
        } else {
            let [flag] = fields.bytes()?;
            has_checkpoint = Some(flag);
        }
        let (dptr, fptr) = (fields.long()?, fields.long()?);
        let width = layout.size_width();
        let (chunksize, containersize) = (fields.number(width)?, fields.number(width)?);
        let hash = fields.bytes()?;
        Some(ContainerEntry {
            id,
            idx,
            containerid,
            hascontent,
            has_checkpoint,
            padding,
            dptr,
            fptr,
            chunksize,
            containersize,
            hash,
        })
    }

    /// The entry's 64 bytes in layout A.
    pub fn document_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Layout::A.entry_bytes());
        for number in [self.id, self.idx.unwrap_or(0), self.containerid] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.push(self.hascontent);
        bytes.extend(self.padding);
        for number in [self.dptr, self.fptr, self.chunksize, self.containersize] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.hash);
        bytes
    }

    /// The entry's bytes in layout F, which has no padding and no position.
    fn last_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Layout::F.entry_bytes());
        bytes.extend(self.id.to_le_bytes());
        bytes.extend(self.containerid.to_le_bytes());
        bytes.extend([self.hascontent, self.has_checkpoint.unwrap_or(0)]);
        for number in [self.dptr, self.fptr, self.chunksize, self.containersize] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.hash);
        bytes
    }

    /// True if the container holds data.
    pub fn is_filled(&self) -> bool {
        self.hascontent != 0
    }

    /// Offset and length of the data in the file; `None` if the numbers are impossible for a file of this size.
    pub fn range(&self, file_size: u64) -> Option<(u64, u64)> {
        let (offset, bytes) = (u64::try_from(self.fptr).ok()?, u64::try_from(self.chunksize).ok()?);
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= file_size);
        (inside && self.chunksize <= self.containersize).then_some((offset, bytes))
    }
}

/// A block: its head (`FTIFF_db`) and its containers' metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Offset of its head in the file.
    pub offset: u64,
    /// Number of containers as stored.
    pub numvars: i32,
    /// Layouts A and B: bytes of head, metadata and containers; later layouts: bytes of the containers only.
    pub dbsize: i64,
    /// The metadata of its containers.
    pub entries: Vec<ContainerEntry>,
}

impl Block {
    /// Head and entries as they are stored in layout A or F.
    pub fn metadata_bytes(&self, layout: Layout) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(layout.head_bytes() + layout.entry_bytes() * self.entries.len());
        bytes.extend(self.numvars.to_le_bytes());
        bytes.extend(self.dbsize.to_le_bytes());
        for entry in &self.entries {
            bytes.extend(if layout == Layout::A { entry.document_bytes() } else { entry.last_bytes() });
        }
        bytes
    }
}

/// The result of a walk over the blocks.
#[derive(Debug, Clone, Default)]
pub struct Walk {
    /// The blocks that could be read.
    pub blocks: Vec<Block>,
    pub damages: Vec<Damage>,
    /// Unusual values that the format allows.
    pub notes: Vec<Damage>,
}

impl Walk {
    /// Adds a damage, up to [`MAX_LISTED`]: a file with many damages must not fill the memory.
    fn damage(&mut self, damage: Damage) {
        if self.damages.len() < MAX_LISTED {
            self.damages.push(damage);
        }
    }

    fn note(&mut self, note: Damage) {
        if self.notes.len() < MAX_LISTED {
            self.notes.push(note);
        }
    }
}

/// A container's place as shown in messages.
pub fn place(block: usize, variable: usize, entry: &ContainerEntry) -> String {
    format!("block {block}, var {variable}, id {}, container {}", entry.id, entry.containerid)
}

/// Walks over the blocks of a file. Each step moves forward and stays inside the file and the declared sizes.
pub fn walk(input: &Input, meta: &FileMeta) -> Result<Walk, FormatsError> {
    let layout = meta.layout;
    let mut walker = Walker { input, layout, walk: Walk::default(), containers: 0, data: 0 };
    match layout.is_data_first() {
        true => walker.data_first(meta)?,
        false => walker.blocks_with_data(meta)?,
    }
    let mut walk = walker.walk;
    if walk.blocks.is_empty() && walk.damages.is_empty() {
        walk.damages.push(Damage::new("structure", "file", "it has no blocks, hence no variables"));
    }
    check_variables(&mut walk);
    Ok(walk)
}

struct Walker<'a> {
    input: &'a Input,
    layout: Layout,
    walk: Walk,
    containers: usize,
    /// Layouts with data first: the offset at which the next container must be.
    data: u64,
}

impl Walker<'_> {
    /// Layouts A and B: each block has its head, metadata and containers in sequence.
    fn blocks_with_data(&mut self, meta: &FileMeta) -> Result<(), FormatsError> {
        let end = u64::try_from(meta.file_size).unwrap_or(0);
        let mut at = self.layout.meta_bytes() as u64;
        while at < end {
            let Some(block) = self.block(at, end.min(self.input.size))? else { return Ok(()) };
            let metadata = self.metadata_bytes(block.entries.len());
            let first = at.saturating_add(metadata);
            let Some(containers) = self.check_entries(&block, first) else {
                self.walk.blocks.push(block);
                return Ok(());
            };
            let expected = metadata.checked_add(containers);
            let dbsize = block.dbsize;
            self.walk.blocks.push(block);
            // A walk that used `dbsize` alone would not end with sizes of zero or below.
            if u64::try_from(dbsize).ok() != expected {
                let what = format!("dbsize is {dbsize}, its metadata and containers take {}", expected.unwrap_or(0));
                self.broken(at, what);
                return Ok(());
            }
            let Some(next) = expected.and_then(|bytes| at.checked_add(bytes)) else { return Ok(()) };
            if next > end {
                self.broken(at, format!("it ends at {next}, after the end of the checkpoint at {end}"));
                return Ok(());
            }
            at = next;
        }
        Ok(())
    }

    /// Layouts C to F: containers of all blocks first, then the metadata of all blocks.
    fn data_first(&mut self, meta: &FileMeta) -> Result<(), FormatsError> {
        let end = self.input.size.saturating_sub(self.layout.meta_bytes() as u64);
        let data_size = meta.data_size.and_then(|size| u64::try_from(size).ok()).unwrap_or(u64::MAX);
        if data_size > end {
            let what = format!("dataSize is {data_size}, after the start of the file's metadata at {end}");
            self.walk.damage(Damage::new("structure", "file metadata", what));
            return Ok(());
        }
        let mut at = data_size;
        while at < end {
            let Some(block) = self.block(at, end)? else { return Ok(()) };
            let next = at.saturating_add(self.metadata_bytes(block.entries.len()));
            let Some(containers) = self.check_entries(&block, self.data) else {
                self.walk.blocks.push(block);
                return Ok(());
            };
            if u64::try_from(block.dbsize).ok() != Some(containers) {
                self.broken(at, format!("dbsize is {}, its containers take {containers}", block.dbsize));
            }
            self.data = self.data.saturating_add(containers);
            self.walk.blocks.push(block);
            at = next;
        }
        if self.data != data_size {
            let what = format!("the containers take {} bytes, dataSize is {data_size}", self.data);
            self.walk.damage(Damage::new("structure", "file metadata", what));
        }
        Ok(())
    }

    fn metadata_bytes(&self, entries: usize) -> u64 {
        (self.layout.head_bytes() as u64).saturating_add(entries as u64 * self.layout.entry_bytes() as u64)
    }

    fn broken(&mut self, offset: u64, what: String) {
        let place = format!("block {}", self.walk.blocks.len().saturating_sub(1));
        self.walk.damage(Damage::new("structure", place, what).at(offset));
    }

    /// Reads head and entries of the block at this offset. Adds a damage and returns `None` if they are unreadable.
    fn block(&mut self, offset: u64, end: u64) -> Result<Option<Block>, FormatsError> {
        let (head_bytes, entry_bytes) = (self.layout.head_bytes(), self.layout.entry_bytes());
        let number = self.walk.blocks.len();
        let mut unreadable = |what: String| {
            let what = format!("metadata unreadable from here on: {what}");
            self.walk.damage(Damage::new("structure", format!("block {number}"), what).at(offset));
        };
        let room = end.saturating_sub(offset);
        if room < head_bytes as u64 {
            unreadable(format!("only {room} bytes are left for a head of {head_bytes}"));
            return Ok(None);
        }
        let head = self.input.bytes_at(offset, head_bytes)?;
        let mut fields = Fields(&head);
        let Some((numvars, dbsize)) = fields.int().zip(fields.number(self.layout.size_width())) else {
            return Ok(None);
        };
        let possible = (room - head_bytes as u64) / entry_bytes as u64;
        let count = match usize::try_from(numvars) {
            Ok(count) if count as u64 <= possible => count,
            _ => {
                unreadable(format!("numvars is {numvars}, possible are 0 to {possible}"));
                return Ok(None);
            }
        };
        // An empty block counts as one container: a file of empty blocks must not fill the memory.
        self.containers = self.containers.saturating_add(count.max(1));
        if self.containers > MAX_CONTAINERS {
            unreadable(format!("more than {MAX_CONTAINERS} containers"));
            return Ok(None);
        }
        let bytes = self.input.bytes_at(offset.saturating_add(head_bytes as u64), count * entry_bytes)?;
        let entries =
            bytes.chunks_exact(entry_bytes).filter_map(|bytes| ContainerEntry::parse(self.layout, bytes)).collect();
        Ok(Some(Block { offset, numvars, dbsize, entries }))
    }

    /// Checks the numbers and the place of each entry. Returns the bytes of all containers, or `None` on overflow.
    fn check_entries(&mut self, block: &Block, first: u64) -> Option<u64> {
        let number = self.walk.blocks.len();
        let mut sum = 0_u64;
        for (index, entry) in block.entries.iter().enumerate() {
            let offset = (self.metadata_bytes(index)).saturating_add(block.offset);
            let mut damage = |what: String| {
                self.walk.damage(Damage::new("structure", place(number, index, entry), what).at(offset));
            };
            let container = u64::try_from(entry.containersize).ok().and_then(|size| sum.checked_add(size));
            let Some(next) = container.filter(|next| next.checked_add(first).is_some()) else {
                damage(format!("containersize {} is impossible", entry.containersize));
                return None;
            };
            if entry.chunksize < 0 || entry.chunksize > entry.containersize {
                damage(format!("chunksize {} in a container of {}", entry.chunksize, entry.containersize));
            }
            let expected = first.saturating_add(sum);
            if u64::try_from(entry.fptr).ok() != Some(expected) {
                damage(format!("fptr is {}, the container is at {expected}", entry.fptr));
            }
            if entry.hascontent > 1 {
                let what = format!("hascontent is {}, which is not a C bool; read as true", entry.hascontent);
                self.walk.note(Damage::new("bool", place(number, index, entry), what).at(offset));
            }
            sum = next;
        }
        Some(sum)
    }
}

/// Checks that the containers of each variable are numbered from 0 without gaps, are contiguous in the variable, and
/// that only the last one with content is partly filled. From layout C on no hash covers these numbers.
fn check_variables(walk: &mut Walk) {
    struct Variable {
        idx: Option<i32>,
        containers: i32,
        bytes: i64,
        ended: bool,
    }
    let mut variables: BTreeMap<i32, Variable> = BTreeMap::new();
    let mut damages = Vec::new();
    for (number, block) in walk.blocks.iter().enumerate() {
        for (index, entry) in block.entries.iter().enumerate() {
            let start = Variable { idx: entry.idx, containers: 0, bytes: 0, ended: false };
            let variable = variables.entry(entry.id).or_insert(start);
            let mut damage = |what: String| {
                if damages.len() < MAX_LISTED {
                    damages.push(Damage::new("structure", place(number, index, entry), what));
                }
            };
            if entry.containerid != variable.containers {
                damage(format!("expected container {} of the variable here", variable.containers));
            } else if entry.dptr != variable.bytes {
                damage(format!("dptr is {}, the containers before it take {}", entry.dptr, variable.bytes));
            }
            if entry.idx != variable.idx {
                damage("idx differs from that of the variable's other containers".to_owned());
            }
            if entry.is_filled() && variable.ended {
                damage("it has content, but the container before it is not full".to_owned());
            }
            variable.ended |= !entry.is_filled() || entry.chunksize < entry.containersize;
            variable.containers = variable.containers.saturating_add(1);
            variable.bytes = variable.bytes.saturating_add(entry.containersize.max(0));
        }
    }
    damages.into_iter().for_each(|damage| walk.damage(damage));
}
