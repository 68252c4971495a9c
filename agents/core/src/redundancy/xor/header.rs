//! The hash at the start of an XOR file: the members of the set, and the meta data of the own and the left neighbour's
//! files.
//!
//! The order of elements is the original's, so that our files have its bytes (`docs/scr-files.md` §1, §6). File index =
//! order of concatenation = the order in which the file map lists the files, which is the reverse of the routing order.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{CheckpointId, Rank};

use super::name::{NAME, XorName};
use crate::kvtree::{Tree, file};
use crate::redundancy::RedundancyError;
use crate::redundancy::files::{MAX_MEMBERS, MemberFiles, bad, number};
use crate::redundancy::lost_member::LostFiles;

/// The header of an XOR file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XorHeader {
    /// Bytes of XOR data behind the header.
    pub chunk: u64,
    pub checkpoint: CheckpointId,
    pub ranks: u32,
    /// World ranks of the set's members, by index.
    pub members: Vec<Rank>,
    pub current: MemberFiles,
    /// The left neighbour's files.
    pub partner: MemberFiles,
}

impl XorHeader {
    /// The tree in the order in which the library writes it.
    pub fn to_tree(&self) -> Tree {
        self.to_tree_with(MemberFiles::to_tree)
    }

    /// As [`XorHeader::to_tree`]; its length does not depend on the values of the checksums, so that they can be
    /// written when the data behind the header is there.
    pub fn to_tree_of_fixed_length(&self) -> Tree {
        self.to_tree_with(MemberFiles::to_tree_of_fixed_length)
    }

    fn to_tree_with(&self, files: fn(&MemberFiles) -> Tree) -> Tree {
        let mut tree = Tree::new();
        tree.put("RANKS", self.ranks);
        let mut group = Tree::new();
        group.put("RANKS", self.members.len());
        let mut ranks = Tree::new();
        for (index, rank) in self.members.iter().enumerate() {
            ranks.set_kv(index.to_string(), rank);
        }
        group.set("RANK", ranks);
        tree.set("GROUP", group);
        tree.put("CKPT", self.checkpoint);
        tree.set("CURRENT", files(&self.current));
        tree.set("PARTNER", as_received(&files(&self.partner)));
        tree.put("CHUNK", self.chunk);
        tree
    }

    /// Reads and checks a header, in any order of its elements. `origin` names it in errors.
    pub fn from_tree(tree: &Tree, origin: &str) -> Result<XorHeader, RedundancyError> {
        let subtree = |key: &str| tree.get(key).ok_or_else(|| bad(origin, format!("{key} is missing")));
        let group = subtree("GROUP")?;
        let count: u32 = number(group, "RANKS", origin)?;
        let ranks: u32 = number(tree, "RANKS", origin)?;
        if !(2..=MAX_MEMBERS.min(ranks)).contains(&count) {
            return Err(bad(origin, format!("a set of {count} members in a run of {ranks} ranks is impossible")));
        }
        let mut listed = BTreeMap::new();
        for (index, rank) in group.get("RANK").into_iter().flat_map(Tree::iter) {
            let pair = index.parse::<u32>().ok().zip(rank.keys().next().and_then(|rank| rank.parse().ok()));
            let (index, rank) = pair.ok_or_else(|| bad(origin, format!("GROUP has no rank for member {index}")))?;
            listed.insert(index, Rank(rank));
        }
        if !listed.keys().copied().eq(0..count) {
            return Err(bad(origin, format!("GROUP does not list exactly {count} members")));
        }
        let members: Vec<Rank> = listed.into_values().collect();
        let distinct: BTreeSet<Rank> = members.iter().copied().collect();
        if distinct.len() != members.len() || distinct.last().is_some_and(|rank| rank.0 >= ranks) {
            return Err(bad(origin, "GROUP names a rank twice, or one that the run does not have".into()));
        }
        let header = XorHeader {
            chunk: number(tree, "CHUNK", origin)?,
            checkpoint: CheckpointId(number(tree, "CKPT", origin)?),
            ranks,
            members,
            current: MemberFiles::from_tree(subtree("CURRENT")?, origin)?,
            partner: MemberFiles::from_tree(subtree("PARTNER")?, origin)?,
        };
        header.check(origin)?;
        Ok(header)
    }

    fn check(&self, origin: &str) -> Result<(), RedundancyError> {
        let Some(index) = self.index() else {
            return Err(bad(origin, format!("rank {} is not a member of its own set", self.current.rank)));
        };
        let left = (index + self.members.len() - 1) % self.members.len();
        if self.members[left] != self.partner.rank {
            return Err(bad(
                origin,
                format!("PARTNER is rank {}, but the left neighbour is {}", self.partner.rank, self.members[left]),
            ));
        }
        let room = self.chunk.checked_mul(self.members.len() as u64 - 1);
        let room = room.ok_or_else(|| bad(origin, format!("a chunk of {} bytes is impossible", self.chunk)))?;
        for files in [&self.current, &self.partner] {
            if files.total_bytes().is_none_or(|bytes| bytes > room) {
                return Err(bad(origin, format!("the files of rank {} do not fit into {room} bytes", files.rank)));
            }
            for meta in &files.files {
                if meta.checkpoint != self.checkpoint || meta.rank != files.rank || meta.ranks != self.ranks {
                    return Err(bad(origin, format!("`{}` is of another checkpoint, rank or run", meta.file)));
                }
            }
        }
        Ok(())
    }

    /// The files of the member whose header this is, to be written again; `tree` is the header as it is in its file.
    pub fn lost_files(&self, tree: &Tree, group_id: u32) -> LostFiles {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (members, index) = (number(self.members.len()), self.index().map_or(0, number));
        LostFiles {
            scheme: NAME,
            checkpoint: self.checkpoint,
            ranks: self.ranks,
            files: self.current.clone(),
            // Checked: the number fits.
            padded_bytes: self.chunk.saturating_mul(self.members.len() as u64 - 1),
            redundancy_file: XorName { group_id, members, index }.to_string(),
            head: file::encode(tree),
            redundancy_bytes: self.chunk,
            is_redundancy_file: |name| XorName::parse(name).is_some(),
        }
    }

    /// Index of the own rank in the set.
    pub fn index(&self) -> Option<usize> {
        self.members.iter().position(|rank| *rank == self.current.rank)
    }
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
    tree.unset("PARTNER");
    let own = right.get("PARTNER").ok_or_else(|| missing("right", "PARTNER"))?;
    let own = match occasion {
        HeaderOrder::Restart => own.clone(),
        HeaderOrder::Drain => as_received(own),
    };
    tree.set("CURRENT", own);
    let partner = left.get("CURRENT").ok_or_else(|| missing("left", "CURRENT"))?;
    tree.set("PARTNER", as_received(partner));
    Ok(tree)
}

/// Bytes of XOR data for a set of `members` whose largest member has `largest` bytes: never 0.
pub fn chunk_size(largest: u64, members: u32) -> u64 {
    largest.div_ceil(u64::from(members.max(2) - 1)).max(1)
}

/// A tree that went through a message arrives reversed on every level.
fn as_received(tree: &Tree) -> Tree {
    let mut received = Tree::new();
    received.merge(tree);
    received
}
