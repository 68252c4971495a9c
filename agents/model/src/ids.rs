//! The identities that the rest of the project passes around: types of their own, so that a rank is never taken
//! for a node index or a checkpoint id for a generation.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIntError;
            fn from_str(text: &str) -> Result<Self, ParseIntError> {
                text.parse().map($name)
            }
        }
    };
}

number_id! {
    /// A process of the application: its rank among all processes of the run, from 0.
    Rank(u32)
}

impl Rank {
    /// The rank as a position in a table that holds one entry a rank.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

number_id! {
    /// A checkpoint (or dataset) id. Real ones start at 1; 0 means "none yet".
    #[derive(Default)]
    CheckpointId(u64)
}

impl CheckpointId {
    /// The id before the first checkpoint of a job.
    pub const NONE: CheckpointId = CheckpointId(0);

    /// The id that the next checkpoint gets.
    #[must_use]
    pub fn next(self) -> CheckpointId {
        CheckpointId(self.0 + 1)
    }
}

number_id! {
    /// One launch of the application inside an allocation; counts up from 1. Messages of an older generation
    /// are refused everywhere.
    #[derive(Default)]
    Generation(u64)
}

impl Generation {
    /// No run has been launched yet.
    pub const NONE: Generation = Generation(0);

    /// The generation of the next launch.
    #[must_use]
    pub fn next(self) -> Generation {
        Generation(self.0 + 1)
    }
}

/// A node's name as the resource manager spells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(String);

impl NodeName {
    /// Takes the name as it is; validity is the resource manager's business.
    pub fn new(name: impl Into<String>) -> Self {
        NodeName(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<&str> for NodeName {
    fn from(name: &str) -> Self {
        NodeName(name.to_owned())
    }
}
