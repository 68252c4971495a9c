//! Files with a secret that HTTP requests have or need.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a file that are read.
const LONGEST: u64 = 4096;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretFileError {
    #[error("cannot read {} ({key}): {source}", path.display())]
    Unreadable { key: &'static str, path: PathBuf, source: io::Error },
    #[error("{} ({key}) is empty: write the secret into it", path.display())]
    Empty { key: &'static str, path: PathBuf },
}

/// The value of the header `Authorization` for the secret in a file that this key of the spec names.
///
/// # Errors
/// The file cannot be read, or has only white space.
pub(super) fn authorization(key: &'static str, path: &Path) -> Result<Arc<str>, SecretFileError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
    match read.map(|_| text) {
        Ok(text) if text.trim().is_empty() => Err(SecretFileError::Empty { key, path: path.to_owned() }),
        Ok(text) => Ok(format!("Bearer {}", text.trim()).into()),
        Err(source) => Err(SecretFileError::Unreadable { key, path: path.to_owned(), source }),
    }
}
