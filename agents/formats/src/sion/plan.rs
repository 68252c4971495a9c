//! The layout of a container to write.
//!
//! The creator of a container makes the plan; it contains everything that other writers need: the file and the offset
//! of every chunk. The two distributions correspond to SIONlib's functions (`docs/formats.md`, SION 3 to 5): they
//! differ in the data after the byte counts, and in the numbering of files.

use std::ops::Range;

use super::byte_order::ByteOrder;
use super::header::{Header, KeyValue};
use super::layout::{Layout, align};
use super::limits::{LARGEST_BLOCK, MOST_TASKS, PREFIX_BYTES};
use super::plan_error::PlanError;
use super::slot::Slot;

/// Library version written: 1.7.
const VERSION: i32 = 1007;
/// Patch level written by default.
const PATCH_LEVEL: i32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskPlan {
    /// The global rank to store; ignored in parallel containers, which number their tasks.
    pub global_rank: i64,
    /// Size of each of its chunks in bytes, before padding.
    pub chunk_bytes: u64,
}

/// The distribution of tasks over files, as by one of SIONlib's writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileDistribution {
    /// One file, with the caller's ranks and an empty mapping at the end.
    Serial,
    /// Contiguous ranks, equally distributed over this many files; the remainder is in the last file.
    Parallel { files: u32 },
}

/// Properties of the container besides its tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanOptions {
    /// The distribution of tasks over files.
    pub distribution: FileDistribution,
    /// Alignment of chunks in bytes; 1 for none.
    pub block_size: u32,
    /// Whether the streams are key-value records.
    pub key_value: KeyValue,
    /// Byte order of the metadata and of record headers.
    pub byte_order: ByteOrder,
    /// Declared byte order of the user's data.
    pub user_order: ByteOrder,
    /// Patch level of the stored library version.
    pub patch_level: i32,
    /// The name stored in every file; a bare file name.
    pub prefix: String,
}

impl PlanOptions {
    /// Plain streams with this distribution, with SIONlib's defaults on this machine.
    pub fn new(distribution: FileDistribution, block_size: u32, prefix: &str) -> PlanOptions {
        PlanOptions {
            distribution,
            block_size,
            key_value: KeyValue::None,
            byte_order: ByteOrder::native(),
            user_order: ByteOrder::native(),
            patch_level: PATCH_LEVEL,
            prefix: prefix.to_owned(),
        }
    }
}

/// One physical file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    pub(super) header: Header,
    /// The offsets of the chunks.
    pub layout: Layout,
    /// The tasks of the plan that are in this file.
    pub(super) tasks: Range<usize>,
    /// The mapping after the byte counts; `None` if it is omitted, including its size.
    pub(super) mapping: Option<Vec<Slot>>,
}

/// The layout of a container. Equal tasks and options result in equal plans, so that several agents can write one
/// container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub parts: Vec<PlannedFile>,
    slots: Vec<Slot>,
}

impl Plan {
    /// Plans a container.
    ///
    /// # Errors
    /// When a container with these tasks and options is impossible.
    pub fn new(tasks: &[TaskPlan], options: &PlanOptions) -> Result<Plan, PlanError> {
        if tasks.is_empty() {
            return Err(PlanError::NoTask);
        }
        if tasks.len() as u64 > MOST_TASKS {
            return Err(PlanError::TooManyTasks(tasks.len()));
        }
        if options.block_size == 0 || options.block_size > LARGEST_BLOCK {
            return Err(PlanError::BlockSize(options.block_size));
        }
        if options.prefix.len() > PREFIX_BYTES {
            return Err(PlanError::Prefix(options.prefix.len()));
        }
        let members = members(tasks.len(), options.distribution)?;
        let slots_of = |(part, here): (usize, &Range<usize>)| (0..here.len()).map(move |local| Slot { part, local });
        let slots: Vec<Slot> = members.iter().enumerate().flat_map(slots_of).collect();
        let serial = options.distribution == FileDistribution::Serial;
        let files = u32::try_from(members.len()).map_err(|_| PlanError::TooLarge)?;
        let unit = u64::from(options.block_size);
        let mut parts = Vec::with_capacity(members.len());
        for (number, tasks_here) in members.into_iter().enumerate() {
            let requested = tasks.get(tasks_here.clone()).unwrap_or_default().iter();
            let sizes: Option<Vec<u64>> = requested.clone().map(|task| align(task.chunk_bytes, unit)).collect();
            let sizes = sizes.ok_or(PlanError::TooLarge)?;
            let layout = Layout::new(options.block_size, sizes.clone()).ok_or(PlanError::TooLarge)?;
            let ranks = requested.zip(tasks_here.clone());
            let rank = |(task, rank): (&TaskPlan, usize)| match serial {
                true => task.global_rank,
                false => i64::try_from(rank).unwrap_or(i64::MAX),
            };
            let header = Header {
                byte_order: options.byte_order,
                user_order: options.user_order,
                version: VERSION,
                patch_level: options.patch_level,
                format: 5,
                block_size: options.block_size,
                files,
                file_number: Some(if serial { 1 } else { i32::try_from(number).unwrap_or(i32::MAX) }),
                flag1: i64::from(options.key_value.code()) << 32,
                flag2: 0,
                key_value: options.key_value,
                prefix: options.prefix.clone().into_bytes(),
                global_ranks: ranks.map(rank).collect(),
                stored_chunk_sizes: sizes,
                closed: None,
            };
            let mapping = match (number, serial) {
                (0, true) => Some(Vec::new()),
                (0, false) if files > 1 => Some(slots.clone()),
                _ => None,
            };
            parts.push(PlannedFile { header, layout, tasks: tasks_here, mapping });
        }
        Ok(Plan { parts, slots })
    }

    /// The file and local index of a task of the plan.
    pub fn slot(&self, task: usize) -> Option<Slot> {
        self.slots.get(task).copied()
    }

    pub fn tasks(&self) -> usize {
        self.slots.len()
    }
}

/// The tasks of each file.
fn members(tasks: usize, distribution: FileDistribution) -> Result<Vec<Range<usize>>, PlanError> {
    let files = match distribution {
        FileDistribution::Serial => 1,
        FileDistribution::Parallel { files } => files,
    };
    let wanted = usize::try_from(files).unwrap_or(usize::MAX);
    let share = tasks.checked_div(wanted).filter(|share| *share > 0);
    let share = share.ok_or(PlanError::Files { files, tasks })?;
    let end = |file: usize| if file + 1 == wanted { tasks } else { (file + 1) * share };
    Ok((0..wanted).map(|file| file * share..end(file)).collect())
}
