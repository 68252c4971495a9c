//! A member's part in making a lost member's files again, with the set's files on their nodes: a pipelined reduction
//! along the chain from the lost member's right neighbour to its left neighbour, and from there to the lost member's
//! new home, the *root* (`SCR manual §11.4.6`).
//!
//! Slot after slot, each survivor passes on the partial result with its own chunk XORed in (in its own slot: its XOR
//! data). So every file is read front to back exactly once, its checksum is verified on the way, and the root writes
//! front to back. The root keeps what it wrote under temporary names until all survivors have confirmed that their
//! files are intact: see [`Unconfirmed`].

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::encode::{Member, Progress, receive};
use super::file::XorFile;
use crate::control::meta::Meta;
use crate::redundancy::link::{LinkReceiver, LinkSender};
use crate::redundancy::logical::{LogicalFile, Verifier};
use crate::redundancy::lost_member::{LostMember, Unconfirmed};
use crate::redundancy::piece::{pieces, xor_into};
use crate::redundancy::{RedundancyError, inside};
use crate::store::DatasetFiles;
use crate::store::dataset_files::read_meta;

/// The files of a survivor, opened and checked.
#[derive(Debug)]
pub struct Survivor {
    pub xor: XorFile,
    pub data: LogicalFile,
    pub index: u32,
    xor_crc: Option<u32>,
}

impl Survivor {
    /// Opens the survivor whose XOR file is `xor_name` in a directory in cache.
    ///
    /// The meta files beside the files must be there and agree with the header, and the checksums they know are
    /// verified while the data is read.
    pub fn open(directory: &Path, xor_name: &str) -> Result<Survivor, RedundancyError> {
        let dataset: Arc<dyn DatasetFiles> = inside::open_directory(directory)?;
        Survivor::open_in(&dataset, xor_name)
    }

    /// As [`Survivor::open`], of the files of a dataset.
    pub fn open_in(files: &Arc<dyn DatasetFiles>, xor_name: &str) -> Result<Survivor, RedundancyError> {
        let xor = XorFile::open_in(&**files, xor_name)?;
        let current = &xor.header.current;
        let rank = current.rank;
        let index = xor.header.index().and_then(|index| u32::try_from(index).ok()).unwrap_or(0);
        let mut data = LogicalFile::open_in(files, index, current)?;
        let damaged = |name: &str, why: String| RedundancyError::MemberDamaged {
            member: index,
            rank,
            path: files.path_of(name),
            why,
        };
        let read = |name: &str, size: u64| -> Result<Meta, RedundancyError> {
            let meta = read_meta(&**files, name)
                .map_err(|error| damaged(name, format!("its meta data is not usable: {error}")))?;
            if !meta.complete || meta.size != size || meta.rank != rank || meta.file != name {
                return Err(damaged(name, "its meta data marks it as incomplete or names another file".into()));
            }
            if meta.checkpoint != xor.header.checkpoint || meta.ranks != xor.header.ranks {
                return Err(damaged(name, "its meta data is of another checkpoint or run".into()));
            }
            Ok(meta)
        };
        for (at, file) in current.files.iter().enumerate() {
            let meta = read(&file.file, file.size)?;
            match (meta.crc, file.crc) {
                (Some(beside), Some(inside)) if beside != inside => {
                    return Err(damaged(&file.file, "meta file and XOR header disagree about its CRC32".into()));
                }
                (Some(crc), _) => data.expect_crc(at, crc),
                (None, _) => {}
            }
        }
        let xor_crc = read(xor_name, xor.total_bytes())?.crc;
        Ok(Survivor { xor, data, index, xor_crc })
    }

    fn damaged_xor(&self, why: String) -> RedundancyError {
        RedundancyError::MemberDamaged {
            member: self.index,
            rank: self.data.rank(),
            path: self.xor.path.to_owned(),
            why,
        }
    }
}

