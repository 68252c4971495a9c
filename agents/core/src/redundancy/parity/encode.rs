//! A member's part in making the redundancy files: a pipelined reduce-scatter around the ring (`SCR manual §7.3.1`).
//!
//! For each piece of the chunk, the partial results of slot s, one for each row, start together at the right neighbour
//! of s and go once around the ring. Each member that has a chunk of its files in that slot adds it to each row; each
//! that keeps a row takes it out, so that the last one, s, gets row 0 alone. In step j member m works on slot m-j. Each
//! byte of each file is read once, and all members send and receive at once.
//!
//! With checksums the CRC32 of each file is computed from the bytes that are read for the redundancy data. They are
//! complete after the last piece only: then the neighbours exchange them, and the header, whose length they do not
//! change, is written again.

use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::Path;

use super::header::{ParityHeader, chunk_size};
use super::member::{InSlot, Member};
use super::{ParityScheme, Progress, greeting, receive, with_own};
use crate::calls::Filling;
use crate::control::meta::{FileKind, Meta};
use crate::galois::products::Products;
use crate::kvtree::file;
use crate::redundancy::files::MemberFiles;
use crate::redundancy::link::{LinkReceiver, LinkSender};
use crate::redundancy::logical::{ChunkedChecksums, LogicalFile};
use crate::redundancy::member::{GroupMember, MemberTask};
use crate::redundancy::piece::{BufferPool, pieces};
use crate::redundancy::{RedundancyError, Result};
use crate::regular_file;

/// What is gathered of a redundancy file before it is written; larger pieces are written without a copy.
const LARGEST_BUFFER: usize = 128 << 10;

const DOING: &str = "encoding";

/// Makes the own redundancy file, of a scheme of which `failures` members can be lost. Before the first piece each
/// member sends its list of files and its descriptor to the right, and passes on those of its left neighbours, so that
/// as many right neighbours as can be lost keep them.
pub fn encode(scheme: &'static ParityScheme, failures: u32, task: &MemberTask, node: &dyn GroupMember) -> Result<()> {
    let current = node.files()?;
    let mut data = LogicalFile::open(node.directory(), task.index, &current)?;
    let pool = BufferPool::default();
    let mut right = node.link_to(task.right, &pool)?;
    // Before anything is sent: a list of files can be longer than what a connection buffers before it is read.
    let mut left = node.link_from(task.left, &pool)?;
    let own = [greeting::of_tree(&current.to_tree()), greeting::of_descriptor(&node.descriptor(task.rank()?)?)?];
    let left_files = exchange_files(task, failures, node, own, (&mut *left, &mut *right))?;

    let chunk = chunk_size(task.largest, task.size(), failures);
    let mut header = ParityHeader {
        scheme,
        chunk,
        checkpoint: task.checkpoint,
        ranks: task.ranks,
        members: task.members.clone(),
        current,
        left: left_files,
    };
    let path = node.add_file(&scheme.file_name(task.group_id, task.size(), task.index))?;
    let file = Filling(regular_file::create(&path).map_err(RedundancyError::io("create", &path))?);
    let buffer = usize::try_from(chunk).map_or(LARGEST_BUFFER, |chunk| chunk.clamp(4 << 10, LARGEST_BUFFER));
    let mut out = BufWriter::with_capacity(buffer, file);
    let recorded: Vec<Option<u32>> = header.current.files.iter().map(|meta| meta.crc).collect();
    let member = Member {
        failures,
        piece: node.piece_bytes(),
        checksums: node.with_crc(),
        pool: pool.clone(),
        ..Member::new(task.index, task.size(), chunk)
    };
    let mut progress = |done| node.progress(done, chunk);
    let written =
        encode_member(&member, &mut header, &mut data, &mut *left, &mut *right, (&path, &mut out), &mut progress)?;
    right.finish().map_err(RedundancyError::right(DOING))?;
    left.finish().map_err(RedundancyError::left(DOING))?;
    out.into_inner().map_err(|error| RedundancyError::io("write", &path)(error.into_error()))?;
    for (meta, recorded) in header.current.files.iter().zip(recorded) {
        if meta.crc != recorded {
            meta.write_unsynced(&node.directory().join(&meta.file))?;
        }
    }
    Ok(written.meta(&header, node.with_crc()).write_unsynced(&path)?)
}

