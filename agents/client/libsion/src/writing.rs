//! A file that is being written.
//!
//! A write never crosses the border of two chunks, except for key-value records (`docs/formats.md`, SION 1). How much a
//! task has written to its current chunk is the position of the stream, which the program can move by its own writes.

use std::path::{Path, PathBuf};

use holdfast_formats::sion::{ByteOrder, KeyValue, Layout, PlannedFile, Usage};

use crate::error::{CallError, Result};
use crate::stream::Stream;
use crate::tables::{CurrentLocations, Extent, Locations, Row};

/// The chunks of a task; the current one is the last.
#[derive(Clone, Debug)]
struct Chunks {
    /// Bytes written to each of them; at least one chunk.
    bytes: Vec<u64>,
    /// The position in the current one when the task was left.
    inside: u64,
}

/// A file that is being written: all its tasks, or one task of a parallel program.
#[derive(Debug)]
pub struct Writing {
    path: PathBuf,
    layout: Layout,
    /// What completes the file. Of a parallel program, the first task of the file has it.
    plan: Option<PlannedFile>,
    tasks: OwnTasks,
    pub declared: Declared,
    pub stream: Stream,
    pub task: usize,
    chunks: Vec<Chunks>,
    pub locations: Locations,
    pub current: CurrentLocations,
    /// The bytes of the chunks of the current task, for the program.
    pub current_bytes: Vec<i64>,
}

/// The declared properties of a new file.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    pub key_value: KeyValue,
    pub user_order: ByteOrder,
    /// The number of files of the set.
    pub files: u32,
    /// The number of this file.
    pub number: i32,
}

/// The tasks that this process writes.
#[derive(Debug)]
pub struct OwnTasks {
    /// As stored.
    pub global_ranks: Vec<i64>,
    /// Their indexes in the physical file, for messages; empty for all tasks of the file.
    pub indexes: Vec<usize>,
}

