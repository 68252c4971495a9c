//! Replaces files atomically: a temporary file is written beside the old one and renamed over it. A kill of the process
//! at any instant leaves the old content or the new content, never a part of either.
//!
//! The original opened with truncation and wrote in place (`docs/scr-files.md` §1, "Replacing files"), so that a crash
//! could leave a short control file and with it an unusable checkpoint. Every file that this project replaces is
//! replaced by this module.
//!
//! Only a regular file is replaced ([`check_replaceable`]): a rename over a device, a pipe or a link would remove it
//! from the system.
//!
//! **The mode** ([`CreationMode`]) is chosen by the caller: the files of the control and cache directories and
//! the orchestrator's records are the user's own; what is on the prefix directory, and what the user names as output,
//! follows the umask.
//!
//! **With or without a sync.** This depends on what the file has to survive:
//!
//! * *the machine* ([`replace`], [`create_directory`], [`remove`], …): the file is synced before the rename and the
//!   directory after it, so that the same holds for a crash of the operating system and a loss of power. This is for
//!   everything on the prefix directory, and for what the orchestrator records.
//! * *the process* ([`replace_unsynced`], [`remove_unsynced`], …): no sync. The kernel
//!   keeps what a process has written and renamed before it died. This is for everything in control and cache
//!   directories: the files of a rebooted node count as lost, and its neighbours' redundancy restores them. A sync
//!   would make every rank wait for a disk several times per file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, statat};
use rustix::io::Errno;

use crate::{kill_point, temporary};

/// How many names are tried: a leftover of a crash, or another node on a shared file system, can use a name already.
const NAME_ATTEMPTS: u32 = 1000;

/// What could not be made durable, and what the user can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurableError {
    /// The path has no file name or no parent directory, so that nothing can be renamed to it.
    #[error("cannot write {}: it does not name a file; give a path that ends in a file name", path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// Something that is not a regular file is in the file's place.
    #[error("will not replace {}: it is {kind}; give the path of a regular file, or a new one", path.display())]
    NotReplaceable {
        path: PathBuf,
        /// What it is, with an article.
        kind: &'static str,
    },
    /// A file-system call failed.
    #[error("cannot {action} {}: {source}; {}", path.display(), remedy(source))]
    Io {
        /// What was being done, as the verb of the sentence.
        action: &'static str,
        /// The file or directory it was done to.
        path: PathBuf,
        source: io::Error,
    },
}

impl DurableError {
    /// The same error with the path by which the user knows the file, if it was accessed by another one.
    pub(crate) fn at(mut self, named: &Path) -> Self {
        match &mut self {
            DurableError::NotAFile { path }
            | DurableError::NotReplaceable { path, .. }
            | DurableError::Io { path, .. } => *path = named.to_owned(),
        }
        self
    }

    /// The system's own error, when there is one.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            DurableError::NotAFile { .. } | DurableError::NotReplaceable { .. } => None,
            DurableError::Io { source, .. } => Some(source),
        }
    }
}

/// True if an error of the file system can be corrected where it occurred, and does not mean that data are damaged: no
/// permission, no space, a quota, a size limit, a file system that is read-only, faulty or not available.
pub fn prevents_writing(error: &io::Error) -> bool {
    use io::ErrorKind::{
        FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StaleNetworkFileHandle, StorageFull,
        TimedOut,
    };
    let by_kind = matches!(
        error.kind(),
        FileTooLarge
            | PermissionDenied
            | QuotaExceeded
            | ReadOnlyFilesystem
            | StaleNetworkFileHandle
            | StorageFull
            | TimedOut
    );
    by_kind || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// What a user can do about an I/O error on a file of Holdfast; in one place, so that the same error gets the same
/// advice.
pub fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "check that the directory exists on this node",
        io::ErrorKind::PermissionDenied => "check owner and mode of the directory",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space there, or choose another directory",
        io::ErrorKind::FileTooLarge => "raise the limit on file sizes (`ulimit -f`), or use another file system",
        io::ErrorKind::ReadOnlyFilesystem => "choose a directory on a writable file system",
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "move away what is in the file's place"
        }
        _ => "check the file system's health",
    }
}

/// What a change of a file has to survive; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The death of the process at any instant: renamed into place. Control and cache directories.
    Process,
    /// The loss of power too: synced, then renamed, and the directory synced. Prefix directory.
    Machine,
}

