//! Where the files of a restart came from.

use serde::{Deserialize, Serialize};

/// Where a restart's files came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartSource {
    /// Nothing to restart from.
    #[default]
    Fresh,
    /// All files were in the cache of their nodes.
    Cache,
    /// Some files were moved or rebuilt from their redundancy group.
    Rebuilt,
    /// Read from the prefix directory.
    Fetched,
}
