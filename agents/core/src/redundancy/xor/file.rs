//! An XOR file on disk: header and chunk.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use super::header::XorHeader;
use crate::kvtree::limits::Limits;
use crate::kvtree::{Tree, file};
use crate::redundancy::{RedundancyError, inside};
use crate::store::{DatasetFiles, StoredFile};

/// An XOR file that was opened and checked: the header is valid, and exactly one chunk follows it.
#[derive(Debug)]
pub struct XorFile {
    pub path: PathBuf,
    /// The header with the file's order of elements.
    pub tree: Tree,
    pub header: XorHeader,
    header_bytes: u64,
    data: Box<dyn StoredFile>,
}

impl XorFile {
    pub fn open(directory: &Path, name: &str) -> Result<XorFile, RedundancyError> {
        XorFile::open_in(&*inside::open_directory(directory)?, name)
    }

    /// As [`XorFile::open`], of the files of a dataset.
    pub fn open_in(files: &dyn DatasetFiles, name: &str) -> Result<XorFile, RedundancyError> {
        let path = files.path_of(name);
        let data = inside::open(files, name, None)?;
        let (tree, header_bytes) = file::decode_prefix(&mut BufReader::new(data.reader()), Limits::of(&path))
            .map_err(|error| RedundancyError::Header { origin: path.display().to_string(), why: error.to_string() })?;
        let header = XorHeader::from_tree(&tree, &path.display().to_string())?;
        let found = data.length();
        if header_bytes.checked_add(header.chunk) != Some(found) {
            return Err(RedundancyError::Header {
                origin: path.display().to_string(),
                why: format!("the file has {found} bytes, not {header_bytes} of header and {} of data", header.chunk),
            });
        }
        Ok(XorFile { path, tree, header, header_bytes, data })
    }

    /// Bytes of header and data.
    pub fn total_bytes(&self) -> u64 {
        self.header_bytes + self.header.chunk
    }

    /// Reads XOR data at `offset` of the chunk; the entire buffer is filled.
    pub fn read_data(&self, offset: u64, buffer: &mut [u8]) -> Result<(), RedundancyError> {
        let at = self.header_bytes + offset;
        self.data.read_exact_at(buffer, at).map_err(RedundancyError::io("read", &self.path))
    }

    /// The bytes of the header, for the checksum of the complete file.
    pub fn read_header(&self) -> Result<Vec<u8>, RedundancyError> {
        // The header was decoded from memory of this size before.
        let mut bytes = vec![0; usize::try_from(self.header_bytes).unwrap_or(0)];
        self.data.read_exact_at(&mut bytes, 0).map_err(RedundancyError::io("read", &self.path))?;
        Ok(bytes)
    }
}
