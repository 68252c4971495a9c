//! Checks everything that FTI-FF allows to check.
//!
//! FTI itself hangs on a file that is shorter than declared and on a block of size 0, and crashes on a container
//! outside of the file; here each is a damage with its place. Later versions of FTI also reject their own intact files
//! if a container is empty, because writer and reader compute different checksums; both are accepted here, the first
//! with a note.

use std::path::Path;

use md5::{Digest, Md5};

use super::blocks::{self, ContainerEntry};
use super::checkpoint::{Checkpoint, FtiFile, Parity, inspect};
use super::hashing::{self, HashRequest, Range};
use super::layout::{EntriesCrc, FileMeta, Layout, checksum_field};
use super::name::{FileName, FileRole};
use crate::error::{FormatsError, Result};
use crate::file_check::{Damage, FileCheck};
use crate::format::Progress;
use crate::hex::hex;
use crate::input::Input;

/// The kind of the note on an intact file that FTI refuses.
pub const REFUSED_BY_FTI: &str = "refused-by-fti";

/// Verifies a file of any role and layout.
pub fn verify(path: &Path, progress: Progress<'_>) -> Result<FileCheck> {
    verify_input(Input::open(path)?, path, progress)
}

/// Verifies a file that Holdfast wrote, before variables are loaded from it: as [`verify`], and what is accepted only
/// because FTI writes it is a damage, too.
pub fn verify_own(path: &Path, progress: Progress<'_>) -> Result<FileCheck> {
    let mut check = verify(path, progress)?;
    // A container that lost its mark of content looks like an empty one.
    let tolerated = check.notes.iter().position(|note| note.kind == REFUSED_BY_FTI);
    if let Some(tolerated) = tolerated {
        check.notes.remove(tolerated);
        check.damage(Damage::new("checksum", "file", "checksum includes containers that are marked as empty"));
    }
    Ok(check)
}

pub(super) fn verify_input(input: Input, path: &Path, progress: Progress<'_>) -> Result<FileCheck> {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(FileName::parse);
    let mut check = FileCheck::default();
    match inspect(input)? {
        FtiFile::Unreadable(damage) => check.damage(damage),
        FtiFile::Checkpoint(checkpoint) => {
            if name.is_some_and(|name| name.role == FileRole::Parity) {
                check.damage(Damage::new("name", "file", "named as parity, but its content is a checkpoint"));
            }
            metadata(&checkpoint.meta, checkpoint.hash_valid, name, &mut check);
            verify_checkpoint(&checkpoint, &mut check, progress)?;
        }
        FtiFile::Parity(parity) => {
            if name.is_some_and(|name| name.role != FileRole::Parity) {
                check.damage(Damage::new(
                    "name",
                    "file",
                    "named as a checkpoint, but its content is Reed-Solomon parity",
                ));
            }
            metadata(&parity.meta, parity.hash_valid, name, &mut check);
            verify_parity(&parity, &mut check, progress)?;
        }
    }
    Ok(check)
}

fn metadata(meta: &FileMeta, sound: bool, name: Option<FileName>, check: &mut FileCheck) {
    if !sound {
        let what = format!("its hash is {}, stored is {}", hex(&meta.computed_hash()), hex(&meta.own_hash));
        check.damage(Damage::new("file-hash", "file metadata", what));
    }
    // No hash covers the id in the metadata, and FTI uses this id, not the name.
    if let (Some(inside), Some(outside)) = (meta.checkpoint, name.and_then(|name| name.checkpoint))
        && i64::from(inside) != i64::from(outside)
    {
        let what = format!("its checkpoint is {inside}, that of the file's name is {outside}");
        check.damage(Damage::new("name", "file metadata", what));
    }
}

