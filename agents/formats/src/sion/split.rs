//! Splits a container into one file per stream, or per key of each task, as sionsplit does.
//!
//! sionsplit stops at a record of length zero and loses the following ones, or writes a value twice
//! (`docs/formats.md`, SION 6); here every value is written as stored.

use std::path::Path;

use super::container::Container;
use super::copying::{copy_exactly, each};
use super::dataset;
use super::error::SionError;
use super::fault::Fault;
use super::header::KeyValue;
use super::input_mismatch::InputMismatch;
use super::key_value::KeyedValue;
use super::recover::recover;
use super::split_result::{Split, SplitFile};
use crate::destination::Destination;
use crate::error::Result;
use crate::format::Progress;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SplitOptions {
    /// Recover the data of a container that was never closed, or lost its tail.
    pub recover: bool,
    /// Number the output files by stored global rank instead of by the order in the set.
    pub by_global_rank: bool,
    /// Only report what would be written.
    pub dry_run: bool,
}

/// Writes the streams of the container at `path` to files named `t_<task>`, or `t_<task>_<key>`. The files of a
/// container of a [`dataset`] get their own names, unless they are to be numbered by global rank or recovered.
///
/// # Errors
/// When the container cannot be read, or a file cannot be written.
pub fn split(path: &Path, to: &Destination, options: &SplitOptions, progress: Progress<'_>) -> Result<Split> {
    if !options.recover && !options.by_global_rank && dataset::is_dataset(path) {
        return dataset::unpack(path, to, options.dry_run, progress);
    }
    let container = if options.recover { recover(path)? } else { Container::open(path)? };
    let mut result = Split { warnings: container.warnings.to_vec(), ..Split::default() };
    let numbers = numbers(&container, options)?;
    let total = container.all_stream_bytes()?;
    let jobs: Vec<(usize, i64)> = (0..).zip(numbers).collect();
    // Errors of writing have another type than those of reading, and are returned in the result of the job.
    let done = each(&jobs, total, progress, |(task, number)| {
        let bytes = container.stream_bytes(*task)?;
        Ok((split_task(&container, *task, *number, to, options), bytes))
    })?;
    for task in done {
        let (files, fault) = task?;
        result.files.extend(files);
        result.damaged.extend(fault);
    }
    Ok(result)
}

/// The number in the name of each task's file.
fn numbers(container: &Container, options: &SplitOptions) -> Result<Vec<i64>, SionError> {
    if !options.by_global_rank && !container.ranks_are_numbers {
        return Ok((0..container.tasks()).map(|task| i64::try_from(task).unwrap_or(i64::MAX)).collect());
    }
    let ranks = (0..container.tasks()).map(|task| container.global_rank(task)).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = ranks.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != ranks.len() || sorted.first().is_some_and(|rank| *rank < 0) {
        return Err(SionError::Input { path: container.path.to_owned(), mismatch: InputMismatch::GlobalRanks });
    }
    Ok(ranks)
}

type TaskFiles = (Vec<SplitFile>, Option<(usize, Fault)>);

fn split_task(
    container: &Container,
    task: usize,
    number: i64,
    to: &Destination,
    options: &SplitOptions,
) -> Result<TaskFiles> {
    let name = format!("t_{number:05}");
    if container.key_value() == KeyValue::None {
        let bytes = container.stream_bytes(task)?;
        if options.dry_run {
            to.check_name(&name)?;
        } else {
            let mut stream = container.stream(task)?;
            to.write(&name, |out| copy_exactly(&mut stream, out, bytes))?;
        }
        return Ok((vec![SplitFile { name, task, key: None, bytes }], None));
    }
    let (values, fault) = match container.keys_until_damage(task)? {
        (_, Some(fault)) if !options.recover => (Vec::new(), Some((task, fault))),
        (values, fault) => (values, fault.map(|fault| (task, fault))),
    };
    let mut files = Vec::with_capacity(values.len());
    for value in values {
        let KeyedValue { key, bytes, .. } = value;
        // sionsplit prints keys as signed numbers.
        let name = format!("{name}_{:012}", key.cast_signed());
        if options.dry_run {
            to.check_name(&name)?;
        } else {
            let mut reader = value.reader(container.stream(task)?);
            to.write(&name, |out| copy_exactly(&mut reader, out, bytes))?;
        }
        files.push(SplitFile { name, task, key: Some(key), bytes });
    }
    Ok((files, fault))
}
