//! The layout of a container to write.
//!
//! The creator of a container makes the plan; it contains everything that other writers need: the file and the offset
//! of every chunk. The four distributions correspond to SIONlib's functions (`docs/formats.md`, SION 3 to 5): they
//! differ in the padding of chunks, in the data after the byte counts, and in the numbering of files.

use serde::{Deserialize, Serialize};

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

/// One stream to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPlan {
    /// The global rank to store; ignored in parallel and mapped containers, which number their tasks.
    pub global_rank: i64,
    /// Size of each of its chunks in bytes, before padding.
    pub chunk_bytes: u64,
}

/// The distribution of tasks over files, as by one of SIONlib's writers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileDistribution {
    /// One file, with the caller's ranks and an empty mapping at the end.
    Serial,
    /// Contiguous ranks, equally distributed over this many files; the remainder is in the last file.
    Parallel {
        /// Number of files.
        files: u32,
    },
    /// Each rank is in the file of its group; groups are numbered from 0.
    Grouped {
        /// The file of each rank.
        file_of: Vec<u32>,
    },
    /// Each rank has a file and a local rank; always with a mapping, unused chunks are marked with -1.
    Mapped {
        /// File and local rank of each rank.
        place_of: Vec<(u32, u32)>,
    },
}

/// Properties of the container besides its tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanOptions {
    /// The distribution of tasks over files.
    pub distribution: FileDistribution,
    /// Alignment of chunks in bytes; 1 for none.
    pub block_size: u32,
    /// Number of tasks that share a collector: only the last chunk of each such group is padded.
    pub collector: Option<u32>,
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
            collector: None,
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
    pub(super) layout: Layout,
    /// The index in the plan of each task of this file.
    pub(super) tasks: Vec<usize>,
    /// The mapping after the byte counts; `None` if it is omitted, including its size.
    pub(super) mapping: Option<Vec<(u32, u32)>>,
    pub(super) unused_mark: i64,
}

impl PlannedFile {
    /// The offsets of the chunks.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The index in the plan of each task of this file, in local order.
    pub fn tasks(&self) -> &[usize] {
        &self.tasks
    }
}

/// The layout of a container. Equal tasks and options result in equal plans, so that several agents can write one
/// container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub(super) parts: Vec<PlannedFile>,
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
        if options.collector == Some(0) {
            return Err(PlanError::Collector);
        }
        let places = places(tasks.len(), &options.distribution)?;
        let members = members(&places)?;
        let serial = options.distribution == FileDistribution::Serial;
        let mapped = matches!(options.distribution, FileDistribution::Mapped { .. });
        let files = u32::try_from(members.len()).map_err(|_| PlanError::TooLarge)?;
        let mut parts = Vec::with_capacity(members.len());
        for (number, tasks_here) in members.into_iter().enumerate() {
            let requested =
                tasks_here.iter().filter_map(|task| tasks.get(*task)).map(|task| task.chunk_bytes).collect();
            let sizes = chunk_sizes(requested, options).ok_or(PlanError::TooLarge)?;
            let layout = Layout::new(options.block_size, sizes.clone()).ok_or(PlanError::TooLarge)?;
            let rank = |task: &usize| match tasks.get(*task) {
                Some(plan) if serial => plan.global_rank,
                _ => i64::try_from(*task).unwrap_or(i64::MAX),
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
                global_ranks: tasks_here.iter().map(rank).collect(),
                stored_chunk_sizes: sizes,
                closed: None,
            };
            let mapping = match (number, serial) {
                (0, true) => Some(Vec::new()),
                (0, false) if mapped || files > 1 => Some(places.clone()),
                _ => None,
            };
            parts.push(PlannedFile {
                header,
                layout,
                tasks: tasks_here,
                mapping,
                unused_mark: if mapped { -1 } else { 0 },
            });
        }
        let slots = places.iter().filter_map(|(part, local)| {
            Some(Slot { part: usize::try_from(*part).ok()?, local: usize::try_from(*local).ok()? })
        });
        Ok(Plan { parts, slots: slots.collect() })
    }

    /// The physical files.
    pub fn parts(&self) -> &[PlannedFile] {
        &self.parts
    }

    /// The file and local index of a task of the plan.
    pub fn slot(&self, task: usize) -> Option<Slot> {
        self.slots.get(task).copied()
    }

    /// Number of tasks.
    pub fn tasks(&self) -> usize {
        self.slots.len()
    }
}

