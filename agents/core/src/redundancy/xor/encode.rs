//! A member's part in making the XOR files: a pipelined reduce-scatter around the ring (`SCR manual §7.3.1`).
//!
//! For each piece of the chunk, the partial result of slot s starts at the right neighbour of s, goes once around the
//! ring, each member XORing in what it has for that slot, and ends at s, which writes it. In step k member m works on
//! slot m-k. Each byte of each file is read once, and the XOR file is written once, front to back.
//!
//! With checksums the CRC32 of each file is computed from the bytes that are read for the XOR data. They are complete
//! after the last piece only: then the neighbours exchange them, and the header, whose length they do not change, is
//! written again.

use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::Path;

use super::header::XorHeader;
use super::name::{NAME, XorName};
use crate::control::meta::{FileKind, Meta};
use crate::kvtree::file;
use crate::redundancy::RedundancyError;
use crate::redundancy::link::{LinkReceiver, LinkSender};
use crate::redundancy::logical::{ChunkedChecksums, LogicalFile};
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
    /// Encoding: compute the checksums of the files while they are read.
    pub checksums: bool,
    /// Buffers, shared with the links if they copy.
    pub pool: BufferPool,
}

impl Member {
    /// A member with pieces of the default size.
    pub fn new(index: u32, members: u32, chunk: u64) -> Self {
        Member { index, members, chunk, piece: DEFAULT_PIECE_BYTES, checksums: false, pool: BufferPool::new() }
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
        u64::from(self.chunk_number(slot)) * self.chunk
    }

    /// The own chunk for `slot`, from 0.
    fn chunk_number(&self, slot: u32) -> u32 {
        if slot < self.index { slot } else { slot - 1 }
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
            output_path: None,
        }
    }
}

/// Takes part in the encoding of a set, and writes the own XOR file (header, then data) to `out`, which is at its
/// start and has this path. With [`Member::checksums`], `header` gets the checksums of all files that it lists; those
/// that it has already are compared with what is read.
///
/// `left` and `right` are the neighbours in the ring; their guarantees are described in
/// [`link`](crate::redundancy::link). Progress counts the bytes of XOR data.
pub fn encode_member(
    member: &Member,
    header: &mut XorHeader,
    data: &mut LogicalFile,
    left: &mut dyn LinkReceiver,
    right: &mut dyn LinkSender,
    (path, out): (&Path, &mut (impl Write + Seek)),
    progress: &mut Progress<'_>,
) -> Result<WrittenXorFile, RedundancyError> {
    member.check()?;
    member.check_fits(data.total_bytes())?;
    let (n, m) = (member.members, member.index);
    let writing = |source| RedundancyError::Io { doing: "write", path: path.to_owned(), source };
    let mut checksums = member.checksums.then(|| ChunkedChecksums::new(data, n - 1, member.chunk));
    let mut head = if member.checksums { provisional_head(header) } else { file::encode(&header.to_tree()) };
    let mut crc = crc32fast::Hasher::new();
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
        let real = data.read_padded(member.chunk_start(first_slot) + offset, &mut travelling)?;
        if let Some(checksums) = &mut checksums {
            checksums.feed(data, member.chunk_number(first_slot) as usize, &travelling[..real]);
        }
        right.send(travelling).map_err(RedundancyError::right("encoding"))?;
        for step in 2..n {
            let mut piece = receive(left, length)?;
            let slot = (m + n - step) % n;
            let own = &mut scratch[..length];
            let real = data.read_real(member.chunk_start(slot) + offset, own)?;
            if let Some(checksums) = &mut checksums {
                checksums.feed(data, member.chunk_number(slot) as usize, &own[..real]);
            }
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
    if let Some(checksums) = checksums {
        exchange_checksums(header, &checksums.finish(data)?, left, right)?;
        let provisional = head.len();
        head = file::encode(&header.to_tree_of_fixed_length());
        if head.len() != provisional {
            let why = "its length depends on its checksums".into();
            return Err(RedundancyError::Header { origin: "the XOR file".into(), why });
        }
        out.seek(SeekFrom::Start(0)).and_then(|_| out.write_all(&head)).map_err(writing)?;
    }
    let mut complete = crc32fast::Hasher::new();
    complete.update(&head);
    complete.combine(&crc);
    Ok(WrittenXorFile { bytes: head.len() as u64 + member.chunk, crc: complete.finalize() })
}

/// The header with some checksum for each file.
fn provisional_head(header: &XorHeader) -> Vec<u8> {
    let mut header = header.clone();
    for files in [&mut header.current, &mut header.partner] {
        files.files.iter_mut().for_each(|meta| meta.crc = Some(0));
    }
    file::encode(&header.to_tree_of_fixed_length())
}

/// Enters the own checksums into the header, and those of the left neighbour, which it sends: four bytes a file, after
/// a byte, since no message is empty.
fn exchange_checksums(
    header: &mut XorHeader,
    own: &[u32],
    left: &mut dyn LinkReceiver,
    right: &mut dyn LinkSender,
) -> Result<(), RedundancyError> {
    const DOING: &str = "exchanging checksums";
    let message = [0].into_iter().chain(own.iter().flat_map(|crc| crc.to_be_bytes())).collect();
    right.send(message).map_err(RedundancyError::right(DOING))?;
    let message = left.receive().map_err(RedundancyError::left(DOING))?;
    let (of_left, rest) = message.get(1..).unwrap_or_default().as_chunks::<4>();
    let partner = &mut header.partner;
    let unusable = |why: String| RedundancyError::Header { origin: "the left neighbour".into(), why };
    if of_left.len() != partner.files.len() || !rest.is_empty() {
        return Err(unusable(format!("it sent {} checksums of {} files", of_left.len(), partner.files.len())));
    }
    for (meta, crc) in partner.files.iter_mut().zip(of_left.iter().map(|crc| u32::from_be_bytes(*crc))) {
        if meta.crc.is_some_and(|recorded| recorded != crc) {
            return Err(unusable(format!("it sent another checksum of `{}` than its meta data has", meta.file)));
        }
        meta.crc = Some(crc);
    }
    for (meta, crc) in header.current.files.iter_mut().zip(own) {
        meta.crc = Some(*crc);
    }
    Ok(())
}

pub(crate) fn receive(left: &mut dyn LinkReceiver, expected: usize) -> Result<Vec<u8>, RedundancyError> {
    let piece = left.receive().map_err(RedundancyError::left("receiving a piece"))?;
    if piece.len() != expected {
        return Err(RedundancyError::PieceLength { expected, found: piece.len() });
    }
    Ok(piece)
}
