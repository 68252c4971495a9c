//! The names of FTI's files: `Ckpt<id>-Rank<r>.fti`, `Ckpt<id>-Pcof<r>.fti`, `Ckpt<id>-RSed<r>.fti`,
//! `dCPFile-Rank<r>.fti`.
//!
//! In layout A only the name contains the rank and the checkpoint's id.

use std::fmt;

/// The role of a file in its checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileRole {
    /// A rank's own checkpoint.
    Rank,
    /// Level 2: the copy of the left neighbour's file, stored on the node of this rank.
    Partner,
    /// Level 3: this rank's row of the Reed-Solomon parity.
    Parity,
}

/// The parts of a file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    /// The checkpoint's id; `None` for a differential checkpoint, which is one file updated in place.
    pub checkpoint: Option<u32>,
    pub role: FileRole,
    /// The rank on whose node the file is stored.
    pub rank: u32,
}

impl FileName {
    /// Parses a name without directory; `None` if it is not one of FTI's names.
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

/// Digits only: `parse` alone would accept a sign.
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
