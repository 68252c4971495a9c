//! A member's part in making the XOR files: a pipelined reduce-scatter around the ring (`SCR manual §7.3.1`).
//!
//! For each piece of the chunk, the partial result of slot s starts at the right neighbour of s, goes once around the
//! ring, each member XORing in what it has for that slot, and ends at s, which writes it. In step k member m works on
//! slot m-k. Each byte of each file is read once, and the XOR file is written once, front to back.

use std::io::Write;
use std::ops::ControlFlow;

use super::header::XorHeader;
use super::name::{NAME, XorName};
use crate::control::meta::{FileKind, Meta};
use crate::kvtree::file;
use crate::redundancy::RedundancyError;
use crate::redundancy::link::{LinkReceiver, LinkSender};
use crate::redundancy::logical::LogicalFile;
use crate::redundancy::piece::{BufferPool, DEFAULT_PIECE_BYTES, pieces, usable_piece, xor_into};

/// Called with the number of bytes done so far; `Break` stops the step, which then leaves nothing behind.
pub type Progress<'a> = dyn FnMut(u64) -> ControlFlow<()> + 'a;

/// One member's place in the computation. All members of a set must agree on everything but `index`.
#[derive(Clone, Debug)]
pub struct Member {
    /// Index in the set, from 0.
    pub index: u32,
    /// Members of the set, at least 2.
    pub members: u32,
    /// Bytes of XOR data ([`chunk_size`](super::header::chunk_size) of the largest member's total).
    pub chunk: u64,
    /// Bytes of a piece.
    pub piece: usize,
    /// Buffers, shared with the links if they copy.
    pub pool: BufferPool,
}

impl Member {
    /// A member with pieces of the default size.
    pub fn new(index: u32, members: u32, chunk: u64) -> Self {
        Member { index, members, chunk, piece: DEFAULT_PIECE_BYTES, pool: BufferPool::new() }
    }

    /// Bytes of the largest piece.
    pub(crate) fn largest_piece(&self) -> usize {
        usable_piece(self.piece).min(usize::try_from(self.chunk).unwrap_or(usize::MAX))
    }

    pub(crate) fn check(&self) -> Result<(), RedundancyError> {
        if self.members < 2 || self.index >= self.members {
            return Err(RedundancyError::NoSuchMember { members: self.members, index: self.index });
        }
        Ok(())
    }

    pub(crate) fn check_fits(&self, bytes: u64) -> Result<(), RedundancyError> {
        match self.chunk.checked_mul(u64::from(self.members) - 1) {
            Some(room) if bytes <= room => Ok(()),
            _ => Err(RedundancyError::ChunkTooSmall { bytes, members: self.members, chunk: self.chunk }),
        }
    }

    /// Where the own chunk for `slot` begins in the own logical file; the own slot has no chunk.
    pub(crate) fn chunk_start(&self, slot: u32) -> u64 {
        let chunk = if slot < self.index { slot } else { slot - 1 };
        u64::from(chunk) * self.chunk
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenXorFile {
    pub bytes: u64,
    /// CRC32 of the complete file.
    pub crc: u32,
}

impl WrittenXorFile {
    /// The meta data of the XOR file; `header` is the one that was written. The checksum is in it if `with_crc`, which
    /// the original does only with `SCR_CRC_ON_COPY`.
    pub fn meta(&self, header: &XorHeader, with_crc: bool) -> Meta {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let name = XorName {
            group_id: header.members.first().map_or(0, |rank| rank.0),
            members: number(header.members.len()),
            index: header.index().map_or(0, number),
        };
        Meta {
            file: name.to_string(),
            kind: FileKind::Redundancy(NAME),
            size: self.bytes,
            checkpoint: header.checkpoint,
            rank: header.current.rank,
            ranks: header.ranks,
            complete: true,
            crc: with_crc.then_some(self.crc),
        }
    }
}

/// Takes part in the encoding of a set, and writes the own XOR file (header, then data) to `out`.
///
/// `left` and `right` are the neighbours in the ring; their guarantees are described in
/// [`link`](crate::redundancy::link). Progress counts the bytes of XOR data.
pub fn encode_member(
    member: &Member,
    header: &XorHeader,
    data: &mut LogicalFile,
    left: &mut dyn LinkReceiver,
    right: &mut dyn LinkSender,
    out: &mut impl Write,
    progress: &mut Progress<'_>,
) -> Result<WrittenXorFile, RedundancyError> {
    member.check()?;
    member.check_fits(data.total_bytes())?;
    let (n, m) = (member.members, member.index);
    let writing = |source| RedundancyError::Io { doing: "write", path: "the XOR file".into(), source };
    let mut crc = crc32fast::Hasher::new();
    let head = file::encode(&header.to_tree());
    crc.update(&head);
    out.write_all(&head).map_err(writing)?;
    let mut scratch = member.pool.take(member.largest_piece());
    let mut free = Vec::new();
    for (offset, length) in pieces(member.chunk, member.piece) {
        let mut travelling = std::mem::take(&mut free);
        if travelling.capacity() == 0 {
            travelling = member.pool.take(length);
        }
        travelling.resize(length, 0);
        let first_slot = (m + n - 1) % n;
        data.read_padded(member.chunk_start(first_slot) + offset, &mut travelling)?;
        right.send(travelling).map_err(RedundancyError::right("encoding"))?;
        for step in 2..n {
            let mut piece = receive(left, length)?;
            let slot = (m + n - step) % n;
            let own = &mut scratch[..length];
            let real = data.read_real(member.chunk_start(slot) + offset, own)?;
            xor_into(&mut piece, &own[..real]);
            right.send(piece).map_err(RedundancyError::right("encoding"))?;
        }
        let result = receive(left, length)?;
        crc.update(&result);
        out.write_all(&result).map_err(writing)?;
        free = result;
        if progress(offset + length as u64) == ControlFlow::Break(()) {
            return Err(RedundancyError::Stopped);
        }
    }
    member.pool.give(free);
    member.pool.give(scratch);
    Ok(WrittenXorFile { bytes: head.len() as u64 + member.chunk, crc: crc.finalize() })
}

pub(crate) fn receive(left: &mut dyn LinkReceiver, expected: usize) -> Result<Vec<u8>, RedundancyError> {
    let piece = left.receive().map_err(RedundancyError::left("receiving a piece"))?;
    if piece.len() != expected {
        return Err(RedundancyError::PieceLength { expected, found: piece.len() });
    }
    Ok(piece)
}