/// Which users may access a new file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreationMode {
    /// This user: mode 0600, of directories 0700.
    Private,
    /// Those that the umask leaves: mode 0666, of directories 0777, less the umask. Members of a project share the
    /// checkpoints on the prefix directory in this way.
    Umask,
}

impl CreationMode {
    /// That of a dataset's files: private in cache, by the umask on the prefix directory.
    pub fn of_dataset(durability: Durability) -> CreationMode {
        match durability {
            Durability::Process => CreationMode::Private,
            Durability::Machine => CreationMode::Umask,
        }
    }

    fn of_file(self) -> u32 {
        match self {
            CreationMode::Private => 0o600,
            CreationMode::Umask => 0o666,
        }
    }

    /// The mode of a new directory, before the umask.
    pub fn of_directory(self) -> u32 {
        match self {
            CreationMode::Private => 0o700,
            CreationMode::Umask => 0o777,
        }
    }

    /// Options that make a new file of this mode, open for reading and writing.
    pub fn new_file(self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(self.of_file());
        options
    }

    /// Makes one directory of this mode.
    ///
    /// # Errors
    /// When it cannot be made, or something of this name exists.
    pub fn make_directory(self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(self.of_directory()).create(path)
    }
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> DurableError + 'a {
    move |source| DurableError::Io { action, path: path.to_owned(), source }
}

/// Replaces `path` by a file with these bytes.
///
/// # Errors
/// When any step fails; the old file is then untouched and the temporary one removed.
pub fn replace(path: &Path, mode: CreationMode, bytes: &[u8]) -> Result<(), DurableError> {
    crate::io_count::written(bytes.len());
    replace_as(Durability::Machine, path, mode, |out| out.write_all(bytes))
}

/// As [`replace`], private and without a sync: the new file survives this process, not the machine.
pub fn replace_unsynced(path: &Path, bytes: &[u8]) -> Result<(), DurableError> {
    crate::io_count::written(bytes.len());
    replace_as(Durability::Process, path, CreationMode::Private, |out| write_reserved(out, bytes))
}

/// Replaces `path` by what `fill` writes (buffered), and returns what `fill` returned.
///
/// # Errors
/// When `fill` or any step fails; the old file is then untouched and the temporary one removed.
pub fn replace_with<R>(
    path: &Path,
    mode: CreationMode,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<R>,
) -> Result<R, DurableError> {
    replace_as(Durability::Machine, path, mode, fill)
}

fn replace_as<R>(
    durability: Durability,
    path: &Path,
    mode: CreationMode,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<R>,
) -> Result<R, DurableError> {
    let directory = parent(path)?;
    // Before the work, which can be long.
    check_replaceable(path)?;
    let (temporary, result) = write_temporary(durability, mode, directory, path, fill)?;
    kill_point::reach();
    // Again: `fill` can take long.
    check_replaceable(path)?;
    fs::rename(&temporary.0, path).map_err(failed("replace", path))?;
    temporary.keep();
    kill_point::reach();
    settle_directory(durability, directory)?;
    Ok(result)
}

/// A file under a temporary name that is to replace `path`, for writers that several processes take part in: they open
/// it by its temporary name, and the one that made it commits. Dropped without that, it is removed.
#[derive(Debug)]
pub struct Pending {
    temporary: Temporary,
    path: PathBuf,
}

impl Pending {
    /// Makes the temporary file, open for reading and writing.
    ///
    /// # Errors
    /// When it cannot be made, or something that is not a regular file is at `path`.
    pub fn create(path: &Path, mode: CreationMode) -> Result<(Pending, File), DurableError> {
        check_replaceable(path)?;
        let make = |temporary: &Path| mode.new_file().open(temporary);
        let (temporary, file) = with_temporary_name(parent(path)?, path, make)?;
        Ok((Pending { temporary, path: path.to_owned() }, file))
    }

    /// The name it has until it is committed.
    pub fn temporary_path(&self) -> &Path {
        &self.temporary.0
    }

    /// Gives the file its name. Its content must be synchronised before, by all who wrote it.
    ///
    /// # Errors
    /// When it cannot be renamed; the old file is then untouched.
    pub fn commit(self) -> Result<(), DurableError> {
        self.commit_as(Durability::Machine)
    }

    /// Gives the file its name. If it has to survive the machine, its content must be synchronised before, by all who
    /// wrote it.
    ///
    /// # Errors
    /// When it cannot be renamed; the old file is then untouched.
    pub fn commit_as(self, durability: Durability) -> Result<(), DurableError> {
        kill_point::reach();
        check_replaceable(&self.path)?;
        fs::rename(&self.temporary.0, &self.path).map_err(failed("replace", &self.path))?;
        self.temporary.keep();
        kill_point::reach();
        settle_directory(durability, parent(&self.path)?)
    }

