//! The names of FTI's files: `Ckpt<id>-Rank<r>.fti`, `Ckpt<id>-Pcof<r>.fti`, `Ckpt<id>-RSed<r>.fti`, `dCPFile-Rank<r>.fti`.
//!
//! In the document's layout the name alone says which rank and checkpoint a file is.

use std::fmt;

/// What a file is to its checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileRole {
    /// A rank's own checkpoint.
    Rank,
    /// Level 2: on the node of this rank, the copy of its left neighbour's file.
    Partner,
    /// Level 3: this rank's row of the Reed-Solomon parity.
    Parity,
}

/// What a file's name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    /// The checkpoint's id; `None` for a differential checkpoint, which is one file updated in place.
    pub checkpoint: Option<u32>,
    /// What it is.
    pub role: FileRole,
    /// The rank on whose node it lies.
    pub rank: u32,
}

impl FileName {
    /// Reads a name without directory; `None` if it is not one of FTI's.
    pub fn parse(name: &str) -> Option<FileName> {
        let stem = name.strip_suffix(".fti")?;
        if let Some(rank) = stem.strip_prefix("dCPFile-Rank") {
            return Some(FileName { checkpoint: None, role: FileRole::Rank, rank: number(rank)? });
        }
        let (checkpoint, rest) = stem.strip_prefix("Ckpt")?.split_once('-')?;
        let (role, rank) = [(FileRole::Rank, "Rank"), (FileRole::Partner, "Pcof"), (FileRole::Parity, "RSed")]
            .into_iter()
            .find_map(|(role, label)| Some((role, rest.strip_prefix(label)?)))?;
        Some(FileName { checkpoint: Some(number(checkpoint)?), role, rank: number(rank)? })
    }
}

/// Digits only: `parse` alone would take a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for FileName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = match self.role {
            FileRole::Rank => "Rank",
            FileRole::Partner => "Pcof",
            FileRole::Parity => "RSed",
        };
        match self.checkpoint {
            Some(checkpoint) => write!(out, "Ckpt{checkpoint}-{label}{}.fti", self.rank),
            None => write!(out, "dCPFile-{label}{}.fti", self.rank),
        }
    }
}
