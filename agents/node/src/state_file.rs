//! The agent's own small state files in the control directory.
//!
//! They must survive the process, not the machine: the control directory of a lost node is lost, too. So they are
//! renamed into place and not synced: a collective must not wait for a disk.

use std::fs;
use std::io;
use std::path::Path;

use holdfast_core::durable::{self, DurableError};
use holdfast_wire::payload;
use holdfast_wire::peer::LINK;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest state file contains the result of an allgather, or the plan of a run.
const LARGEST: u64 = LINK.bytes as u64;

/// Reads a state file; a file that is damaged or not a state file counts as absent.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let metadata = fs::symlink_metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        tracing::warn!(path = %path.display(), "state_file_ignored");
        return None;
    }
    let parsed = fs::read(path).and_then(|bytes| payload::from_file(bytes).map_err(io::Error::from));
    parsed
        .inspect_err(|error| {
            tracing::warn!(path = %path.display(), %error, "state_file_unreadable");
        })
        .ok()
}

pub(crate) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let bytes = payload::to_file(value).map_err(io::Error::other)?;
    durable::replace_unsynced(path, &bytes).map_err(|error| match error {
        DurableError::Io { source, .. } => source,
        other => io::Error::other(other),
    })
}
