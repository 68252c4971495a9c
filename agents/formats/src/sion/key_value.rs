//! Key-value streams: consecutive records of key, length and value, across chunk boundaries.
//!
//! A key may occur several times in a task; its value is the concatenation of these records. SIONlib's reader stops at
//! a record of length zero, omits it at the end, or repeats its neighbour (`docs/formats.md`, SION 6); this reader
//! returns all records as stored. Values are skipped while headers are listed, so that large containers are listed
//! quickly.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Seek};

use super::byte_order::ByteOrder;
use super::container::{Container, TaskStream};
use super::error::SionError;
use super::fault::Fault;
use super::header::KeyValue;
use super::limits::MOST_RECORDS;

/// Bytes in front of each value: its key and its length.
pub(super) const RECORD_HEADER: u64 = 16;

/// One record of a task's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    pub key: u64,
    /// Offset of the value in the stream.
    pub offset: u64,
    /// Bytes of the value.
    pub length: u64,
}

/// The records of a task, in the order of writing. Ends after the first damaged record.
#[derive(Debug)]
pub struct Records<'a> {
    input: BufReader<TaskStream<'a>>,
    order: ByteOrder,
    task: usize,
    next: u64,
    offset: u64,
    length: u64,
    ended: bool,
}

impl Container {
    /// The records of a task.
    ///
    /// # Errors
    /// When there is no such task, or the container holds plain streams.
    pub fn records(&self, task: usize) -> Result<Records<'_>, SionError> {
        let order = match self.header() {
            Some(header) if header.key_value == KeyValue::Inline => header.byte_order,
            _ => return Err(SionError::NotKeyValue { path: self.path.to_owned() }),
        };
        let stream = self.stream(task)?;
        let length = stream.length;
        // A small buffer: only headers are read, values are skipped.
        let input = BufReader::with_capacity(4096, stream);
        Ok(Records { input, order, task, next: 0, offset: 0, length, ended: false })
    }

    /// The keys of a task with the places of their values, in the order of their first occurrence.
    ///
    /// # Errors
    /// When there is no such task, it has no records, a record is damaged, or there are too many records.
    pub fn keys(&self, task: usize) -> Result<Vec<KeyedValue>, SionError> {
        match self.keys_until_damage(task)? {
            (values, None) => Ok(values),
            (_, Some(fault)) => Err(SionError::Damaged { path: self.located(task)?.0.path.to_owned(), fault }),
        }
    }

    /// [`Container::keys`] up to the first damaged record, and its damage.
    pub(super) fn keys_until_damage(&self, task: usize) -> Result<(Vec<KeyedValue>, Option<Fault>), SionError> {
        let mut values: Vec<KeyedValue> = Vec::new();
        let mut known: HashMap<u64, usize> = HashMap::new();
        for record in self.records(task)? {
            let record = match record {
                Ok(record) => record,
                Err(SionError::Damaged { fault, .. }) if !fault.is_limit() => return Ok((values, Some(fault))),
                Err(error) => return Err(error),
            };
            let index = *known.entry(record.key).or_insert(values.len());
            if index == values.len() {
                values.push(KeyedValue { key: record.key, records: 0, bytes: 0, pieces: Vec::new() });
            }
            if let Some(value) = values.get_mut(index) {
                value.records += 1;
                // Cannot saturate: all records are parts of one stream, whose length is a valid file size.
                value.bytes = value.bytes.saturating_add(record.length);
                if record.length > 0 {
                    value.pieces.push((record.offset, record.length));
                }
            }
        }
        Ok((values, None))
    }
}

/// The value of one key in a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedValue {
    pub key: u64,
    /// Number of records, including those of length zero.
    pub records: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Offset and length in the task's stream of every record that is not empty.
    pieces: Vec<(u64, u64)>,
}

impl KeyedValue {
    /// Reads the value: the concatenation of its records.
    pub fn reader<'a>(&'a self, stream: TaskStream<'a>) -> impl Read + 'a {
        KeyedReader { stream, pieces: self.pieces.iter(), left: 0 }
    }
}

struct KeyedReader<'a> {
    stream: TaskStream<'a>,
    pieces: std::slice::Iter<'a, (u64, u64)>,
    left: u64,
}

impl Read for KeyedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let Some((offset, length)) = self.pieces.next() else { return Ok(0) };
            self.stream.seek(io::SeekFrom::Start(*offset))?;
            self.left = *length;
        }
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.stream.read(buffer.get_mut(..want).unwrap_or(&mut []))?;
        if read == 0 && want > 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

impl Records<'_> {
    fn damaged(&self, fault: Fault) -> SionError {
        SionError::Damaged { path: self.input.get_ref().path().to_owned(), fault }
    }

    fn next_record(&mut self) -> Result<Record, SionError> {
        let left = self.length.saturating_sub(self.offset);
        let (task, record) = (self.task, self.next);
        // A long hole of the file reads as a very long series of zero headers.
        if record >= MOST_RECORDS {
            let what = "records in a task";
            return Err(self.damaged(Fault::TooMany { what, count: record.saturating_add(1), limit: MOST_RECORDS }));
        }
        if left < RECORD_HEADER {
            return Err(self.damaged(Fault::RecordHeader { task, record, left }));
        }
        let mut header = [[0_u8; 8]; 2];
        let read = self.input.read_exact(header.as_flattened_mut());
        read.map_err(SionError::io("read", self.input.get_ref().path()))?;
        let [key, length] = header.map(|bytes| self.order.u64(bytes));
        let (offset, left) = (self.offset + RECORD_HEADER, left - RECORD_HEADER);
        if length > left {
            return Err(self.damaged(Fault::Record { task, record, length, left }));
        }
        // Fits: `length` is at most the rest of a stream whose length is a valid file size.
        let skip = i64::try_from(length).unwrap_or(i64::MAX);
        let skipped = self.input.seek_relative(skip);
        skipped.map_err(SionError::io("read", self.input.get_ref().path()))?;
        self.offset = offset + length;
        self.next += 1;
        Ok(Record { key, offset, length })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, SionError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended || self.offset >= self.length {
            return None;
        }
        let record = self.next_record();
        self.ended = record.is_err();
        Some(record)
    }
}
