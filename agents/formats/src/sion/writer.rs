//! Creating a container, by one process or several.
//!
//! There are three steps: one process **creates** the files under temporary names, with their heads; any number of
//! processes **attach** to them and write streams at the planned offsets, in parallel and without communication; the
//! creator **commits** with the byte counts of all tasks: it writes the tails, synchronises and renames. The first
//! file, by which readers open a set, is renamed last, so that a set with this name is complete.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use holdfast_core::durable::{self, CreationMode, Pending};

use super::attachment::Attachment;
use super::error::SionError;
use super::input_mismatch::InputMismatch;
use super::layout::head_end;
use super::plan::{Plan, PlannedFile};
use super::slot::part_path;
use super::tables::table_bytes;
use super::task_writer::TaskWriter;
use super::usage::Usage;

/// A container that is being written. Dropping it without [`Creation::commit`] removes its files.
#[derive(Debug)]
pub struct Creation {
    path: PathBuf,
    plan: Plan,
    pending: Vec<Pending>,
    attachments: Vec<Attachment>,
}

impl Creation {
    /// Creates the files of a container under temporary names in the same directory, and writes their heads.
    ///
    /// # Errors
    /// When a file cannot be created, or a file of a set of several files exists.
    pub fn new(path: &Path, plan: Plan) -> Result<Creation, SionError> {
        let (mut pending, mut attachments) = (Vec::new(), Vec::new());
        let several = plan.parts.len() > 1;
        for (number, part) in plan.parts.iter().enumerate() {
            let name = part_path(path, u32::try_from(number).unwrap_or(u32::MAX));
            // Renaming several files is not atomic: a partly replaced set would be an undetectable mixture.
            if several && name.symlink_metadata().is_ok() {
                return Err(SionError::Exists { path: name });
            }
            let (temporary, file) = Pending::create(&name, CreationMode::Umask)?;
            let written = file.write_all_at(&part.header.encode(), 0);
            written.map_err(SionError::io("write", temporary.temporary_path()))?;
            attachments.push(Attachment::to_file(file, temporary.temporary_path(), part));
            pending.push(temporary);
        }
        Ok(Creation { path: path.to_owned(), plan, pending, attachments })
    }

    /// The plan it was created from.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The paths for other processes to attach to until the container is committed, by file number.
    pub fn temporary_paths(&self) -> Vec<&Path> {
        self.pending.iter().map(Pending::temporary_path).collect()
    }

    /// A writer for a task's stream, from its start.
    ///
    /// # Errors
    /// When there is no such task.
    pub fn task(&self, task: usize) -> Result<TaskWriter, SionError> {
        let missing = || SionError::NoSuchTask { path: self.path.clone(), task, tasks: self.plan.tasks() };
        let slot = self.plan.slot(task).ok_or_else(missing)?;
        self.attachments.get(slot.part).ok_or_else(missing)?.task(slot.local)
    }

    /// Writes the complete streams of consecutive tasks, from `first` on, each into the first chunk of its task.
    /// Contiguous data is combined into few large writes, because calls to a parallel file system cost more than a copy
    /// in memory.
    ///
    /// # Errors
    /// When there is no such task, a stream does not fit into a chunk, or writing fails.
    pub fn gather(&self, first: usize, streams: &[&[u8]]) -> Result<Vec<Usage>, SionError> {
        let missing = |task| SionError::NoSuchTask { path: self.path.clone(), task, tasks: self.plan.tasks() };
        let mut run = WriteRun { to: None, position: 0, bytes: Vec::new() };
        let mut usages = Vec::with_capacity(streams.len());
        for (task, stream) in (first..).zip(streams) {
            let slot = self.plan.slot(task).ok_or_else(|| missing(task))?;
            let to = self.attachments.get(slot.part).ok_or_else(|| missing(task))?;
            let (length, size) = (stream.len() as u64, to.layout().chunk_size(slot.local));
            if length > size {
                let mismatch = InputMismatch::Stream { task, bytes: length, size };
                return Err(SionError::Input { path: self.path.clone(), mismatch });
            }
            let position = to.layout().chunk_position(slot.local, 0).ok_or_else(|| missing(task))?;
            run.add(to, position, stream)?;
            usages.push(Usage::filled(length, size));
        }
        run.flush()?;
        Ok(usages)
    }

    /// Writes the byte counts, synchronises, and renames the files. `usages` has one entry per task, in the order of
    /// the plan.
    ///
    /// # Errors
    /// When a usage does not fit the plan, or a file cannot be written.
    pub fn commit(self, usages: &[Usage]) -> Result<(), SionError> {
        self.close(usages)?;
        for pending in self.pending.into_iter().rev() {
            pending.commit()?;
        }
        Ok(())
    }

