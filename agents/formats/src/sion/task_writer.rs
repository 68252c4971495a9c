//! Writing one task's stream. Every chunk is filled completely, as by SIONlib's key-value writes.

use std::io::{self, Write};

use super::attachment::Attachment;
use super::error::SionError;
use super::header::KeyValue;
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
    pub(super) fn task(&self, local: usize) -> Result<TaskWriter, SionError> {
        let tasks = self.layout.tasks();
        if local >= tasks {
            return Err(SionError::NoSuchTask { path: self.path.to_path_buf(), task: local, tasks });
        }
        Ok(TaskWriter { to: self.clone(), local, done: Usage::default(), chunk: 0, inside: 0 })
    }
}

impl TaskWriter {
    fn room(&self) -> u64 {
        self.to.layout.chunk_size(self.local).saturating_sub(self.inside)
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

    /// Writes a key-value record.
    ///
    /// # Errors
    /// When the container holds plain streams, has no room for the task, or writing fails.
    pub fn record(&mut self, key: u64, value: &[u8]) -> Result<(), SionError> {
        self.record_header(key, value.len() as u64)?;
        let path = self.to.clone();
        self.write_all(value).map_err(SionError::io("write", &path.path))
    }

    /// Writes the header of a key-value record; its value of exactly this length must be written next.
    ///
    /// # Errors
    /// When the container holds plain streams, has no room for the task, or writing fails.
    pub fn record_header(&mut self, key: u64, length: u64) -> Result<(), SionError> {
        if self.to.key_value != KeyValue::Inline {
            return Err(SionError::NotKeyValue { path: self.to.path.to_path_buf() });
        }
        let order = self.to.byte_order;
        let header = [key, length].map(|number| order.u64_bytes(number));
        let to = self.to.clone();
        self.write_all(header.as_flattened()).map_err(SionError::io("write", &to.path))
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
            if self.to.layout.chunk_size(self.local) == 0 {
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
