//! The content of a file: the rank, generation and checkpoint that it was written for.

use std::fmt;
use std::sync::Arc;

use holdfast_core::redundancy::files::SetId;
use holdfast_core::redundancy::{partner, registry};
use holdfast_model::{CheckpointId, Generation, Rank, Scheme};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileName {
    /// A file that the application wrote.
    Application { rank: Rank, part: u8 },
    /// A redundancy file of a scheme that computes redundancy.
    Parity { scheme: Scheme, group_id: u32, members: u32, member: u32 },
}

impl FileName {
    pub fn parse(name: &str) -> FileName {
        match registry::redundancy_file(name) {
            Some(file) => {
                let SetId { scheme, group_id, members } = file.set;
                FileName::Parity { scheme, group_id, members, member: file.member }
            }
            None => {
                let (rank, part) = name.strip_prefix('r').and_then(|rest| rest.split_once('.')).unwrap();
                FileName::Application { rank: Rank(rank.parse().unwrap()), part: part.parse().unwrap() }
            }
        }
    }

    pub fn is_application(self) -> bool {
        matches!(self, FileName::Application { .. })
    }

    pub fn size(self) -> u64 {
        match self {
            FileName::Application { part, .. } => 100 + u64::from(part),
            FileName::Parity { .. } => 50,
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FileName::Application { rank, part } => write!(f, "r{rank}.{part}"),
            FileName::Parity { scheme, group_id, members, member } => {
                let set = SetId { scheme, group_id, members };
                let names = registry::get(scheme).unwrap().file_names(set, member);
                f.write_str(&names[0])
            }
        }
    }
}

/// The origin of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    pub rank: Rank,
    pub checkpoint: CheckpointId,
    /// The generation that wrote the file.
    pub generation: Generation,
    pub iteration: u32,
    pub part: u8,
}

#[derive(Clone, Debug)]
pub enum Content {
    Written(Origin),
    /// Not completely written, perhaps because the writer was killed.
    Torn,
    /// Computed from all members' files.
    Parity(Arc<Parity>),
    /// Computed from files of different origin.
    Garbage,
    /// Changed after the file was sealed; a checksum detects it.
    Damaged,
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Content::Written(one), Content::Written(other)) => one == other,
            (Content::Parity(one), Content::Parity(other)) => one.is_same(other),
            (Content::Torn, Content::Torn) => true,
            _ => false,
        }
    }
}

/// The files that a set's redundancy was computed from.
#[derive(Debug)]
pub struct Parity {
    /// How many members can be lost.
    pub tolerance: u32,
    /// The application's files of each member.
    pub members: Vec<Vec<(FileName, Content)>>,
}

/// The files of a member that were not lost.
pub struct Survivor {
    pub member: usize,
    pub parity: Option<Content>,
    pub files: Vec<(FileName, Content)>,
}

impl Parity {
    /// True for the same encoding, and for one that was repeated with the same files: its bytes are the same.
    pub fn is_same(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other) || self.members == other.members
    }

    /// Computes the files of a lost member from those of the `survivors`.
    pub fn rebuild(survivors: &[Survivor], lost: usize) -> Rebuilt {
        let mut parities = survivors.iter().map(|survivor| &survivor.parity);
        let Some(Some(Content::Parity(parity))) = parities.next().cloned() else { return Rebuilt::NoParity };
        let mut sound = true;
        for Survivor { member, parity: theirs, files } in survivors {
            match theirs {
                Some(Content::Parity(theirs)) => sound &= theirs.is_same(&parity),
                _ => return Rebuilt::NoParity,
            }
            sound &= parity.members.get(*member).is_some_and(|encoded| same(encoded, files));
        }
        if survivors.len() + (parity.tolerance as usize) < parity.members.len() {
            return Rebuilt::TooFew;
        }
        let mut files = parity.members.get(lost).cloned().unwrap_or_default();
        if !sound {
            files.iter_mut().for_each(|(_, content)| *content = Content::Garbage);
        }
        Rebuilt::Files { files, parity: if sound { Content::Parity(parity) } else { Content::Garbage } }
    }
}

/// The result of a rebuild.
pub enum Rebuilt {
    /// A survivor has no parity.
    NoParity,
    /// More are lost than can be computed.
    TooFew,
    Files {
        files: Vec<(FileName, Content)>,
        parity: Content,
    },
}

fn same(one: &[(FileName, Content)], other: &[(FileName, Content)]) -> bool {
    one.len() == other.len() && one.iter().all(|file| other.contains(file))
}

/// True if a scheme keeps copies.
pub fn keeps_copies(scheme: Scheme) -> bool {
    scheme == partner::NAME
}
