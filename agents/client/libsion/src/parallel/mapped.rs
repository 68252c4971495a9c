//! A file of which a process has several tasks, in any of the physical files.
//!
//! In each physical file with tasks of this process, they are a file of their own ([`OpenFile`]). One of these files
//! has the current task.

use std::collections::HashMap;
use std::path::Path;

use holdfast_formats::sion::{PhysicalFile, Slot};

use super::read;
use crate::error::{CallError, Result};
use crate::files::OpenFile;

/// The byte count that SIONlib's mapped functions store for unused chunks.
pub const UNUSED_MARK: i64 = -1;

/// An open file of the mapped functions.
#[derive(Debug)]
pub struct Mapped {
    /// The address of the program's communicators.
    pub communicators: usize,
    /// The physical files with tasks of this process.
    parts: Vec<Part>,
    /// By the global rank: the index above, and that of the task in its part.
    places: HashMap<i64, (usize, usize)>,
    current: usize,
}

#[derive(Debug)]
struct Part {
    number: u32,
    file: OpenFile,
}

impl Mapped {
    pub fn new(communicators: usize) -> Mapped {
        Mapped { communicators, parts: Vec::new(), places: HashMap::new(), current: 0 }
    }

    /// Adds a physical file in which this process has the tasks with these global ranks.
    ///
    /// # Errors
    /// A rank is there twice.
    pub fn add(&mut self, number: u32, global_ranks: impl IntoIterator<Item = i64>, file: OpenFile) -> Result<()> {
        let part = self.parts.len();
        self.parts.push(Part { number, file });
        for (task, rank) in global_ranks.into_iter().enumerate() {
            if self.places.insert(rank, (part, task)).is_some() {
                return Err(CallError::RankTwice { rank });
            }
        }
        Ok(())
    }

    /// The file with the current task.
    ///
    /// # Errors
    /// This process has no task.
    pub fn current(&mut self) -> Result<&mut OpenFile> {
        self.parts.get_mut(self.current).map(|part| &mut part.file).ok_or(CallError::NoTask)
    }

    /// Makes the file with this global rank the current one. Returns the index of the task there.
    ///
    /// # Errors
    /// This process does not have the rank.
    pub fn go_to(&mut self, rank: i64) -> Result<i64> {
        let (part, task) = *self.places.get(&rank).ok_or(CallError::NotOwnRank { rank })?;
        self.current = part;
        Ok(task as i64)
    }

    /// What this process wrote to a physical file: for each of its tasks the index in the file, the number of chunks,
    /// and the bytes of each chunk. Empty if it has no task there.
    ///
    /// # Errors
    /// The program moved out of a chunk.
    pub fn report(&mut self, number: u32) -> Result<Vec<i64>> {
        let Some(part) = self.parts.iter_mut().find(|part| part.number == number) else { return Ok(Vec::new()) };
        let OpenFile::Writing(file) = &mut part.file else { return Ok(Vec::new()) };
        let mut report = Vec::new();
        for (index, chunks) in file.chunk_bytes()? {
            report.extend([index as i64, chunks.len() as i64]);
            report.extend(chunks.iter().map(|bytes| bytes.cast_signed()));
        }
        Ok(report)
    }

    /// Takes a physical file out; `None` if this process has no task there.
    pub fn take(&mut self, number: u32) -> Option<OpenFile> {
        let index = self.parts.iter().position(|part| part.number == number)?;
        self.places.clear();
        Some(self.parts.remove(index).file)
    }

    /// Closes the files without completing them, and removes those that this process would complete.
    pub fn give_up(self) {
        for part in self.parts {
            if let OpenFile::Writing(file) = part.file
                && file.plan().is_some()
            {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

/// Values in the order of their indexes, which are those from 0, each once.
///
/// # Errors
/// The first wrong index.
pub fn ordered<T>(values: impl ExactSizeIterator<Item = (i64, T)>) -> std::result::Result<Vec<T>, i64> {
    let mut places: Vec<Option<T>> = Vec::new();
    places.resize_with(values.len(), || None);
    for (index, value) in values {
        let place = usize::try_from(index).ok().and_then(|index| places.get_mut(index)).filter(|place| place.is_none());
        *place.ok_or(index)? = Some(value);
    }
    Ok(places.into_iter().flatten().collect())
}

/// The number of files of a set, and the global ranks of its tasks, by its first file.
///
/// # Errors
/// The file cannot be read, or is not the first of its set.
pub fn find(name: &Path) -> Result<(u32, Vec<i64>)> {
    let first = read::first(name)?;
    let ranks = match first.mapping().filter(|_| first.header.files > 1) {
        Some(mapping) => (0..).take(mapping.len()).collect(),
        None => first.header.global_ranks.clone(),
    };
    Ok((first.header.files, ranks))
}

/// The places of the tasks with these global ranks, by the first file of the set. In a single file, these are the ranks
/// that it stores.
///
/// # Errors
/// The file cannot be read, is not the first of its set, or has no such rank.
pub fn places(name: &Path, ranks: &[i32]) -> Result<Vec<Slot>> {
    let first = read::first(name)?;
    let files = first.header.files;
    let no_such_rank = |rank: i32, tasks| CallError::NoSuchRank { path: name.to_owned(), rank: rank.into(), tasks };
    if files == 1 {
        let tasks = first.header.tasks();
        let stored = first.header.global_ranks.iter().zip(0..tasks).rev();
        let stored: HashMap<i64, usize> = stored.map(|(rank, local)| (*rank, local)).collect();
        let local = |rank: &i32| stored.get(&i64::from(*rank)).ok_or_else(|| no_such_rank(*rank, tasks));
        return ranks.iter().map(|rank| Ok(Slot { part: 0, local: *local(rank)? })).collect();
    }
    let slots = read::slots(&first).collect::<Result<Vec<_>>>()?;
    let slot = |rank: &i32| usize::try_from(*rank).ok().and_then(|rank| slots.get(rank)).copied();
    ranks.iter().map(|rank| slot(rank).ok_or_else(|| no_such_rank(*rank, slots.len()))).collect()
}

/// Opens a physical file to read its tables, and checks that tasks with these indexes have these global ranks there.
///
/// # Errors
/// It cannot be read, is not the one with this number in the set, or has another task there.
pub fn part(name: &Path, number: u32, files: u32, wanted: &[[i32; 2]]) -> Result<PhysicalFile> {
    let part = read::of_set(name, number, files)?;
    for [index, rank] in wanted {
        read::has_rank(&part, usize::try_from(*index).unwrap_or(usize::MAX), *rank)?;
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_ordered_by_indexes_that_are_there_once() {
        let order = |indexes: &[i64]| ordered(indexes.iter().map(|index| (*index, index * 10)));
        assert_eq!(order(&[2, 0, 1]), Ok(vec![0, 10, 20]));
        assert_eq!(order(&[]), Ok(Vec::new()));
        for (wrong, indexes) in [(1, [0, 1, 1]), (3, [0, 1, 3]), (-1, [-1, 0, 1])] {
            assert_eq!(order(&indexes), Err(wrong));
        }
    }
}