/// Compares the declared sizes with the size of the file.
fn sizes(checkpoint: &Checkpoint, check: &mut FileCheck) {
    let (meta, size) = (&checkpoint.meta, checkpoint.input.size);
    let damage = |check: &mut FileCheck, kind, what: String| check.damage(Damage::new(kind, "file metadata", what));
    if meta.checkpoint_size != meta.file_size {
        damage(check, "size", format!("ckptSize {} and fs {} differ", meta.checkpoint_size, meta.file_size));
    }
    let claimed = match u64::try_from(meta.file_size) {
        Ok(claimed) if claimed > meta.layout.meta_bytes() as u64 => claimed,
        _ => return damage(check, "size", format!("fs {} is impossible", meta.file_size)),
    };
    match meta.layout {
        // This layout omits empty containers at the end; a missing chunk is reported separately.
        Layout::B if claimed > size => {
            let what = format!("{size} of {claimed} bytes: empty containers at the end are not written in this layout");
            check.note(Damage::new("short", "file", what));
        }
        _ if claimed > size => damage(check, "truncated", format!("the file has {size} bytes, fs is {claimed}")),
        Layout::A | Layout::B if claimed < size => {
            let what = format!("{} bytes after the end of the checkpoint are not part of it", size - claimed);
            check.note(Damage::new("trailing", "file", what).at(claimed));
        }
        _ if claimed != size => damage(check, "size", format!("the file has {size} bytes, fs is {claimed}")),
        _ => {}
    }
    if let (Some(metadata), Some(data)) = (meta.meta_size, meta.data_size)
        && metadata.checked_add(data) != Some(meta.file_size)
    {
        damage(check, "size", format!("metaSize {metadata} plus dataSize {data} is not fs {}", meta.file_size));
    }
}

/// Compares the CRC of block heads and entries with the one that Holdfast recorded, if it wrote the file.
fn entries(checkpoint: &Checkpoint, check: &mut FileCheck) -> Result<()> {
    let meta = &checkpoint.meta;
    let Some(recorded) = meta.recorded_entries() else { return Ok(()) };
    let end = checkpoint.input.size.saturating_sub(meta.layout.meta_bytes() as u64);
    let start = meta.data_size.and_then(|size| u64::try_from(size).ok()).unwrap_or(end).min(end);
    let mut crc = EntriesCrc::of_checkpoint(meta.checkpoint.unwrap_or_default());
    checkpoint.input.each_piece(start, end - start, |piece| {
        crc.update(piece);
        Ok::<_, FormatsError>(())
    })?;
    let computed = crc.value();
    if computed != recorded {
        let what = format!("the CRC of the variables' metadata is {computed:04x}, stored is {recorded:04x}");
        check.damage(Damage::new("metadata-crc", "file metadata", what).at(start));
    }
    Ok(())
}

fn verify_checkpoint(checkpoint: &Checkpoint, check: &mut FileCheck, progress: Progress<'_>) -> Result<()> {
    sizes(checkpoint, check);
    checkpoint.walk.damages.iter().for_each(|damage| check.damage(damage.clone()));
    checkpoint.walk.notes.iter().for_each(|note| check.note(note.clone()));
    entries(checkpoint, check)?;
    let Chunks { ranges, all, complete } = chunks(checkpoint, check);
    let (meta, size) = (&checkpoint.meta, checkpoint.input.size);
    let mut request = HashRequest { combined: Vec::new(), chunks: ranges };
    match meta.layout {
        // The checksum of a truncated file cannot be compared; only its chunks are checked.
        Layout::A => {
            let front = meta.layout.meta_bytes() as u64;
            let end = u64::try_from(meta.file_size).ok().filter(|end| (front..=size).contains(end));
            request.combined.extend(end.map(|end| (front, end - front)));
        }
        Layout::B => request.combined.clone_from(&request.chunks),
        _ => {}
    }
    let found = hashing::hash(&checkpoint.input, &request, progress)?;
    check.checked_bytes =
        request.chunks.iter().chain(&request.combined).fold(0, |sum, range| sum.max(range.0.saturating_add(range.1)));
    let mut computed = found.chunks.iter();
    let mut both = (Md5::new(), Md5::new());
    for Chunk { block, index, entry, offset } in all {
        // FTI's writer hashes the hashes of all containers, its reader only of those with content.
        if !entry.is_filled() {
            both.0.update(entry.hash);
        }
        let Some((offset, hash)) = offset.and_then(|offset| Some((offset, computed.next()?))) else { continue };
        if *hash != entry.hash {
            let what = format!("hash of the chunk is {}, stored is {}", hex(hash), hex(&entry.hash));
            check.damage(Damage::new("chunk-hash", blocks::place(block, index, entry), what).at(offset));
        }
        both.0.update(hash);
        both.1.update(hash);
    }
    let sums: Vec<[u8; 16]> = match meta.layout {
        Layout::A if request.combined.is_empty() => return Ok(()),
        Layout::A | Layout::B => vec![found.combined],
        _ => vec![both.0.finalize().into(), both.1.finalize().into()],
    };
    if !complete && meta.layout != Layout::A {
        check.damage(Damage::new("checksum", "file", "cannot be computed: chunks are missing"));
    } else if !sums.iter().any(|sum| checksum_field(sum) == meta.checksum) {
        let what = format!("checksum is {}, stored is {}", hex(&sums[0]), meta.checksum_text());
        check.damage(Damage::new("checksum", "file", what));
    } else if sums.last().is_some_and(|sum| checksum_field(sum) != meta.checksum) {
        let what = "FTI refuses this file, although its data are intact: its checksum includes empty containers, a \
                    fault of FTI from v1.3 on when a variable shrinks; `holdfast fti repair` corrects it";
        check.note(Damage::new(REFUSED_BY_FTI, "file", what));
    }
    Ok(())
}

