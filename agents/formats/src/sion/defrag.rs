//! A container written anew with one block: every task's chunk holds all it has.
//!
//! As the original's siondefrag does, the result is one physical file by the serial writer, with the global ranks and the
//! mark of the user's byte order kept. The byte order of the metadata is kept too (the original writes that of its
//! machine), since the headers of key-value records, which are copied as they stand, are in it.

use std::path::Path;

use super::anomaly::Warning;
use super::container::Container;
use super::copying::{copy_between, each};
use super::error::SionError;
use super::join::prefix_of;
use super::plan::{Plan, PlanOptions, Shape, TaskPlan};
use super::recover::recover;
use super::writer::Creation;
use crate::Progress;

/// How a container is written anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DefragOptions {
    /// Alignment of chunks; by default that of the input. 1 packs without gaps.
    pub block_size: Option<u32>,
    /// Take what a container that was never closed, or lost its tail, still holds.
    pub recover: bool,
    /// Only say what would be written.
    pub dry_run: bool,
    /// Threads that copy; by default what the machine has, at most eight.
    pub threads: Option<usize>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defragmented {
    /// Number of tasks.
    pub tasks: usize,
    /// Bytes of all streams.
    pub bytes: u64,
    /// What is odd about the input, and what recovery had to assume.
    pub warnings: Vec<Warning>,
}

impl std::fmt::Display for Defragmented {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for warning in &self.warnings {
            writeln!(out, "warning: {warning}")?;
        }
        writeln!(out, "{} tasks, {} bytes", self.tasks, self.bytes)
    }
}

/// Writes `output` with the streams of `input`. Its name appears when it is complete, so it may be the input's own.
///
/// # Errors
/// When the input cannot be read, or the output cannot be written.
pub fn defrag(
    input: &Path,
    output: &Path,
    options: &DefragOptions,
    progress: Progress<'_>,
) -> Result<Defragmented, SionError> {
    let container = if options.recover { recover(input)? } else { Container::open(input)? };
    let mut tasks = Vec::with_capacity(container.tasks());
    let mut total = 0_u64;
    for task in 0..container.tasks() {
        let chunk_bytes = container.stream_bytes(task)?;
        total = total.saturating_add(chunk_bytes);
        tasks.push(TaskPlan { global_rank: container.global_rank(task)?, chunk_bytes });
    }
    let mut plan_options = PlanOptions::new(Shape::Serial, 1, &prefix_of(output));
    if let Some(header) = container.header() {
        plan_options.block_size = options.block_size.unwrap_or(header.block_size);
        plan_options.key_value = header.key_value;
        plan_options.byte_order = header.byte_order;
        plan_options.user_order = header.user_order;
    }
    let plan =
        Plan::new(&tasks, &plan_options).map_err(|source| SionError::Plan { path: output.to_owned(), source })?;
    let result = Defragmented { tasks: tasks.len(), bytes: total, warnings: container.warnings().to_vec() };
    if options.dry_run {
        return Ok(result);
    }
    let creation = Creation::new(output, plan)?;
    let jobs: Vec<usize> = (0..container.tasks()).collect();
    let usages = each(&jobs, options.threads, total, progress, |task| {
        let mut writer = creation.task(*task)?;
        let mut stream = container.stream(*task)?;
        let (bytes, from) = (stream.length(), stream.path().to_owned());
        copy_between((&mut stream, &from), (&mut writer, output), bytes)?;
        Ok((writer.finish(), bytes))
    })?;
    creation.commit(&usages)?;
    Ok(result)
}
