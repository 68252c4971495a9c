//! A physical file under its temporary name, open for writing streams.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::byte_order::ByteOrder;
use super::error::SionError;
use super::header::KeyValue;
use super::input_mismatch::InputMismatch;
use super::layout::Layout;
use super::plan::PlannedFile;

/// A physical file under its temporary name, open for writing streams. Clones share the file.
#[derive(Debug, Clone)]
pub struct Attachment {
    file: Arc<File>,
    path: Arc<Path>,
    layout: Arc<Layout>,
    byte_order: ByteOrder,
    key_value: KeyValue,
}

impl Attachment {
    /// Opens a file that another process created under this temporary name, for writing streams of the same plan.
    ///
    /// # Errors
    /// When it does not exist, or is not the file that the plan describes.
    pub fn open(temporary: &Path, part: &PlannedFile) -> Result<Attachment, SionError> {
        let file =
            OpenOptions::new().read(true).write(true).open(temporary).map_err(SionError::io("open", temporary))?;
        let expected = part.header.encode();
        let mut head = vec![0; expected.len()];
        file.read_exact_at(&mut head, 0).map_err(SionError::io("read the head of", temporary))?;
        if head != expected {
            return Err(SionError::Input { path: temporary.to_owned(), mismatch: InputMismatch::OtherPlan });
        }
        Ok(Attachment::to_file(file, temporary, part))
    }

    pub(super) fn to_file(file: File, path: &Path, part: &PlannedFile) -> Attachment {
        Attachment {
            file: Arc::new(file),
            path: Arc::from(path),
            layout: Arc::new(part.layout.clone()),
            byte_order: part.header.byte_order,
            key_value: part.header.key_value,
        }
    }

    /// Writes at an offset of a task's stream. All chunks but the last must be filled to their end; several threads may
    /// write one stream. Its usage is then [`filled`](super::usage::Usage::filled).
    ///
    /// # Errors
    /// When the file has no such task, its chunks have no bytes, or writing fails.
    pub fn write_at(&self, local: usize, offset: u64, bytes: &[u8]) -> Result<(), SionError> {
        let mut rest = bytes;
        let mut at = offset;
        let size = self.layout.chunk_size(local);
        while !rest.is_empty() {
            let (Some(chunk), Some(inside)) = (at.checked_div(size), at.checked_rem(size)) else {
                return Err(self.no_room(local));
            };
            let room = usize::try_from(size - inside).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at(room);
            self.put(local, chunk, inside, now).map_err(SionError::io("write", &self.path))?;
            at = at.checked_add(now.len() as u64).ok_or_else(|| self.no_room(local))?;
            rest = later;
        }
        Ok(())
    }

    /// Synchronises the written data to disk. A process that is not the creator must do this before it reports its
    /// usage.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn synchronise(&self) -> Result<(), SionError> {
        self.file.sync_all().map_err(SionError::io("synchronise", &self.path))
    }

    /// Writes at an offset of the file.
    pub(super) fn write_to_file(&self, position: u64, bytes: &[u8]) -> Result<(), SionError> {
        self.file.write_all_at(bytes, position).map_err(SionError::io("write", &self.path))
    }

    /// True if both write to the same physical file.
    pub(super) fn is_same_file(&self, other: &Attachment) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }

    fn no_room(&self, local: usize) -> SionError {
        SionError::Input { path: self.path.to_path_buf(), mismatch: InputMismatch::NoRoom { task: local } }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn byte_order(&self) -> ByteOrder {
        self.byte_order
    }

    pub(super) fn key_value(&self) -> KeyValue {
        self.key_value
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn put(&self, local: usize, chunk: u64, inside: u64, bytes: &[u8]) -> io::Result<()> {
        let position = self.layout.chunk_position(local, chunk).and_then(|at| at.checked_add(inside));
        self.file.write_all_at(bytes, position.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?)
    }
}
