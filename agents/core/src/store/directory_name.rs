//! The names of the directories of datasets (`docs/scr-files.md` §2).

use std::fmt;

use chrono::NaiveDateTime;
use serde::Serialize;

use super::base_name::{NameError, check_base_name};
use holdfast_model::CheckpointId;

/// The time inside a directory name, local.
const STAMP_FORMAT: &str = "%Y-%m-%d_%H:%M:%S";
/// Its length in bytes; years have four digits.
const STAMP_BYTES: usize = 19;

/// The parts of a name that SCR or we gave: `scr.<YYYY-MM-DD_HH:MM:SS>.<jobid>.<id>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameParts {
    /// When the copy began, local time.
    pub stamp: NaiveDateTime,
    /// The job id of the resource manager.
    pub job: String,
    pub id: CheckpointId,
}

impl NameParts {
    /// Parses a name; `None` for a directory with another kind of name, which is allowed.
    pub fn parse(name: &str) -> Option<NameParts> {
        let rest = name.strip_prefix("scr.")?;
        let stamp = NaiveDateTime::parse_from_str(rest.get(..STAMP_BYTES)?, STAMP_FORMAT).ok()?;
        let (job, id) = rest.get(STAMP_BYTES..)?.strip_prefix('.')?.rsplit_once('.')?;
        if job.is_empty() || !id.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let parts = NameParts { stamp, job: job.to_owned(), id: id.parse().ok()? };
        // Dates may be spelt in other ways, with a signed year for example.
        (parts.to_string() == name).then_some(parts)
    }
}

impl fmt::Display for NameParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scr.{}.{}.{}", self.stamp.format(STAMP_FORMAT), self.job, self.id)
    }
}

/// A name, given by the user, that is no single component.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot be a checkpoint directory: {problem}; give the bare name of a directory below the prefix")]
pub struct GivenNameError {
    pub name: String,
    pub problem: NameError,
}

/// The name of a directory below the prefix: always a single component, so that it cannot lead elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct DirectoryName(String);

impl DirectoryName {
    /// Checks a name that was read or typed.
    ///
    /// # Errors
    /// Why it is not a single component.
    pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
        let name = name.into();
        check_base_name(&name).map(|()| DirectoryName(name))
    }

    /// Checks a name that the user gave; a trailing slash, as completion adds it, is taken off.
    ///
    /// # Errors
    /// Why it is not a single component.
    pub fn given(name: &str) -> Result<Self, GivenNameError> {
        let bare = name.trim_end_matches('/');
        let bare = if bare.is_empty() { name } else { bare };
        DirectoryName::new(bare).map_err(|problem| GivenNameError { name: name.to_owned(), problem })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Time, job and id, if the name has SCR's form.
    pub fn parts(&self) -> Option<NameParts> {
        NameParts::parse(&self.0)
    }
}

impl fmt::Display for DirectoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
