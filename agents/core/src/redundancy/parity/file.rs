//! A redundancy file on disk: header and chunks.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use super::ParityScheme;
use super::header::ParityHeader;
use crate::kvtree::limits::Limits;
use crate::kvtree::{Tree, file};
use crate::redundancy::{RedundancyError, Result, inside};
use crate::store::{DatasetFiles, StoredFile};

/// A redundancy file that was opened and checked: the header is valid, and exactly its chunks follow it.
#[derive(Debug)]
pub struct ParityFile {
    pub path: PathBuf,
    /// The header with the file's order of elements.
    pub tree: Tree,
    pub header: ParityHeader,
    header_bytes: u64,
    data: Box<dyn StoredFile>,
}

impl ParityFile {
    pub fn open(scheme: &'static ParityScheme, directory: &Path, name: &str) -> Result<ParityFile> {
        ParityFile::open_in(scheme, &*inside::open_directory(directory)?, name)
    }

    /// As [`ParityFile::open`], of the files of a dataset.
    pub fn open_in(scheme: &'static ParityScheme, files: &dyn DatasetFiles, name: &str) -> Result<ParityFile> {
        let path = files.path_of(name);
        let data = inside::open(files, name, None)?;
        let (tree, header_bytes) = file::decode_prefix(&mut BufReader::new(data.reader()), Limits::of(&path))
            .map_err(|error| RedundancyError::Header { origin: path.display().to_string(), why: error.to_string() })?;
        let header = ParityHeader::from_tree(scheme, &tree, &path.display().to_string())?;
        let (found, bytes) = (data.length(), header.data_bytes());
        if header_bytes.checked_add(bytes) != Some(found) {
            return Err(RedundancyError::Header {
                origin: path.display().to_string(),
                why: format!("the file has {found} bytes, not {header_bytes} of header and {bytes} of data"),
            });
        }
        Ok(ParityFile { path, tree, header, header_bytes, data })
    }

    /// Bytes of header and data.
    pub fn total_bytes(&self) -> u64 {
        self.header_bytes + self.header.data_bytes()
    }

    /// Reads redundancy data at this offset behind the header; the entire buffer is filled.
    pub fn read_data(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let at = self.header_bytes + offset;
        self.data.read_exact_at(buffer, at).map_err(RedundancyError::io("read", &self.path))
    }

    /// The bytes of the header, for the checksum of the complete file.
    pub fn read_header(&self) -> Result<Vec<u8>> {
        // The header was decoded from memory of this size before.
        let mut bytes = vec![0; usize::try_from(self.header_bytes).unwrap_or(0)];
        self.data.read_exact_at(&mut bytes, 0).map_err(RedundancyError::io("read", &self.path))?;
        Ok(bytes)
    }
}