/// File and local rank of each task.
fn places(tasks: usize, distribution: &FileDistribution) -> Result<Vec<(u32, u32)>, PlanError> {
    let count = u32::try_from(tasks).map_err(|_| PlanError::TooManyTasks(tasks))?;
    match distribution {
        FileDistribution::Serial => Ok((0..count).map(|local| (0, local)).collect()),
        FileDistribution::Parallel { files } => {
            let files = *files;
            let share = count.checked_div(files).filter(|share| *share > 0);
            let share = share.ok_or(PlanError::Files { files, tasks })?;
            let file = |rank: u32| (rank / share).min(files - 1);
            Ok((0..count).map(|rank| (file(rank), rank - file(rank) * share)).collect())
        }
        FileDistribution::Grouped { file_of } => {
            if file_of.len() != tasks {
                return Err(PlanError::Places { places: file_of.len(), tasks });
            }
            let mut next: std::collections::HashMap<u32, u32> = std::collections::HashMap::new();
            Ok(file_of
                .iter()
                .map(|file| {
                    let local = next.entry(*file).or_insert(0);
                    *local += 1;
                    (*file, *local - 1)
                })
                .collect())
        }
        FileDistribution::Mapped { place_of } if place_of.len() != tasks => {
            Err(PlanError::Places { places: place_of.len(), tasks })
        }
        FileDistribution::Mapped { place_of } => Ok(place_of.clone()),
    }
}

/// The tasks of each file in local order; every place up to the last must be used exactly once.
fn members(places: &[(u32, u32)]) -> Result<Vec<Vec<usize>>, PlanError> {
    let mut sorted: Vec<((u32, u32), usize)> = places.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let mut members: Vec<Vec<usize>> = Vec::new();
    for ((file, local), task) in sorted {
        if members.len() as u64 == u64::from(file) {
            members.push(Vec::new());
        }
        let here = members.last_mut().ok_or(PlanError::Gap { file })?;
        // The places are sorted: a gap or a duplicate is a number that is not the next one.
        let expected = here.len() as u64;
        here.push(task);
        if members.len() as u64 != u64::from(file) + 1 || expected != u64::from(local) {
            return Err(PlanError::Gap { file });
        }
    }
    Ok(members)
}

/// Chunk sizes as stored: with padding for each chunk, or for each collector group.
fn chunk_sizes(requested: Vec<u64>, options: &PlanOptions) -> Option<Vec<u64>> {
    let unit = u64::from(options.block_size);
    let Some(collector) = options.collector else {
        return requested.into_iter().map(|size| align(size, unit)).collect();
    };
    let tasks = requested.len() as u64;
    let sum = requested.iter().try_fold(0_u64, |sum, size| sum.checked_add(*size))?;
    let collectors = tasks.div_ceil(u64::from(collector)).min(sum.div_ceil(unit)).max(1);
    let average = align(sum / collectors, unit)?;
    let mut sizes = requested;
    let mut group = 0_u64;
    let mut last: Option<usize> = None;
    // The padding of the last chunk aligns the size of the group.
    let close = |sizes: &mut Vec<u64>, last: Option<usize>, group: u64| -> Option<()> {
        if let Some(size) = last.and_then(|last| sizes.get_mut(last)) {
            *size = size.checked_add(align(group, unit)? - group)?;
        }
        Some(())
    };
    for task in 0..sizes.len() {
        let size = sizes.get(task).copied()?;
        if last.is_some() && group.checked_add(size)? > average {
            close(&mut sizes, last, group)?;
            group = 0;
        }
        group = group.checked_add(size)?;
        last = Some(task);
    }
    close(&mut sizes, last, group)?;
    Some(sizes)
}
