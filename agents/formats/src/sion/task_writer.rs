//! Writing one task's stream.
//!
//! SIONlib has two ways to divide a stream into chunks: a plain write is never divided (if it does not fit into the
//! rest of a chunk, it starts the next one), and key-value writes fill every chunk completely.
//! [`TaskWriter::write_whole`] is the first, [`std::io::Write`] and [`TaskWriter::record`] are the second.

use std::io::{self, Write};

use super::attachment::Attachment;
use super::error::SionError;
use super::header::KeyValue;
use super::input_mismatch::InputMismatch;
use super::usage::Usage;

/// Appends to one task's stream, without buffering.
#[derive(Debug)]
pub struct TaskWriter {
    to: Attachment,
    local: usize,
    /// The chunks before the current one.
    done: Usage,
    chunk: u64,
    inside: u64,
}

impl Attachment {
    /// A writer for a task's stream, from its start.
    ///
    /// # Errors
    /// When the file has no such task.
    pub fn task(&self, local: usize) -> Result<TaskWriter, SionError> {
        self.resume(local, Usage::default())
    }

    /// A writer that continues after the data that was written before.
    ///
    /// # Errors
    /// When the file has no such task.
    pub fn resume(&self, local: usize, usage: Usage) -> Result<TaskWriter, SionError> {
        if local >= self.layout().tasks() {
            return Err(SionError::NoSuchTask {
                path: self.path().to_owned(),
                task: local,
                tasks: self.layout().tasks(),
            });
        }
        Ok(TaskWriter::new(self.clone(), local, usage))
    }
}

impl TaskWriter {
    fn new(to: Attachment, local: usize, mut done: Usage) -> TaskWriter {
        let inside = done.pop().unwrap_or(0);
        TaskWriter { to, local, chunk: done.used(), done, inside }
    }

    fn room(&self) -> u64 {
        self.to.layout().chunk_size(self.local).saturating_sub(self.inside)
    }

    fn next_chunk(&mut self) {
        self.done.push_run(1, self.inside);
        self.chunk += 1;
        self.inside = 0;
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.put(self.local, self.chunk, self.inside, bytes)?;
        self.inside += bytes.len() as u64;
        Ok(())
    }

    /// Writes bytes that must stay in one chunk: the next one if they do not fit into the rest of the current one.
    ///
    /// # Errors
    /// When there are more bytes than a chunk has, or writing fails.
    pub fn write_whole(&mut self, bytes: &[u8]) -> Result<(), SionError> {
        let length = bytes.len() as u64;
        let size = self.to.layout().chunk_size(self.local);
        if length > size {
            let mismatch = InputMismatch::WholeWrite { bytes: length, size };
            return Err(SionError::Input { path: self.to.path().to_owned(), mismatch });
        }
        if length > self.room() {
            self.next_chunk();
        }
        self.put(bytes).map_err(SionError::io("write", self.to.path()))
    }

    /// Writes a key-value record.
    ///
    /// # Errors
    /// When the container holds plain streams, has no room for the task, or writing fails.
    pub fn record(&mut self, key: u64, value: &[u8]) -> Result<(), SionError> {
        self.record_header(key, value.len() as u64)?;
        let path = self.to.clone();
        self.write_all(value).map_err(SionError::io("write", path.path()))
    }

    /// Writes the header of a key-value record; its value of exactly this length must be written next.
    ///
    /// # Errors
    /// When the container holds plain streams, has no room for the task, or writing fails.
    pub fn record_header(&mut self, key: u64, length: u64) -> Result<(), SionError> {
        if self.to.key_value() != KeyValue::Inline {
            return Err(SionError::NotKeyValue { path: self.to.path().to_owned() });
        }
        let order = self.to.byte_order();
        let mut header = [0; 16];
        let (first, second) = header.split_at_mut(8);
        first.copy_from_slice(&order.u64_bytes(key));
        second.copy_from_slice(&order.u64_bytes(length));
        let to = self.to.clone();
        self.write_all(&header).map_err(SionError::io("write", to.path()))
    }

    /// Returns the usage, the input of [`super::Creation::commit`].
    pub fn finish(self) -> Usage {
        let mut usage = self.done;
        if self.chunk > 0 || self.inside > 0 {
            usage.push_run(1, self.inside);
        }
        usage
    }
}

impl Write for TaskWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.room() == 0 {
            if self.to.layout().chunk_size(self.local) == 0 {
                return Err(io::Error::new(io::ErrorKind::StorageFull, "the task has chunks of 0 bytes"));
            }
            self.next_chunk();
        }
        let room = usize::try_from(self.room()).unwrap_or(usize::MAX).min(bytes.len());
        let now = bytes.get(..room).unwrap_or(bytes);
        self.put(now)?;
        Ok(now.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
