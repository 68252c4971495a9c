//! The rebuild at the drain: all files of the set lie in one directory (what the original's `scr_rebuild_xor` does).
//!
//! It differs from the original in two points: the survivors' checksums are verified while they are read, and nothing
//! is installed if one is wrong; and a rebuilt file appears under its name only when it is complete.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::encode::Member;
use super::header::{self, HeaderOrder, MAX_MEMBERS};
use super::name::XorName;
use super::rebuild::{Reader, Survivor};
use super::writer::LostMember;
use crate::control::filemap::Filemap;
use crate::control::meta::EXTENSION;
use crate::dataset_files::DatasetFiles;
use crate::durable::Durability;
use crate::redundancy::RedundancyError;
use crate::redundancy::files::RebuiltMember;
use crate::redundancy::piece::{BufferPool, DEFAULT_PIECE_BYTES, pieces, usable_piece, xor_into};
use crate::redundancy::scheme::Progress;

/// Pieces that were read and not yet written: what memory a rebuild takes.
const PIECES_IN_FLIGHT: usize = 4;

#[derive(Clone, Copy, Debug)]
pub struct RebuildOptions {
    /// Verify the survivors' checksums. Turn it off only if they were verified a moment ago.
    pub verify: bool,
    /// Bytes of a piece.
    pub piece: usize,
}

impl Default for RebuildOptions {
    fn default() -> Self {
        RebuildOptions { verify: true, piece: DEFAULT_PIECE_BYTES }
    }
}

/// Rebuilds all files of member `missing` (from 0) of a set in the directory of `files`: application files, XOR file,
/// their meta files with checksums, and `<rank>.scrfilemap`. What is left of the member is replaced. Progress counts
/// bytes rebuilt.
///
/// # Errors
/// [`RedundancyError::MemberDamaged`] or [`RedundancyError::Header`] if a survivor is damaged: it then counts as
/// missing, too. Nothing is changed in the directory.
pub fn rebuild_member(
    files: &Arc<dyn DatasetFiles>,
    group_id: u32,
    members: u32,
    missing: u32,
    options: &RebuildOptions,
    progress: &mut Progress<'_>,
) -> Result<RebuiltMember, RedundancyError> {
    let directory = files.directory();
    if !(2..=MAX_MEMBERS).contains(&members) || missing >= members {
        return Err(RedundancyError::NoSuchMember { members, index: missing });
    }
    let mut survivors = Vec::new();
    for index in (0..members).filter(|index| *index != missing) {
        let name = XorName { group_id, members, index }.to_string();
        let survivor = Survivor::open_in(files, &name, options.verify)?;
        if survivor.index() != index {
            return Err(mismatch(&survivor, "it is the file of another member under this name"));
        }
        survivors.push(survivor);
    }
    let reserved = check_agreement(&survivors, members)?;
    let tree = {
        let at = |member: u32| &survivors[(if member < missing { member } else { member - 1 }) as usize];
        let (right, left) = (at((missing + 1) % members), at((missing + members - 1) % members));
        header::rebuilt(right.xor.tree(), left.xor.tree(), HeaderOrder::Drain)?
    };
    let mut lost = LostMember::create(directory, &tree, group_id, &reserved, Durability::Machine)?;
    if lost.index() != missing {
        return Err(mismatch(&survivors[0], "the neighbours' headers do not describe the missing member"));
    }
    let chunk = lost.header().chunk;
    let member = |index| Member { piece: options.piece, ..Member::new(index, members, chunk) };
    let size = usable_piece(options.piece).min(usize::try_from(chunk).unwrap_or(usize::MAX));
    let pool = BufferPool::new();
    // Reading and writing at the same time: each is bound by the file system, and not by the same part of it.
    let (sender, receiver) = sync_channel(PIECES_IN_FLIGHT);
    let reading = || read_pieces(&mut survivors, &member, options.verify, size, &pool, sender);
    thread::scope(|scope| {
        let reading = scope.spawn(reading);
        let written = write_pieces(&mut lost, missing, members, size, &pool, receiver, progress);
        // The reader's error is the cause where both failed: it has hung up on the writer.
        let read = reading.join().unwrap_or(Err(RedundancyError::Stopped));
        match (read, written) {
            (Ok(()), written) => written,
            (Err(RedundancyError::Stopped), Err(error)) => Err(error),
            (Err(error), _) => Err(error),
        }
    })?;
    let rebuilt = lost.finish()?.install(true)?;
    let mut filemap = Filemap::new();
    for name in rebuilt.files.iter().chain(&rebuilt.redundancy).map(|meta| &meta.file) {
        filemap.add_file(rebuilt.checkpoint, rebuilt.rank, name);
    }
    let expected = u32::try_from(rebuilt.files.len() + rebuilt.redundancy.len()).unwrap_or(u32::MAX);
    filemap.set_expected(rebuilt.checkpoint, rebuilt.rank, expected);
    filemap.write(&directory.join(format!("{}.scrfilemap", rebuilt.rank)))?;
    Ok(rebuilt)
}

