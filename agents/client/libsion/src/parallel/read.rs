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

/// Finds the tasks of the processes, by the first file of the set alone.
///
/// # Errors
/// The file cannot be read, is not the first of its set, or has another number of tasks.
pub fn places(name: &Path, processes: usize) -> Result<Places> {
    let first = PhysicalFile::open(name)?;
    let files = first.header.files;
    if files == 1 {
        has_tasks(name, first.header.tasks(), processes)?;
        return Ok(Places { files, slots: (0..processes).map(|local| Slot { part: 0, local }).collect() });
    }
    if first.header.file_number.is_some_and(|number| number != 0) {
        return Err(CallError::PartOfSet(name.to_owned()));
    }
    let mapping = first.mapping().unwrap_or_default();
    has_tasks(name, mapping.len(), processes)?;
    let slots = mapping.iter().zip(0_u64..).map(|((file, task), rank)| {
        let slot = usize::try_from(*file).ok().zip(usize::try_from(*task).ok());
        let slot = slot.filter(|(part, local)| (*part as u64) < u64::from(files) && *local < processes);
        let fault = Fault::MappingTarget { rank, file: *file, task: *task };
        let (part, local) = slot.ok_or(SionError::Damaged { path: name.to_owned(), fault })?;
        Ok(Slot { part, local })
    });
    Ok(Places { files, slots: slots.collect::<Result<_>>()? })
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
    let path = part_path(name, number);
    let part = PhysicalFile::open_of_set(&path, number, files)?;
    has_tasks(&path, part.header.tasks(), ranks.len())?;
    // A single file may have ranks that the program gave.
    let stored = part.header.global_ranks.iter().zip(ranks).filter(|_| files > 1);
    for (stored, rank) in stored {
        if *stored != i64::from(*rank) {
            let fault = Fault::MappingRank { rank: u64::from(rank.cast_unsigned()), stored: *stored };
            return Err(SionError::Damaged { path, fault }.into());
        }
    }
    Ok(part)
}

/// Opens the task of this process.
///
/// # Errors
/// The file cannot be opened, or is not that of the first task.
pub fn task(name: &Path, number: u32, mode: ParallelMode, task: &Task, chunk_bytes: Vec<u64>) -> Result<Reading> {
    let path: PathBuf = part_path(name, number);
    let container = Container::of_task(&path, &task.view(chunk_bytes))?;
    let length = container.parts.first().map_or(0, |part| part.length);
    if length.cast_signed() != task.length {
        return Err(CallError::OtherFile { path, length, expected: task.length });
    }
    let mut reading = Reading::of(container, None, mode.mode.descriptor)?;
    reading.first_task = usize::try_from(task.local_rank).unwrap_or(0);
    Ok(reading)
}