/// A survivor that is read slot after slot, verifying as it goes.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    survivor: &'a mut Survivor,
    files: Verifier,
    xor: crc32fast::Hasher,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(survivor: &'a mut Survivor) -> Result<Self, RedundancyError> {
        let mut xor = crc32fast::Hasher::new();
        if survivor.xor_crc.is_some() {
            xor.update(&survivor.xor.read_header()?);
        }
        Ok(Reader { survivor, files: Verifier::new(), xor })
    }

    /// What this member has for `slot` at `offset`; returns how many bytes are not padding.
    pub(crate) fn read(
        &mut self,
        member: &Member,
        slot: u32,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, RedundancyError> {
        if slot == member.index {
            self.survivor.xor.read_data(offset, buffer)?;
            if self.survivor.xor_crc.is_some() {
                self.xor.update(buffer);
            }
            return Ok(buffer.len());
        }
        let real = self.survivor.data.read_real(member.chunk_start(slot) + offset, buffer)?;
        self.files.feed(&self.survivor.data, &buffer[..real])?;
        Ok(real)
    }

    /// After the last slot: an error if a file does not match its meta data.
    pub(crate) fn finish(self) -> Result<(), RedundancyError> {
        self.files.finish(&self.survivor.data)?;
        let found = self.xor.finalize();
        match self.survivor.xor_crc {
            Some(expected) if expected != found => {
                Err(self.survivor.damaged_xor(format!("its CRC32 is {found:#010x} instead of {expected:#010x}")))
            }
            _ => Ok(()),
        }
    }
}

/// A survivor's part. `left` is `None` for the lost member's right neighbour, where the chain begins; its left
/// neighbour's `right` is the root. `Ok` means that all own files are intact, as far as checksums are known: the root's
/// files may be installed only when every survivor returned it. Progress counts bytes passed on.
pub fn rebuild_survivor(
    member: &Member,
    survivor: &mut Survivor,
    mut left: Option<&mut dyn LinkReceiver>,
    right: &mut dyn LinkSender,
    progress: &mut Progress<'_>,
) -> Result<(), RedundancyError> {
    member.check()?;
    member.check_fits(survivor.data.total_bytes())?;
    if member.chunk != survivor.xor.header.chunk || member.index != survivor.index {
        return Err(survivor.damaged_xor("the set does not agree on its chunk size or members".into()));
    }
    let mut reader = Reader::new(survivor)?;
    let mut scratch = member.pool.take(member.largest_piece());
    let mut done = 0;
    for slot in 0..member.members {
        for (offset, length) in pieces(member.chunk, member.piece) {
            let piece = match &mut left {
                Some(left) => {
                    let mut piece = receive(*left, length)?;
                    let own = &mut scratch[..length];
                    let real = reader.read(member, slot, offset, own)?;
                    xor_into(&mut piece, &own[..real]);
                    piece
                }
                None => {
                    let mut piece = member.pool.take(length);
                    let real = reader.read(member, slot, offset, &mut piece)?;
                    piece[real..].fill(0);
                    piece
                }
            };
            right.send(piece).map_err(RedundancyError::right("rebuilding"))?;
            done += length as u64;
            if progress(done) == ControlFlow::Break(()) {
                return Err(RedundancyError::Stopped);
            }
        }
    }
    member.pool.give(scratch);
    reader.finish()
}

/// The root's part: writes the lost member's files and XOR file under temporary names. `lost` was made from the
/// neighbours' headers. Progress counts bytes received.
pub fn rebuild_root(
    member: &Member,
    mut lost: LostMember,
    left: &mut dyn LinkReceiver,
    progress: &mut Progress<'_>,
) -> Result<Unconfirmed, RedundancyError> {
    member.check()?;
    let mut done = 0;
    for slot in 0..member.members {
        for (_, length) in pieces(member.chunk, member.piece) {
            let piece = receive(left, length)?;
            lost.take(slot == member.index, &piece)?;
            member.pool.give(piece);
            done += length as u64;
            if progress(done) == ControlFlow::Break(()) {
                return Err(RedundancyError::Stopped);
            }
        }
    }
    lost.finish()
}