/// XORs what the survivors have, slot after slot, verifies them, and hands the pieces over. A writer that has hung up
/// ends it with [`RedundancyError::Stopped`].
fn read_pieces(
    survivors: &mut [Survivor],
    member: &(dyn Fn(u32) -> Member + Sync),
    verify: bool,
    size: usize,
    pool: &BufferPool,
    out: SyncSender<Vec<u8>>,
) -> Result<(), RedundancyError> {
    let shapes: Vec<Member> = survivors.iter().map(|survivor| member(survivor.index())).collect();
    let mut readers = Vec::with_capacity(survivors.len());
    for survivor in survivors {
        readers.push(Reader::new(survivor, verify)?);
    }
    let Some(shape) = shapes.first() else { return Ok(()) };
    let mut scratch = vec![0; size];
    for slot in 0..shape.members {
        for (offset, length) in pieces(shape.chunk, size) {
            let mut result = pool.take(length);
            for (at, (reader, shape)) in readers.iter_mut().zip(&shapes).enumerate() {
                if at == 0 {
                    let real = reader.read(shape, slot, offset, &mut result)?;
                    result[real..].fill(0);
                } else {
                    let scratch = &mut scratch[..length];
                    let real = reader.read(shape, slot, offset, scratch)?;
                    xor_into(&mut result, &scratch[..real]);
                }
            }
            if out.send(result).is_err() {
                return Err(RedundancyError::Stopped);
            }
        }
    }
    readers.into_iter().try_for_each(Reader::finish)
}

/// Writes the pieces in the order in which [`read_pieces`] hands them over.
fn write_pieces(
    lost: &mut LostMember,
    missing: u32,
    members: u32,
    size: usize,
    pool: &BufferPool,
    pieces_in: Receiver<Vec<u8>>,
    progress: &mut Progress<'_>,
) -> Result<(), RedundancyError> {
    let mut done = 0;
    let chunk = lost.header().chunk;
    let total = chunk.saturating_mul(u64::from(members));
    for slot in 0..members {
        for (_, length) in pieces(chunk, size) {
            let Ok(piece) = pieces_in.recv() else { return Err(RedundancyError::Stopped) };
            lost.take(slot == missing, &piece)?;
            pool.give(piece);
            done += length as u64;
            if progress(done, total) == ControlFlow::Break(()) {
                return Err(RedundancyError::Stopped);
            }
        }
    }
    Ok(())
}

/// All survivors must be of one set of one checkpoint; returns the names that are theirs.
fn check_agreement(survivors: &[Survivor], members: u32) -> Result<BTreeSet<String>, RedundancyError> {
    let mut names = BTreeSet::new();
    let first = survivors[0].xor.header();
    for survivor in survivors {
        let header = survivor.xor.header();
        if header.members.len() != members as usize
            || header.members != first.members
            || header.chunk != first.chunk
            || header.checkpoint != first.checkpoint
            || header.ranks != first.ranks
        {
            return Err(mismatch(survivor, "it is of another set or checkpoint than the others"));
        }
        let files = header.current.files.iter().map(|meta| meta.file.clone());
        let xor = survivor.xor.path().file_name().map(|name| name.to_string_lossy().into_owned());
        for name in files.chain(xor) {
            names.insert(format!("{name}{EXTENSION}"));
            if !names.insert(name) {
                return Err(mismatch(survivor, "two members have a file of the same name"));
            }
        }
    }
    Ok(names)
}

fn mismatch(survivor: &Survivor, why: &str) -> RedundancyError {
    RedundancyError::Header { origin: survivor.xor.path().display().to_string(), why: why.to_owned() }
}
