//! The files of a set whose first file is replaced by a container of one file.
//!
//! No reader opens them any more, because the new first file is not of a set. They are removed after the new container
//! has its name: until then, the old set is complete.

use std::path::{Path, PathBuf};

use holdfast_core::durable;

use super::error::SionError;
use super::physical_file::OpenedHead;
use super::slot::{numbers_present, part_path};

/// The further files of the set whose first file is at `path`; none if that is no first file of a set. A file with the
/// name of a further file that belongs to another set is not included.
pub(super) fn further_files(path: &Path) -> Result<Vec<PathBuf>, SionError> {
    let Ok(OpenedHead { header, .. }) = OpenedHead::open(path) else { return Ok(Vec::new()) };
    if header.files == 1 || header.file_number.is_some_and(|number| number != 0) {
        return Ok(Vec::new());
    }
    let belongs = |(number, path): &(u32, PathBuf)| {
        OpenedHead::open(path).is_ok_and(|part| part.header.belongs(*number, header.files))
    };
    let present = numbers_present(path, header.files)?.into_iter().map(|number| (number, part_path(path, number)));
    Ok(present.filter(belongs).map(|(_, path)| path).collect())
}

/// Removes the files of [`further_files`].
pub(super) fn remove(files: &[PathBuf]) -> Result<(), SionError> {
    files.iter().try_for_each(|path| Ok(durable::remove(path).map(|_| ())?))
}
