//! A file that gets its name when it is complete: one or several ranks write it under a temporary name in the same
//! directory, then it is renamed and replaces an existing regular file. A device, a pipe or a link is not replaced.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_core::durable::check_replaceable;
use rustix::fs::OFlags;

/// A file that is called `.NAME.partial` until [`Partial::place`].
pub struct Partial<'a> {
    path: &'a Path,
    partial: PathBuf,
}

impl<'a> Partial<'a> {
    /// For this file; nothing is created yet.
    pub fn of(path: &'a Path) -> Self {
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".partial");
        Partial { path, partial: path.with_file_name(name) }
    }

    /// Creates a new file, so that a rank of an older generation that is still running does not write to it.
    pub fn create(&self) -> io::Result<File> {
        check_replaceable(&self.partial).map_err(io::Error::other)?;
        match fs::remove_file(&self.partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        OpenOptions::new().write(true).create_new(true).open(&self.partial)
    }

    /// Opens the file that another rank created.
    pub fn open(&self) -> io::Result<File> {
        OpenOptions::new().write(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&self.partial)
    }

    /// Renames the file, durably. `file` is the open file.
    pub fn place(&self, file: &File) -> io::Result<()> {
        file.sync_all()?;
        check_replaceable(self.path).map_err(io::Error::other)?;
        fs::rename(&self.partial, self.path)?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }

    /// Removes the incomplete file.
    pub fn discard(&self) {
        // A failure has no consequence: the next launch replaces the file.
        let _ = fs::remove_file(&self.partial);
    }
}
