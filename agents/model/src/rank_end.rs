//! How a rank's process ended.

use serde::{Deserialize, Serialize};

/// How a rank's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum RankEnd {
    #[error("exit code {0}")]
    Code(i32),
    #[error("signal {0}")]
    Signal(i32),
    /// Its parent was an orchestrator that died.
    #[error("unknown exit status")]
    Unknown,
}

impl RankEnd {
    pub const SUCCESS: RankEnd = RankEnd::Code(0);
}
