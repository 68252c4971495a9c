//! Streams without the tables of their file: what one process of a parallel program reads.
//!
//! One process reads the tables of a physical file, and gives each other process the [`TaskView`] of its tasks; thus a
//! program of n processes does not read n tables of n entries.

use std::path::Path;

use holdfast_core::store::StoredFile as _;

use super::byte_order::ByteOrder;
use super::container::Container;
use super::error::SionError;
use super::fault::Fault;
use super::header::{Header, KeyValue};
use super::layout::Layout;
use super::physical_file::{OpenedHead, PhysicalFile};
use super::reading::open_regular;
use super::slot::Slot;
use super::tables::ChunkTable;
use super::usage::Usage;

/// What is needed to read one task's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskView {
    /// The number of files of the set.
    pub files: u32,
    /// The number of the physical file, as stored.
    pub number: i32,
    /// Alignment of chunks in bytes.
    pub block_size: u32,
    pub key_value: KeyValue,
    pub byte_order: ByteOrder,
    /// Declared byte order of the user's data.
    pub user_order: ByteOrder,
    pub global_rank: i64,
    /// The offset of the first chunk.
    pub start: u64,
    pub chunk_size: u64,
    /// Bytes between two chunks.
    pub block_skip: u64,
    /// The bytes used in each chunk.
    pub chunk_bytes: Vec<u64>,
}

impl PhysicalFile {
    /// The view of a task of this file.
    pub fn view(&self, local: usize) -> TaskView {
        let header = &self.header;
        TaskView {
            files: header.files,
            number: header.file_number.unwrap_or(0),
            block_size: header.block_size,
            key_value: header.key_value,
            byte_order: header.byte_order,
            user_order: header.user_order,
            global_rank: header.global_ranks.get(local).copied().unwrap_or(0),
            start: self.layout.chunk_position(local, 0).unwrap_or(0),
            chunk_size: self.layout.chunk_size(local),
            block_skip: self.layout.block_skip,
            chunk_bytes: self.table.chunk_bytes(local).collect(),
        }
    }
}

impl Container {
    /// The container that has the streams of these tasks of one physical file alone, as its tasks from 0.
    ///
    /// # Errors
    /// When the file cannot be opened, the views are impossible, or there is none.
    pub fn of_tasks(path: &Path, views: &[TaskView]) -> Result<Container, SionError> {
        let missing = || SionError::NoSuchTask { path: path.to_owned(), task: 0, tasks: 0 };
        let first = views.first().ok_or_else(missing)?;
        let file = open_regular(path)?;
        let length = file.length();
        let header = Header {
            byte_order: first.byte_order,
            user_order: first.user_order,
            version: 0,
            patch_level: 0,
            format: 5,
            block_size: first.block_size,
            files: first.files,
            file_number: Some(first.number),
            flag1: i64::from(first.key_value.code()) << 32,
            flag2: 0,
            key_value: first.key_value,
            prefix: Vec::new(),
            global_ranks: views.iter().map(|view| view.global_rank).collect(),
            stored_chunk_sizes: views.iter().map(|view| view.chunk_size).collect(),
            closed: None,
        };
        let layout = Layout::of_tasks(views.iter().map(|view| (view.start, view.chunk_size)), first.block_skip);
        let usages = views.iter().map(|view| view.chunk_bytes.iter().copied().collect::<Usage>());
        let table = ChunkTable::of_tasks(usages).ok_or(Fault::Overflow).map_err(SionError::damaged(path))?;
        let head = OpenedHead { path: path.to_owned(), file, length, header, layout, anomalies: Vec::new() };
        let part = head.into_physical_file(table, None, Vec::new());
        let slots = (0..views.len()).map(|local| Slot { part: 0, local }).collect();
        Ok(Container::with_order(path, vec![part], slots))
    }
}