struct Chunk<'a> {
    block: usize,
    index: usize,
    entry: &'a ContainerEntry,
    /// Its offset in the file, if it was hashed.
    offset: Option<u64>,
}

struct Chunks<'a> {
    ranges: Vec<Range>,
    all: Vec<Chunk<'a>>,
    complete: bool,
}

/// The chunks to hash. A chunk outside of the file is a damage. Their total size is at most that of the file, so that
/// overlapping containers cannot increase the work.
fn chunks<'a>(checkpoint: &'a Checkpoint, check: &mut FileCheck) -> Chunks<'a> {
    let size = checkpoint.input.size;
    let mut chunks = Chunks { ranges: Vec::new(), all: Vec::new(), complete: true };
    let mut left = size;
    for (block, content) in checkpoint.walk.blocks.iter().enumerate() {
        for (index, entry) in content.entries.iter().enumerate() {
            let mut offset = None;
            let missing = match entry.range(size) {
                _ if !entry.is_filled() => None,
                Some((start, bytes)) if bytes <= left => {
                    left -= bytes;
                    chunks.ranges.push((start, bytes));
                    offset = Some(start);
                    None
                }
                Some(_) => Some((
                    "structure",
                    "it overlaps other chunks: all chunks together are longer than the file".to_owned(),
                )),
                None => {
                    let what = format!("its chunk of {} bytes at {} is not in the file", entry.chunksize, entry.fptr);
                    Some(("missing-chunk", what))
                }
            };
            if let Some((kind, what)) = missing {
                chunks.complete = false;
                check.damage(Damage::new(kind, blocks::place(block, index, entry), what));
            }
            chunks.all.push(Chunk { block, index, entry, offset });
        }
    }
    chunks
}

fn verify_parity(parity: &Parity, check: &mut FileCheck, progress: Progress<'_>) -> Result<()> {
    let meta = &parity.meta;
    let bytes = parity.data_bytes();
    if u64::try_from(meta.file_size).ok() != Some(bytes) || meta.largest_size != meta.file_size {
        let what = format!("{bytes} bytes of parity, fs is {}, maxFs is {}", meta.file_size, meta.largest_size);
        check.damage(Damage::new("truncated", "trailer", what));
    }
    let own = u64::try_from(meta.checkpoint_size).ok();
    if own.is_none_or(|own| own > bytes) {
        let what = format!("the rank's own file of {} bytes is longer than the parity", meta.checkpoint_size);
        check.damage(Damage::new("size", "trailer", what));
    }
    let request = HashRequest { chunks: Vec::new(), combined: vec![(0, bytes)] };
    let found = hashing::hash(&parity.input, &request, progress)?;
    check.checked_bytes = bytes;
    if checksum_field(&found.combined) != meta.checksum {
        let what = format!("checksum is {}, stored is {}", hex(&found.combined), meta.checksum_text());
        check.damage(Damage::new("checksum", "parity", what));
    }
    Ok(())
}
