//! Computing lost members again with all files of their set in one directory, as after a drain (what the original's
//! `scr_rebuild_xor` does): which survivors there are, whether they are of one set, and writing what its scheme
//! computes from them.
//!
//! It differs from the original in two points: the survivors' checksums are verified while they are read, and nothing
//! is installed if one is wrong; and a rebuilt file appears under its name only when it is complete.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use super::files::{MAX_MEMBERS, RebuiltMember, SetFile, SetId};
use super::lost_member::{LostMember, Unconfirmed};
use super::piece::{BufferPool, DEFAULT_PIECE_BYTES};
use super::scheme::{LostPiece, OpenSet, Progress, RedundancyScheme};
use super::{RedundancyError, registry};
use crate::control::meta::EXTENSION;
use crate::store::DatasetFiles;

/// Pieces that were read and not yet written: what memory a rebuild takes.
const PIECES_IN_FLIGHT: usize = 4;

/// Computes all files of the `missing` members (from 0) of a set in the directory of `files`: application files,
/// redundancy files, their meta files with checksums, and `<rank>.scrfilemap`. What is left of the members is replaced.
/// Progress counts bytes rebuilt, and may stop it.
///
/// # Errors
/// [`RedundancyError::MemberDamaged`] or [`RedundancyError::Header`] if a survivor is damaged: it then counts as
/// missing, too. Nothing is changed in the directory.
pub fn rebuild(
    files: &Arc<dyn DatasetFiles>,
    set: SetId,
    missing: &[u32],
    progress: &mut Progress<'_>,
) -> Result<Vec<RebuiltMember>, RedundancyError> {
    rebuild_in_pieces(files, set, missing, DEFAULT_PIECE_BYTES, progress)
}

/// As [`rebuild`], with pieces of this size.
pub(super) fn rebuild_in_pieces(
    files: &Arc<dyn DatasetFiles>,
    set: SetId,
    missing: &[u32],
    piece_bytes: usize,
    progress: &mut Progress<'_>,
) -> Result<Vec<RebuiltMember>, RedundancyError> {
    let scheme = registry::get(set.scheme).ok_or(RedundancyError::NotComputed { scheme: set.scheme })?;
    let members = set.members;
    let impossible = missing.iter().copied().find(|index| *index >= members);
    if let Some(index) = impossible.or((!(2..=MAX_MEMBERS).contains(&members)).then_some(0)) {
        return Err(RedundancyError::NoSuchMember { members, index });
    }
    let names = check_survivors(files, scheme, set, missing)?;
    let OpenSet { lost, pool, read } = scheme.open_set(files, set, missing, piece_bytes)?;
    let bytes = lost.iter().map(|lost| lost.padded_bytes.saturating_add(lost.redundancy_bytes));
    let total = bytes.fold(0, u64::saturating_add);
    let dataset = files.stored();
    let lost = lost.into_iter().map(|lost| LostMember::create(&dataset, lost, &names));
    let mut lost = lost.collect::<Result<Vec<_>, _>>()?;
    // Reading and writing at the same time: each is bound by the file system, and not by the same part of it.
    let (sender, receiver) = sync_channel(PIECES_IN_FLIGHT);
    let reading = move || read(&mut |piece| sender.send(piece).map_err(|_| RedundancyError::Stopped));
    thread::scope(|scope| {
        let reading = thread::Builder::new().spawn_scoped(scope, reading).map_err(RedundancyError::Thread)?;
        let written = write_pieces(&mut lost, &pool, receiver, total, progress);
        // The reader's error is the cause where both failed, unless the writer has hung up on it.
        match (reading.join().unwrap_or_else(|panic| resume_unwind(panic)), written) {
            (Ok(()), written) => written,
            (Err(RedundancyError::Stopped), Err(error)) => Err(error),
            (Err(error), _) => Err(error),
        }
    })?;
    let complete = lost.into_iter().map(LostMember::finish).collect::<Result<Vec<_>, _>>()?;
    complete.into_iter().map(Unconfirmed::install_with_filemap).collect()
}

/// Writes the pieces until the reader has no more.
fn write_pieces(
    lost: &mut [LostMember],
    pool: &BufferPool,
    pieces: Receiver<LostPiece>,
    total: u64,
    progress: &mut Progress<'_>,
) -> Result<(), RedundancyError> {
    let mut done = 0;
    for LostPiece { missing, is_redundancy, bytes } in pieces {
        lost[missing].take(is_redundancy, &bytes)?;
        done += bytes.len() as u64;
        pool.give(bytes);
        if progress(done, total) == ControlFlow::Break(()) {
            return Err(RedundancyError::Stopped);
        }
    }
    Ok(())
}

/// All survivors must be of one set of one checkpoint; returns the names that are theirs.
fn check_survivors(
    files: &Arc<dyn DatasetFiles>,
    scheme: &dyn RedundancyScheme,
    set: SetId,
    missing: &[u32],
) -> Result<BTreeSet<String>, RedundancyError> {
    let mut names = BTreeSet::new();
    let mut first = None;
    for member in (0..set.members).filter(|index| !missing.contains(index)) {
        let header = scheme.read_header(&**files, &SetFile { set, member })?;
        let redundancy = scheme.file_names(set, member);
        let mismatch = |why: &str| RedundancyError::Header {
            origin: redundancy.first().map_or(String::new(), |name| files.path_of(name).display().to_string()),
            why: why.to_owned(),
        };
        let identity = (header.checkpoint, header.ranks, header.members);
        if first.get_or_insert_with(|| identity.clone()) != &identity {
            return Err(mismatch("it is of another set or checkpoint than the others"));
        }
        if missing.len() as u64 > u64::from(header.tolerance) {
            let SetId { group_id, members, .. } = set;
            return Err(RedundancyError::TooManyMissing { group_id, members, missing: missing.len() });
        }
        let own = header.files.into_iter().filter(|(index, _)| *index == member).flat_map(|(_, own)| own.files);
        for name in own.map(|meta| meta.file).chain(redundancy.iter().cloned()) {
            names.insert(format!("{name}{EXTENSION}"));
            if !names.insert(name) {
                return Err(mismatch("two members have a file of the same name"));
            }
        }
    }
    Ok(names)
}
