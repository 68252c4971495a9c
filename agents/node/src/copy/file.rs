//! One file of a drain: copied, its checksum computed on the way, both its meta files brought up to date.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use holdfast_core::control::meta::{Meta, format_crc};
use holdfast_core::durable;
use holdfast_core::kvtree::{Tree, file as hash_file};
use holdfast_wire::Rank;
use holdfast_wire::agent::CopyRequest;

use crate::store::examine::ExaminedFile;

/// Copies one file and its meta file; returns its size.
///
/// # Errors
/// What went wrong, naming the file.
pub(super) fn copy(
    source: &ExaminedFile,
    request: &CopyRequest,
    rank: Rank,
    buffer: &mut [u8],
    advance: &dyn Fn(u64),
) -> Result<u64, String> {
    let Some(meta) = &source.meta else {
        let why = Meta::of_usable(&source.path, request.checkpoint, rank, None).err();
        return Err(why.map_or_else(|| format!("{}: not usable", source.path.display()), |why| why.to_string()));
    };
    let regular = fs::metadata(&source.path).is_ok_and(|metadata| metadata.is_file());
    if !regular {
        return Err(format!("{} is not a regular file", source.path.display()));
    }
    let target = request.directory.join(&source.name);
    if let Some(crc) = already_there(&target, meta, buffer) {
        advance(meta.size);
        note_crc(source, meta, crc);
        return Ok(meta.size);
    }
    let copied = durable::replace_with(&target, |out| {
        let (crc, bytes) = pump(&source.path, out, buffer, advance)?;
        if bytes != meta.size {
            let expected = meta.size;
            return Err(io::Error::other(format!("it has {bytes} bytes now, its meta file says {expected}")));
        }
        Ok(crc)
    });
    let crc = copied.map_err(|error| format!("{} could not be copied: {error}", source.path.display()))?;
    if let Some(known) = meta.crc.filter(|known| *known != crc) {
        return Err(damaged(source, &target, known, crc));
    }
    let crc = request.crc.then_some(crc);
    write_meta(source, &target, crc)?;
    if let Some(crc) = crc {
        note_crc(source, meta, crc);
    }
    Ok(meta.size)
}

/// Reads all of a file into `out`; its CRC32 and length.
fn pump(source: &Path, out: &mut impl Write, buffer: &mut [u8], advance: &dyn Fn(u64)) -> io::Result<(u32, u64)> {
    let mut source = File::open(source)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut total = 0_u64;
    loop {
        match source.read(buffer) {
            Ok(0) => return Ok((hasher.finalize(), total)),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                out.write_all(&buffer[..count])?;
                total += count as u64;
                advance(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The checksum of a copy that is there, whole by its own meta file and content.
fn already_there(target: &Path, meta: &Meta, buffer: &mut [u8]) -> Option<u32> {
    if !fs::symlink_metadata(target).ok()?.is_file() {
        return None;
    }
    let there = Meta::of_usable(target, meta.checkpoint, meta.rank, Some(meta.ranks)).ok()?;
    let crc = there.crc?;
    if there.size != meta.size || meta.crc.is_some_and(|known| known != crc) {
        return None;
    }
    let (found, _) = pump(target, &mut io::sink(), buffer, &|_| {}).ok()?;
    (found == crc).then_some(crc)
}

/// The file in cache is not what was written: says so in its meta file, so that no restart takes it, and leaves no
/// copy behind that could be taken for good.
fn damaged(source: &ExaminedFile, target: &Path, known: u32, found: u32) -> String {
    let cached = Meta::path_for(&source.path);
    let marked = hash_file::read(&cached).and_then(|mut tree| {
        tree.put("COMPLETE", 0);
        hash_file::write(&cached, &tree)
    });
    if let Err(error) = marked {
        tracing::warn!(%error, "damaged_file_not_marked");
    }
    for leftover in [Meta::path_for(target), target.to_owned()] {
        if let Err(error) = durable::remove(&leftover) {
            tracing::warn!(%error, "damaged_copy_not_removed");
        }
    }
    format!(
        "{} is damaged: its CRC32 is {}, its meta file says {}",
        source.path.display(),
        format_crc(found),
        format_crc(known)
    )
}

/// Writes the copy's meta file: the cached one, element for element, with the checksum.
fn write_meta(source: &ExaminedFile, target: &Path, crc: Option<u32>) -> Result<(), String> {
    let mut tree = hash_file::read(&Meta::path_for(&source.path)).map_err(|error| error.to_string())?;
    set_crc(&mut tree, crc);
    hash_file::write(&Meta::path_for(target), &tree).map_err(|error| error.to_string())
}

/// Records the checksum in cache too. A cache that cannot be written any more loses nothing by it.
fn note_crc(source: &ExaminedFile, meta: &Meta, crc: u32) {
    if meta.crc.is_some() {
        return;
    }
    let path = Meta::path_for(&source.path);
    let noted = hash_file::read(&path).and_then(|mut tree| {
        set_crc(&mut tree, Some(crc));
        hash_file::write(&path, &tree)
    });
    if let Err(error) = noted {
        tracing::warn!(%error, "checksum_not_noted_in_cache");
    }
}

/// A checksum that is known already stays where it stands.
fn set_crc(tree: &mut Tree, crc: Option<u32>) {
    if let Some(crc) = crc.filter(|_| tree.get("CRC").is_none()) {
        tree.put("CRC", format_crc(crc));
    }
}
