//! One open and checked physical file of a container.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use holdfast_core::store::posix::dataset::RegularFile;
use holdfast_core::store::{OpenDataset, StoredFile};

use super::anomaly::{Anomaly, Warning};
use super::error::{Result, SionError};
use super::fault::Fault;
use super::header::Header;
use super::layout::Layout;
use super::limits::MOST_TASKS;
use super::reading::{FileAt, open_regular};
use super::tables::{ChunkTable, Mapping, StoredTable, table_bytes};

/// One physical file of a container. Several threads can share it.
#[derive(Debug)]
pub struct PhysicalFile {
    pub path: PathBuf,
    file: Box<dyn StoredFile>,
    /// The file's length in bytes.
    pub length: u64,
    pub header: Header,
    /// The offsets of the chunks.
    pub layout: Layout,
    /// The byte counts of the chunks.
    pub table: ChunkTable,
    mapping: Mapping,
    /// The anomalies of the file.
    pub warnings: Vec<Warning>,
}

/// A physical file of which only the head was read.
pub(super) struct OpenedHead<F = RegularFile> {
    pub path: PathBuf,
    pub file: F,
    pub length: u64,
    pub header: Header,
    pub layout: Layout,
    pub anomalies: Vec<Anomaly>,
}

impl OpenedHead {
    pub(super) fn open(path: &Path) -> Result<OpenedHead> {
        OpenedHead::of(open_regular(path)?, path)
    }
}

impl<F: StoredFile + 'static> OpenedHead<F> {
    fn of(file: F, path: &Path) -> Result<OpenedHead<F>> {
        let length = file.length();
        let (header, anomalies) = Header::read(&file, path, length)?;
        let layout = header.layout().ok_or(Fault::Overflow).map_err(SionError::damaged(path))?;
        Ok(OpenedHead { path: path.to_owned(), file, length, header, layout, anomalies })
    }

    /// Reads the rest: byte counts and mapping.
    pub(super) fn read_tail(mut self) -> Result<PhysicalFile> {
        let closed = self.header.closed.ok_or_else(|| SionError::NeverClosed { path: self.path.clone() })?;
        let damaged = |fault| SionError::Damaged { path: self.path.clone(), fault };
        let blocks = u64::try_from(closed.blocks).ok().filter(|blocks| *blocks > 0).ok_or_else(|| {
            let (field, expected) = ("the number of blocks", "at least 1");
            damaged(Fault::Field { field, value: closed.blocks.into(), expected })
        })?;
        let expected = self.layout.tail(blocks).ok_or_else(|| damaged(Fault::Overflow))?;
        if u64::try_from(closed.tail) != Ok(expected) {
            return Err(damaged(Fault::TailPosition { stored: closed.tail, expected }));
        }
        let mut anomalies = std::mem::take(&mut self.anomalies);
        let (table, end) = self.table_at(expected, blocks, &mut anomalies)?;
        let mapping = self.mapping_at(end, &mut anomalies)?;
        Ok(self.into_physical_file(table, mapping, anomalies))
    }

    /// Reads byte counts at an offset. Also returns the offset of their end.
    pub(super) fn table_at(&self, tail: u64, blocks: u64, anomalies: &mut Vec<Anomaly>) -> Result<(ChunkTable, u64)> {
        let path = self.path.as_path();
        let damaged = |fault| SionError::Damaged { path: path.to_owned(), fault };
        let bytes = table_bytes(self.layout.tasks() as u64, blocks).map_err(damaged)?;
        let end = tail.checked_add(bytes).ok_or_else(|| damaged(Fault::Overflow))?;
        if end > self.length {
            let what = "its table of byte counts";
            return Err(damaged(Fault::Truncated { what, needs: end, length: self.length }));
        }
        let (file, order, layout) = (&self.file, self.header.byte_order, &self.layout);
        let table = StoredTable { file, path, order, layout, position: tail, blocks }.read(anomalies)?;
        Ok((table, end))
    }

    /// Reads the mapping after the byte counts.
    pub(super) fn mapping_at(&self, at: u64, anomalies: &mut Vec<Anomaly>) -> Result<Mapping> {
        let mut input = BufReader::with_capacity(1 << 16, FileAt { file: &self.file, position: at });
        let header = &self.header;
        let path = self.path.as_path();
        let damaged = |fault| SionError::Damaged { path: path.to_owned(), fault };
        let left = self.length.saturating_sub(at);
        let needed = header.files > 1 && header.file_number == Some(0);
        // Format 2 does not store the file number.
        let possible = header.files == 1 || header.file_number.is_none_or(|number| number == 0);
        let truncated = |needs| damaged(Fault::Truncated { what: "its mapping", needs, length: self.length });
        if left < 4 || !possible {
            if needed {
                return Err(truncated(at.saturating_add(4)));
            }
            if left > 0 {
                anomalies.push(Anomaly::TrailingBytes { bytes: left });
            }
            return Ok(None);
        }
        let mut take = || -> Result<[u8; 4]> {
            let mut bytes = [0; 4];
            input.read_exact(&mut bytes).map_err(SionError::io("read the mapping of", path))?;
            Ok(bytes)
        };
        let stored = header.byte_order.i32(take()?);
        let fits = u64::try_from(stored).ok().filter(|size| size * 8 <= left - 4);
        let size = match fits {
            Some(size) => size,
            None if needed => match u64::try_from(stored) {
                Ok(size) => return Err(truncated(at.saturating_add(4).saturating_add(size * 8))),
                Err(_) => {
                    let expected = "one entry a task";
                    return Err(damaged(Fault::Field {
                        field: "the size of the mapping",
                        value: stored.into(),
                        expected,
                    }));
                }
            },
            // A single file needs no mapping: these bytes are something else.
            None => {
                anomalies.push(Anomaly::TrailingBytes { bytes: left });
                return Ok(None);
            }
        };
        // The mapping of a single file has one entry per task, or none; other bytes are not a mapping.
        if header.files == 1 && size != 0 && size != self.layout.tasks() as u64 {
            anomalies.push(Anomaly::TrailingBytes { bytes: left });
            return Ok(None);
        }
        if size > MOST_TASKS {
            return Err(damaged(Fault::TooMany { what: "mapped ranks", count: size, limit: MOST_TASKS }));
        }
        let mut entries = Vec::new();
        for rank in 0..size {
            let entry = (header.byte_order.i32(take()?), header.byte_order.i32(take()?));
            // Found here, because a long hole of the file reads as a very long mapping of equal entries.
            if entries.last() == Some(&entry) {
                return Err(damaged(Fault::MappingTwice { rank, file: entry.0, task: entry.1 }));
            }
            entries.push(entry);
        }
        if left > 4 + size * 8 {
            anomalies.push(Anomaly::TrailingBytes { bytes: left - 4 - size * 8 });
        }
        Ok(Some(entries))
    }

    pub(super) fn into_physical_file(
        self,
        table: ChunkTable,
        mapping: Mapping,
        anomalies: Vec<Anomaly>,
    ) -> PhysicalFile {
        let OpenedHead { path, file, length, header, layout, .. } = self;
        let warnings = anomalies.into_iter().map(|anomaly| Warning { path: path.clone(), anomaly }).collect();
        PhysicalFile { path, file: Box::new(file), length, header, layout, table, mapping, warnings }
    }
}

