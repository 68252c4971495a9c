//! The hash in front of an XOR file: who belongs to the set, and the meta data of the own and the left neighbour's files.
//!
//! The order of elements is the original's, so that our files have its bytes (`FORMATS.md` §1, §6). File index = order
//! of concatenation = the order in which the file map lists the files, which is the reverse of the routing order.

use std::collections::{BTreeMap, BTreeSet};

use crate::control::meta::Meta;
use crate::kvtree::{Element, Tree};
use crate::redundancy::RedundancyError;
use holdfast_model::{CheckpointId, Rank};

/// More members than any site would put into one set; bounds what a damaged header can make us do.
pub const MAX_MEMBERS: u32 = 65_536;

/// The files of one member, in the order of concatenation: CURRENT of its own header, PARTNER of its right neighbour's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberFiles {
    /// World rank of the member.
    pub rank: Rank,
    /// Meta data of its files; may be empty.
    pub files: Vec<Meta>,
}

impl MemberFiles {
    /// The tree as its owner writes it, and as it is sent to the right neighbour.
    pub fn to_tree(&self) -> Tree {
        let mut tree = Tree::new();
        tree.put("RANK", self.rank);
        tree.put("FILES", self.files.len());
        // The file added last stands in front. No index comes twice, so that there is always a tree.
        let files = self.files.iter().enumerate().rev();
        let files = files.map(|(index, meta)| Element { key: index.to_string(), value: meta.to_tree() });
        tree.set("FILE", Tree::from_front_to_back(files.collect()).unwrap_or_default());
        tree
    }

    /// Reads the tree, in any order of its elements.
    pub fn from_tree(tree: &Tree, origin: &str) -> Result<MemberFiles, RedundancyError> {
        let rank = number(tree, "RANK", origin)?;
        let count: usize = number(tree, "FILES", origin)?;
        let mut listed = BTreeMap::new();
        for (index, meta) in tree.get("FILE").into_iter().flat_map(Tree::iter) {
            let index: usize = index.parse().map_err(|_| bad(origin, format!("file index `{index}` is no number")))?;
            let meta = Meta::from_tree(meta).map_err(|error| bad(origin, format!("file {index}: {error}")))?;
            listed.insert(index, meta);
        }
        if listed.len() != count || listed.keys().next_back().is_some_and(|last| *last >= count) {
            return Err(bad(origin, format!("FILES says {count}, but {} are listed", listed.len())));
        }
        let files: Vec<Meta> = listed.into_values().collect();
        let mut names = BTreeSet::new();
        if let Some(twice) = files.iter().find(|meta| !names.insert(meta.file.as_str())) {
            return Err(bad(origin, format!("`{}` is listed twice", twice.file)));
        }
        let files = MemberFiles { rank: Rank(rank), files };
        if files.total_bytes().is_none() {
            return Err(bad(origin, "the sizes of its files do not add up".into()));
        }
        Ok(files)
    }

    /// Bytes of all files together; `None` if that is no number we can count to.
    pub fn total_bytes(&self) -> Option<u64> {
        self.files.iter().try_fold(0u64, |sum, meta| sum.checked_add(meta.size))
    }
}

/// The header of an XOR file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of XOR data behind the header.
    pub chunk: u64,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Ranks of the run.
    pub ranks: u32,
    /// World ranks of the set's members, by index.
    pub members: Vec<Rank>,
    /// The own files.
    pub current: MemberFiles,
    /// The left neighbour's files.
    pub partner: MemberFiles,
}

impl Header {
    /// The tree in the order in which the library writes it.
    pub fn to_tree(&self) -> Tree {
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
        tree.set("CURRENT", self.current.to_tree());
        tree.set("PARTNER", as_received(&self.partner.to_tree()));
        tree.put("CHUNK", self.chunk);
        tree
    }

    /// Reads and checks a header, in any order of its elements. `origin` names it in errors.
    pub fn from_tree(tree: &Tree, origin: &str) -> Result<Header, RedundancyError> {
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
            let (index, rank) = pair.ok_or_else(|| bad(origin, format!("GROUP does not say who member {index} is")))?;
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
        let header = Header {
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

    /// Index of the own rank in the set.
    pub fn index(&self) -> Option<usize> {
        self.members.iter().position(|rank| *rank == self.current.rank)
    }
}

/// When a member is rebuilt: the original orders the elements of the new header differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// By the library in `SCR_Init`.
    Restart,
    /// By `scr_rebuild_xor` after the drain.
    Drain,
}

/// The header that a rebuilt XOR file gets, from the headers of the lost member's right and left neighbours, with the
/// original's order of elements (`FORMATS.md` §6).
pub fn rebuilt(right: &Tree, left: &Tree, occasion: Occasion) -> Result<Tree, RedundancyError> {
    let missing = |side: &str, key: &str| bad(&format!("the {side} neighbour"), format!("{key} is missing"));
    let mut tree = as_received(right);
    tree.unset("CURRENT");
    tree.unset("PARTNER");
    let own = right.get("PARTNER").ok_or_else(|| missing("right", "PARTNER"))?;
    let own = match occasion {
        Occasion::Restart => own.clone(),
        Occasion::Drain => as_received(own),
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

fn number<T: std::str::FromStr>(tree: &Tree, key: &str, origin: &str) -> Result<T, RedundancyError> {
    match tree.value(key) {
        Some(value) => value.parse().map_err(|_| bad(origin, format!("{key} `{value}` is not a valid number"))),
        None => Err(bad(origin, format!("{key} is missing"))),
    }
}

fn bad(origin: &str, why: String) -> RedundancyError {
    RedundancyError::Header { origin: origin.to_owned(), why }
}
