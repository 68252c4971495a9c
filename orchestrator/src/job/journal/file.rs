//! The journal as a file: begun beside a state, appended to, read back.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_core::durable::Durability;
use holdfast_core::owned::{Access, OwnedDirectory};
use holdfast_core::state_directory::StateDirectory;
use holdfast_core::state_files;
use serde::{Deserialize, Serialize};

use super::frame;
use crate::job::state::{JobState, StateChanges, StateError};

/// Larger journals are not read; a new journal is begun long before.
const LARGEST: u64 = 1 << 30;

/// The first line: which state the entries belong to.
#[derive(Debug, Serialize, Deserialize)]
struct Heading {
    /// The version of `job.json`: see [`JobState::version`].
    version: u32,
    job_id: String,
    /// The number of the last entry that was in the state when the journal was begun.
    after: u64,
}

/// The changes of one batch of events.
#[derive(Debug, Serialize, Deserialize)]
struct JournalEntry {
    /// Counts the entries of a job.
    number: u64,
    changes: StateChanges,
}

/// The name of the journal in `.holdfast`.
pub const FILE: &str = "job.journal";

/// The path of the journal of a prefix directory.
pub fn path(prefix: &Path) -> PathBuf {
    StateDirectory::below(prefix).join(FILE)
}

/// A journal that is open for appending.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    file: File,
    pub bytes: u64,
}

impl JournalFile {
    /// Begins the journal of a state that was just written.
    ///
    /// # Errors
    /// [`StateError::Owned`], [`StateError::File`].
    pub fn begin(prefix: &Path, state: &JobState) -> Result<Self, StateError> {
        let path = path(prefix);
        let heading = Heading { version: state.version, job_id: state.agents.job_id.clone(), after: state.entries };
        let line = frame::encode(&heading).map_err(|error| StateError::file("write", &path)(error.into()))?;
        let own = StateDirectory::below(prefix).existing()?;
        own.replace(FILE, &line, state.group_access.access(), Durability::Machine)?;
        let file = own.append(FILE, Access::GroupRead)?;
        Ok(JournalFile { path, file, bytes: line.len() as u64 })
    }

    /// Appends an entry. It survives a crash of this process, and after [`sync`](Self::sync) one of the machine. After
    /// an error a new journal must be begun, because this one may have a part of the entry.
    ///
    /// # Errors
    /// [`StateError::File`].
    pub fn append(&mut self, number: u64, changes: StateChanges) -> Result<(), StateError> {
        let failed = StateError::file("write", &self.path);
        let written = frame::encode(&JournalEntry { number, changes }).map_err(io::Error::from).and_then(|line| {
            state_files::write_all(&self.file, &line)?;
            self.bytes += line.len() as u64;
            Ok(())
        });
        written.map_err(failed)
    }

    /// All entries so far survive a crash of the machine from here on.
    ///
    /// # Errors
    /// [`StateError::File`].
    pub fn sync(&mut self) -> Result<(), StateError> {
        state_files::sync_data(&self.file).map_err(StateError::file("synchronise", &self.path))
    }
}

/// The result of reading a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// The state is up to date.
    UpToDate,
    /// The journal belongs to a newer state, which has replaced this one meanwhile.
    StateIsOlder,
}

/// Applies the journal to the state beside it. A journal of another job, and an incomplete last entry, are ignored.
///
/// # Errors
/// [`StateError::Owned`], [`StateError::Content`].
pub fn replay(own: &OwnedDirectory, state: &mut JobState) -> Result<Replayed, StateError> {
    let path = own.path().join(FILE);
    let Some(bytes) = own.read(FILE, Access::GroupRead, LARGEST)? else { return Ok(Replayed::UpToDate) };
    let mut rest = bytes.as_slice();
    let Some(heading) = frame::decode::<Heading>(&mut rest) else { return Ok(Replayed::UpToDate) };
    if (heading.version, &heading.job_id) != (state.version, &state.agents.job_id) {
        return Ok(Replayed::UpToDate);
    }
    if heading.after > state.entries {
        return Ok(Replayed::StateIsOlder);
    }
    while let Some(JournalEntry { number, changes }) = frame::decode(&mut rest) {
        if number <= state.entries {
            continue;
        }
        let applied = number == state.entries + 1 && state.apply(changes).is_ok();
        if !applied {
            let problem = format!("entry {number} does not follow the state");
            return Err(StateError::Content { path, problem });
        }
        state.entries = number;
    }
    Ok(Replayed::UpToDate)
}