impl PhysicalFile {
    /// Opens and checks one physical file, independent of its set.
    ///
    /// # Errors
    /// When it cannot be read, is not a container, was never closed, or is damaged.
    pub fn open(path: &Path) -> Result<PhysicalFile> {
        OpenedHead::open(path)?.read_tail()
    }

    /// As [`PhysicalFile::open`], and checks that it is the file with this number in a set of this many.
    ///
    /// # Errors
    /// As for [`PhysicalFile::open`], and when it is not.
    pub fn open_of_set(path: &Path, number: u32, files: u32) -> Result<PhysicalFile> {
        let part = PhysicalFile::open(path)?;
        if part.header.belongs(number, files) {
            return Ok(part);
        }
        let (field, value, expected) = if part.header.files == files {
            ("file number", part.header.file_number.unwrap_or(0).into(), number.into())
        } else {
            ("number of files", part.header.files.into(), files.into())
        };
        Err(SionError::damaged(path)(Fault::PartDiffers { field, value, expected }))
    }

    /// As [`PhysicalFile::open`], of a file of a dataset.
    pub(super) fn open_in(dataset: &dyn OpenDataset, name: &str) -> Result<PhysicalFile> {
        let path = dataset.path_of(name);
        let file = dataset.open(name, None).map_err(SionError::io("open", &path))?;
        OpenedHead::of(file, &path)?.read_tail()
    }

    /// The mapping, which follows the byte counts.
    pub fn mapping(&self) -> Option<&[(i32, i32)]> {
        self.mapping.as_deref()
    }

    /// Reads at an offset of a task's stream until the buffer is full or the stream ends; returns 0 at the end.
    pub(super) fn read_at(&self, task: usize, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let Some(place) = offset.checked_add(done as u64).and_then(|at| self.table.place(task, at)) else { break };
            let want = rest.len().min(usize::try_from(place.left).unwrap_or(usize::MAX));
            let position = self.layout.chunk_position(task, place.chunk).and_then(|at| at.checked_add(place.inside));
            let (Some(position), Some(target)) = (position, rest.get_mut(..want)) else { break };
            self.file.read_exact_at(target, position)?;
            done += want;
        }
        Ok(done)
    }
}
