//! The agent's own small state files in the control directory.
//!
//! They have to survive the process, not the machine: a node that is lost takes its control directory along. So they are
//! renamed into place and not synced: a collective must not wait for a disk.

use std::fs;
use std::io;
use std::path::Path;

use holdfast_core::durable::{self, DurableError};
use holdfast_wire::payload;
use holdfast_wire::peer::LINK;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// No state file is larger: the largest has the result of a gathering, or the plan of a run.
const LARGEST: u64 = LINK.bytes as u64;

/// Reads a state file; one that is missing, foreign or damaged counts as absent.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let metadata = fs::symlink_metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        tracing::warn!(path = %path.display(), "this is not a state file of ours; it is ignored");
        return None;
    }
    let parsed = fs::read(path).and_then(|bytes| payload::from_file(bytes).map_err(io::Error::from));
    parsed
        .inspect_err(|error| {
            tracing::warn!(path = %path.display(), %error, "the state file cannot be read; it is ignored");
        })
        .ok()
}

/// Replaces a state file.
pub(crate) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    // Several are written at a time: each through a temporary file of its own.
    let bytes = payload::to_file(value).map_err(io::Error::other)?;
    durable::replace_unsynced(path, &bytes).map_err(|error| match error {
        DurableError::Io { source, .. } => source,
        other => io::Error::other(other),
    })
}
