//! Files in the [state directory](crate::state_directory) of a job and below it, by path.
//!
//! Other users may be permitted to write to the prefix directory, so that they can put a directory or a link of theirs
//! in the place of `.holdfast` at any time. From that component on, each directory of a path is therefore opened
//! relative to the one above it, and must belong to this user and not be a link: see [`owned`](crate::owned). A path
//! without `.holdfast` is handled in the same way from its last component but one on.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, fchmod};

use crate::durable::Durability;
use crate::owned::{Access, Base, OwnedDirectory, OwnedError};
use crate::state_directory::NAME;
use crate::{calls, io_count};

/// A path: what may belong to another user, and what must be ours.
fn split(path: &Path) -> (PathBuf, PathBuf) {
    let components: Vec<Component<'_>> = path.components().collect();
    let own = components.iter().rposition(|component| component.as_os_str() == NAME);
    let at = own.unwrap_or(components.len().saturating_sub(1));
    let (shared, ours) = components.split_at(at);
    let shared: PathBuf = shared.iter().collect();
    let shared = if shared.as_os_str().is_empty() { PathBuf::from(".") } else { shared };
    (shared, ours.iter().collect())
}

/// Opens a directory of ours; `None` if it does not exist.
pub fn directory(path: &Path) -> Result<Option<OwnedDirectory>, OwnedError> {
    let (shared, ours) = split(path);
    let Some(base) = OwnedError::if_there(Base::shared(&shared))? else { return Ok(None) };
    base.open_directories(&ours, Access::Readable)
}

/// Opens a directory of ours, and makes what is missing from `.holdfast` on.
pub fn create_directory(path: &Path) -> Result<OwnedDirectory, OwnedError> {
    let (shared, ours) = split(path);
    let base = Base::shared(&shared)?;
    let mut at: Option<OwnedDirectory> = None;
    for name in ours.components() {
        at = Some(at.as_deref().unwrap_or(&base).create_private_directory(name)?);
    }
    at.ok_or_else(|| missing(path))
}

fn missing(path: &Path) -> OwnedError {
    OwnedError::Io { action: "open", path: path.to_owned(), source: io::ErrorKind::NotFound.into() }
}

/// The directory of a file, and its name.
fn parts(path: &Path) -> Result<(OwnedDirectory, &OsStr), OwnedError> {
    let name = path.file_name().ok_or_else(|| missing(path))?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The working directory has no name by which it could be opened in the one above it.
    let above = if above == Path::new(".") { std::env::current_dir().unwrap_or_default() } else { above.to_owned() };
    Ok((directory(&above)?.ok_or_else(|| missing(path))?, name))
}

/// Opens a file of ours for reading; `None` if it does not exist.
pub fn open(path: &Path) -> Result<Option<File>, OwnedError> {
    let Some((directory, name)) = OwnedError::if_there(parts(path))? else { return Ok(None) };
    directory.open_file(name, Access::Readable)
}

/// Reads a file of ours; `None` if it does not exist.
pub fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, OwnedError> {
    let Some((directory, name)) = OwnedError::if_there(parts(path))? else { return Ok(None) };
    directory.read(name, Access::Readable, limit)
}

/// Opens a file of ours for appending, and makes it if it does not exist.
pub fn append(path: &Path) -> Result<File, OwnedError> {
    let (directory, name) = parts(path)?;
    append_in(&directory, name)
}

/// As [`append`], with the mode and the group for this access.
///
/// # Errors
/// Those of opening it, and of changing its mode and its group.
pub fn append_for(path: &Path, access: Access) -> io::Result<File> {
    let (directory, name) = parts(path)?;
    let file = append_in(&directory, name)?;
    permit_file(&directory, &file, access)?;
    Ok(file)
}

fn append_in(directory: &OwnedDirectory, name: &OsStr) -> Result<File, OwnedError> {
    // One that another user may read is accepted; new ones are private.
    match directory.open_file(name, Access::Readable)? {
        Some(_) => directory.append(name, Access::Readable),
        None => directory.append(name, Access::Private),
    }
}

