//! Rewrites a container with one block: the chunk of each task contains its entire stream.
//!
//! As with siondefrag, the result is one physical file in the form of the serial writer, with the same global ranks and
//! the same declared byte order of the user's data. The byte order of the metadata is kept as well (siondefrag uses
//! that of its machine), because the headers of key-value records, which are copied unchanged, have it.

use std::path::{Path, PathBuf};

use super::anomaly::Warning;
use super::container::Container;
use super::copying::{copy_between, each};
use super::error::{Result, SionError};
use super::plan::{FileDistribution, Plan, PlanOptions, TaskPlan};
use super::recover::recover;
use super::replaced;
use super::slot::place;
use super::writer::Creation;
use crate::format::Progress;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DefragOptions {
    /// Alignment of chunks; by default that of the input. 1 packs without gaps.
    pub block_size: Option<u32>,
    /// Recover the data of a container that was never closed, or lost its tail.
    pub recover: bool,
    /// Only report what would be written.
    pub dry_run: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defragmented {
    pub tasks: usize,
    /// Bytes of all streams.
    pub bytes: u64,
    /// Anomalies of the input, and assumptions of the recovery.
    pub warnings: Vec<Warning>,
    /// The further files of a replaced set, which were removed.
    pub removed: Vec<PathBuf>,
}

/// Writes `output` with the streams of `input`. The output gets its name when it is complete, so both may be one path.
///
/// # Errors
/// When the input cannot be read, or the output cannot be written.
pub fn defrag(input: &Path, output: &Path, options: &DefragOptions, progress: Progress<'_>) -> Result<Defragmented> {
    let container = if options.recover { recover(input)? } else { Container::open(input)? };
    let mut tasks = Vec::with_capacity(container.tasks());
    let mut total = 0_u64;
    for task in 0..container.tasks() {
        let chunk_bytes = container.stream_bytes(task)?;
        total = total.saturating_add(chunk_bytes);
        tasks.push(TaskPlan { global_rank: container.global_rank(task)?, chunk_bytes });
    }
    let mut plan_options = PlanOptions::new(FileDistribution::Serial, 1, &place(output));
    if let Some(header) = container.header() {
        plan_options.block_size = options.block_size.unwrap_or(header.block_size);
        plan_options.key_value = header.key_value;
        plan_options.byte_order = header.byte_order;
        plan_options.user_order = header.user_order;
    }
    let plan =
        Plan::new(&tasks, &plan_options).map_err(|source| SionError::Plan { path: output.to_owned(), source })?;
    let (warnings, removed) = (container.warnings.to_vec(), replaced::further_files(output)?);
    let result = Defragmented { tasks: tasks.len(), bytes: total, warnings, removed };
    if options.dry_run {
        return Ok(result);
    }
    let creation = Creation::new(output, plan)?;
    let jobs: Vec<usize> = (0..container.tasks()).collect();
    let usages = each(&jobs, total, progress, |task| {
        let mut writer = creation.task(*task)?;
        let mut stream = container.stream(*task)?;
        let (bytes, from) = (stream.length, stream.path().to_owned());
        copy_between((&mut stream, &from), (&mut writer, output), bytes)?;
        Ok((writer.finish(), bytes))
    })?;
    creation.commit(&usages)?;
    replaced::remove(&result.removed)?;
    Ok(result)
}
