//! The interface of a redundancy scheme: one trait, for the leader that forms groups and plans a restart, for the
//! agents that encode and rebuild, for the drain and for the scan of a checkpoint directory.
//!
//! A scheme is one folder beside this file and one line in the [`registry`](super::registry). No other code refers to
//! its name or to the names of its files.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_model::{CheckpointId, Level, Rank, RankDescriptor, Scheme};

use super::error::RedundancyError;
use super::files::{DescribedHeader, FileFormat, MemberFiles, SetFile, SetId};
use super::groups::{ForcedLocal, GroupRules, Groups, InconsistentDescriptors, NeighbourCopy, Site};
use super::lost_member::LostFiles;
use super::member::{GroupMember, MemberTask};
use super::numbers::{NumberError, SchemeNumber};
use super::parity::ParityScheme;
use super::piece::BufferPool;
use crate::kvtree::Tree;
use crate::store::DatasetFiles;

/// Called with the number of bytes done so far and of all; `Break` stops the step, which then leaves nothing behind.
pub type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// The header of a redundancy file, as far as a scan needs it: what its set and some members' files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetHeader {
    pub checkpoint: CheckpointId,
    /// Ranks of the run that wrote it.
    pub ranks: u32,
    /// World ranks of the members, by index.
    pub members: Vec<Rank>,
    /// How many members can be lost and computed again.
    pub tolerance: u32,
    /// The application's files of the members that the header describes, by index.
    pub files: Vec<(u32, MemberFiles)>,
}

/// A set that was opened without its missing members.
pub struct OpenSet {
    /// What is known of the files of the missing members, in the order in which they were asked for.
    pub lost: Vec<LostFiles>,
    /// The writer returns the buffers of pieces to it.
    pub pool: BufferPool,
    pub read: ReadSurvivors,
}