    /// As [`Pending::commit`], only if nothing has the name; returns whether the file got it. Otherwise it is removed.
    pub fn commit_new(self) -> Result<bool, DurableError> {
        kill_point::reach();
        let Pending { temporary, path } = self;
        match give_free_name(&temporary.0, &path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(failed("create", &path)(error)),
        }
        // If the name is a link, the temporary one is still there, and is removed.
        drop(temporary);
        kill_point::reach();
        settle_directory(Durability::Machine, parent(&path)?)?;
        Ok(true)
    }
}

/// Gives a file a name that nothing has; its own is then removed, or can be. Not every file system has a rename that
/// does not replace, or hard links.
fn give_free_name(from: &Path, to: &Path) -> io::Result<()> {
    let renamed = rename_to_free(from, to);
    if renamed.is_ok() || renamed == Err(rustix::io::Errno::EXIST) {
        return Ok(renamed?);
    }
    match fs::hard_link(from, to) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => match to.symlink_metadata() {
            // There is neither. Another process that makes the file at this instant is not noticed.
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => fs::rename(from, to),
            _ => Err(io::ErrorKind::AlreadyExists.into()),
        },
        linked => linked,
    }
}

/// Makes `path` with these bytes only if nothing is there; returns whether it was made. A partial file is never
/// visible.
pub fn create_new(path: &Path, bytes: &[u8]) -> Result<bool, DurableError> {
    Ok(create_new_as(Durability::Machine, path, CreationMode::Private, |out| out.write_all(bytes))?.is_some())
}

/// As [`create_new`], without a sync: the new file survives this process, not the machine.
pub fn create_new_unsynced(path: &Path, bytes: &[u8]) -> Result<bool, DurableError> {
    Ok(create_new_as(Durability::Process, path, CreationMode::Private, |out| write_reserved(out, bytes))?.is_some())
}

/// Makes `path` of what `fill` writes (buffered) only if nothing is there; `None` if something was. A partial file is
/// never visible.
///
/// # Errors
/// When `fill` or any step fails.
pub fn create_new_with<R>(
    path: &Path,
    mode: CreationMode,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<R>,
) -> Result<Option<R>, DurableError> {
    create_new_as(Durability::Machine, path, mode, fill)
}

fn create_new_as<R>(
    durability: Durability,
    path: &Path,
    mode: CreationMode,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<R>,
) -> Result<Option<R>, DurableError> {
    let directory = parent(path)?;
    let (temporary, result) = write_temporary(durability, mode, directory, path, fill)?;
    // A hard link is the rename that refuses to replace; where there are none, the system may have such a rename.
    let made = fs::hard_link(&temporary.0, path).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Err(error),
        _ => rename_to_free(&temporary.0, path).map_err(|_| error),
    });
    match made {
        Ok(()) => {
            drop(temporary);
            settle_directory(durability, directory)?;
            Ok(Some(result))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(failed("create", path)(error)),
    }
}

/// Makes `link` a symbolic link to `target` (kept as text, so that it may be relative), replacing an earlier link.
///
/// # Errors
/// When any step fails, or something that is not a link is there; it is then untouched.
pub fn replace_symlink(link: &Path, target: &str) -> Result<(), DurableError> {
    let directory = parent(link)?;
    if fs::symlink_metadata(link).is_ok_and(|there| !there.is_symlink()) {
        let source = io::Error::new(io::ErrorKind::AlreadyExists, "it is not a symbolic link");
        return Err(failed("replace the link", link)(source));
    }
    let (temporary, ()) =
        with_temporary_name(directory, link, |temporary| std::os::unix::fs::symlink(target, temporary))?;
    kill_point::reach();
    fs::rename(&temporary.0, link).map_err(failed("replace the link", link))?;
    temporary.keep();
    kill_point::reach();
    sync_directory(directory)
}

/// Removes a file and makes the removal durable; returns whether the file existed.
///
/// # Errors
/// When the file exists and cannot be removed, or the directory cannot be synchronised.
pub fn remove(path: &Path) -> Result<bool, DurableError> {
    remove_as(Durability::Machine, path)
}

/// As [`remove`], without a sync: the file may be there again after a crash of the machine.
pub fn remove_unsynced(path: &Path) -> Result<bool, DurableError> {
    remove_as(Durability::Process, path)
}