    /// As [`Creation::commit`], and never replaces a file that another process made meanwhile.
    ///
    /// # Errors
    /// As for [`Creation::commit`], and [`SionError::Taken`]. Nothing is left then.
    pub fn commit_new(self, usages: &[Usage]) -> Result<(), SionError> {
        self.close(usages)?;
        let mut named = Vec::with_capacity(self.pending.len());
        for (number, pending) in self.pending.into_iter().enumerate().rev() {
            let name = part_path(&self.path, u32::try_from(number).unwrap_or(u32::MAX));
            let failure = match pending.commit_new() {
                Ok(true) => {
                    named.push(name);
                    continue;
                }
                Ok(false) => SionError::Taken { path: name },
                Err(error) => error.into(),
            };
            for ours in &named {
                // A part without its first file is used by no reader.
                let _ = durable::remove(ours);
            }
            return Err(failure);
        }
        Ok(())
    }

    /// Writes the byte counts and synchronises.
    fn close(&self, usages: &[Usage]) -> Result<(), SionError> {
        if usages.len() != self.plan.tasks() {
            let mismatch = InputMismatch::Reports { reported: usages.len(), tasks: self.plan.tasks() };
            return Err(SionError::Input { path: self.path.clone(), mismatch });
        }
        let parts = self.plan.parts.iter().zip(&self.attachments);
        for (part, attachment) in parts {
            let here: Vec<&Usage> = part.tasks.iter().filter_map(|task| usages.get(*task)).collect();
            close(part, attachment, &here)?;
        }
        Ok(())
    }
}

/// Up to this many bytes are combined into one write.
const GATHERED_BYTES: usize = 1 << 20;

/// Contiguous bytes of one file.
struct WriteRun<'a> {
    to: Option<&'a Attachment>,
    position: u64,
    bytes: Vec<u8>,
}

impl<'a> WriteRun<'a> {
    fn add(&mut self, to: &'a Attachment, position: u64, bytes: &[u8]) -> Result<(), SionError> {
        let end = self.position.checked_add(self.bytes.len() as u64);
        let follows = self.to.is_some_and(|before| before.is_same_file(to)) && end == Some(position);
        if !follows || self.bytes.len().saturating_add(bytes.len()) > GATHERED_BYTES {
            self.flush()?;
            (self.to, self.position) = (Some(to), position);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SionError> {
        if let Some(to) = self.to.filter(|_| !self.bytes.is_empty()) {
            to.write_to_file(self.position, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// Writes the tail and the last fields of the head, and synchronises.
fn close(part: &PlannedFile, attachment: &Attachment, usages: &[&Usage]) -> Result<(), SionError> {
    let path = attachment.path();
    let input = |mismatch| SionError::Input { path: path.to_owned(), mismatch };
    let blocks = usages.iter().map(|usage| usage.chunks()).max().unwrap_or(1).max(1);
    let count = u32::try_from(blocks).ok().filter(|count| i32::try_from(*count).is_ok());
    let count = count.ok_or_else(|| input(InputMismatch::TooManyChunks { chunks: blocks }))?;
    let bytes = table_bytes(usages.len() as u64, blocks).map_err(|fault| input(InputMismatch::Table(fault)))?;
    let tail = part.layout.tail(blocks).ok_or_else(|| input(InputMismatch::TooLarge))?;
    for (local, usage) in usages.iter().enumerate() {
        let size = part.layout.chunk_size(local);
        if let Some(bytes) = usage.iter().find(|bytes| *bytes > size) {
            return Err(input(InputMismatch::Report { task: local, bytes, size }));
        }
    }
    let order = part.header.byte_order;
    let mut out = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    for usage in usages {
        order.put_i64(&mut out, usage.chunks().cast_signed());
    }
    let mut rows: Vec<_> = usages.iter().map(|usage| usage.iter()).collect();
    for _ in 0..blocks {
        for row in &mut rows {
            order.put_i64(&mut out, row.next().map_or(part.unused_mark, u64::cast_signed));
        }
    }
    if let Some(mapping) = &part.mapping {
        order.put_i32(&mut out, i32::try_from(mapping.len()).unwrap_or(i32::MAX));
        for (file, local) in mapping {
            order.put_i32(&mut out, file.cast_signed());
            order.put_i32(&mut out, local.cast_signed());
        }
    }
    attachment.write_to_file(tail, &out)?;
    let closing = part.header.encode_closing(count, tail);
    let head_end = head_end(usages.len() as u64).unwrap_or(0);
    attachment.write_to_file(head_end.saturating_sub(closing.len() as u64), &closing)?;
    attachment.synchronise()
}
