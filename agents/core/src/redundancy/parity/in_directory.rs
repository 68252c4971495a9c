//! Computing lost members with all files of their set in one directory: slot after slot, from what all survivors have.

use std::sync::Arc;

use super::ParityScheme;
use super::member::{InSlot, Member};
use super::rebuild::Restoration;
use super::survivor::{Reader, Survivor};
use super::with_own;
use crate::redundancy::RedundancyError;
use crate::redundancy::files::SetId;
use crate::redundancy::lost_member::LostFiles;
use crate::redundancy::piece::{BufferPool, pieces};
use crate::redundancy::scheme::{LostPiece, OpenSet, TakePiece};
use crate::store::DatasetFiles;

/// Opens all members but the `missing` ones; `lost` makes what is known of the missing ones from the survivors, which
/// are in the order of the members.
pub fn open_set(
    scheme: &'static ParityScheme,
    files: &Arc<dyn DatasetFiles>,
    set: SetId,
    missing: &[u32],
    piece_bytes: usize,
    lost: impl FnOnce(&[Survivor]) -> Result<Vec<LostFiles>, RedundancyError>,
) -> Result<OpenSet, RedundancyError> {
    let SetId { group_id, members, .. } = set;
    let mut survivors: Vec<Survivor> = Vec::new();
    let geometry = |survivor: &Survivor| (survivor.file.header.chunk, survivor.file.header.failures());
    for member in (0..members).filter(|member| !missing.contains(member)) {
        let survivor = Survivor::open_in(scheme, files, &scheme.file_name(group_id, members, member))?;
        if survivors.first().is_some_and(|first| geometry(first) != geometry(&survivor)) {
            return Err(mismatch(&survivor, "it is of another set or checkpoint than the others"));
        }
        survivors.push(survivor);
    }
    let too_many = RedundancyError::TooManyMissing { group_id, members, missing: missing.len() };
    let Some((chunk, failures)) = survivors.first().map(geometry) else { return Err(too_many) };
    let restoration = Restoration::of((scheme.code)(members, failures), members, missing, group_id)?;
    let lost = lost(&survivors)?;
    let pool = BufferPool::default();
    let shape =
        |index| Member { failures, piece: piece_bytes, pool: pool.clone(), ..Member::new(index, members, chunk) };
    let shapes = missing.iter().map(|index| shape(*index)).collect();
    let read = move |take: &mut TakePiece<'_>| read_pieces(&mut survivors, &restoration, shapes, take);
    Ok(OpenSet { lost, pool: pool.clone(), read: Box::new(read) })
}

/// Adds up what the survivors have, slot after slot, verifies them, and hands the pieces over. `lost` are the places of
/// the missing members.
fn read_pieces(
    survivors: &mut [Survivor],
    restoration: &Restoration,
    lost: Vec<Member>,
    take: &mut TakePiece<'_>,
) -> Result<(), RedundancyError> {
    let Some(first) = lost.first() else { return Ok(()) };
    let places: Vec<Member> =
        survivors.iter().map(|survivor| Member { index: survivor.index, ..first.clone() }).collect();
    let indices: Vec<u32> = places.iter().map(|place| place.index).collect();
    let mut readers = survivors.iter_mut().map(Reader::new).collect::<Result<Vec<_>, _>>()?;
    let size = first.piece_of(lost.len());
    let mut scratch = vec![0; size];
    for slot in 0..first.members {
        let products = restoration.products(slot, &indices);
        for (offset, length) in pieces(first.chunk, size) {
            let mut sums = None;
            for ((reader, place), products) in readers.iter_mut().zip(&places).zip(&products) {
                let read = |at: u64, own: &mut [u8]| reader.read(place, slot, offset + at, own);
                sums = Some(with_own(first, products, sums, (lost.len(), length), &mut scratch, read)?);
            }
            let Some(mut sums) = sums else { continue };
            for (missing, place) in lost.iter().enumerate().skip(1) {
                let mut bytes = first.pool.take(length);
                bytes.copy_from_slice(&sums[missing * length..][..length]);
                take(piece_of(place, slot, missing, bytes))?;
            }
            sums.truncate(length);
            take(piece_of(first, slot, 0, sums))?;
        }
    }
    readers.into_iter().try_for_each(Reader::finish)
}

fn piece_of(place: &Member, slot: u32, missing: usize, bytes: Vec<u8>) -> LostPiece {
    LostPiece { missing, is_redundancy: matches!(place.in_slot(slot), InSlot::Redundancy(_)), bytes }
}

/// An error of a survivor that does not fit the others.
pub fn mismatch(survivor: &Survivor, why: &str) -> RedundancyError {
    RedundancyError::Header { origin: survivor.file.path.display().to_string(), why: why.to_owned() }
}
