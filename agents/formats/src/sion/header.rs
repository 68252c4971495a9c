//! The head of a physical file (META1): format versions 2 to 5 are read, version 5 is written.

use std::io::{BufReader, Read};
use std::path::Path;

use holdfast_core::store::StoredFile;

use super::anomaly::Anomaly;
use super::byte_order::{self, ByteOrder, Fields};
use super::error::SionError;
use super::fault::Fault;
use super::layout::{HEAD_BYTES, Layout, align, head_end};
use super::limits::{MOST_EQUAL_RANKS, MOST_TASKS, PREFIX_BYTES};
use super::reading::{FileAt, read_exactly};

/// The first four bytes of every container.
pub const MAGIC: [u8; 4] = *b"sion";

/// Bytes of the file number and the flags, which format 2 does not have.
const FIELDS_MISSING_IN_FORMAT_2: u64 = 20;
const NEWEST_FORMAT: i32 = 5;
const OLDEST_FORMAT: i32 = 2;

/// Whether the streams are key-value records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyValue {
    /// Plain streams.
    #[default]
    None,
    /// Records of key, length and value.
    Inline,
}

impl KeyValue {
    /// The number in the upper half of `flag1`.
    pub fn code(self) -> i32 {
        match self {
            KeyValue::None => 50,
            KeyValue::Inline => 51,
        }
    }
}

/// The fields of the head that are written when the file is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// Number of blocks (`maxusedchunks`), as stored.
    pub blocks: i32,
    /// Offset of the byte counts (`start_of_varheader`), as stored.
    pub tail: i64,
}

/// The head of a physical file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Byte order of the metadata.
    pub byte_order: ByteOrder,
    /// Declared byte order of the user's data.
    pub user_order: ByteOrder,
    /// 1000 times the library's major version plus the minor.
    pub version: i32,
    /// The library's patch level.
    pub patch_level: i32,
    /// Version of the file format.
    pub format: i32,
    /// Alignment of chunks in bytes (`fsblksize`).
    pub block_size: u32,
    /// Number of files of the set.
    pub files: u32,
    /// Number of this file; format 2 has none. Serial writers store 1.
    pub file_number: Option<i32>,
    /// `flag1` as stored; the upper half is the key-value mode.
    pub flag1: i64,
    /// `flag2` as stored.
    pub flag2: i64,
    /// Whether the streams are key-value records.
    pub key_value: KeyValue,
    /// The name given to the writer, without trailing zeros.
    pub prefix: Vec<u8>,
    /// The global rank of each task of this file.
    pub global_ranks: Vec<i64>,
    /// The chunk sizes as stored: without padding in formats 2 and 3, with padding in later formats.
    pub stored_chunk_sizes: Vec<u64>,
    /// The closing fields; `None` in a file that was never closed.
    pub closed: Option<Closed>,
}

