//! The marker in directories that Holdfast made: without it nothing is removed.

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
const LARGEST: u64 = 4 << 10;

/// What a directory is, and the job that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker<'a> {
    /// For example `workspace`, `control` or `cache`.
    pub kind: &'a str,
    /// The id of the job.
    pub job: &'a str,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    version: u32,
    kind: String,
    job: String,
}

impl Content {
    fn of(marker: &Marker<'_>) -> Self {
        Content { version: VERSION, kind: marker.kind.to_owned(), job: marker.job.to_owned() }
    }
}

impl OwnedDirectory {
    /// Writes the marker. A directory that has one already must have the same.
    ///
    /// # Errors
    /// [`Found::OtherMarker`], or it cannot be written.
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
    /// [`Found::NoMarker`], [`Found::OtherMarker`], or the marker is not a file of ours.
    pub fn check_marker(&self, marker: &Marker<'_>) -> Result<(), OwnedError> {
        let Some(text) = self.read(MARKER_FILE, Access::Readable, LARGEST)? else {
            return Err(OwnedError::refused(self.path(), Found::NoMarker));
        };
        if serde_json::from_slice::<Content>(&text).is_ok_and(|content| content == Content::of(marker)) {
            return Ok(());
        }
        let marker = String::from_utf8_lossy(&text).into_owned();
        Err(OwnedError::refused(self.path(), Found::OtherMarker { marker }))
    }
}
