//! What an application declares about a dataset when it begins to write it (`SCR_Start_output` of SCR 3).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::CheckpointId;
use crate::level::Level;
use crate::output_path::OutputPath;

/// The longest name, bytes: with its NUL it fills a buffer of `SCR_MAX_FILENAME`.
pub const LONGEST_NAME: usize = 1023;

/// What is known of a dataset beside its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    /// The application's name for it.
    pub name: Option<String>,
    /// A run can restart from it.
    pub checkpoint: bool,
    /// It must reach the prefix directory, whatever the flush settings are.
    pub output: bool,
    /// The directory below the prefix where its ranks write and read it themselves, past the cache: files that several
    /// ranks share.
    pub direct: Option<String>,
    /// The level that the program requested for a checkpoint of its variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
}

impl Default for Dataset {
    /// A checkpoint without a name, in cache.
    fn default() -> Self {
        Dataset { name: None, checkpoint: true, output: false, direct: None, level: None }
    }
}

impl Dataset {
    /// True for what needs no record: a checkpoint without a name, in cache.
    pub fn is_plain(&self) -> bool {
        *self == Dataset::default()
    }
}

/// Files of a complete output that are in the directory of their dataset, and not at the paths that the application
/// named, because something else is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unplaced {
    /// The directory of the dataset below the prefix.
    pub directory: String,
    /// The first of the paths, below the prefix.
    pub path: OutputPath,
    /// The number of files.
    pub files: u64,
}

impl fmt::Display for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unplaced { directory, path, files } = self;
        let name = path.base_name();
        match files {
            1 => write!(f, "{directory}/{name} stays there, because something else is at {path}")?,
            _ => write!(
                f,
                "{files} files of the output stay in {directory}, because something else is at their paths \
                 ({directory}/{name} belongs at {path})"
            )?,
        }
        write!(f, "; move that away, or have it replaced: `holdfast index place {directory} --replace`")
    }
}

/// Why a text cannot be the name of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatasetNameError {
    #[error("it is empty")]
    Empty,
    #[error("it contains a control character")]
    Control,
    #[error("it is longer than {LONGEST_NAME} bytes")]
    TooLong,
}

/// Checks a dataset's name. It never becomes a path, so that slashes are allowed.
///
/// # Errors
/// Why `name` is refused.
pub fn check_name(name: &str) -> Result<(), DatasetNameError> {
    if name.is_empty() {
        Err(DatasetNameError::Empty)
    } else if name.len() > LONGEST_NAME {
        Err(DatasetNameError::TooLong)
    } else if name.chars().any(char::is_control) {
        Err(DatasetNameError::Control)
    } else {
        Ok(())
    }
}

/// SCR's name for a dataset that was given none.
pub fn default_name(id: CheckpointId) -> String {
    format!("scr.dataset.{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_impossible_names() {
        assert_eq!(check_name(&"x".repeat(1024)), Err(DatasetNameError::TooLong));
        assert_eq!(check_name(""), Err(DatasetNameError::Empty));
        assert_eq!(check_name("a\nb"), Err(DatasetNameError::Control));
        assert_eq!(check_name("plot/step 7"), Ok(()));
    }
}
