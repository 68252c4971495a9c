//! A file that takes its name when it is complete: written under another name beside it, by one or several ranks, then
//! renamed over what was there.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The place of such a file: `.NAME.partial` until [`Partial::place`].
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

    /// A new file, so that a rank of an older run that still writes does not write into this one.
    pub fn create(&self) -> io::Result<File> {
        match fs::remove_file(&self.partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        OpenOptions::new().write(true).create_new(true).open(&self.partial)
    }

    /// The file that another rank created.
    pub fn open(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(&self.partial)
    }

    /// Gives the file its name, durably. `file` is the file itself, open.
    pub fn place(&self, file: &File) -> io::Result<()> {
        file.sync_all()?;
        fs::rename(&self.partial, self.path)?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }

    /// Removes what was written so far.
    pub fn discard(&self) {
        // Nothing can be done about a failure here; the next run replaces the leftover.
        let _ = fs::remove_file(&self.partial);
    }
}
