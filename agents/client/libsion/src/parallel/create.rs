//! Creating a physical file of which several processes write their chunks.
//!
//! The first task creates it with a mark of this call; the others open it, and find the mark: then all of them have the
//! same file, in one file system, and not one that an earlier run left in their own. Then the first task overwrites the
//! mark by the head.

use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use holdfast_formats::sion::{
    ByteOrder, FileDistribution, FileOfSet, Padding, PlanOptions, PlannedFile, Slot, TaskPlan, part_path,
};

use super::Task;
use crate::error::{CallError, Result};
use crate::mode::ParallelMode;
use crate::stream::{Stream, fitting_block_size};
use crate::writing::{Declared, OwnTasks, Writing};

/// A file that is being created, as one of its tasks has it.
#[derive(Debug)]
pub struct Joined {
    /// The physical file.
    path: PathBuf,
    mode: ParallelMode,
    stream: Stream,
    /// True for the first task, which created it.
    is_first: bool,
    /// Of the first task.
    plan: Option<PlannedFile>,
}

/// The tasks of a physical file to write, and its place in its set.
#[derive(Debug)]
pub struct Tasks<'a> {
    /// The name given by the program, which is stored.
    pub name: &'a str,
    pub files: u32,
    pub number: u32,
    pub block_size: u32,
    pub sizes: Vec<u64>,
    pub global_ranks: &'a [i64],
    pub padding: Padding,
    /// The places of all tasks of the set, in the file that stores them.
    pub mapping: Option<Vec<Slot>>,
    /// The byte count to store for unused chunks.
    pub unused_mark: i64,
}

/// The content of a file with a mark.
fn marked(mark: u64) -> String {
    format!("SION file of parallel writers, not begun: {mark:016x}\n")
}

/// Creates a physical file with a mark, or empties it. Returns the mark, and the block size of the file system.
///
/// # Errors
/// It cannot be created.
pub fn create(name: &Path, number: u32) -> Result<(u64, u32)> {
    let path = part_path(name, number);
    let mut hasher = RandomState::new().build_hasher();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    hasher.write_u128(now.as_nanos());
    hasher.write_u32(std::process::id());
    let mark = hasher.finish();
    // Closed before the other processes open it, so that NFS shows it to them.
    fs::write(&path, marked(mark)).map_err(CallError::io("create", &path))?;
    let block_size = fs::metadata(&path).map_err(CallError::io("examine", &path))?.blksize();
    Ok((mark, fitting_block_size(block_size)))
}

impl Joined {
    /// Opens a file that the first task created with this mark.
    ///
    /// # Errors
    /// It cannot be opened, or is another one.
    pub fn new(name: &Path, number: u32, mark: u64, mode: ParallelMode, is_first: bool) -> Result<Joined> {
        let path = part_path(name, number);
        let mut found = Vec::new();
        let expected = marked(mark);
        match File::open(&path) {
            Ok(file) => {
                let most = expected.len() as u64 + 1;
                file.take(most).read_to_end(&mut found).map_err(CallError::io("read", &path))?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(CallError::io("open", &path)(error)),
        }
        if found != expected.as_bytes() {
            return Err(CallError::NotShared { path });
        }
        let stream = Stream::reopen(&path, mode.mode.descriptor)?;
        Ok(Joined { path, mode, stream, is_first, plan: None })
    }

    /// As the first task: plans the file. Returns its tasks.
    ///
    /// # Errors
    /// A file with these tasks is impossible.
    pub fn plan(&mut self, tasks: Tasks<'_>) -> Result<Vec<Task>> {
        let declared = Declared {
            key_value: self.mode.mode.key_value.unwrap_or_default(),
            user_order: self.mode.mode.user_order.unwrap_or(ByteOrder::native()),
            files: tasks.files,
            number: tasks.number.cast_signed(),
        };
        let distribution = FileDistribution::Parallel { files: tasks.files };
        let options = PlanOptions {
            key_value: declared.key_value,
            user_order: declared.user_order,
            ..PlanOptions::new(distribution, tasks.block_size, tasks.name)
        };
        let plans = tasks.sizes.iter().zip(tasks.global_ranks);
        let file = FileOfSet {
            files: tasks.files,
            number: declared.number,
            tasks: plans.map(|(size, rank)| TaskPlan { global_rank: *rank, chunk_bytes: *size }).collect(),
            padding: tasks.padding,
            mapping: tasks.mapping,
            unused_mark: tasks.unused_mark,
        };
        let planned = PlannedFile::of_set(file, &options);
        let planned = planned.map_err(|source| CallError::Plan { path: self.path.clone(), source })?;
        let ranked = tasks.global_ranks.iter().enumerate();
        let ranked =
            ranked.map(|(local, rank)| Task { global_rank: *rank, ..Task::planned(&planned, local, declared) });
        let ranked = ranked.collect();
        self.plan = Some(planned);
        Ok(ranked)
    }

    /// The mode of the parallel functions.
    pub fn mode(&self) -> ParallelMode {
        self.mode
    }

    /// Begins to write tasks of the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(self, tasks: &[Task]) -> Result<Writing> {
        let declared = tasks.first().ok_or(CallError::NoTask)?.declared();
        let own = OwnTasks {
            global_ranks: tasks.iter().map(|task| task.global_rank).collect(),
            indexes: tasks.iter().map(Task::index).collect(),
        };
        let mut writing = Writing::begin(&self.path, self.stream, Task::layout(tasks), own, declared)?;
        if let Some(planned) = self.plan {
            writing.complete_by(planned)?;
            writing.stream.flush()?;
        }
        Ok(writing)
    }

    /// Gives up. The first task removes the file, of which nothing is written.
    pub fn give_up(self) {
        if self.is_first {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The tasks of a file of which nothing is written, with other chunk sizes. The first task writes its head anew.
///
/// # Errors
/// A file with these sizes is impossible, this is not its first task, or the head cannot be written.
pub fn resize(writing: &mut Writing, sizes: &[u64], padding: Padding, global_ranks: &[i64]) -> Result<Vec<Task>> {
    let planned = writing.plan().ok_or(CallError::NoPlan)?.resized(sizes, padding);
    let planned = planned.map_err(|source| CallError::Plan { path: writing.path().to_owned(), source })?;
    let ranked = global_ranks.iter().enumerate();
    let tasks =
        ranked.map(|(local, rank)| Task { global_rank: *rank, ..Task::planned(&planned, local, writing.declared) });
    let tasks = tasks.collect();
    writing.complete_by(planned)?;
    writing.stream.flush()?;
    Ok(tasks)
}
