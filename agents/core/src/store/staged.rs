//! Files of a dataset that are being written: they have their names when they are complete.

use std::fmt::Debug;
use std::io::{self, Write};

use crate::durable::DurableError;

/// Which files that were never committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staged {
    /// Those whose writer was killed.
    Abandoned,
    /// All, because the dataset is removed.
    All,
}

/// Writes to a file that is not committed yet. Several threads can share it.
pub trait StagedWriter: Debug + Send + Sync {
    /// Writes all bytes at an offset.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Reads exactly what was written at an offset.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Makes what was written survive what the dataset's [durability](super::OpenDataset::durability) asks for.
    fn sync(&self) -> io::Result<()>;
}

/// A file that was created and is not committed yet. Dropped without that, it is removed.
pub trait StagedFile: StagedWriter {
    /// By this name other processes write to it until it is committed.
    fn id(&self) -> &str;

    /// Gives the file its name. Its content must be synchronised before, by all who wrote it.
    ///
    /// # Errors
    /// When it cannot get the name; the old file is then untouched.
    fn commit(self: Box<Self>) -> Result<(), DurableError>;

    /// Leaves the file [abandoned](super::OpenDataset::abandoned), so that what was written can be used. A store that
    /// cannot do that removes it.
    fn abandon(self: Box<Self>) {}

    /// As [`commit`](Self::commit), only if nothing has the name; returns whether the file got it. Otherwise it is
    /// removed.
    ///
    /// # Errors
    /// When it cannot get the name.
    fn commit_new(self: Box<Self>) -> Result<bool, DurableError>;
}

/// Writes a staged file from its beginning.
#[derive(Debug)]
pub struct StagedAppender<'a> {
    file: &'a dyn StagedFile,
    offset: u64,
}

impl<'a> StagedAppender<'a> {
    pub fn new(file: &'a dyn StagedFile) -> Self {
        StagedAppender { file, offset: 0 }
    }
}

impl Write for StagedAppender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, self.offset)?;
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
