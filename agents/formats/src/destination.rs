//! The directory that an extraction writes to.
//!
//! Names come from the formats, and so from untrusted files: a name is one plain component or it is refused. Each file
//! is written beside its place and moved there when it is complete.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use super::error::FormatsError;
use holdfast_core::durable;

/// The longest name that the usual file systems take.
const NAME_MAX: usize = 255;

/// A directory, and whether files in it may be replaced.
#[derive(Debug, Clone)]
pub struct Destination {
    directory: PathBuf,
    overwrite: bool,
    pretend: bool,
}

impl Destination {
    /// Makes the directory with its parents if it is missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(directory: &Path, overwrite: bool) -> Result<Destination, FormatsError> {
        durable::create_directory(directory, 0o777)?;
        Ok(Destination { directory: directory.to_owned(), overwrite, pretend: false })
    }

    /// For a dry run: everything is read and checked as if it were written, and nothing is; not even the directory
    /// is made.
    pub fn pretended(directory: &Path, overwrite: bool) -> Destination {
        Destination { directory: directory.to_owned(), overwrite, pretend: true }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where a file of this name goes.
    ///
    /// # Errors
    /// When the name is not a plain file name.
    pub fn path(&self, name: &str) -> Result<PathBuf, FormatsError> {
        let plain = !name.is_empty() && name.len() <= NAME_MAX && name != "." && name != "..";
        if !plain || name.contains(['/', '\0']) {
            return Err(FormatsError::UnsafeName { directory: self.directory.clone(), name: name.to_owned() });
        }
        Ok(self.directory.join(name))
    }

    /// Writes a file: complete, or not at all. `fill` gives its error through; what it has written then is gone.
    ///
    /// # Errors
    /// When the name is not a plain file name, the file is there and may not be replaced, or writing fails.
    pub fn write<R>(
        &self,
        name: &str,
        fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<R>,
    ) -> Result<R, FormatsError> {
        let path = self.path(name)?;
        if self.pretend {
            if !self.overwrite && path.symlink_metadata().is_ok() {
                return Err(FormatsError::Exists { path });
            }
            let nowhere = Path::new("/dev/null");
            let open = File::options().write(true).open(nowhere);
            let mut out = BufWriter::new(open.map_err(FormatsError::reading("open", nowhere))?);
            // What fails here is what fills, and its caller knows the reason.
            return fill(&mut out).map_err(FormatsError::reading("fill", &path));
        }
        if self.overwrite {
            return Ok(durable::replace_with(&path, fill)?);
        }
        // Asked before the work, and again by the system when the file is moved to its place.
        if path.symlink_metadata().is_ok() {
            return Err(FormatsError::Exists { path });
        }
        match durable::create_new_with(&path, fill)? {
            Some(result) => Ok(result),
            None => Err(FormatsError::Exists { path }),
        }
    }
}
