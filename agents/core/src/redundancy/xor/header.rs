//! What the header of an XOR file has of its own: the left neighbour's files, and the order of its elements when it is
//! made again.

use crate::kvtree::Tree;
use crate::redundancy::RedundancyError;
use crate::redundancy::files::{MemberFiles, bad};
use crate::redundancy::parity::WriteFiles;
use crate::redundancy::parity::header::{ParityHeader, as_received};

const PARTNER: &str = "PARTNER";

/// The left neighbour's files, in the order in which they were received.
pub(super) fn put_left(tree: &mut Tree, header: &ParityHeader, files: WriteFiles) {
    for left in &header.left {
        tree.set(PARTNER, as_received(&files(left)));
    }
}

pub(super) fn read_left(tree: &Tree, origin: &str) -> Result<Vec<MemberFiles>, RedundancyError> {
    let partner = tree.get(PARTNER).ok_or_else(|| bad(origin, format!("{PARTNER} is missing")))?;
    Ok(vec![MemberFiles::from_tree(partner, origin)?])
}

/// When a member is rebuilt: the original orders the elements of the new header differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderOrder {
    /// By the library in `SCR_Init`.
    Restart,
    /// By `scr_rebuild_xor` after the drain.
    Drain,
}

/// The header that a rebuilt XOR file gets, from the headers of the lost member's right and left neighbours, with the
/// original's order of elements (`docs/scr-files.md` §6).
pub fn rebuilt(right: &Tree, left: &Tree, occasion: HeaderOrder) -> Result<Tree, RedundancyError> {
    let missing = |side: &str, key: &str| bad(&format!("the {side} neighbour"), format!("{key} is missing"));
    let mut tree = as_received(right);
    tree.unset("CURRENT");
    tree.unset(PARTNER);
    let own = right.get(PARTNER).ok_or_else(|| missing("right", PARTNER))?;
    let own = match occasion {
        HeaderOrder::Restart => own.clone(),
        HeaderOrder::Drain => as_received(own),
    };
    tree.set("CURRENT", own);
    let partner = left.get("CURRENT").ok_or_else(|| missing("left", "CURRENT"))?;
    tree.set(PARTNER, as_received(partner));
    Ok(tree)
}