fn remove_as(durability: Durability, path: &Path) -> Result<bool, DurableError> {
    let directory = parent(path)?;
    kill_point::reach();
    match fs::remove_file(path) {
        Ok(()) => {
            settle_directory(durability, directory)?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed("remove", path)(error)),
    }
}

/// Makes a directory and the missing ones above it, durably. One that exists is left as it is.
///
/// # Errors
/// When a directory cannot be made, or another file is in its place.
pub fn create_directory(path: &Path, mode: CreationMode) -> Result<(), DurableError> {
    let mut missing = Vec::new();
    let mut at = path;
    while !at.as_os_str().is_empty() && !at.is_dir() {
        missing.push(at);
        match at.parent() {
            Some(parent) => at = parent,
            None => break,
        }
    }
    for directory in missing.into_iter().rev() {
        match mode.make_directory(directory) {
            Ok(()) => settle_directory(Durability::Machine, parent(directory)?)?,
            // Another rank or agent may have been faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            Err(error) => return Err(failed("create the directory", directory)(error)),
        }
    }
    Ok(())
}

/// Makes renames and removals in a directory durable.
pub fn sync_directory(directory: &Path) -> Result<(), DurableError> {
    let handle = File::open(directory).map_err(failed("open the directory", directory))?;
    crate::io_count::synced();
    match rustix::fs::fsync(&handle) {
        // Some network file systems know no fsync of directories; there the rename is as durable as it gets.
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOTSUP) => Ok(()),
        Err(error) => Err(failed("synchronise the directory", directory)(error.into())),
    }
}

/// Allocates the blocks before writing. ext4 starts writeback when a file without allocated blocks is renamed over
/// another, which costs more than everything else if nothing is synced.
fn write_reserved(out: &mut BufWriter<File>, bytes: &[u8]) -> io::Result<()> {
    // If the allocation fails, writing is tried anyway, and its error is reported.
    let _ = rustix::fs::fallocate(out.get_ref(), rustix::fs::FallocateFlags::empty(), 0, bytes.len() as u64);
    out.write_all(bytes)
}

fn settle_directory(durability: Durability, directory: &Path) -> Result<(), DurableError> {
    match durability {
        Durability::Process => Ok(()),
        Durability::Machine => sync_directory(directory),
    }
}

fn parent(path: &Path) -> Result<&Path, DurableError> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(_)) if parent.as_os_str().is_empty() => Ok(Path::new(".")),
        (Some(parent), Some(_)) => Ok(parent),
        _ => Err(DurableError::NotAFile { path: path.to_owned() }),
    }
}

fn rename_to_free(from: &Path, to: &Path) -> rustix::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
}

/// Removes its file when dropped, unless it was renamed away.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Temporary {
    fn keep(mut self) {
        self.0 = PathBuf::new();
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // A failure cannot be reported here; `temporary::remove_abandoned` removes the file later.
            let _ = fs::remove_file(&self.0);
        }
    }
}

fn write_temporary<R>(
    durability: Durability,
    mode: CreationMode,
    directory: &Path,
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<R>,
) -> Result<(Temporary, R), DurableError> {
    let (temporary, file) = with_temporary_name(directory, path, |temporary| mode.new_file().open(temporary))?;
    kill_point::reach();
    let mut out = BufWriter::new(file);
    let result = fill(&mut out).map_err(failed("write", path))?;
    let file = out.into_inner().map_err(|error| failed("write", path)(error.into_error()))?;
    kill_point::reach();
    if durability == Durability::Machine {
        crate::io_count::synced();
        file.sync_all().map_err(failed("synchronise", path))?;
    }
    Ok((temporary, result))
}