/// The left neighbours' files, nearest first; their descriptors are kept.
fn exchange_files(
    task: &MemberTask,
    failures: u32,
    node: &dyn GroupMember,
    own: [Vec<u8>; 2],
    (left, right): (&mut dyn LinkReceiver, &mut dyn LinkSender),
) -> Result<Vec<MemberFiles>> {
    let (size, mut sent, mut received) = (task.size(), own.to_vec(), Vec::new());
    for distance in 1..=failures {
        greeting::send(right, &sent)?;
        sent = greeting::receive(left)?;
        let [files, descriptor] = sent.as_slice() else { return Err(greeting::too_short()) };
        let files = MemberFiles::from_tree(&greeting::to_tree(files)?, "the left neighbour")?;
        let rank = task.rank_of((task.index + size - distance) % size)?;
        if files.rank != rank {
            let why = format!("it is of rank {} where rank {rank} is the left neighbour", files.rank);
            return Err(RedundancyError::Header { origin: "the left neighbour".into(), why });
        }
        node.keep_descriptor(rank, &greeting::to_descriptor(descriptor)?)?;
        received.push(files);
    }
    Ok(received)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    pub bytes: u64,
    /// CRC32 of the complete file.
    pub crc: u32,
}

impl WrittenFile {
    /// The meta data of the redundancy file; `header` is the one that was written. The checksum is in it if `with_crc`,
    /// which the original does only with `SCR_CRC_ON_COPY`.
    pub fn meta(&self, header: &ParityHeader, with_crc: bool) -> Meta {
        let file = header.scheme.file_name(header.group_id(), header.size(), header.index().unwrap_or(0));
        let meta = Meta::of_application(file, self.bytes, header.checkpoint, header.current.rank, header.ranks);
        Meta { kind: FileKind::Redundancy(header.scheme.name), crc: with_crc.then_some(self.crc), ..meta }
    }
}

/// Takes part in the encoding of a set, and writes the own redundancy file (header, then data) to `out`, which is at
/// its start and has this path. With [`Member::checksums`], `header` gets the checksums of all files that it lists;
/// those that it has already are compared with what is read.
///
/// `left` and `right` are the neighbours in the ring; their guarantees are described in
/// [`link`](crate::redundancy::link). Progress counts the bytes of a chunk.
pub fn encode_member(
    member: &Member,
    header: &mut ParityHeader,
    data: &mut LogicalFile,
    left: &mut dyn LinkReceiver,
    right: &mut dyn LinkSender,
    (path, out): (&Path, &mut (impl Write + Seek)),
    progress: &mut Progress<'_>,
) -> Result<WrittenFile> {
    member.check()?;
    member.check_fits(data.total_bytes())?;
    let (n, m, rows) = (member.members, member.index, member.failures as usize);
    let products = Products::new(&(header.scheme.code)(n, member.failures).factors_of(m));
    let mut checksums = member.checksums.then(|| ChunkedChecksums::new(data, member.file_chunks(), member.chunk));
    let head = if member.checksums { provisional_head(header) } else { file::encode(&header.to_tree()) };
    let mut output = Output::begin(member, path, out, &head)?;
    let size = member.piece_of(rows);
    let mut scratch = member.pool.take(size);
    for (offset, length) in pieces(member.chunk, size) {
        for step in 1..=n {
            let slot = (m + n - step) % n;
            let sums = match member.in_slot(slot) {
                InSlot::Files(chunk) => {
                    let arrived = (step > 1).then(|| receive(left, rows * length)).transpose()?;
                    let read = |at: u64, own: &mut [u8]| {
                        let real = data.read_real(member.start_of(chunk) + offset + at, own)?;
                        if let Some(checksums) = &mut checksums {
                            checksums.feed(data, chunk as usize, &own[..real]);
                        }
                        Ok(real)
                    };
                    with_own(member, &products, arrived, (rows, length), &mut scratch, read)?
                }
                InSlot::Redundancy(chunk) => {
                    // The rows that members after this one keep; its own is the last that arrives.
                    let others = (n - step) as usize * length;
                    let mut sums = receive(left, others + length)?;
                    output.write(chunk, offset, &sums[others..])?;
                    sums.truncate(others);
                    sums
                }
            };
            if step < n {
                right.send(sums).map_err(RedundancyError::right(DOING))?;
            } else {
                member.pool.give(sums);
            }
        }
        if progress(offset + length as u64) == ControlFlow::Break(()) {
            return Err(RedundancyError::Stopped);
        }
    }
    member.pool.give(scratch);
    let Some(checksums) = checksums else { return output.finish(&head, false) };
    exchange_checksums(header, &checksums.finish(data)?, left, right)?;
    let complete = file::encode(&header.to_tree_of_fixed_length());
    if complete.len() != head.len() {
        let why = "its length depends on its checksums".into();
        return Err(RedundancyError::Header { origin: path.display().to_string(), why });
    }
    output.finish(&complete, true)
}

