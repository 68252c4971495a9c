//! The prefix directory: names of checkpoint directories below it, and the link to the current one (`docs/scr-files.md`
//! §2).

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use chrono::{NaiveDateTime, TimeDelta};
use serde::Serialize;

use super::error::PrefixError;
use super::names::{NameError, check_base_name};
use crate::durable::{self, CreationMode};
use holdfast_model::CheckpointId;

/// The link to the checkpoint that a restart takes.
pub const CURRENT_LINK: &str = "scr.current";

/// The time inside a directory name, local.
const STAMP_FORMAT: &str = "%Y-%m-%d_%H:%M:%S";
/// Its length in bytes; years have four digits.
const STAMP_BYTES: usize = 19;
/// How far ahead of the wanted second a free name is looked for.
const SECONDS_TO_TRY: i64 = 3600;
/// The longest name of a directory without what makes it unique, in bytes.
const LONGEST_GIVEN_NAME: usize = 200;
/// How many numbers are tried to make a name unique.
const NUMBERS_TO_TRY: u32 = 1000;
/// What SCR has beside the directories of datasets.
const RESERVED_NAMES: [&str; 2] = [CURRENT_LINK, "index.scr"];

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

/// The name of the directory of a dataset that the application named: shortened, with `_` for slashes, colons and
/// control characters, and for leading dots, which would hide it.
pub fn directory_name(name: &str) -> String {
    let dots = name.len() - name.trim_start_matches('.').len();
    let mut short = String::new();
    for (at, character) in name.chars().enumerate() {
        let replaced = at < dots || character == '/' || character == ':' || character.is_control();
        let character = if replaced { '_' } else { character };
        if short.len() + character.len_utf8() > LONGEST_GIVEN_NAME {
            break;
        }
        short.push(character);
    }
    if short.is_empty() { "_".to_owned() } else { short }
}

