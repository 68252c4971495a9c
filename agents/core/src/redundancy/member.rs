//! What a member of a group works with while it takes part in encoding or rebuilding: its files on this node, and links
//! to the other members. An agent provides it; tests provide it with directories and channels.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use holdfast_model::{CheckpointId, Rank, RankDescriptor};

use super::error::{RedundancyError, Result};
use super::files::MemberFiles;
use super::link::{LinkReceiver, LinkSender};
use super::piece::BufferPool;

/// One member's part in a step of its group. All members of a group have the same values, except for their own index.
#[derive(Clone, Debug)]
pub struct MemberTask {
    pub checkpoint: CheckpointId,
    pub ranks: u32,
    /// World rank of member 0.
    pub group_id: u32,
    /// World ranks of the members, by index.
    pub members: Vec<Rank>,
    pub index: u32,
    /// Index of the left neighbour.
    pub left: u32,
    /// Index of the right neighbour.
    pub right: u32,
    /// Bytes of the application's files of the largest member; used for encoding only.
    pub largest: u64,
    /// Only the redundancy of these members' files is made (again), by index; `None` is all.
    pub only: Option<BTreeSet<u32>>,
}

impl MemberTask {
    pub fn size(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// The rank of a member.
    ///
    /// # Errors
    /// [`RedundancyError::NoSuchMember`] if there is no such member.
    pub fn rank_of(&self, member: u32) -> Result<Rank> {
        let no_such_member = RedundancyError::NoSuchMember { members: self.size(), index: member };
        self.members.get(member as usize).copied().ok_or(no_such_member)
    }

    /// The own rank.
    pub fn rank(&self) -> Result<Rank> {
        self.rank_of(self.index)
    }

    /// True if redundancy of this member's files is to be made.
    pub fn is_wanted(&self, member: u32) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&member))
    }
}

/// A member's files, file map and links.
pub trait GroupMember: Sync {
    /// The directory of the own rank's files.
    fn directory(&self) -> &Path;

    /// The application's files of the own rank, in the order of the file map.
    fn files(&self) -> Result<MemberFiles>;

    /// The descriptor of the own rank, or of another member whose descriptor was stored here.
    ///
    /// # Errors
    /// When the file map has none.
    fn descriptor(&self, of: Rank) -> Result<RankDescriptor>;

    /// Stores the descriptor of another member, so that it is known when that member's node is lost.
    fn keep_descriptor(&self, owner: Rank, descriptor: &RankDescriptor) -> Result<()>;

    /// Adds a file of the own rank to the file map; returns where to write it.
    fn add_file(&self, name: &str) -> Result<PathBuf>;

    /// Files of other ranks in the own directory: a damaged header must not make us overwrite them.
    fn names_of_others(&self) -> BTreeSet<String>;

    /// A link to another member.
    fn link_to(&self, member: u32, pool: &BufferPool) -> Result<Box<dyn LinkSender>>;

    /// The link from another member; waits until that one has connected.
    ///
    /// # Errors
    /// When it does not come.
    fn link_from(&self, member: u32, pool: &BufferPool) -> Result<Box<dyn LinkReceiver>>;

    /// Sends a copy of all files of the own rank, and its descriptor, to the node of another member.
    ///
    /// # Errors
    /// A file or the connection.
    fn send_copy(&self, to: u32) -> Result<()>;

    /// Receives and keeps the copy of another member's files.
    ///
    /// # Errors
    /// A file or the connection.
    fn keep_copy(&self, of: u32) -> Result<()>;

    /// Bytes of a piece in which redundancy is computed.
    fn piece_bytes(&self) -> usize;

    /// True if meta files carry the checksums of redundancy files and of rebuilt files.
    fn with_crc(&self) -> bool;

    /// Reports how much is done; `Break` stops the step.
    fn progress(&self, done: u64, total: u64) -> ControlFlow<()>;
}