impl Header {
    /// Reads and checks the head. Returns its anomalies too.
    pub(super) fn read(file: &dyn StoredFile, path: &Path, length: u64) -> Result<(Header, Vec<Anomaly>), SionError> {
        let damaged = |fault| SionError::Damaged { path: path.to_owned(), fault };
        let truncated = |needs| damaged(Fault::Truncated { what: "its head", needs, length });
        let mut start = [0_u8; 4];
        if length < 4 {
            return Err(SionError::NotSion { path: path.to_owned() });
        }
        read_exactly(file, path, 0, &mut start)?;
        if start != MAGIC {
            return Err(SionError::NotSion { path: path.to_owned() });
        }
        // The fixed part may be truncated: each field below checks that it is present.
        let fixed_end = 52 + PREFIX_BYTES as u64;
        let mut fixed = vec![0_u8; usize::try_from(length.min(fixed_end) - 4).unwrap_or(0)];
        read_exactly(file, path, 4, &mut fixed)?;
        let short = || truncated(fixed_end);

        let field: [u8; 4] = Fields::new(&fixed, ByteOrder::Little).take().ok_or_else(short)?;
        let (byte_order, user_order) = byte_order::from_field(field);
        let mut anomalies = Vec::new();
        if field != byte_order::to_field(byte_order, user_order) {
            anomalies.push(Anomaly::ByteOrderField { field });
        }
        let mut fields = Fields::new(fixed.get(4..).unwrap_or(&[]), byte_order);
        let mut next = || fields.i32().ok_or_else(short);
        let (version, patch_level, format) = (next()?, next()?, next()?);
        if format < OLDEST_FORMAT {
            let expected = "2 to 5";
            return Err(damaged(Fault::Field { field: "the file format version", value: format.into(), expected }));
        }
        if format > NEWEST_FORMAT {
            anomalies.push(Anomaly::NewerFormat(format));
        }
        let (block_size, tasks, files) = (next()?, next()?, next()?);
        let field = |field, value: i32, expected| damaged(Fault::Field { field, value: value.into(), expected });
        let at_least_one = |name, value: i32| match u32::try_from(value) {
            Ok(value) if value > 0 => Ok(value),
            _ => Err(field(name, value, "at least 1")),
        };
        let block_size = at_least_one("the file system block size", block_size)?;
        let tasks = at_least_one("the number of tasks", tasks)?;
        let files = at_least_one("the number of files", files)?;

        let (mut file_number, mut flag1, mut flag2, mut shift) = (None, 0, 0, FIELDS_MISSING_IN_FORMAT_2);
        if format > 2 {
            let number = fields.i32().ok_or_else(short)?;
            // Parallel writers count files from 0; the serial writer stores 1.
            let largest = if files == 1 { 1 } else { i64::from(files) - 1 };
            if i64::from(number) < 0 || i64::from(number) > largest {
                return Err(field("the file number", number, "one of the set's"));
            }
            file_number = Some(number);
            flag1 = fields.i64().ok_or_else(short)?;
            flag2 = fields.i64().ok_or_else(short)?;
            shift = 0;
        }
        let key_value = match (format, flag1 >> 32) {
            (2..=4, _) | (_, 50) => KeyValue::None,
            (_, 51) => KeyValue::Inline,
            (_, 0) => {
                anomalies.push(Anomaly::NoKeyValueMode);
                KeyValue::None
            }
            (_, value) => {
                let expected = "50 (none) or 51 (inline)";
                return Err(damaged(Fault::Field { field: "the key-value mode", value, expected }));
            }
        };
        let prefix: [u8; PREFIX_BYTES] = fields.take().ok_or_else(short)?;
        let prefix = match prefix.iter().position(|byte| *byte == 0) {
            Some(end) => prefix.iter().take(end).copied().collect(),
            None => {
                anomalies.push(Anomaly::PrefixUnterminated);
                prefix.to_vec()
            }
        };

        let count = u64::from(tasks);
        if count > MOST_TASKS {
            return Err(damaged(Fault::TooMany { what: "tasks", count, limit: MOST_TASKS }));
        }
        let tables_at = fixed_end - shift;
        // `count` is limited above, so that the sum cannot overflow and the allocation is bounded.
        let tables_end = tables_at + 16 * count;
        if tables_end > length {
            return Err(damaged(Fault::Truncated { what: "its table of chunk sizes", needs: tables_end, length }));
        }
        let mut input = BufReader::with_capacity(1 << 16, FileAt { file, position: tables_at });
        let mut value = || -> Result<i64, SionError> {
            let mut bytes = [0; 8];
            input.read_exact(&mut bytes).map_err(SionError::io("read the head of", path))?;
            Ok(byte_order.i64(bytes))
        };
        let tasks = usize::try_from(tasks).unwrap_or(0);
        let (mut global_ranks, mut equal) = (Vec::new(), 0);
        for task in 0..tasks {
            let rank = value()?;
            equal = if global_ranks.last() == Some(&rank) { equal + 1 } else { 0 };
            if equal > MOST_EQUAL_RANKS {
                return Err(damaged(Fault::EqualRanks { rank, first: task - equal, tasks: equal + 1 }));
            }
            global_ranks.push(rank);
        }
        let mut stored_chunk_sizes = Vec::with_capacity(tasks);
        for task in 0..tasks {
            let size = value()?;
            let checked = u64::try_from(size).map_err(|_| damaged(Fault::ChunkSize { task, size }))?;
            stored_chunk_sizes.push(checked);
        }

        let closed = if tables_end + 12 <= length {
            let mut last = [0_u8; 12];
            read_exactly(file, path, tables_end, &mut last)?;
            let mut last = Fields::new(&last, byte_order);
            let (blocks, tail) = (last.i32().unwrap_or(0), last.i64().unwrap_or(0));
            match (blocks, tail) {
                (0, 0) => None,
                _ => Some(Closed { blocks, tail }),
            }
        } else {
            None
        };
        let header = Header {
            byte_order,
            user_order,
            version,
            patch_level,
            format,
            block_size,
            files,
            file_number,
            flag1,
            flag2,
            key_value,
            prefix,
            global_ranks,
            stored_chunk_sizes,
            closed,
        };
        Ok((header, anomalies))
    }

