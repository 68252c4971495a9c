//! Opening files by base name, strictly inside a directory: names come from headers that may be damaged or forged.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use holdfast_model::OutputPath;
use rustix::fs::OFlags;

use crate::output_files;
use crate::redundancy::RedundancyError;

/// Refuses everything that is not the plain name of a file in `directory`.
pub(crate) fn check_name(directory: &Path, name: &str) -> Result<(), RedundancyError> {
    let why = match name {
        "" => "it is empty",
        "." | ".." => "it is a directory",
        _ if name.len() > 255 => "it is longer than a file name can be",
        _ if name.contains('/') => "it leads to another directory",
        _ if name.contains('\0') => "it contains a NUL",
        _ => return Ok(()),
    };
    Err(RedundancyError::UnsafeName { directory: directory.to_owned(), name: name.to_owned(), why })
}

/// Opens a regular file for reading, at its output path if it is not in `directory`; never follows a link, never waits
/// for a pipe's writer.
pub(crate) fn open(directory: &Path, name: &str, output: Option<&OutputPath>) -> Result<File, RedundancyError> {
    check_name(directory, name)?;
    let path =
        output_files::path(directory, name, output).map_err(RedundancyError::io("open", &directory.join(name)))?;
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(&path)
        .map_err(RedundancyError::io("open", &path))?;
    let metadata = file.metadata().map_err(RedundancyError::io("look at", &path))?;
    if !metadata.is_file() {
        let why = "it is not a regular file";
        return Err(RedundancyError::UnsafeName { directory: directory.to_owned(), name: name.to_owned(), why });
    }
    Ok(file)
}
