//! The hash at the start of a redundancy file: the members of the set, and the meta data of the own files and of those
//! of the left neighbours, so that as many members as can be lost are described by one that is left.
//!
//! The order of elements is the original's, so that our XOR files have its bytes (`docs/scr-files.md` §1, §6). File
//! index = order of concatenation = the order in which the file map lists the files, which is the reverse of the
//! routing order.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{CheckpointId, Rank};

use super::{ParityScheme, WriteFiles};
use crate::kvtree::{Tree, file};
use crate::redundancy::Result;
use crate::redundancy::files::{MAX_MEMBERS, MemberFiles, bad, number};
use crate::redundancy::lost_member::LostFiles;

/// The header of a redundancy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityHeader {
    pub scheme: &'static ParityScheme,
    /// Bytes of a chunk.
    pub chunk: u64,
    pub checkpoint: CheckpointId,
    pub ranks: u32,
    /// World ranks of the set's members, by index.
    pub members: Vec<Rank>,
    pub current: MemberFiles,
    /// The left neighbours' files, nearest first: of as many neighbours as members can be lost.
    pub left: Vec<MemberFiles>,
}

impl ParityHeader {
    /// The tree in the order in which the library writes it.
    pub fn to_tree(&self) -> Tree {
        self.to_tree_with(MemberFiles::to_tree)
    }

    /// As [`ParityHeader::to_tree`]; its length does not depend on the values of the checksums, so that they can be
    /// written when the data behind the header is there.
    pub fn to_tree_of_fixed_length(&self) -> Tree {
        self.to_tree_with(MemberFiles::to_tree_of_fixed_length)
    }

    fn to_tree_with(&self, files: WriteFiles) -> Tree {
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
        (self.scheme.put_left)(&mut tree, self, files);
        tree.put("CHUNK", self.chunk);
        tree
    }

    /// Reads and checks a header, in any order of its elements. `origin` names it in errors.
    pub fn from_tree(scheme: &'static ParityScheme, tree: &Tree, origin: &str) -> Result<ParityHeader> {
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
        let header = ParityHeader {
            scheme,
            chunk: number(tree, "CHUNK", origin)?,
            checkpoint: CheckpointId(number(tree, "CKPT", origin)?),
            ranks,
            members,
            current: MemberFiles::from_tree(subtree("CURRENT")?, origin)?,
            left: (scheme.read_left)(tree, origin)?,
        };
        header.check(origin)?;
        Ok(header)
    }

    /// Checks what was put together from several headers.
    pub fn check(&self, origin: &str) -> Result<()> {
        if self.index().is_none() {
            return Err(bad(origin, format!("rank {} is not a member of its own set", self.current.rank)));
        }
        if self.left.is_empty() || self.left.len() >= self.members.len() {
            let (failures, members) = (self.left.len(), self.members.len());
            return Err(bad(origin, format!("a set of {members} members cannot lose {failures}")));
        }
        if self.size().saturating_add(self.failures()) > self.scheme.places {
            let (size, failures) = (self.size(), self.failures());
            return Err(bad(origin, format!("there is no code for {size} members and {failures} losses")));
        }
        for (member, files) in self.known().skip(1) {
            let expected = self.members[member as usize];
            if files.rank != expected {
                let found = files.rank;
                return Err(bad(origin, format!("PARTNER is rank {found}, but the left neighbour is {expected}")));
            }
        }
        let room = u64::from(self.size() - self.failures());
        let room = self.chunk.checked_mul(room).filter(|_| self.chunk.checked_mul(u64::from(self.size())).is_some());
        let room = room.ok_or_else(|| bad(origin, format!("a chunk of {} bytes is impossible", self.chunk)))?;
        for (_, files) in self.known() {
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
        LostFiles {
            scheme: self.scheme.name,
            checkpoint: self.checkpoint,
            ranks: self.ranks,
            files: self.current.clone(),
            // Checked: the numbers fit.
            padded_bytes: self.chunk.saturating_mul(u64::from(self.size() - self.failures())),
            redundancy_file: self.scheme.file_name(group_id, self.size(), self.index().unwrap_or(0)),
            head: file::encode(tree),
            redundancy_bytes: self.data_bytes(),
            is_redundancy_file: self.scheme.is_redundancy_file,
        }
    }

    /// World rank of member 0.
    pub fn group_id(&self) -> u32 {
        self.members.first().map_or(0, |rank| rank.0)
    }

    /// How many members the set has.
    pub fn size(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// How many of them can be lost.
    pub fn failures(&self) -> u32 {
        u32::try_from(self.left.len()).unwrap_or(u32::MAX)
    }

    /// Bytes of redundancy data behind the header.
    pub fn data_bytes(&self) -> u64 {
        self.chunk.saturating_mul(u64::from(self.failures()))
    }

    /// Index of the own rank in the set.
    pub fn index(&self) -> Option<u32> {
        let at = self.members.iter().position(|rank| *rank == self.current.rank)?;
        u32::try_from(at).ok()
    }

    /// The members whose files it lists, the own one first, by index.
    pub fn known(&self) -> impl Iterator<Item = (u32, &MemberFiles)> {
        let (own, size) = (self.index().unwrap_or(0), self.size());
        let left = (1..).map(move |distance| (own + size - distance) % size).zip(&self.left);
        std::iter::once((own, &self.current)).chain(left)
    }
}

/// Bytes of a chunk, for a set of `members` of which so many can be lost, whose largest member has `largest` bytes:
/// never 0.
pub fn chunk_size(largest: u64, members: u32, failures: u32) -> u64 {
    largest.div_ceil(u64::from(members.saturating_sub(failures).max(1))).max(1)
}

/// A tree that went through a message arrives reversed on every level.
pub fn as_received(tree: &Tree) -> Tree {
    let mut received = Tree::new();
    received.merge(tree);
    received
}