    /// True for the head of the file with this number in a set of this many files.
    pub(super) fn belongs(&self, number: u32, files: u32) -> bool {
        // The only file of a serial writer, as of siondefrag, has the number 1.
        let is_of = |its: i32| i64::from(its) == i64::from(number) || (files == 1 && number == 0 && its == 1);
        self.files == files && self.file_number.is_none_or(is_of)
    }

    /// Number of tasks in this file.
    pub fn tasks(&self) -> usize {
        self.global_ranks.len()
    }

    /// The offsets of the chunks; `None` if they exceed the largest file size.
    pub(super) fn layout(&self) -> Option<Layout> {
        let unit = u64::from(self.block_size);
        // Formats 2 and 3 store sizes without padding.
        let sizes =
            self.stored_chunk_sizes.iter().map(|size| if self.format <= 3 { align(*size, unit) } else { Some(*size) });
        Layout::new(self.block_size, sizes.collect::<Option<_>>()?)
    }

    /// Encodes the head in format 5.
    pub(super) fn encode(&self) -> Vec<u8> {
        let order = self.byte_order;
        let capacity = head_end(self.tasks() as u64).unwrap_or(HEAD_BYTES);
        let mut out = Vec::with_capacity(usize::try_from(capacity).unwrap_or(0));
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&byte_order::to_field(order, self.user_order));
        order.put_i32(&mut out, self.version);
        order.put_i32(&mut out, self.patch_level);
        order.put_i32(&mut out, self.format);
        order.put_i32(&mut out, self.block_size.cast_signed());
        order.put_i32(&mut out, i32::try_from(self.tasks()).unwrap_or(i32::MAX));
        order.put_i32(&mut out, self.files.cast_signed());
        order.put_i32(&mut out, self.file_number.unwrap_or(0));
        order.put_i64(&mut out, self.flag1);
        order.put_i64(&mut out, self.flag2);
        let mut prefix = self.prefix.clone();
        prefix.resize(PREFIX_BYTES, 0);
        out.extend_from_slice(&prefix);
        for rank in &self.global_ranks {
            order.put_i64(&mut out, *rank);
        }
        for size in &self.stored_chunk_sizes {
            order.put_i64(&mut out, size.cast_signed());
        }
        out
    }

    /// Encodes the last two fields of the head, which are written when the file is closed.
    pub(super) fn encode_closing(&self, blocks: u32, tail: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(12);
        self.byte_order.put_i32(&mut out, blocks.cast_signed());
        self.byte_order.put_i64(&mut out, tail.cast_signed());
        out
    }
}
