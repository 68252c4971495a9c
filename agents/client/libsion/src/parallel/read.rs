//! Reading a file by as many processes as wrote it.
//!
//! The first process finds the file and the index of each task. The first task of each physical file then reads its
//! tables; the others open the file by what they get from it.

use std::path::{Path, PathBuf};

use holdfast_formats::sion::{Container, Fault, PhysicalFile, SionError, Slot, part_path};

use super::Task;
use crate::error::{CallError, Result};
use crate::mode::ParallelMode;
use crate::reading::Reading;

/// Where the tasks of so many processes are.
#[derive(Debug, PartialEq, Eq)]
pub struct Places {
    /// The number of files of the set.
    pub files: u32,
    /// By the rank of the process.
    pub slots: Vec<Slot>,
}

/// Opens the first file of a set.
///
/// # Errors
/// The file cannot be read, or is not the first of its set.
pub fn first(name: &Path) -> Result<PhysicalFile> {
    let first = PhysicalFile::open(name)?;
    if first.header.files > 1 && first.header.file_number.is_some_and(|number| number != 0) {
        return Err(CallError::PartOfSet(name.to_owned()));
    }
    Ok(first)
}

/// Finds the tasks of the processes, by the first file of the set alone.
///
/// # Errors
/// The file cannot be read, is not the first of its set, or has another number of tasks.
pub fn places(name: &Path, processes: usize) -> Result<Places> {
    let first = first(name)?;
    let files = first.header.files;
    if files == 1 {
        has_tasks(name, first.header.tasks(), processes)?;
        return Ok(Places { files, slots: (0..processes).map(|local| Slot { part: 0, local }).collect() });
    }
    has_tasks(name, first.mapping().map_or(0, <[_]>::len), processes)?;
    Ok(Places { files, slots: slots(&first).collect::<Result<_>>()? })
}

/// The places of all tasks of a set of several files, in the order of their global ranks.
pub fn slots(first: &PhysicalFile) -> impl Iterator<Item = Result<Slot>> + '_ {
    let mapping = first.mapping().unwrap_or_default();
    mapping.iter().zip(0_u64..).map(move |((file, task), rank)| {
        let slot = usize::try_from(*file).ok().zip(usize::try_from(*task).ok());
        let files = u64::from(first.header.files);
        let slot = slot.filter(|(part, local)| (*part as u64) < files && *local < mapping.len());
        let fault = Fault::MappingTarget { rank, file: *file, task: *task };
        let (part, local) = slot.ok_or(SionError::Damaged { path: first.path.clone(), fault })?;
        Ok(Slot { part, local })
    })
}

fn has_tasks(path: &Path, tasks: usize, processes: usize) -> Result<()> {
    if tasks == processes {
        return Ok(());
    }
    Err(CallError::Processes { path: path.to_owned(), tasks, processes })
}

/// Opens a physical file as its first task, and checks that its tasks are those of the processes with these ranks.
///
/// # Errors
/// It cannot be read, or is not the one with this number in the set.
pub fn part(name: &Path, number: u32, files: u32, ranks: &[i32]) -> Result<PhysicalFile> {
    let part = of_set(name, number, files)?;
    has_tasks(&part.path, part.header.tasks(), ranks.len())?;
    // A single file may have ranks that the program gave.
    if files > 1 {
        for (local, rank) in ranks.iter().enumerate() {
            has_rank(&part, local, *rank)?;
        }
    }
    Ok(part)
}

/// Opens a physical file of a set.
///
/// # Errors
/// It cannot be read, or is not the one with this number in the set.
pub fn of_set(name: &Path, number: u32, files: u32) -> Result<PhysicalFile> {
    Ok(PhysicalFile::open_of_set(&part_path(name, number), number, files)?)
}

/// # Errors
/// The task with this index has another global rank.
pub fn has_rank(part: &PhysicalFile, local: usize, rank: i32) -> Result<()> {
    match part.header.global_ranks.get(local) {
        Some(stored) if *stored == i64::from(rank) => Ok(()),
        stored => {
            let stored = stored.copied().unwrap_or(-1);
            let fault = Fault::MappingRank { rank: u64::from(rank.cast_unsigned()), stored };
            Err(SionError::Damaged { path: part.path.clone(), fault }.into())
        }
    }
}

/// Opens the tasks of this process in one physical file, with the bytes in each of their chunks, task after task.
///
/// # Errors
/// The file cannot be opened, or is not that of the process that read its tables.
pub fn own(name: &Path, number: u32, mode: ParallelMode, tasks: &[Task], chunk_bytes: &[i64]) -> Result<Reading> {
    let path: PathBuf = part_path(name, number);
    let mut left = chunk_bytes;
    let views = tasks.iter().map(|task| {
        let (own, others) = left.split_at(usize::try_from(task.chunks).unwrap_or(0).min(left.len()));
        left = others;
        task.view(own.iter().map(|bytes| bytes.cast_unsigned()).collect())
    });
    let container = Container::of_tasks(&path, &views.collect::<Vec<_>>())?;
    let length = container.parts.first().map_or(0, |part| part.length);
    let expected = tasks.first().map_or(0, |task| task.length);
    if length.cast_signed() != expected {
        return Err(CallError::OtherFile { path, length, expected });
    }
    let mut reading = Reading::of(container, None, mode.mode.descriptor)?;
    reading.indexes = tasks.iter().map(Task::index).collect();
    Ok(reading)
}
