//! How a rank's process ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a rank's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankEnd {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Exit status unknown: its parent was an orchestrator that died.
    Unknown,
}

impl RankEnd {
    pub const SUCCESS: RankEnd = RankEnd::Code(0);
}

impl fmt::Display for RankEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RankEnd::Code(code) => write!(f, "exit code {code}"),
            RankEnd::Signal(signal) => write!(f, "signal {signal}"),
            RankEnd::Unknown => f.write_str("unknown exit status"),
        }
    }
}
