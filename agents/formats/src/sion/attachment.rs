//! A physical file under its temporary name, open for writing streams.

use std::io;
use std::path::Path;
use std::sync::Arc;

use holdfast_core::store::StagedWriter;

use super::byte_order::ByteOrder;
use super::error::SionError;
use super::header::KeyValue;
use super::layout::Layout;
use super::planned_file::PlannedFile;

/// A physical file under its temporary name, open for writing streams. Clones share the file.
#[derive(Debug, Clone)]
pub(super) struct Attachment {
    file: Arc<dyn StagedWriter>,
    pub(super) path: Arc<Path>,
    pub(super) layout: Arc<Layout>,
    pub(super) byte_order: ByteOrder,
    pub(super) key_value: KeyValue,
}

impl Attachment {
    pub(super) fn new(file: Box<dyn StagedWriter>, path: &Path, part: &PlannedFile) -> Attachment {
        Attachment {
            file: Arc::from(file),
            path: Arc::from(path),
            layout: Arc::new(part.layout.clone()),
            byte_order: part.header.byte_order,
            key_value: part.header.key_value,
        }
    }

    pub(super) fn synchronise(&self) -> Result<(), SionError> {
        self.file.sync().map_err(SionError::io("synchronise", &self.path))
    }

    /// Writes at an offset of the file.
    pub(super) fn write_to_file(&self, position: u64, bytes: &[u8]) -> Result<(), SionError> {
        self.file.write_at(bytes, position).map_err(SionError::io("write", &self.path))
    }

    pub(super) fn put(&self, local: usize, chunk: u64, inside: u64, bytes: &[u8]) -> io::Result<()> {
        let position = self.layout.chunk_position(local, chunk).and_then(|at| at.checked_add(inside));
        self.file.write_at(bytes, position.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?)
    }
}
