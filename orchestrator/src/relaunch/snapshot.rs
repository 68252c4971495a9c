//! The machine's memory, for an orchestrator that takes over after another one was killed.

use serde::{Deserialize, Serialize};

/// Everything that the machine knows, but for its configuration. Opaque: serialise it, keep it, restore it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub(super) version: u32,
    pub(super) started: i64,
}

impl Snapshot {
    /// The version of its form.
    pub const VERSION: u32 = 1;

    /// When the first orchestrator began, seconds since the epoch: zero on the scale of `now`.
    pub fn started(&self) -> i64 {
        self.started
    }
}

/// Why a snapshot cannot be used. The remedy for all: start afresh, the agents keep what they hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Another version of Holdfast wrote it.
    #[error(
        "the state of the earlier orchestrator has version {found}, this one knows {known}: finish the job with the version that began it, or remove the state and run again"
    )]
    Version {
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// It is of another allocation or another run.
    #[error(
        "the state of the earlier orchestrator does not fit this job: {what}; remove it and run again"
    )]
    Mismatch {
        /// What differs.
        what: String,
    },
}