/// A redundancy file while it is written: its chunks side by side, each front to back.
struct Output<'a, W> {
    path: &'a Path,
    out: &'a mut W,
    /// Where the next byte goes without seeking.
    at: u64,
    header_bytes: u64,
    chunk_bytes: u64,
    /// The checksum of each chunk.
    chunks: Vec<crc32fast::Hasher>,
}

impl<'a, W: Write + Seek> Output<'a, W> {
    fn begin(member: &Member, path: &'a Path, out: &'a mut W, head: &[u8]) -> Result<Self> {
        out.write_all(head).map_err(RedundancyError::io("write", path))?;
        let chunks = vec![crc32fast::Hasher::new(); member.failures as usize];
        let header_bytes = head.len() as u64;
        Ok(Output { path, out, at: header_bytes, header_bytes, chunk_bytes: member.chunk, chunks })
    }

    fn write(&mut self, chunk: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        let at = self.header_bytes + u64::from(chunk) * self.chunk_bytes + offset;
        self.chunks[chunk as usize].update(bytes);
        self.write_at(at, bytes)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        // Seeking empties the buffer of the file.
        let sought = if self.at == at { Ok(at) } else { self.out.seek(SeekFrom::Start(at)) };
        sought.and_then(|_| self.out.write_all(bytes)).map_err(RedundancyError::io("write", self.path))?;
        self.at = at + bytes.len() as u64;
        Ok(())
    }

    /// After the last byte; `head` is written in front again if it `changed`.
    fn finish(mut self, head: &[u8], changed: bool) -> Result<WrittenFile> {
        if changed {
            self.write_at(0, head)?;
        }
        let mut complete = crc32fast::Hasher::new();
        complete.update(head);
        self.chunks.iter().for_each(|chunk| complete.combine(chunk));
        let bytes = self.header_bytes + self.chunk_bytes * self.chunks.len() as u64;
        Ok(WrittenFile { bytes, crc: complete.finalize() })
    }
}

/// The header with some checksum for each file.
fn provisional_head(header: &ParityHeader) -> Vec<u8> {
    let mut header = header.clone();
    for files in std::iter::once(&mut header.current).chain(&mut header.left) {
        files.files.iter_mut().for_each(|meta| meta.crc = Some(0));
    }
    file::encode(&header.to_tree_of_fixed_length())
}

/// Enters the own checksums into the header, and those of the left neighbours, which each member passes on: four bytes
/// a file, after a byte, since no message is empty.
fn exchange_checksums(
    header: &mut ParityHeader,
    own: &[u32],
    left: &mut dyn LinkReceiver,
    right: &mut dyn LinkSender,
) -> Result<()> {
    const DOING: &str = "exchanging checksums";
    let mut message: Vec<u8> = [0].into_iter().chain(own.iter().flat_map(|crc| crc.to_be_bytes())).collect();
    for neighbour in &mut header.left {
        right.send(message).map_err(RedundancyError::right(DOING))?;
        message = left.receive().map_err(RedundancyError::left(DOING))?;
        let (of_left, rest) = message.get(1..).unwrap_or_default().as_chunks::<4>();
        let unusable = |why: String| RedundancyError::Header { origin: "the left neighbour".into(), why };
        if of_left.len() != neighbour.files.len() || !rest.is_empty() {
            let (found, expected) = (of_left.len(), neighbour.files.len());
            return Err(unusable(format!("it sent {found} checksums of {expected} files")));
        }
        for (meta, crc) in neighbour.files.iter_mut().zip(of_left.iter().map(|crc| u32::from_be_bytes(*crc))) {
            if meta.crc.is_some_and(|recorded| recorded != crc) {
                return Err(unusable(format!("it sent another checksum of `{}` than its meta data has", meta.file)));
            }
            meta.crc = Some(crc);
        }
    }
    for (meta, crc) in header.current.files.iter_mut().zip(own) {
        meta.crc = Some(*crc);
    }
    Ok(())
}
