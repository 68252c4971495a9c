//! The marker in directories that Holdfast made, and the removal of such directories: without it nothing is removed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use std::os::fd::AsFd as _;

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::access::Access;
use super::directory::{Base, OwnedDirectory, component};
use super::error::{Found, OwnedError, Result};
use super::remove;
use super::walk::DIRECTORY;
use crate::calls::{openat, unlinkat};
use crate::durable::Durability;

/// The name of the marker file.
pub const MARKER_FILE: &str = ".holdfast-marker";

/// Bytes of randomness in a random name.
const RANDOM_BYTES: usize = 8;
/// The version of the file.
const VERSION: u32 = 1;
/// How often a directory is emptied that others write into while it is removed.
const ATTEMPTS: u32 = 20;
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
    /// The token of the allocation in which it is used: a resource manager may give a job id again.
    pub allocation: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    version: u32,
    kind: String,
    job: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allocation: Option<String>,
}

impl Content {
    fn of(marker: &Marker<'_>) -> Self {
        Content {
            version: VERSION,
            kind: marker.kind.to_owned(),
            job: marker.job.to_owned(),
            prefix: marker.prefix.map(Path::to_owned),
            allocation: marker.allocation.map(str::to_owned),
        }
    }

    /// Without the job's prefix directory and allocation.
    fn common(self) -> Self {
        Content { prefix: None, allocation: None, ..self }
    }

    /// What is wrong with this content of a file in a directory that needs this marker.
    fn mismatch(self, marker: &Marker<'_>, text: &[u8]) -> Option<Found> {
        if Content::of(marker).common() != self.clone().common() {
            return Some(Found::other_marker(text));
        }
        let prefix = self.prefix.filter(|prefix| marker.prefix.is_some_and(|own| own != prefix))?;
        Some(Found::OtherPrefix { prefix, allocation: self.allocation })
    }
}

impl Base {
    /// Makes a directory whose name begins with `stem` and ends with random characters, so that no other user can take
    /// the name first, and marks it.
    pub fn new_random_directory(&self, stem: &str, access: Access, marker: &Marker<'_>) -> Result<OwnedDirectory> {
        loop {
            let mut random = [0; RANDOM_BYTES];
            let failed = |source: getrandom::Error| {
                OwnedError::io("make a random name in", self.path())(std::io::Error::other(source))
            };
            getrandom::fill(&mut random).map_err(failed)?;
            let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
            let name = format!("{stem}{random}");
            if let Some(made) = self.new_directory(&name, access)? {
                return match made.mark(marker, Durability::Process) {
                    Ok(()) => Ok(made),
                    // Without a marker, nothing would ever remove it.
                    Err(error) => {
                        let _ = self.remove_empty_directory(&name, access);
                        Err(error)
                    }
                };
            }
        }
    }

    /// Removes a directory of ours with everything in it, if it has this marker; returns whether it existed. The marker
    /// is removed last, so that an interrupted removal can be repeated.
    ///
    /// # Errors
    /// [`Found::NoMarker`] and [`Found::OtherMarker`]: nothing was removed. Otherwise a part may have been removed.
    pub fn remove_tree(&self, name: impl AsRef<OsStr>, access: Access, marker: &Marker<'_>) -> Result<bool> {
        let name = component(self.path(), &name)?;
        let Some(directory) = self.open_directory(name, access)? else { return Ok(false) };
        directory.check_marker(marker)?;
        self.remove_opened(name, &directory)
    }

    /// What another process or thread writes into it meanwhile is removed, too.
    fn remove_opened(&self, name: &OsStr, directory: &OwnedDirectory) -> Result<bool> {
        let mut left = ATTEMPTS;
        loop {
            let removed = remove::contents(directory, directory.path(), MARKER_FILE).and_then(|()| {
                match unlinkat(self, name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => Ok(true),
                    Err(errno) => Err(OwnedError::io("remove", &self.path().join(name))(errno)),
                }
            });
            left -= 1;
            match removed {
                Err(error) if error.is_not_empty() && left > 0 => std::thread::yield_now(),
                removed => return removed,
            }
        }
    }
}

impl OwnedDirectory {
    /// Removes a directory in this one with everything in it. It needs no marker: this one is for directories that only
    /// this user can write to.
    ///
    /// # Errors
    /// A part may have been removed.
    pub fn remove_directory(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = component(self.path(), &name)?;
        let path = self.path().join(name);
        let opened = match openat(self.as_fd(), name, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened.map_err(OwnedError::io("remove", &path))?,
        };
        remove::contents(&opened, &path, MARKER_FILE)?;
        match unlinkat(self.as_fd(), name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(OwnedError::io("remove", &path)(errno)),
        }
    }

    /// Writes the marker. A directory that has one already must have the same, but may be from another allocation.
    ///
    /// # Errors
    /// [`Found::OtherMarker`], [`Found::OtherPrefix`], or it cannot be written.
    pub fn mark(&self, marker: &Marker<'_>, durability: Durability) -> Result<()> {
        match self.check_marker(marker) {
            Err(OwnedError::Refused { found: Found::NoMarker, .. }) => {}
            Ok(()) if self.is_of_other_allocation(marker)? => {}
            checked => return checked,
        }
        let path = self.path().join(MARKER_FILE);
        let text = serde_json::to_vec(&Content::of(marker));
        let text = text.map_err(|error| OwnedError::io("write", &path)(std::io::Error::from(error)))?;
        self.replace(MARKER_FILE, &text, Access::Private, durability)
    }

    fn is_of_other_allocation(&self, marker: &Marker<'_>) -> Result<bool> {
        let Some(allocation) = marker.allocation else { return Ok(false) };
        Ok(self.marker()?.is_some_and(|content| content.allocation.as_deref() != Some(allocation)))
    }

    /// The prefix directory in the marker; `None` without a marker, or with one of a job that has none.
    ///
    /// # Errors
    /// The marker cannot be read, or is not a file of ours.
    pub fn marked_prefix(&self) -> Result<Option<PathBuf>> {
        Ok(self.marker()?.and_then(|content| content.prefix))
    }

    fn marker(&self) -> Result<Option<Content>> {
        let text = self.read(MARKER_FILE, Access::Readable, LARGEST)?;
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    /// Refuses a directory that does not have this marker.
    ///
    /// # Errors
    /// [`Found::NoMarker`], [`Found::OtherMarker`], [`Found::OtherPrefix`], or the marker is not a file of ours.
    pub fn check_marker(&self, marker: &Marker<'_>) -> Result<()> {
        let Some(text) = self.read(MARKER_FILE, Access::Readable, LARGEST)? else {
            return Err(OwnedError::refused(self.path(), Found::NoMarker));
        };
        let mismatch = match serde_json::from_slice::<Content>(&text) {
            Ok(content) => content.mismatch(marker, &text),
            Err(_) => Some(Found::other_marker(&text)),
        };
        mismatch.map_or(Ok(()), |found| Err(OwnedError::refused(self.path(), found)))
    }

    /// Removes a directory of ours in this one with everything in it; returns whether it existed. It needs no marker of
    /// its own, because this directory must have one.
    pub fn remove_part(&self, name: impl AsRef<OsStr>, access: Access, marker: &Marker<'_>) -> Result<bool> {
        let name = component(self.path(), &name)?;
        self.check_marker(marker)?;
        let Some(directory) = self.open_directory(name, access)? else { return Ok(false) };
        self.remove_opened(name, &directory)
    }
}
