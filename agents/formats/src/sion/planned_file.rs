//! The layout of one physical file to write.

use std::ops::Range;

use super::header::Header;
use super::layout::Layout;
use super::limits::{LARGEST_BLOCK, MOST_TASKS, PREFIX_BYTES};
use super::padding::Padding;
use super::plan::{PlanOptions, TaskPlan};
use super::plan_error::PlanError;
use super::slot::Slot;

/// Library version written: 1.7.
const VERSION: i32 = 1007;

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
    /// The byte count that is stored for unused chunks.
    pub(super) unused_mark: i64,
}

/// One physical file of a set whose files are planned by different processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOfSet {
    /// The number of files of the set.
    pub files: u32,
    /// The number of this file, from 0.
    pub number: i32,
    /// Its tasks, with their global ranks.
    pub tasks: Vec<TaskPlan>,
    pub padding: Padding,
    /// The places of all tasks of the set, in the first file of several.
    pub mapping: Option<Vec<Slot>>,
    /// The byte count to store for unused chunks: 0; or -1, as SIONlib does in files of its mapped functions.
    pub unused_mark: i64,
}

impl PlannedFile {
    /// Plans a file of a set. The distribution in `options` is ignored.
    ///
    /// # Errors
    /// When a file with these tasks and options is impossible.
    pub fn of_set(file: FileOfSet, options: &PlanOptions) -> Result<PlannedFile, PlanError> {
        check(file.tasks.len(), options)?;
        let tasks = 0..file.tasks.len();
        PlannedFile::new(file, tasks, options)
    }

    /// Plans a file; the caller has checked the options. `tasks` are the numbers of its tasks in the plan.
    pub(super) fn new(file: FileOfSet, tasks: Range<usize>, options: &PlanOptions) -> Result<PlannedFile, PlanError> {
        let requested = file.tasks.iter().map(|task| task.chunk_bytes);
        let sizes = file.padding.padded(requested, u64::from(options.block_size)).ok_or(PlanError::TooLarge)?;
        let layout = Layout::new(options.block_size, sizes.clone()).ok_or(PlanError::TooLarge)?;
        let header = Header {
            byte_order: options.byte_order,
            user_order: options.user_order,
            version: VERSION,
            patch_level: options.patch_level,
            format: 5,
            block_size: options.block_size,
            files: file.files,
            file_number: Some(file.number),
            flag1: i64::from(options.key_value.code()) << 32,
            flag2: 0,
            key_value: options.key_value,
            prefix: options.prefix.clone().into_bytes(),
            global_ranks: file.tasks.iter().map(|task| task.global_rank).collect(),
            stored_chunk_sizes: sizes,
            closed: None,
        };
        Ok(PlannedFile { header, layout, tasks, mapping: file.mapping, unused_mark: file.unused_mark })
    }

    /// The same file with these requested chunk sizes, one per task.
    ///
    /// # Errors
    /// When they exceed the largest file size.
    pub fn resized(&self, requested: &[u64], padding: Padding) -> Result<PlannedFile, PlanError> {
        let unit = u64::from(self.header.block_size);
        let sizes = padding.padded(requested.iter().copied(), unit).ok_or(PlanError::TooLarge)?;
        let layout = Layout::new(self.header.block_size, sizes.clone()).ok_or(PlanError::TooLarge)?;
        let header = Header { stored_chunk_sizes: sizes, ..self.header.clone() };
        Ok(PlannedFile { header, layout, ..self.clone() })
    }
}

/// Checks what does not depend on the sizes of chunks.
pub(super) fn check(tasks: usize, options: &PlanOptions) -> Result<(), PlanError> {
    if tasks == 0 {
        return Err(PlanError::NoTask);
    }
    if tasks as u64 > MOST_TASKS {
        return Err(PlanError::TooManyTasks(tasks));
    }
    if options.block_size == 0 || options.block_size > LARGEST_BLOCK {
        return Err(PlanError::BlockSize(options.block_size));
    }
    if options.prefix.len() > PREFIX_BYTES {
        return Err(PlanError::Prefix(options.prefix.len()));
    }
    Ok(())
}