/// Appends these bytes to an open file: they survive this process.
///
/// # Errors
/// A part may have been written.
pub fn write_all(file: &File, bytes: &[u8]) -> io::Result<()> {
    io_count::written(bytes.len());
    calls::write_all(file, bytes)
}

/// Makes what was written to an open file survive the machine.
///
/// # Errors
/// Nothing is known of what survives then.
pub fn sync_data(file: &File) -> io::Result<()> {
    Ok(calls::fdatasync(file)?)
}

/// Opens a file of ours for a lock, and makes it if it does not exist.
pub fn open_or_create(path: &Path) -> Result<File, OwnedError> {
    let (directory, name) = parts(path)?;
    directory.open_or_create(name, Access::Private)
}

/// Replaces a file of ours, durably.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), OwnedError> {
    let (directory, name) = parts(path)?;
    directory.replace(name, bytes, Access::Private, Durability::Machine)
}

/// True for an error of this module because another user may have made what was found.
pub fn is_refusal(error: &io::Error) -> bool {
    let owned = error.get_ref().and_then(|error| error.downcast_ref::<OwnedError>());
    owned.is_some_and(OwnedError::is_refusal)
}

/// Removes a file of ours, or a link; returns whether it existed.
pub fn remove(path: &Path) -> Result<bool, OwnedError> {
    let Some((directory, name)) = OwnedError::if_there(parts(path))? else { return Ok(false) };
    directory.remove_file(name, Durability::Machine)
}

/// Gives a directory of ours its mode, as far as the umask permits it.
///
/// # Errors
/// That of the system call.
pub fn permit_directory(directory: &OwnedDirectory, access: Access) -> io::Result<()> {
    Ok(fchmod(directory, Mode::from_raw_mode(access.directory_mode() & !umask()))?)
}

/// Gives an open file of a directory its mode, as far as the umask permits it, and for access of the group that of the
/// directory.
///
/// # Errors
/// That of the system call.
pub fn permit_file(directory: &OwnedDirectory, file: &File, access: Access) -> io::Result<()> {
    directory.share_group(file, access)?;
    Ok(fchmod(file, Mode::from_raw_mode(access.file_mode() & !umask()))?)
}

/// The umask without its bits for the owner. If it cannot be read, nothing is permitted to others.
fn umask() -> u32 {
    let status = procfs::process::Process::myself().and_then(|process| process.status());
    status.ok().and_then(|status| status.umask).unwrap_or(0o077) & 0o077
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn from_the_last_component_called_holdfast_on_a_path_must_be_ours() {
        let parts = |path: &str| split(Path::new(path));
        assert_eq!(parts("/p/.holdfast/generations/3"), ("/p".into(), ".holdfast/generations/3".into()));
        assert_eq!(parts("/.holdfast/p/.holdfast"), ("/.holdfast/p".into(), ".holdfast".into()));
        assert_eq!(parts("/p/x"), ("/p".into(), "x".into()));
        assert_eq!(parts("x"), (".".into(), "x".into()));
    }

    #[test]
    fn a_link_in_the_place_of_a_directory_of_ours_is_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let generation = base.path().join(".holdfast/generations/1");
        create_directory(&generation).unwrap();
        let plan = generation.join("plan.json");
        replace(&plan, b"{}").unwrap();
        assert_eq!(read(&plan, 9).unwrap().unwrap(), b"{}");
        let own = base.path().join(NAME);
        std::fs::rename(&own, base.path().join("aside")).unwrap();
        assert!(read(&plan, 9).unwrap().is_none());
        symlink(base.path().join("aside"), &own).unwrap();
        assert!(read(&plan, 9).unwrap_err().is_refusal());
        assert!(append(&plan).unwrap_err().is_refusal());
        assert!(replace(&plan, b"").unwrap_err().is_refusal());
        assert!(create_directory(&generation).unwrap_err().is_refusal());
    }
}