impl Writing {
    /// Writes the head, and goes to the first task.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(
        path: &Path,
        mut stream: Stream,
        planned: PlannedFile,
        global_ranks: Vec<i64>,
        declared: Declared,
    ) -> Result<Writing> {
        stream.write(&planned.head())?;
        let tasks = OwnTasks { global_ranks, indexes: Vec::new() };
        let mut writing = Writing::begin(path, stream, planned.layout.clone(), tasks, declared)?;
        writing.plan = Some(planned);
        Ok(writing)
    }

    /// Goes to the first of these tasks, in a file whose head is written elsewhere.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(path: &Path, stream: Stream, layout: Layout, tasks: OwnTasks, declared: Declared) -> Result<Writing> {
        let chunks = vec![Chunks { bytes: vec![0], inside: 0 }; layout.tasks()];
        let mut writing = Writing {
            path: path.to_owned(),
            layout,
            plan: None,
            tasks,
            declared,
            stream,
            task: 0,
            chunks,
            locations: Locations::default(),
            current: CurrentLocations::default(),
            current_bytes: Vec::new(),
        };
        writing.stream.set_position(writing.start())?;
        Ok(writing)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What completes the file; `None` if another task does it.
    pub fn plan(&self) -> Option<&PlannedFile> {
        self.plan.as_ref()
    }

    /// As the first task of a file, which will complete it: writes its head, and returns to its own chunk.
    ///
    /// # Errors
    /// The head cannot be written.
    pub fn complete_by(&mut self, planned: PlannedFile) -> Result<()> {
        self.stream.set_position(0)?;
        self.stream.write(&planned.head())?;
        self.stream.set_position(self.start())?;
        self.plan = Some(planned);
        Ok(())
    }

    /// Moves to other chunks.
    ///
    /// # Errors
    /// Something was written already.
    pub fn move_to(&mut self, layout: Layout) -> Result<()> {
        if self.account()? > 0 || self.bytes_written()? > 0 {
            return Err(CallError::WrittenAlready);
        }
        self.layout = layout;
        self.stream.set_position(self.start())
    }

    /// The number of chunks of the current task, without the last one: the index of the current chunk.
    fn chunk(&self) -> usize {
        self.chunks.get(self.task).map_or(0, |chunks| chunks.bytes.len().saturating_sub(1))
    }

    /// The index of the current task in its physical file.
    fn task_in_file(&self) -> usize {
        self.index(self.task)
    }

    /// The index of a task in its physical file.
    fn index(&self, task: usize) -> usize {
        self.tasks.indexes.get(task).copied().unwrap_or(task)
    }

    fn chunk_size(&self) -> u64 {
        self.layout.chunk_size(self.task)
    }

    /// The offset of the current chunk.
    fn start(&self) -> u64 {
        self.layout.chunk_position(self.task, self.chunk() as u64).unwrap_or(0)
    }

    /// Takes over what was written to the current chunk, also by the program itself. Returns the position in it.
    ///
    /// # Errors
    /// The program moved out of the chunk.
    pub fn account(&mut self) -> Result<u64> {
        let (position, start, size) = (self.stream.position()?, self.start(), self.chunk_size());
        let (task, chunk) = (self.task_in_file(), self.chunk());
        let inside = position.checked_sub(start).filter(|inside| *inside <= size);
        let inside = inside.ok_or(CallError::OutsideOfChunk { task, chunk, position, start, size })?;
        if let Some(chunks) = self.chunks.get_mut(self.task) {
            chunks.inside = inside;
            if let Some(last) = chunks.bytes.last_mut().filter(|_| inside > 0) {
                *last = inside;
            }
        }
        Ok(inside)
    }

    fn next_chunk(&mut self) -> Result<()> {
        if let Some(chunks) = self.chunks.get_mut(self.task) {
            chunks.bytes.push(0);
            chunks.inside = 0;
        }
        self.stream.set_position(self.start())
    }

    /// Makes room for so many bytes in the current chunk, or begins another one.
    ///
    /// # Errors
    /// They are more than a chunk has, or the program moved out of the chunk.
    pub fn ensure(&mut self, bytes: u64) -> Result<()> {
        let size = self.chunk_size();
        if bytes > size {
            return Err(CallError::LargerThanChunk { task: self.task_in_file(), bytes, size });
        }
        if self.account()? > size - bytes {
            self.next_chunk()?;
        }
        Ok(())
    }

    /// Writes to one chunk.
    ///
    /// # Errors
    /// The bytes do not fit into a chunk, or cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.ensure(bytes.len() as u64)?;
        self.stream.write(bytes)
    }

    /// Writes a key-value record, across chunks.
    ///
    /// # Errors
    /// The file has no records, or it cannot be written.
    pub fn record(&mut self, key: u64, value: &[u8]) -> Result<()> {
        if self.declared.key_value != KeyValue::Inline {
            return Err(CallError::NotKeyValue);
        }
        let size = self.chunk_size();
        if size == 0 {
            return Err(CallError::LargerThanChunk { task: self.task_in_file(), bytes: value.len() as u64, size });
        }
        let head = [key, value.len() as u64].map(u64::to_ne_bytes);
        self.write_across(head.as_flattened())?;
        self.write_across(value)
    }

    fn write_across(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = self.chunk_size() - self.account()?;
            if room == 0 {
                self.next_chunk()?;
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            self.stream.write(now)?;
            bytes = later;
        }
        Ok(())
    }

    /// Goes to the end of a task's stream.
    ///
    /// # Errors
    /// There is no such task, or the program moved out of the chunk.
    pub fn go_to(&mut self, rank: usize) -> Result<()> {
        self.account()?;
        self.task = rank;
        let inside = self.chunks.get(rank).map_or(0, |chunks| chunks.inside);
        self.stream.set_position(self.start() + inside)
    }

    pub fn tasks(&self) -> usize {
        self.chunks.len()
    }

    /// The bytes that the current task wrote.
    ///
    /// # Errors
    /// The program moved out of the chunk.
    pub fn bytes_written(&mut self) -> Result<u64> {
        self.account()?;
        Ok(self.chunks.get(self.task).map_or(0, |chunks| chunks.bytes.iter().sum()))
    }

    /// Updates [`Writing::locations`].
    ///
    /// # Errors
    /// The tables would be too large, or the program moved out of the chunk.
    pub fn locate(&mut self) -> Result<Extent> {
        self.account()?;
        let layout = &self.layout;
        let blocks = self.chunks.iter().map(|chunks| chunks.bytes.len()).max().unwrap_or(1) as u64;
        let rows = self.chunks.iter().zip(&self.tasks.global_ranks).enumerate().map(|(task, (chunks, rank))| {
            let chunk_bytes = chunks.bytes.iter().copied();
            Ok(Row { chunk_size: layout.chunk_size(task), global_rank: *rank, chunk_bytes })
        });
        self.locations = Locations::of(self.chunks.len(), blocks, 0, rows)?;
        let tail = layout.tail(blocks).unwrap_or(0);
        Ok(Extent { tasks: self.chunks.len(), blocks, skip: layout.block_skip, tail })
    }

    /// Updates [`Writing::current`].
    ///
    /// # Errors
    /// The program moved out of the chunk.
    pub fn locate_current(&mut self) -> Result<()> {
        self.account()?;
        let layout = &self.layout;
        let places = self.chunks.iter().enumerate().map(|(task, chunks)| {
            let chunk = chunks.bytes.len().saturating_sub(1) as u64;
            (layout.chunk_position(task, chunk).unwrap_or(0) + chunks.inside, chunk)
        });
        let (positions, chunks) = places.map(|(at, chunk)| (at.cast_signed(), chunk.cast_signed())).unzip();
        self.current = CurrentLocations { positions, chunks };
        Ok(())
    }

    /// The current chunk, the position in it, and the number of chunks of the current task. Updates
    /// [`Writing::current_bytes`].
    ///
    /// # Errors
    /// The program moved out of the chunk.
    pub fn current_place(&mut self) -> Result<(usize, i64, usize)> {
        let inside = self.account()?;
        let bytes = self.chunks.get(self.task).map_or(&[][..], |chunks| &chunks.bytes);
        self.current_bytes = bytes.iter().map(|bytes| bytes.cast_signed()).collect();
        Ok((self.chunk(), inside.cast_signed(), self.current_bytes.len()))
    }

    /// The index of each task in the physical file, and the bytes in each of its chunks.
    ///
    /// # Errors
    /// The program moved out of the chunk.
    pub fn chunk_bytes(&mut self) -> Result<impl Iterator<Item = (usize, &[u64])>> {
        self.account()?;
        Ok(self.chunks.iter().enumerate().map(|(task, chunks)| (self.index(task), &chunks.bytes[..])))
    }

    /// Writes the byte counts of the tasks of this process, which are all, and closes the file.
    ///
    /// # Errors
    /// As for [`Writing::finish`], or the program moved out of a chunk.
    pub fn close(mut self) -> Result<()> {
        let usages: Vec<Usage> = self.chunk_bytes()?.map(|(_, bytes)| bytes.iter().copied().collect()).collect();
        self.finish(&usages)
    }

    /// Writes the byte counts of all tasks if this process completes the file, and closes it.
    ///
    /// # Errors
    /// The table would be too large, or the file cannot be written. It is then not complete, as a file whose program
    /// ended before.
    pub fn finish(mut self, usages: &[Usage]) -> Result<()> {
        if let Some(planned) = self.plan {
            let parts = planned.closing(usages);
            for (position, bytes) in parts.map_err(|source| CallError::Closing { path: self.path.clone(), source })? {
                self.stream.set_position(position)?;
                self.stream.write(&bytes)?;
            }
        }
        self.stream.close()
    }
}