/// The length in bytes of the longest name that a directory of this job can have.
pub fn longest_name_bytes(job: &str) -> usize {
    let id_digits = u64::MAX.to_string().len();
    let in_the_form_of_scr = "scr.".len() + STAMP_BYTES + ".".len() + job.len() + ".".len() + id_digits;
    in_the_form_of_scr.max(LONGEST_GIVEN_NAME + ".".len() + id_digits + ".".len() + NUMBERS_TO_TRY.to_string().len())
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
    /// [`PrefixError::DirectoryName`].
    pub fn given(name: &str) -> Result<Self, PrefixError> {
        let bare = name.trim_end_matches('/');
        let bare = if bare.is_empty() { name } else { bare };
        DirectoryName::new(bare).map_err(|problem| PrefixError::DirectoryName { name: name.to_owned(), problem })
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

/// A job's directory on the parallel file system.
#[derive(Clone, Debug)]
pub struct Prefix {
    path: PathBuf,
}

impl Prefix {
    /// Opens an existing prefix directory.
    ///
    /// # Errors
    /// [`PrefixError::NoPrefix`] if it does not exist or is not a directory, [`PrefixError::Io`] if it cannot be looked
    /// at.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, PrefixError> {
        let path = path.into();
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => Ok(Prefix { path }),
            Ok(_) => Err(PrefixError::NoPrefix { path, problem: "is not a directory" }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(PrefixError::NoPrefix { path, problem: "does not exist" })
            }
            Err(source) => Err(PrefixError::Io {
                action: "look at the prefix directory",
                path,
                source,
                remedy: "check the path and your permissions on every directory of it",
            }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a checkpoint directory.
    pub fn checkpoint_path(&self, directory: &DirectoryName) -> PathBuf {
        self.path.join(directory.as_str())
    }

    /// The path of the link to the current checkpoint.
    pub fn current_path(&self) -> PathBuf {
        self.path.join(CURRENT_LINK)
    }

    /// What the current link names; `None` without a link. Whether that directory exists is not looked at.
    ///
    /// # Errors
    /// [`PrefixError::Name`] if the link leads out of the prefix, [`PrefixError::Io`] if it cannot be read or is no
    /// link.
    pub fn current(&self) -> Result<Option<DirectoryName>, PrefixError> {
        let path = self.current_path();
        let target = match fs::read_link(&path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                let remedy = "it should be a symbolic link to a checkpoint directory beside it: remove it";
                return Err(PrefixError::Io { action: "read the link", path, source, remedy });
            }
        };
        let name = target.to_string_lossy().into_owned();
        match DirectoryName::new(name.trim_end_matches('/')) {
            Ok(directory) => Ok(Some(directory)),
            Err(problem) => Err(PrefixError::Name {
                path,
                place: "link target".to_owned(),
                name,
                problem,
                remedy: "remove the link, or set it with `holdfast index current`",
            }),
        }
    }

    /// Points the current link at `directory`, replacing what was there in one step.
    ///
    /// # Errors
    /// [`PrefixError::Durable`].
    pub fn set_current(&self, directory: &DirectoryName) -> Result<(), PrefixError> {
        Ok(durable::replace_symlink(&self.current_path(), directory.as_str())?)
    }

    /// Removes the current link and returns whether there was one. Only a link is ever removed, never a file or
    /// directory.
    ///
    /// # Errors
    /// [`PrefixError::Io`].
    pub fn remove_current(&self) -> Result<bool, PrefixError> {
        let path = self.current_path();
        let failed = |source| PrefixError::Io {
            action: "remove the link",
            path: path.clone(),
            source,
            remedy: "check that you may write to the prefix directory",
        };
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_symlink() => {}
            Ok(_) => return Err(failed(io::Error::other("it is not a symbolic link"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed(error)),
        }
        fs::remove_file(&path).map_err(failed)?;
        durable::sync_directory(&self.path)?;
        Ok(true)
    }

    /// Makes a new, empty directory for a dataset: with the application's name for it, or in SCR's form if it has none.
    /// Where the name is taken, the id is appended, then a number: nothing is ever copied into an old directory.
    ///
    /// # Errors
    /// As [`Prefix::create_checkpoint_directory`].
    pub fn create_dataset_directory(
        &self,
        now: NaiveDateTime,
        job: &str,
        id: CheckpointId,
        name: Option<&str>,
    ) -> Result<DirectoryName, PrefixError> {
        let Some(name) = name else { return self.create_checkpoint_directory(now, job, id) };
        let name = directory_name(name);
        let with_id = format!("{name}.{id}");
        let numbered = (2..NUMBERS_TO_TRY).map(|number| format!("{with_id}.{number}"));
        for candidate in [name, with_id.clone()].into_iter().chain(numbered) {
            if RESERVED_NAMES.contains(&candidate.as_str()) {
                continue;
            }
            let Ok(name) = DirectoryName::new(candidate) else { continue };
            if self.make_directory(&name)? {
                return Ok(name);
            }
        }
        Err(PrefixError::NoFreeName { prefix: self.path.clone(), job: job.to_owned(), id })
    }

    /// Makes a directory below the prefix; false if something has this name.
    fn make_directory(&self, name: &DirectoryName) -> Result<bool, PrefixError> {
        let path = self.checkpoint_path(name);
        match CreationMode::Umask.make_directory(&path) {
            Ok(()) => {
                durable::sync_directory(&self.path)?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(source) => {
                let remedy = "check that the prefix directory is writable and has space left";
                Err(PrefixError::Io { action: "make the checkpoint directory", path, source, remedy })
            }
        }
    }

    /// Makes a new, empty checkpoint directory for `id` of `job`, with the mode that the umask leaves. If the name of
    /// this second is taken, by an earlier attempt for example, the next free second is used: nothing is ever copied
    /// into an old directory.
    ///
    /// # Errors
    /// [`PrefixError::JobId`], [`PrefixError::NoFreeName`], [`PrefixError::Io`].
    pub fn create_checkpoint_directory(
        &self,
        now: NaiveDateTime,
        job: &str,
        id: CheckpointId,
    ) -> Result<DirectoryName, PrefixError> {
        check_base_name(job).map_err(|problem| PrefixError::JobId { job: job.to_owned(), problem })?;
        for seconds in 0..SECONDS_TO_TRY {
            let Some(stamp) = now.checked_add_signed(TimeDelta::seconds(seconds)) else { break };
            let text = NameParts { stamp, job: job.to_owned(), id }.to_string();
            let name =
                DirectoryName::new(text).map_err(|problem| PrefixError::JobId { job: job.to_owned(), problem })?;
            if self.make_directory(&name)? {
                return Ok(name);
            }
        }
        Err(PrefixError::NoFreeName { prefix: self.path.clone(), job: job.to_owned(), id })
    }
}
