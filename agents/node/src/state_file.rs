//! The agent's own small state files in the control directory.
//!
//! They have to survive the process, not the node (a node that is lost takes its control directory along), so they are
//! replaced by rename but not synced: a collective must not wait for a disk.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// No state file is ever this large: a larger one is not ours.
const LARGEST: u64 = 256 << 20;

/// Reads a state file; one that is missing, foreign or damaged counts as absent.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let metadata = fs::symlink_metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        tracing::warn!(path = %path.display(), "this is not a state file of ours; it is ignored");
        return None;
    }
    let parsed = fs::read(path).and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from));
    parsed
        .inspect_err(|error| {
            tracing::warn!(path = %path.display(), %error, "the state file cannot be read; it is ignored");
        })
        .ok()
}

/// Replaces a state file.
pub(crate) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, serde_json::to_vec(value).map_err(io::Error::other)?)?;
    fs::rename(&temporary, path)
}
