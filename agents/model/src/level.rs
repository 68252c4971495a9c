//! The levels of FTI: what protects a checkpoint of variables, chosen by the program for each checkpoint.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A level; each protects against more than the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Level 1: in the node's cache only.
    Local,
    /// Level 2: a copy on a partner node.
    Partner,
    /// Level 3: parity over a group of nodes.
    Parity,
    /// Level 4: copied to the prefix directory before the checkpoint is complete.
    Prefix,
}

impl Level {
    /// All levels, the lowest first.
    pub const ALL: [Level; 4] = [Level::Local, Level::Partner, Level::Parity, Level::Prefix];

    /// The level of this number, 1 to 4.
    pub fn from_number(number: u32) -> Option<Level> {
        Self::ALL.into_iter().find(|level| level.number() == number)
    }

    /// Its number in FTI.
    pub fn number(self) -> u32 {
        self as u32 + 1
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_the_numbers_of_fti() {
        assert_eq!(Level::ALL.map(Level::number), [1, 2, 3, 4]);
        assert_eq!(Level::from_number(3), Some(Level::Parity));
        assert_eq!(Level::from_number(0), None);
        assert_eq!(Level::from_number(5), None);
    }
}
