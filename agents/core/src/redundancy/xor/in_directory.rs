//! Computing a lost member with all files of its set in one directory: from the survivors' headers and, slot after
//! slot, from what all of them have.

use std::sync::Arc;

use super::encode::Member;
use super::header::{self, HeaderOrder, XorHeader};
use super::name::XorName;
use super::rebuild::{Reader, Survivor};
use crate::redundancy::RedundancyError;
use crate::redundancy::files::SetId;
use crate::redundancy::piece::{BufferPool, pieces, xor_into};
use crate::redundancy::scheme::{LostPiece, OpenSet, TakePiece};
use crate::store::DatasetFiles;

/// Opens all members but `missing`.
pub(super) fn open_set(
    files: &Arc<dyn DatasetFiles>,
    set: SetId,
    missing: u32,
    piece_bytes: usize,
) -> Result<OpenSet, RedundancyError> {
    let SetId { group_id, members, .. } = set;
    let mut survivors: Vec<Survivor> = Vec::new();
    for index in (0..members).filter(|index| *index != missing) {
        let survivor = Survivor::open_in(files, &XorName { group_id, members, index }.to_string())?;
        if survivors.first().is_some_and(|first| first.xor.header.chunk != survivor.xor.header.chunk) {
            return Err(mismatch(&survivor, "it is of another set or checkpoint than the others"));
        }
        survivors.push(survivor);
    }
    let tree = {
        let at = |member: u32| &survivors[(if member < missing { member } else { member - 1 }) as usize];
        let (right, left) = (at((missing + 1) % members), at((missing + members - 1) % members));
        header::rebuilt(&right.xor.tree, &left.xor.tree, HeaderOrder::Drain)?
    };
    let header = XorHeader::from_tree(&tree, "the set's remaining members")?;
    if header.index() != usize::try_from(missing).ok() {
        return Err(mismatch(&survivors[0], "the neighbours' headers do not describe the missing member"));
    }
    let lost = vec![header.lost_files(&tree, group_id)];
    let pool = BufferPool::new();
    let shape = Member { piece: piece_bytes, pool: pool.clone(), ..Member::new(missing, members, header.chunk) };
    Ok(OpenSet { lost, pool, read: Box::new(move |take| read_pieces(&mut survivors, &shape, take)) })
}

/// XORs what the survivors have, slot after slot, verifies them, and hands the pieces over. `lost` is the shape of the
/// missing member.
fn read_pieces(survivors: &mut [Survivor], lost: &Member, take: &mut TakePiece<'_>) -> Result<(), RedundancyError> {
    let shapes: Vec<Member> =
        survivors.iter().map(|survivor| Member { index: survivor.index, ..lost.clone() }).collect();
    let mut readers = survivors.iter_mut().map(Reader::new).collect::<Result<Vec<_>, _>>()?;
    let size = lost.largest_piece();
    let mut scratch = vec![0; size];
    for slot in 0..lost.members {
        for (offset, length) in pieces(lost.chunk, size) {
            let mut bytes = lost.pool.take(length);
            for (at, (reader, shape)) in readers.iter_mut().zip(&shapes).enumerate() {
                if at == 0 {
                    let real = reader.read(shape, slot, offset, &mut bytes)?;
                    bytes[real..].fill(0);
                } else {
                    let scratch = &mut scratch[..length];
                    let real = reader.read(shape, slot, offset, scratch)?;
                    xor_into(&mut bytes, &scratch[..real]);
                }
            }
            take(LostPiece { missing: 0, is_redundancy: slot == lost.index, bytes })?;
        }
    }
    readers.into_iter().try_for_each(Reader::finish)
}

fn mismatch(survivor: &Survivor, why: &str) -> RedundancyError {
    RedundancyError::Header { origin: survivor.xor.path.display().to_string(), why: why.to_owned() }
}
