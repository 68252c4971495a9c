//! The rebuild of a member with all files of its set in one directory: its header is made from those of its neighbours.

use std::sync::Arc;

use super::PARITY;
use super::header::{self, HeaderOrder};
use crate::redundancy::Result;
use crate::redundancy::files::SetId;
use crate::redundancy::parity::header::ParityHeader;
use crate::redundancy::parity::in_directory::{self, mismatch};
use crate::redundancy::scheme::OpenSet;
use crate::store::DatasetFiles;

/// Opens all members but `missing`.
pub(super) fn open_set(files: &Arc<dyn DatasetFiles>, set: SetId, missing: u32, piece_bytes: usize) -> Result<OpenSet> {
    let SetId { group_id, members, .. } = set;
    in_directory::open_set(&PARITY, files, set, &[missing], piece_bytes, |survivors| {
        let at = |member: u32| &survivors[(if member < missing { member } else { member - 1 }) as usize];
        let (right, left) = (at((missing + 1) % members), at((missing + members - 1) % members));
        let tree = header::rebuilt(&right.file.tree, &left.file.tree, HeaderOrder::Drain)?;
        let header = ParityHeader::from_tree(&PARITY, &tree, "the set's remaining members")?;
        if header.index() != Some(missing) {
            return Err(mismatch(&survivors[0], "the neighbours' headers do not describe the missing member"));
        }
        Ok(vec![header.lost_files(&tree, group_id)])
    })
}
