//! The marker in directories that Holdfast made: without it nothing is removed.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Access;
use super::directory::OwnedDirectory;
use super::error::{Found, OwnedError};
use crate::durable::Durability;

/// The name of the marker file.
pub const MARKER_FILE: &str = ".holdfast-marker";

/// The version of the file.
const VERSION: u32 = 1;
/// Larger files are no markers.
const LARGEST: u64 = 32 << 10;

/// What a directory is, and the job that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker<'a> {
    /// For example `workspace`, `control` or `cache`.
    pub kind: &'a str,
    /// The id of the job.
    pub job: &'a str,
    /// The prefix directory of the job, if directories of the same kind and id may belong to several jobs: those of one
    /// allocation have the same id.
    pub prefix: Option<&'a Path>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    version: u32,
    kind: String,
    job: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix: Option<PathBuf>,
}

impl Content {
    fn of(marker: &Marker<'_>) -> Self {
        Content {
            version: VERSION,
            kind: marker.kind.to_owned(),
            job: marker.job.to_owned(),
            prefix: marker.prefix.map(Path::to_owned),
        }
    }

    /// What is wrong with this content of a file in a directory that needs this marker.
    fn mismatch(self, marker: &Marker<'_>, text: &[u8]) -> Option<Found> {
        let same_job = Content { prefix: None, ..Content::of(marker) } == Content { prefix: None, ..self.clone() };
        if !same_job {
            return Some(Found::other_marker(text));
        }
        let prefix = self.prefix.filter(|prefix| marker.prefix.is_some_and(|own| own != prefix))?;
        Some(Found::OtherPrefix { prefix })
    }
}

impl OwnedDirectory {
    /// Writes the marker. A directory that has one already must have the same.
    ///
    /// # Errors
    /// [`Found::OtherMarker`], [`Found::OtherPrefix`], or it cannot be written.
    pub fn mark(&self, marker: &Marker<'_>, durability: Durability) -> Result<(), OwnedError> {
        match self.check_marker(marker) {
            Err(OwnedError::Refused { found: Found::NoMarker, .. }) => {}
            checked => return checked,
        }
        let path = self.path().join(MARKER_FILE);
        let text = serde_json::to_vec(&Content::of(marker));
        let text = text.map_err(|error| OwnedError::io("write", &path)(std::io::Error::from(error)))?;
        self.replace(MARKER_FILE, &text, Access::Private, durability)
    }

    /// Refuses a directory that does not have this marker.
    ///
    /// # Errors
    /// [`Found::NoMarker`], [`Found::OtherMarker`], [`Found::OtherPrefix`], or the marker is not a file of ours.
    pub fn check_marker(&self, marker: &Marker<'_>) -> Result<(), OwnedError> {
        let Some(text) = self.read(MARKER_FILE, Access::Readable, LARGEST)? else {
            return Err(OwnedError::refused(self.path(), Found::NoMarker));
        };
        let mismatch = match serde_json::from_slice::<Content>(&text) {
            Ok(content) => content.mismatch(marker, &text),
            Err(_) => Some(Found::other_marker(&text)),
        };
        mismatch.map_or(Ok(()), |found| Err(OwnedError::refused(self.path(), found)))
    }
}