/// Reads and verifies the survivors, and passes on what it computes; an error of the receiver ends it.
pub type ReadSurvivors = Box<dyn FnOnce(&mut TakePiece<'_>) -> Result<(), RedundancyError> + Send>;

pub type TakePiece<'a> = dyn FnMut(LostPiece) -> Result<(), RedundancyError> + 'a;

/// The next bytes of a missing member.
pub struct LostPiece {
    /// Index among the missing members.
    pub missing: usize,
    /// They belong to its redundancy data, not to the files of the application.
    pub is_redundancy: bool,
    pub bytes: Vec<u8>,
}

/// A redundancy scheme.
///
/// The methods that compute lost files have defaults for schemes that compute none: they keep copies, or nothing.
pub trait RedundancyScheme: fmt::Debug + Sync {
    /// Its name in SCR's files and parameters.
    fn name(&self) -> Scheme;

    /// What is lost, of a scheme that keeps copies or nothing, to complete "rank 1 lost all files, and …".
    fn limit(&self) -> &'static str {
        "nothing restores them"
    }

    /// What survives more losses, of a scheme that computes lost files, to complete "… and it survives one; …".
    fn remedy(&self) -> &'static str {
        "use more nodes or another scheme"
    }

    /// True if a checkpoint survives the loss of a node.
    fn protects(&self) -> bool {
        true
    }

    /// Its numbers, besides [those of every descriptor](super::numbers::OF_EVERY_DESCRIPTOR).
    fn numbers(&self) -> &'static [&'static SchemeNumber] {
        &[]
    }

    /// The levels of checkpoints of variables that it can protect in the caches. Of several schemes that serve a level,
    /// the one that is requested does, else the first of the registry.
    fn levels(&self) -> &'static [Level] {
        &[]
    }

    /// Checks the numbers of a descriptor, each of which is in its range, against each other.
    ///
    /// # Errors
    /// A number with which the scheme cannot form groups.
    fn check(&self, _rules: GroupRules<'_>) -> Result<(), NumberError> {
        Ok(())
    }

    /// Forms the groups of a run; `sites[r]` is where rank `r` runs, and there is at least one.
    ///
    /// # Errors
    /// When the placement does not allow groups over several failure domains.
    fn form(&self, sites: &[Site], rules: GroupRules<'_>) -> Result<Groups, ForcedLocal>;

    /// The groups of a checkpoint that was found in cache, for the placement of the new run. A scheme whose groups
    /// depend on the placement forms them anew and writes them into the descriptors.
    ///
    /// # Errors
    /// Descriptors that contradict each other.
    fn regroup(&self, _sites: &[Site], descriptors: &mut [RankDescriptor]) -> Result<Groups, InconsistentDescriptors> {
        Groups::described(self.name(), descriptors)
    }

    /// The copies of ranks' files that the groups ask for.
    fn copies(&self, _groups: &Groups, _sites: &[Site]) -> Vec<NeighbourCopy> {
        Vec::new()
    }

    /// True if a member exchanges files with its neighbours only: then it needs no others of its group, which may have
    /// as many members as the run has nodes.
    fn is_between_neighbours(&self) -> bool {
        false
    }

    /// True if members pass on the lists of files of others while they encode: then messages may be larger than what
    /// this member knows.
    fn passes_lists_on(&self) -> bool {
        false
    }

    /// How many members of the group that a stored descriptor describes can be lost and computed again.
    fn tolerance(&self, _descriptor: &RankDescriptor) -> u32 {
        0
    }

    /// A member's part in making the redundancy of its group.
    ///
    /// # Errors
    /// A file, a neighbour, or files that do not fit together; the step can be repeated.
    fn encode(&self, _task: &MemberTask, _node: &dyn GroupMember) -> Result<(), RedundancyError> {
        Err(RedundancyError::NotComputed { scheme: self.name() })
    }

    /// A member's part in computing the files of the `missing` members again, ascending by index: survivors send, the
    /// new homes of the missing ones write.
    ///
    /// # Errors
    /// As [`encode`](Self::encode), and survivors whose files are damaged.
    fn rebuild(&self, _task: &MemberTask, _missing: &[u32], _node: &dyn GroupMember) -> Result<(), RedundancyError> {
        Err(RedundancyError::NotComputed { scheme: self.name() })
    }

    /// Its redundancy files, if they are of the kind that schemes with [`parity`](super::parity) have in common.
    fn parity(&self) -> Option<&'static ParityScheme> {
        None
    }

    /// The set and member in the base name of a redundancy file; `None` for other files.
    fn parse_file_name(&self, name: &str) -> Option<SetFile> {
        self.parity()?.parse_file_name(name)
    }

    /// The names of the redundancy files of a member.
    fn file_names(&self, set: SetId, member: u32) -> Vec<String> {
        self.parity().iter().map(|parity| parity.file_name(set.group_id, set.members, member)).collect()
    }

    /// How many members of a set can be lost and computed again, if the names of its files determine it; `None` if only
    /// its headers do.
    fn tolerance_by_name(&self, _set: SetId) -> Option<u32> {
        None
    }

    /// How its redundancy files are named as a file format; `None` for schemes without such files.
    fn file_format(&self) -> Option<FileFormat> {
        None
    }

    /// Checks the hash in front of a redundancy file by its own rules, whatever the file's name is.
    fn describe_header(&self, header: &Tree, origin: &str) -> Result<DescribedHeader, RedundancyError> {
        let parity = self.parity().ok_or_else(|| RedundancyError::NotComputed { scheme: self.name() })?;
        parity.describe(header, origin)
    }

    /// Reads the header of a redundancy file and checks that it fits the file's name.
    ///
    /// # Errors
    /// A file that cannot be read, or a header that cannot be used.
    fn read_header(&self, files: &dyn DatasetFiles, file: &SetFile) -> Result<SetHeader, RedundancyError> {
        let parity = self.parity().ok_or(RedundancyError::NotComputed { scheme: file.set.scheme })?;
        parity.read_header(files, file)
    }

    /// Opens the survivors of a set whose files are all in one directory, as after a drain, to compute the files of the
    /// `missing` members again. The caller ([`directory`](super::directory)) has compared the headers, and writes.
    ///
    /// # Errors
    /// Survivors that are damaged, or a file operation.
    fn open_set(
        &self,
        _files: &Arc<dyn DatasetFiles>,
        set: SetId,
        _missing: &[u32],
        _piece_bytes: usize,
    ) -> Result<OpenSet, RedundancyError> {
        Err(RedundancyError::NotComputed { scheme: set.scheme })
    }
}
