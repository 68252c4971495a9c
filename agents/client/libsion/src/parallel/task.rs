//! What a process needs to know of its task: a structure that the program passes on from the first task of the file.

use std::ffi::{c_int, c_longlong};

use holdfast_formats::sion::{ByteOrder, KeyValue, Layout, PhysicalFile, PlannedFile, TaskView};

use crate::writing::Declared;

/// A task of a physical file, as `struct holdfast_sion_task` of `sion_mpi.h`. All zero: there is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// The offset of the first chunk.
    pub start: c_longlong,
    pub chunk_size: c_longlong,
    /// Bytes between two chunks.
    pub block_skip: c_longlong,
    pub global_rank: c_longlong,
    /// When reading: the length of the physical file in bytes.
    pub length: c_longlong,
    /// When reading: the number of chunks.
    pub chunks: c_longlong,
    pub valid: c_int,
    /// The index of the task in the file.
    pub local_rank: c_int,
    /// The number of files of the set.
    pub files: c_int,
    /// The number of the file, as stored.
    pub number: c_int,
    /// When reading: the alignment of chunks in bytes.
    pub block_size: c_int,
    /// 1 for key-value records.
    pub records: c_int,
    /// 1 for big-endian metadata.
    pub big_metadata: c_int,
    /// 1 for data that are declared as big-endian.
    pub big_data: c_int,
}

fn order(is_big: c_int) -> ByteOrder {
    if is_big == 0 { ByteOrder::Little } else { ByteOrder::Big }
}

impl Task {
    /// A task of a file to write. Its global rank, the index in the file, and what the file declares are the caller's.
    pub fn planned(file: &PlannedFile, local: usize, declared: Declared) -> Task {
        let layout = &file.layout;
        Task {
            start: layout.chunk_position(local, 0).unwrap_or(0).cast_signed(),
            chunk_size: layout.chunk_size(local).cast_signed(),
            block_skip: layout.block_skip.cast_signed(),
            valid: 1,
            local_rank: c_int::try_from(local).unwrap_or(c_int::MAX),
            files: declared.files.cast_signed(),
            number: declared.number,
            records: c_int::from(declared.key_value == KeyValue::Inline),
            big_metadata: c_int::from(ByteOrder::native() == ByteOrder::Big),
            big_data: c_int::from(declared.user_order == ByteOrder::Big),
            ..Task::default()
        }
    }

    /// A task of a file to read, without the bytes of its chunks.
    pub fn stored(file: &PhysicalFile, local: usize) -> Task {
        let header = &file.header;
        Task {
            start: file.layout.chunk_position(local, 0).unwrap_or(0).cast_signed(),
            chunk_size: file.layout.chunk_size(local).cast_signed(),
            block_skip: file.layout.block_skip.cast_signed(),
            global_rank: header.global_ranks.get(local).copied().unwrap_or(0),
            length: file.length.cast_signed(),
            chunks: file.table.chunks(local).cast_signed(),
            valid: 1,
            local_rank: c_int::try_from(local).unwrap_or(c_int::MAX),
            files: header.files.cast_signed(),
            number: header.file_number.unwrap_or(0),
            block_size: header.block_size.cast_signed(),
            records: c_int::from(header.key_value == KeyValue::Inline),
            big_metadata: c_int::from(header.byte_order == ByteOrder::Big),
            big_data: c_int::from(header.user_order == ByteOrder::Big),
        }
    }

    pub fn key_value(&self) -> KeyValue {
        if self.records == 0 { KeyValue::None } else { KeyValue::Inline }
    }

    /// The offsets of the chunks of tasks of one file.
    pub fn layout(tasks: &[Task]) -> Layout {
        let chunks = tasks.iter().map(|task| (task.start.cast_unsigned(), task.chunk_size.cast_unsigned()));
        Layout::of_tasks(chunks, tasks.first().map_or(0, |task| task.block_skip.cast_unsigned()))
    }

    /// The index of the task in its file.
    pub fn index(&self) -> usize {
        usize::try_from(self.local_rank).unwrap_or(0)
    }

    /// What the file declares.
    pub fn declared(&self) -> Declared {
        Declared {
            key_value: self.key_value(),
            user_order: order(self.big_data),
            files: self.files.cast_unsigned(),
            number: self.number,
        }
    }

    /// What is needed to read its stream, with these bytes in its chunks.
    pub fn view(&self, chunk_bytes: Vec<u64>) -> TaskView {
        TaskView {
            files: self.files.cast_unsigned(),
            number: self.number,
            block_size: self.block_size.cast_unsigned(),
            key_value: self.key_value(),
            byte_order: order(self.big_metadata),
            user_order: order(self.big_data),
            global_rank: self.global_rank,
            start: self.start.cast_unsigned(),
            chunk_size: self.chunk_size.cast_unsigned(),
            block_skip: self.block_skip.cast_unsigned(),
            chunk_bytes,
        }
    }
}
