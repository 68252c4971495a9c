//! Opening and replacing files that must be regular ones.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, OFlags, statat};
use rustix::io::Errno;

use crate::durable::DurableError;

/// Opens a regular file for reading. A pipe is refused: opening it would wait for a writer for ever.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, File::options().read(true))
}

/// Opens a regular file for reading and writing.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_writable(path: &Path) -> io::Result<File> {
    open_with(path, File::options().read(true).write(true))
}

/// Opens a regular file for reading. No link is followed.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_no_link(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    regular(File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?)
}

/// Opens a regular file for appending, made with mode 0600 if it is missing. No link is followed.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut options = File::options();
    let options = options.append(true).create(true).mode(0o600);
    regular(options.custom_flags(flags.bits().cast_signed()).open(path)?)
}

/// Opens a regular file for writing, empty, made with mode 0600 if it is missing. No link is followed.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn create(path: &Path) -> io::Result<File> {
    let file = open_or_create(path)?;
    // Not truncated before it is known to be a regular file.
    file.set_len(0)?;
    Ok(file)
}

/// Opens a regular file for writing with the content that it has, made with mode 0600 if it is missing. No link is
/// followed.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    regular(options.custom_flags(flags.bits().cast_signed()).open(path)?)
}

fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    regular(options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?)
}

fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Accepts a path at which a regular file or nothing is. A rename over anything else would remove a device, a pipe or a
/// link from the system; as root even `/dev/null`.
///
/// # Errors
/// When something else is there, or the path cannot be followed.
pub fn check_replaceable(path: &Path) -> Result<(), DurableError> {
    let kind = match statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => match FileType::from_raw_mode(there.st_mode) {
            FileType::RegularFile => return Ok(()),
            FileType::Directory => "a directory",
            FileType::Symlink => "a symbolic link",
            FileType::Fifo => "a named pipe",
            FileType::Socket => "a socket",
            FileType::CharacterDevice | FileType::BlockDevice => "a device",
            FileType::Unknown => "of an unknown type",
        },
        // Also a missing directory: the write that follows reports it.
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => {
            return Err(DurableError::Io { action: "replace", path: path.to_owned(), source: error.into() });
        }
    };
    Err(DurableError::NotReplaceable { path: path.to_owned(), kind })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{Mode, makedev, mkfifoat, mknodat};

    use super::*;
    use crate::durable::{self, CreationMode, Pending};

    #[test]
    fn only_a_regular_file_or_nothing_is_replaced() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir(at("directory")).unwrap();
        mkfifoat(CWD, at("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        fs::write(at("file"), "old").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("missing"), at("dangling")).unwrap();
        let mut kinds = vec!["directory", "pipe", "socket", "link", "dangling"];
        // Root only.
        if mknodat(CWD, at("device"), FileType::CharacterDevice, Mode::RUSR, makedev(1, 3)).is_ok() {
            kinds.push("device");
        }
        for name in kinds {
            let path = at(name);
            let before = fs::symlink_metadata(&path).unwrap().file_type();
            let pending = Pending::create(&path, CreationMode::Private).map(drop);
            for refused in [durable::replace(&path, CreationMode::Private, b"new"), pending] {
                let error = refused.unwrap_err().to_string();
                assert!(error.starts_with(&format!("will not replace {}: it is a ", path.display())), "{error}");
            }
            assert_eq!(fs::symlink_metadata(&path).unwrap().file_type(), before);
        }
        assert_eq!(fs::read(at("file")).unwrap(), b"old");
        for name in ["file", "new"] {
            durable::replace(&at(name), CreationMode::Private, b"new").unwrap();
            assert_eq!(fs::read(at(name)).unwrap(), b"new");
        }
    }

    #[test]
    fn a_pipe_that_appears_during_the_work_is_not_replaced() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("output");
        let result = durable::replace_with(&path, CreationMode::Umask, |_| Ok(mkfifoat(CWD, &path, Mode::RUSR)?));
        assert!(matches!(result, Err(DurableError::NotReplaceable { kind: "a named pipe", .. })));
        let path = base.path().join("other");
        let (pending, _file) = Pending::create(&path, CreationMode::Umask).unwrap();
        mkfifoat(CWD, &path, Mode::RUSR).unwrap();
        assert!(matches!(pending.commit(), Err(DurableError::NotReplaceable { .. })));
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 2, "the temporary files are removed");
    }
}
