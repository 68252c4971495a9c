//! The layout of a container to write.
//!
//! The creator of a container makes the plan; it contains everything that other writers need: the file and the offset
//! of every chunk. The two distributions correspond to SIONlib's functions (`docs/formats.md`, SION 3 to 5): they
//! differ in the data after the byte counts, and in the numbering of files.

use std::ops::Range;

use super::byte_order::ByteOrder;
use super::header::KeyValue;
use super::padding::Padding;
use super::plan_error::PlanError;
use super::planned_file::{FileOfSet, PlannedFile, check};
use super::slot::Slot;

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
        check(tasks.len(), options)?;
        let members = members(tasks.len(), options.distribution)?;
        let slots_of = |(part, here): (usize, &Range<usize>)| (0..here.len()).map(move |local| Slot { part, local });
        let slots: Vec<Slot> = members.iter().enumerate().flat_map(slots_of).collect();
        let serial = options.distribution == FileDistribution::Serial;
        let files = u32::try_from(members.len()).map_err(|_| PlanError::TooLarge)?;
        let mut parts = Vec::with_capacity(members.len());
        for (number, tasks_here) in members.into_iter().enumerate() {
            let requested = tasks.get(tasks_here.clone()).unwrap_or_default().iter();
            let ranked = requested.zip(tasks_here.clone()).map(|(task, rank)| match serial {
                true => *task,
                false => TaskPlan { global_rank: i64::try_from(rank).unwrap_or(i64::MAX), ..*task },
            });
            let mapping = match (number, serial) {
                (0, true) => Some(Vec::new()),
                (0, false) if files > 1 => Some(slots.clone()),
                _ => None,
            };
            let file = FileOfSet {
                files,
                number: if serial { 1 } else { i32::try_from(number).unwrap_or(i32::MAX) },
                tasks: ranked.collect(),
                padding: Padding::Each,
                mapping,
                unused_mark: 0,
            };
            parts.push(PlannedFile::new(file, tasks_here, options)?);
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
