//! The rebuild at the drain: all files of the set lie in one directory (what the original's `scr_rebuild_xor` does).
//!
//! Better than the original in two points: the survivors' checksums are verified while they are read, and nothing is
//! installed if one is wrong; and a rebuilt file appears under its name only when it is complete.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use super::Progress;
use super::encode::Member;
use super::header::{self, MAX_MEMBERS, Occasion};
use super::name::XorName;
use super::piece::{DEFAULT_PIECE_BYTES, MAX_PIECE_BYTES, pieces, xor_into};
use super::rebuild::{Reader, Survivor};
use super::writer::{LostMember, RebuiltMember};
use crate::control::filemap::Filemap;
use crate::control::meta::EXTENSION;
use crate::redundancy::RedundancyError;

/// How to rebuild.
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

/// Rebuilds all files of member `missing` (from 0) of a set in `directory`: application files, XOR file, their meta
/// files with checksums, and `<rank>.scrfilemap`. Whatever is left of the member is replaced. Progress counts bytes
/// rebuilt.
///
/// # Errors
/// [`RedundancyError::MemberDamaged`] or [`RedundancyError::Header`] if a survivor is not sound: it then counts as
/// missing, too. Nothing is changed in the directory.
pub fn rebuild_member(
    directory: &Path,
    group_id: u32,
    members: u32,
    missing: u32,
    options: &RebuildOptions,
    progress: &mut Progress<'_>,
) -> Result<RebuiltMember, RedundancyError> {
    if !(2..=MAX_MEMBERS).contains(&members) || missing >= members {
        return Err(RedundancyError::Shape { members, index: missing });
    }
    let mut survivors = Vec::new();
    for index in (0..members).filter(|index| *index != missing) {
        let name = XorName { group_id, members, index }.to_string();
        let survivor = Survivor::open(directory, &name, options.verify)?;
        if survivor.index() != index {
            return Err(mismatch(&survivor, "it is the file of another member under this name"));
        }
        survivors.push(survivor);
    }
    let reserved = check_agreement(&survivors, members)?;
    let tree = {
        let at = |member: u32| &survivors[(if member < missing { member } else { member - 1 }) as usize];
        let (right, left) = (at((missing + 1) % members), at((missing + members - 1) % members));
        header::rebuilt(right.xor.tree(), left.xor.tree(), Occasion::Drain)?
    };
    let mut lost = LostMember::create(directory, &tree, group_id, &reserved)?;
    if lost.index() != missing {
        return Err(mismatch(&survivors[0], "the neighbours' headers do not describe the missing member"));
    }
    let chunk = lost.header().chunk;
    let member = |index| Member { piece: options.piece, ..Member::new(index, members, chunk) };
    let shapes: Vec<Member> = survivors.iter().map(|survivor| member(survivor.index())).collect();
    let mut readers = Vec::with_capacity(survivors.len());
    for survivor in &mut survivors {
        readers.push(Reader::new(survivor, options.verify)?);
    }
    let size = options.piece.clamp(1, MAX_PIECE_BYTES).min(usize::try_from(chunk).unwrap_or(MAX_PIECE_BYTES));
    let (mut result, mut scratch) = (vec![0; size], vec![0; size]);
    let mut done = 0;
    for slot in 0..members {
        for (offset, length) in pieces(chunk, size) {
            let (result, scratch) = (&mut result[..length], &mut scratch[..length]);
            for (at, (reader, shape)) in readers.iter_mut().zip(&shapes).enumerate() {
                if at == 0 {
                    let real = reader.read(shape, slot, offset, result)?;
                    result[real..].fill(0);
                } else {
                    let real = reader.read(shape, slot, offset, scratch)?;
                    xor_into(result, &scratch[..real]);
                }
            }
            if slot == missing { lost.write_xor(result)? } else { lost.write_data(result)? }
            done += length as u64;
            if progress(done) == ControlFlow::Break(()) {
                return Err(RedundancyError::Stopped);
            }
        }
    }
    for reader in readers {
        reader.finish()?;
    }
    let rebuilt = lost.finish()?.install(true)?;
    let mut filemap = Filemap::new();
    for name in rebuilt.files.iter().map(|meta| &meta.file).chain([&rebuilt.xor.file]) {
        filemap.add_file(rebuilt.checkpoint, rebuilt.rank, name);
    }
    let expected = u32::try_from(rebuilt.files.len() + 1).unwrap_or(u32::MAX);
    filemap.set_expected(rebuilt.checkpoint, rebuilt.rank, expected);
    filemap.write(&directory.join(format!("{}.scrfilemap", rebuilt.rank)))?;
    Ok(rebuilt)
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
