//! The directory that an extraction writes to.
//!
//! The formats take names from untrusted files: a name that is not one plain path component is rejected. Each file is
//! written under a temporary name in the directory and renamed when it is complete.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use super::error::{FormatsError, Result};
use holdfast_core::durable::{self, CreationMode, Filling};

/// The longest file name that common file systems allow.
const NAME_MAX: usize = 255;

/// Why a file was not filled with its content.
#[derive(Debug)]
pub(crate) enum FillError<R = Infallible> {
    /// Writing failed.
    Output(io::Error),
    /// The content cannot be read or made.
    Content(FormatsError),
    /// What was written is not to be kept.
    Refused(R),
}

impl<R> From<io::Error> for FillError<R> {
    fn from(error: io::Error) -> FillError<R> {
        FillError::Output(error)
    }
}

impl<R> From<FormatsError> for FillError<R> {
    fn from(error: FormatsError) -> FillError<R> {
        FillError::Content(error)
    }
}

/// Has `write` write a file that `fill` fills: [`durable`] knows errors of the output only. The inner result is a
/// refusal.
fn filled<T, R>(
    fill: impl FnOnce(&mut BufWriter<Filling>) -> Result<T, FillError<R>>,
    write: impl FnOnce(Box<dyn FnOnce(&mut BufWriter<Filling>) -> io::Result<T> + '_>) -> Result<T>,
) -> Result<Result<T, R>> {
    let mut failed = None;
    let written = write(Box::new(|out| {
        fill(out).map_err(|error| match error {
            FillError::Output(error) => error,
            other => {
                failed = Some(other);
                io::Error::other("it has no content")
            }
        })
    }));
    match failed {
        Some(FillError::Refused(refusal)) => Ok(Err(refusal)),
        Some(FillError::Content(error)) => Err(error),
        Some(FillError::Output(_)) | None => written.map(Ok),
    }
}

/// Replaces a file completely, or not at all: when `fill` fails, the previous file is unchanged.
pub(crate) fn replace<T>(path: &Path, fill: impl FnOnce(&mut BufWriter<Filling>) -> Result<T, FillError>) -> Result<T> {
    let Ok(result) = filled(fill, |fill| Ok(durable::replace_with(path, CreationMode::Umask, fill)?))?;
    Ok(result)
}

/// A directory, whether files in it may be replaced, and whether this is a dry run.
#[derive(Debug, Clone)]
pub struct Destination {
    /// The directory that files are written to.
    pub directory: PathBuf,
    overwrite: bool,
    dry_run: bool,
}

impl Destination {
    /// Creates the directory and its parents if they are missing.
    pub fn new(directory: &Path, overwrite: bool) -> Result<Destination> {
        durable::create_directory(directory, CreationMode::Umask)?;
        Ok(Destination { directory: directory.to_owned(), overwrite, dry_run: false })
    }

    /// For a dry run: everything is read and checked as in a real run, but nothing is written, and the directory is
    /// not created.
    pub fn dry_run(directory: &Path, overwrite: bool) -> Destination {
        Destination { directory: directory.to_owned(), overwrite, dry_run: true }
    }

    /// The path of the file with this name.
    ///
    /// # Errors
    /// When the name is not a plain file name.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        let plain = !name.is_empty() && name.len() <= NAME_MAX && name != "." && name != "..";
        if !plain || name.contains(['/', '\0']) {
            return Err(FormatsError::UnsafeName { directory: self.directory.clone(), name: name.to_owned() });
        }
        Ok(self.directory.join(name))
    }

    /// Fails if a file may not be written at this path.
    ///
    /// # Errors
    /// When something exists there and may not be replaced.
    pub fn check(&self, path: &Path) -> Result<()> {
        // A dry run has not made the directory.
        if self.dry_run && self.directory.metadata().is_ok_and(|found| !found.is_dir()) {
            return Err(FormatsError::Exists { path: self.directory.clone() });
        }
        if self.overwrite {
            Ok(durable::check_replaceable(path)?)
        } else if path.symlink_metadata().is_ok() {
            Err(FormatsError::Exists { path: path.to_owned() })
        } else {
            Ok(())
        }
    }

    /// Fails if [`Destination::write`] would refuse the name, for those who only report what they would write.
    ///
    /// # Errors
    /// When the name is not a plain file name, or the file exists and may not be replaced.
    pub fn check_name(&self, name: &str) -> Result<()> {
        self.check(&self.path(name)?)
    }

    /// As [`Destination::write`], with a content that can fail or be refused; the inner result is the refusal.
    pub(crate) fn write_unless_refused<T, R>(
        &self,
        name: &str,
        fill: impl FnOnce(&mut BufWriter<Filling>) -> Result<T, FillError<R>>,
    ) -> Result<Result<T, R>> {
        filled(fill, |fill| self.write(name, fill))
    }

    /// Writes a file completely, or not at all: when `fill` fails, what it has written is removed.
    ///
    /// # Errors
    /// When the name is not a plain file name, the file exists and may not be replaced, `fill` fails, or writing fails.
    pub fn write<R>(&self, name: &str, fill: impl FnOnce(&mut BufWriter<Filling>) -> io::Result<R>) -> Result<R> {
        let path = self.path(name)?;
        if self.dry_run {
            self.check(&path)?;
            let nowhere = Path::new("/dev/null");
            let open = File::options().write(true).open(nowhere);
            let mut out = BufWriter::new(Filling(open.map_err(FormatsError::reading("open", nowhere))?));
            // Only `fill` can fail here: /dev/null takes every byte.
            return fill(&mut out).map_err(FormatsError::reading("fill", &path));
        }
        if self.overwrite {
            return Ok(durable::replace_with(&path, CreationMode::Umask, fill)?);
        }
        // Checked before the work to fail early; the rename below checks again.
        self.check(&path)?;
        match durable::create_new_with(&path, CreationMode::Umask, fill)? {
            Some(result) => Ok(result),
            None => Err(FormatsError::Exists { path }),
        }
    }
}