fn with_temporary_name<T>(
    directory: &Path,
    path: &Path,
    make: impl Fn(&Path) -> io::Result<T>,
) -> Result<(Temporary, T), DurableError> {
    kill_point::reach();
    // A short name of its own: the file's name with something added could pass the limit of 255 bytes.
    for attempt in 1..=NAME_ATTEMPTS {
        let temporary = directory.join(temporary::name());
        match make(&temporary) {
            Ok(made) => return Ok((Temporary(temporary), made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < NAME_ATTEMPTS => {}
            Err(error) => return Err(failed("make a temporary file beside", path)(error)),
        }
    }
    Err(DurableError::NotAFile { path: path.to_owned() })
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
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{Mode, makedev, mkfifoat, mknodat};

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn replacing_leaves_the_new_content_with_mode_0600_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("halt.scrinfo");
        fs::write(&path, "old").unwrap();
        replace(&path, CreationMode::Private, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(directory.path()), ["halt.scrinfo"]);
    }

    #[test]
    fn unsynced_files_are_replaced_created_and_removed_like_synced_ones() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("a/b");
        create_directory(&inside, CreationMode::Private).unwrap();
        let path = inside.join("filemap_0.scrinfo");
        assert!(create_new_unsynced(&path, b"first").unwrap() && !create_new_unsynced(&path, b"second").unwrap());
        replace_unsynced(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(&inside), ["filemap_0.scrinfo"]);
        assert!(remove_unsynced(&path).unwrap() && !remove_unsynced(&path).unwrap());
        assert!(replace_unsynced(&inside.join("missing/file"), b"").is_err());
    }

    #[test]
    fn a_writer_that_fails_leaves_the_old_file_and_no_temporary_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("index.scr");
        fs::write(&path, "old").unwrap();
        let error = replace_with(&path, CreationMode::Private, |out| -> io::Result<()> {
            out.write_all(b"half of the new")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        })
        .unwrap_err();
        assert!(error.to_string().contains("index.scr") && error.to_string().contains("free space"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(directory.path()), ["index.scr"]);
    }

    #[test]
    fn a_file_in_place_of_the_directory_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let wall = directory.path().join("wall");
        fs::write(&wall, "").unwrap();
        let error = create_directory(&wall.join("inside"), CreationMode::Private).unwrap_err();
        assert!(error.to_string().contains("/wall: ") && error.to_string().contains("move away"), "{error}");
        assert!(create_directory(&wall, CreationMode::Private).is_err());
        assert!(replace(&directory.path().join("missing/file"), CreationMode::Private, b"").is_err());
        assert!(matches!(replace(Path::new("/"), CreationMode::Private, b""), Err(DurableError::NotAFile { .. })));
    }

    #[test]
    fn directories_are_made_with_their_parents_and_existing_ones_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("a/b/c");
        create_directory(&deep, CreationMode::Private).unwrap();
        create_directory(&deep, CreationMode::Umask).unwrap();
        assert_eq!(fs::metadata(&deep).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_link_is_replaced_and_keeps_its_target_as_text() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("scr.current");
        replace_symlink(&link, "scr.2011-04-15_12:00:00.1.6").unwrap();
        replace_symlink(&link, "scr.2011-04-15_13:00:00.1.12").unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("scr.2011-04-15_13:00:00.1.12"));
        assert_eq!(names(directory.path()), ["scr.current"]);
    }

    #[test]
    fn creating_never_replaces_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("halt.scrinfo");
        assert!(create_new(&path, b"first").unwrap());
        assert!(!create_new(&path, b"second").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(directory.path()), ["halt.scrinfo"]);
        assert!(remove(&path).unwrap());
        assert!(!remove(&path).unwrap());
    }

    #[test]
    fn a_rename_to_a_free_name_refuses_a_taken_one() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::write(&from, "from").unwrap();
        rename_to_free(&from, &to).unwrap();
        fs::write(&from, "again").unwrap();
        assert_eq!(rename_to_free(&from, &to), Err(rustix::io::Errno::EXIST));
        assert_eq!(fs::read(&to).unwrap(), b"from");
    }

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
            for refused in [replace(&path, CreationMode::Private, b"new"), pending] {
                let error = refused.unwrap_err().to_string();
                assert!(error.starts_with(&format!("will not replace {}: it is a ", path.display())), "{error}");
            }
            assert_eq!(fs::symlink_metadata(&path).unwrap().file_type(), before);
        }
        assert_eq!(fs::read(at("file")).unwrap(), b"old");
        for name in ["file", "new"] {
            replace(&at(name), CreationMode::Private, b"new").unwrap();
            assert_eq!(fs::read(at(name)).unwrap(), b"new");
        }
    }

    #[test]
    fn a_pipe_that_appears_during_the_work_is_not_replaced() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("output");
        let result = replace_with(&path, CreationMode::Umask, |_| Ok(mkfifoat(CWD, &path, Mode::RUSR)?));
        assert!(matches!(result, Err(DurableError::NotReplaceable { kind: "a named pipe", .. })));
        let path = base.path().join("other");
        let (pending, _file) = Pending::create(&path, CreationMode::Umask).unwrap();
        mkfifoat(CWD, &path, Mode::RUSR).unwrap();
        assert!(matches!(pending.commit(), Err(DurableError::NotReplaceable { .. })));
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 2, "the temporary files are removed");
    }
}
