//! One task's stream without the tables of its file: what one process of a parallel program reads.
//!
//! One process reads the tables of a physical file, and gives each other process the [`TaskView`] of its task; thus a
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
    /// The container that has the stream of this task alone, as its task 0.
    ///
    /// # Errors
    /// When the file cannot be opened, or the view is impossible.
    pub fn of_task(path: &Path, view: &TaskView) -> Result<Container, SionError> {
        let file = open_regular(path)?;
        let length = file.length();
        let header = Header {
            byte_order: view.byte_order,
            user_order: view.user_order,
            version: 0,
            patch_level: 0,
            format: 5,
            block_size: view.block_size,
            files: view.files,
            file_number: Some(view.number),
            flag1: i64::from(view.key_value.code()) << 32,
            flag2: 0,
            key_value: view.key_value,
            prefix: Vec::new(),
            global_ranks: vec![view.global_rank],
            stored_chunk_sizes: vec![view.chunk_size],
            closed: None,
        };
        let layout = Layout::of_task(view.start, view.chunk_size, view.block_skip);
        let table = ChunkTable::of_task(&view.chunk_bytes.iter().copied().collect::<Usage>());
        let table = table.ok_or(Fault::Overflow).map_err(SionError::damaged(path))?;
        let head = OpenedHead { path: path.to_owned(), file, length, header, layout, anomalies: Vec::new() };
        let part = head.into_physical_file(table, None, Vec::new());
        Ok(Container::with_order(path, vec![part], vec![Slot { part: 0, local: 0 }]))
    }
}
