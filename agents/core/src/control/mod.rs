//! The files of the control directory, and the meta files beside checkpoint files.
//!
//! * [`meta`]: `<file>.scr`, what is known of one checkpoint file (`docs/scr-files.md` §3);
//! * [`content`]: when a file holds what was written;
//! * [`filemap`]: which files of which ranks and checkpoints a node has (§4), and the master filemap;
//! * [`flush`]: where each checkpoint is (§7); [`halt`]: reasons to end (§8); [`nodes`]: how many a run used (§9);
//!   [`transfer`]: what an asynchronous flush copies (§10);
//! * [`need`]: whether a checkpoint is due (§17);
//! * [`node_path`]: from a path in a control file to the real one, without escape.

pub mod content;
pub mod filemap;
pub mod flush;
pub mod halt;
pub mod meta;
pub mod need;
pub mod node_path;
pub mod nodes;
pub mod transfer;

/// What is wrong with the content of a hash file that could be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContentError {
    /// A key that must be there is not.
    #[error("the key {key} is missing")]
    Missing {
        /// The key, with the keys above it.
        key: String,
    },
    /// A value is not what the key needs.
    #[error("{key} is {value:?}, expected is {expected}")]
    Value {
        /// The key, with the keys above it.
        key: String,
        value: String,
        expected: &'static str,
    },
}

/// Why a typed control file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    #[error(transparent)]
    File(#[from] crate::kvtree::file::HashFileError),
    #[error("{} cannot be used: {source}; move it away, or restore it", path.display())]
    Content { path: std::path::PathBuf, source: ContentError },
}

impl ControlError {
    /// True if the file could not be written, or its file system not be used, whatever the file contains.
    pub fn prevents_writing(&self) -> bool {
        matches!(self, ControlError::File(error) if error.prevents_writing())
    }

    /// True if descriptors or memory were exhausted: nothing is known of the file, and a later try may succeed.
    pub fn is_exhaustion(&self) -> bool {
        matches!(self, ControlError::File(error) if error.is_exhaustion())
    }

    /// True if there is no such file.
    pub fn is_not_found(&self) -> bool {
        matches!(self, ControlError::File(error) if error.is_not_found())
    }
}

/// Adds the path of the file to what is wrong with its content.
fn in_file<T>(path: &std::path::Path, content: Result<T, ContentError>) -> Result<T, ControlError> {
    content.map_err(|source| ControlError::Content { path: path.to_owned(), source })
}

/// The first value of a key that must be there, parsed.
fn required<T: std::str::FromStr>(
    tree: &crate::kvtree::Tree,
    key: &str,
    expected: &'static str,
) -> Result<T, ContentError> {
    let value = tree.value(key).ok_or_else(|| ContentError::Missing { key: key.to_owned() })?;
    parse(key, value, expected)
}

/// True if a number that is a key has the spelling by which it is looked up. `04` and `+4` would be listed as 4, and
/// never be found or removed.
pub(crate) fn is_number_key<T: std::str::FromStr + std::fmt::Display>(text: &str) -> bool {
    text.parse().is_ok_and(|number: T| number.to_string() == text)
}

fn parse<T: std::str::FromStr>(key: &str, value: &str, expected: &'static str) -> Result<T, ContentError> {
    let wrong = |_| ContentError::Value { key: key.to_owned(), value: value.to_owned(), expected };
    value.parse().map_err(wrong)
}
