//! The files of a member that was not lost: opened, checked, and read slot after slot.

use std::path::Path;
use std::sync::Arc;

use super::ParityScheme;
use super::file::ParityFile;
use super::member::{InSlot, Member};
use crate::control::meta::Meta;
use crate::redundancy::logical::{LogicalFile, Verifier};
use crate::redundancy::member::{GroupMember, MemberTask};
use crate::redundancy::{RedundancyError, Result, inside};
use crate::store::DatasetFiles;
use crate::store::dataset_files::read_meta;

/// The files of a survivor, opened and checked.
#[derive(Debug)]
pub struct Survivor {
    pub file: ParityFile,
    pub data: LogicalFile,
    pub index: u32,
    file_crc: Option<u32>,
}

impl Survivor {
    /// Opens the survivor whose redundancy file is `name` in a directory in cache.
    ///
    /// The meta files beside the files must be there and agree with the header, and the checksums they know are
    /// verified while the data is read.
    pub fn open(scheme: &'static ParityScheme, directory: &Path, name: &str) -> Result<Survivor> {
        let dataset: Arc<dyn DatasetFiles> = inside::open_directory(directory)?;
        Survivor::open_in(scheme, &dataset, name)
    }

    /// As [`Survivor::open`], of the files of a dataset.
    pub fn open_in(scheme: &'static ParityScheme, files: &Arc<dyn DatasetFiles>, name: &str) -> Result<Survivor> {
        let file = ParityFile::open_in(scheme, &**files, name)?;
        let current = &file.header.current;
        let rank = current.rank;
        let index = file.header.index().unwrap_or(0);
        let mut data = LogicalFile::open_in(files, index, current)?;
        let damaged = |name: &str, why: String| RedundancyError::MemberDamaged {
            member: index,
            rank,
            path: files.path_of(name),
            why,
        };
        let read = |name: &str, size: u64| -> Result<Meta> {
            let meta = read_meta(&**files, name)
                .map_err(|error| damaged(name, format!("its meta data is not usable: {error}")))?;
            if !meta.complete || meta.size != size || meta.rank != rank || meta.file != name {
                return Err(damaged(name, "its meta data marks it as incomplete or names another file".into()));
            }
            if meta.checkpoint != file.header.checkpoint || meta.ranks != file.header.ranks {
                return Err(damaged(name, "its meta data is of another checkpoint or run".into()));
            }
            Ok(meta)
        };
        for (at, listed) in current.files.iter().enumerate() {
            let meta = read(&listed.file, listed.size)?;
            match (meta.crc, listed.crc) {
                (Some(beside), Some(inside)) if beside != inside => {
                    let why = format!("meta file and {} header disagree about its CRC32", scheme.name);
                    return Err(damaged(&listed.file, why));
                }
                (Some(crc), _) => data.expect_crc(at, crc),
                (None, _) => {}
            }
        }
        let file_crc = read(name, file.total_bytes())?.crc;
        Ok(Survivor { file, data, index, file_crc })
    }

    /// The own files of a member in cache. An own redundancy file whose header cannot be used is a damaged file of this
    /// member.
    pub fn of_member(scheme: &'static ParityScheme, task: &MemberTask, node: &dyn GroupMember) -> Result<Survivor> {
        let name = scheme.file_name(task.group_id, task.size(), task.index);
        Survivor::open(scheme, node.directory(), &name).map_err(|error| match error {
            RedundancyError::Header { why, .. } => {
                let (member, path) = (task.index, node.directory().join(&name));
                match task.rank() {
                    Ok(rank) => RedundancyError::MemberDamaged { member, rank, path, why },
                    Err(error) => error,
                }
            }
            error => error,
        })
    }

    /// An error of its redundancy file.
    pub(super) fn damaged_file(&self, why: String) -> RedundancyError {
        RedundancyError::MemberDamaged {
            member: self.index,
            rank: self.data.rank(),
            path: self.file.path.to_owned(),
            why,
        }
    }
}

/// A survivor that is read slot after slot, verifying as it goes.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    survivor: &'a mut Survivor,
    files: Verifier,
    redundancy: crc32fast::Hasher,
}

impl<'a> Reader<'a> {
    pub(super) fn new(survivor: &'a mut Survivor) -> Result<Self> {
        let mut redundancy = crc32fast::Hasher::new();
        if survivor.file_crc.is_some() {
            redundancy.update(&survivor.file.read_header()?);
        }
        Ok(Reader { survivor, files: Verifier::default(), redundancy })
    }

    /// What this member has for `slot` at `offset`; returns how many bytes are not padding.
    pub(super) fn read(&mut self, member: &Member, slot: u32, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        match member.in_slot(slot) {
            InSlot::Redundancy(chunk) => {
                self.survivor.file.read_data(member.start_of(chunk) + offset, buffer)?;
                if self.survivor.file_crc.is_some() {
                    self.redundancy.update(buffer);
                }
                Ok(buffer.len())
            }
            InSlot::Files(chunk) => {
                let real = self.survivor.data.read_real(member.start_of(chunk) + offset, buffer)?;
                self.files.feed(&self.survivor.data, &buffer[..real])?;
                Ok(real)
            }
        }
    }

    /// After the last slot: an error if a file does not match its meta data.
    pub(super) fn finish(self) -> Result<()> {
        self.files.finish(&self.survivor.data)?;
        let found = self.redundancy.finalize();
        match self.survivor.file_crc {
            Some(expected) if expected != found => {
                Err(self.survivor.damaged_file(format!("its CRC32 is {found:#010x} instead of {expected:#010x}")))
            }
            _ => Ok(()),
        }
    }
}
