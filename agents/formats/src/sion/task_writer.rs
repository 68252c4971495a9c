//! Writing one task's stream.
//!
//! The original has two ways to cut a stream into chunks: a plain write is never cut (what does not fit into the rest of
//! a chunk begins the next one), and key-value writes fill every chunk to its last byte. [`TaskWriter::write_whole`] is
//! the first, [`std::io::Write`] and [`TaskWriter::record`] are the second.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::error::SionError;
use super::header::KeyValue;
use super::writer::Attachment;

/// What a task wrote: the bytes in each of its chunks. This is what travels to the creator of the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Runs of chunks with the same number of bytes, so that a long stream of full chunks stays small.
    runs: Vec<(u64, u64)>,
}

impl Usage {
    /// A stream of this many bytes whose chunks, of this size, are all filled.
    pub fn filled(bytes: u64, chunk_size: u64) -> Usage {
        let mut usage = Usage::default();
        if let (Some(full), Some(rest)) = (bytes.checked_div(chunk_size), bytes.checked_rem(chunk_size)) {
            usage.push_run(full, chunk_size);
            usage.push_run(u64::from(rest > 0), rest);
        }
        usage
    }

    /// Number of chunks; a task that wrote nothing still counts one.
    pub fn chunks(&self) -> u64 {
        self.used().max(1)
    }

    /// Bytes of the whole stream.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|(count, bytes)| count.saturating_mul(*bytes)).fold(0, u64::saturating_add)
    }

    fn used(&self) -> u64 {
        self.runs.iter().map(|(count, _)| *count).fold(0, u64::saturating_add)
    }

    fn push_run(&mut self, count: u64, bytes: u64) {
        match self.runs.last_mut() {
            _ if count == 0 => {}
            Some((last, same)) if *same == bytes => *last = last.saturating_add(count),
            _ => self.runs.push((count, bytes)),
        }
    }

    /// Takes the last chunk off.
    fn pop(&mut self) -> Option<u64> {
        let (count, bytes) = self.runs.last_mut()?;
        let bytes = *bytes;
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.runs.pop();
        }
        Some(bytes)
    }

    /// The bytes of each chunk; one empty chunk for a task that wrote nothing.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let nothing = (self.used() == 0).then_some(0);
        let runs = self.runs.iter().flat_map(|(count, bytes)| (0..*count).map(|_| *bytes));
        runs.chain(nothing)
    }
}

/// Appends to one task's stream. Nothing is buffered: each call is written where it belongs.
#[derive(Debug)]
pub struct TaskWriter {
    to: Attachment,
    local: usize,
    /// Chunks that are left behind.
    done: Usage,
    chunk: u64,
    inside: u64,
}

impl TaskWriter {
    pub(super) fn new(to: Attachment, local: usize, mut done: Usage) -> TaskWriter {
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

    /// Writes bytes that must stay in one chunk: a new one when they do not fit into the rest of this one.
    ///
    /// # Errors
    /// When they do not fit into a whole chunk, or writing fails.
    pub fn write_whole(&mut self, bytes: &[u8]) -> Result<(), SionError> {
        let length = bytes.len() as u64;
        let size = self.to.layout().chunk_size(self.local);
        if length > size {
            let reason =
                format!("{length} bytes do not fit into a chunk of {size}; write less at once, or plan larger chunks");
            return Err(SionError::Input { path: self.to.path().to_owned(), reason });
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

    /// Writes the header of a key-value record; its value of exactly this length must follow as plain writes.
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

    /// What was written; this goes to [`super::Creation::commit`].
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
                return Err(io::Error::new(io::ErrorKind::StorageFull, "the task has chunks of no bytes"));
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
