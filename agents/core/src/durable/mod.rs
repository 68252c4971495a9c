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
//!   directories. In memory nothing is left after a reboot. On a disk files may be left that are not whole: their
//!   CRC32s are compared before a restart, and redundancy restores those that differ; files without a CRC32 (LOCAL, or
//!   `crc: {on_copy: false}`) are compared by size only. A sync would make every rank wait for a disk several times per
//!   file.

mod error;
mod target;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode};
use rustix::io::Errno;

use crate::calls::{self, mkdirat, statat};
use crate::{io_count, temporary};

pub use crate::calls::Filling;
pub use crate::io_error::remedy;
pub use error::{DurableError, is_exhaustion, prevents_writing};
pub use target::Target;

/// How many names are tried: a leftover of a crash, or another node on a shared file system, can use a name already.
const NAME_ATTEMPTS: u32 = 1000;

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

    fn of_file(self) -> Mode {
        match self {
            CreationMode::Private => Mode::from_raw_mode(0o600),
            CreationMode::Umask => Mode::from_raw_mode(0o666),
        }
    }

    /// The mode of a new directory, before the umask.
    pub(crate) fn of_directory(self) -> Mode {
        match self {
            CreationMode::Private => Mode::from_raw_mode(0o700),
            CreationMode::Umask => Mode::from_raw_mode(0o777),
        }
    }
}

/// Replaces a file by one with these bytes.
///
/// # Errors
/// When any step fails; the old file is then untouched and the temporary one removed.
pub fn replace(target: impl Into<Target>, mode: CreationMode, bytes: &[u8]) -> Result<(), DurableError> {
    io_count::written(bytes.len());
    replace_as(Durability::Machine, target.into(), mode, |out| out.write_all(bytes))
}

/// As [`replace`], private and without a sync: the new file survives this process, not the machine.
pub fn replace_unsynced(target: impl Into<Target>, bytes: &[u8]) -> Result<(), DurableError> {
    io_count::written(bytes.len());
    replace_as(Durability::Process, target.into(), CreationMode::Private, |out| write_reserved(out, bytes))
}

/// Replaces a file by what `fill` writes (buffered), and returns what `fill` returned.
///
/// # Errors
/// When `fill` or any step fails; the old file is then untouched and the temporary one removed.
pub fn replace_with<R>(
    target: impl Into<Target>,
    mode: CreationMode,
    fill: impl FnOnce(&mut BufWriter<Filling>) -> io::Result<R>,
) -> Result<R, DurableError> {
    replace_as(Durability::Machine, target.into(), mode, fill)
}

fn replace_as<R>(
    durability: Durability,
    target: Target,
    mode: CreationMode,
    fill: impl FnOnce(&mut BufWriter<Filling>) -> io::Result<R>,
) -> Result<R, DurableError> {
    // Before the work, which can be long.
    let target = target.naming_a_file()?;
    target.check_replaceable()?;
    let (temporary, result) = write_temporary(durability, mode, &target, fill)?;
    // Again: `fill` can take long.
    target.check_replaceable()?;
    temporary.rename(&target).map_err(target.failed("replace"))?;
    target.settle(durability)?;
    Ok(result)
}

/// A file under a temporary name that is to replace another, for writers that several processes take part in: they open
/// it by its temporary name, and the one that made it commits. Dropped without that, it is removed.
#[derive(Debug)]
pub struct Pending {
    temporary: Temporary,
    target: Target,
}

impl Pending {
    /// Makes the temporary file, open for reading and writing.
    ///
    /// # Errors
    /// When it cannot be made, or something that is not a regular file has the name of the target.
    pub fn create(target: impl Into<Target>, mode: CreationMode) -> Result<(Pending, File), DurableError> {
        let target = target.into().naming_a_file()?;
        target.check_replaceable()?;
        let (temporary, file) = temporary_file(&target, mode)?;
        Ok((Pending { temporary, target }, file))
    }

    /// As [`create`](Self::create), with the content of a file of this user that a process left under the name
    /// `abandoned` in the same directory. `None` if another process was faster.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn take_over(
        target: impl Into<Target>,
        mode: CreationMode,
        abandoned: &Target,
    ) -> Result<Option<(Pending, File)>, DurableError> {
        let (pending, _) = Pending::create(target, mode)?;
        let own = pending.temporary.file();
        // Under a name of this process it is not abandoned any more.
        let taken = abandoned.rename(&own).and_then(|()| own.open_own_writable());
        Ok(taken.ok().map(|file| (pending, file)))
    }

    /// Leaves the file for another process, which may [take it over](Self::take_over).
    pub fn abandon(self) {
        let abandoned = self.target.beside(&temporary::abandoned_name());
        // If it cannot be renamed, it is removed.
        let _ = self.temporary.rename(&abandoned);
    }

    /// The name it has until it is committed.
    pub fn temporary_name(&self) -> &str {
        &self.temporary.name
    }

    /// Gives the file its name. If it has to survive the machine, its content must be synchronised before, by all who
    /// wrote it.
    ///
    /// # Errors
    /// When it cannot be renamed; the old file is then untouched.
    pub fn commit(self, durability: Durability) -> Result<(), DurableError> {
        let Pending { temporary, target } = self;
        target.check_replaceable()?;
        temporary.rename(&target).map_err(target.failed("replace"))?;
        target.settle(durability)
    }

    /// As [`Pending::commit`], only if nothing has the name; returns whether the file got it. Otherwise it is removed.
    pub fn commit_new(self) -> Result<bool, DurableError> {
        let Pending { temporary, target } = self;
        match give_free_name(&temporary.file(), &target) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(false),
            Err(errno) => return Err(target.failed("create")(errno)),
        }
        // If the name is a link, the temporary one is still there, and is removed.
        drop(temporary);
        target.settle(Durability::Machine)?;
        Ok(true)
    }
}

/// Gives a file a name that nothing has; its own is then removed, or can be. Not every file system has a rename that
/// does not replace, or hard links.
fn give_free_name(from: &Target, to: &Target) -> Result<(), Errno> {
    let renamed = from.rename_new(to);
    if renamed.is_ok() || renamed == Err(Errno::EXIST) {
        return renamed;
    }
    match from.link(to) {
        Ok(()) => Ok(()),
        // There is neither, or the name is taken. Another process that makes the file at this instant is not noticed.
        Err(_) if to.examine()?.is_none() => from.rename(to),
        Err(_) => Err(Errno::EXIST),
    }
}

/// Makes a file with these bytes only if nothing has its name; returns whether it was made. A partial file is never
/// visible.
pub fn create_new(target: impl Into<Target>, bytes: &[u8]) -> Result<bool, DurableError> {
    let fill = |out: &mut BufWriter<Filling>| out.write_all(bytes);
    Ok(create_new_as(Durability::Machine, target.into(), CreationMode::Private, fill)?.is_some())
}

/// As [`create_new`], without a sync: the new file survives this process, not the machine.
pub fn create_new_unsynced(target: impl Into<Target>, bytes: &[u8]) -> Result<bool, DurableError> {
    let fill = |out: &mut BufWriter<Filling>| write_reserved(out, bytes);
    Ok(create_new_as(Durability::Process, target.into(), CreationMode::Private, fill)?.is_some())
}

/// Makes a file of what `fill` writes (buffered) only if nothing has its name; `None` if something had. A partial file
/// is never visible.
///
/// # Errors
/// When `fill` or any step fails.
pub fn create_new_with<R>(
    target: impl Into<Target>,
    mode: CreationMode,
    fill: impl FnOnce(&mut BufWriter<Filling>) -> io::Result<R>,
) -> Result<Option<R>, DurableError> {
    create_new_as(Durability::Machine, target.into(), mode, fill)
}

fn create_new_as<R>(
    durability: Durability,
    target: Target,
    mode: CreationMode,
    fill: impl FnOnce(&mut BufWriter<Filling>) -> io::Result<R>,
) -> Result<Option<R>, DurableError> {
    let target = target.naming_a_file()?;
    let (temporary, result) = write_temporary(durability, mode, &target, fill)?;
    let file = temporary.file();
    // A hard link is the rename that refuses to replace; where there are none, the system may have such a rename.
    let made = file.link(&target).or_else(|errno| match errno {
        Errno::EXIST => Err(errno),
        _ => file.rename_new(&target).map_err(|_| errno),
    });
    match made {
        Ok(()) => {
            drop(temporary);
            target.settle(durability)?;
            Ok(Some(result))
        }
        Err(Errno::EXIST) => Ok(None),
        Err(errno) => Err(target.failed("create")(errno)),
    }
}

/// Makes a symbolic link to `leads_to` (kept as it is, so that it may be relative), replacing an earlier link.
///
/// # Errors
/// When any step fails, or something that is not a link is there; it is then untouched.
pub fn replace_symlink(link: impl Into<Target>, leads_to: impl AsRef<OsStr>) -> Result<(), DurableError> {
    let leads_to = leads_to.as_ref();
    let link = link.into().naming_a_file()?;
    if link.examine().ok().flatten().is_some_and(|there| there != FileType::Symlink) {
        let source = io::Error::new(io::ErrorKind::AlreadyExists, "it is not a symbolic link");
        return Err(link.failed("replace the link")(source));
    }
    let (temporary, ()) = with_temporary_name(&link, |temporary| temporary.make_symlink(leads_to))?;
    temporary.rename(&link).map_err(link.failed("replace the link"))?;
    link.settle(Durability::Machine)
}

/// Removes a file and makes the removal durable; returns whether the file existed.
///
/// # Errors
/// When the file exists and cannot be removed, or the directory cannot be synchronised.
pub fn remove(target: impl Into<Target>) -> Result<bool, DurableError> {
    remove_as(Durability::Machine, target.into())
}

/// As [`remove`], without a sync: the file may be there again after a crash of the machine.
pub fn remove_unsynced(target: impl Into<Target>) -> Result<bool, DurableError> {
    remove_as(Durability::Process, target.into())
}

fn remove_as(durability: Durability, target: Target) -> Result<bool, DurableError> {
    let target = target.naming_a_file()?;
    match target.remove() {
        Ok(()) => {
            target.settle(durability)?;
            Ok(true)
        }
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(target.failed("remove")(errno)),
    }
}

/// Makes a directory and the missing ones above it, durably. One that exists is left as it is.
///
/// # Errors
/// When a directory cannot be made, or another file is in its place.
pub fn create_directory(path: &Path, mode: CreationMode) -> Result<(), DurableError> {
    let is_directory = |path: &Path| {
        statat(CWD, path, AtFlags::empty())
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
    };
    let missing: Vec<&Path> =
        path.ancestors().take_while(|at| !at.as_os_str().is_empty() && !is_directory(at)).collect();
    for directory in missing.into_iter().rev() {
        let target = Target::from(directory);
        match mkdirat(CWD, directory, mode.of_directory()) {
            Ok(()) => target.naming_a_file()?.settle(Durability::Machine)?,
            // Another rank or agent may have been faster.
            Err(Errno::EXIST) if is_directory(directory) => {}
            Err(errno) => return Err(target.failed("create the directory")(errno)),
        }
    }
    Ok(())
}

/// Accepts a path at which a regular file or nothing is. A rename over anything else would remove a device, a pipe or a
/// link from the system; as root even `/dev/null`.
///
/// # Errors
/// When something else is there, or the path cannot be followed.
pub fn check_replaceable(path: &Path) -> Result<(), DurableError> {
    Target::from(path).check_replaceable()
}

/// Allocates the blocks before writing. ext4 starts writeback when a file without allocated blocks is renamed over
/// another, which costs more than everything else if nothing is synced.
fn write_reserved(out: &mut BufWriter<Filling>, bytes: &[u8]) -> io::Result<()> {
    // If the allocation fails, writing is tried anyway, and its error is reported.
    let _ = calls::fallocate(out.get_ref(), bytes.len() as u64);
    out.write_all(bytes)
}

/// Removes its file when dropped, unless it was renamed away.
#[derive(Debug)]
struct Temporary {
    /// What it is beside.
    target: Target,
    name: String,
}

impl Temporary {
    fn file(&self) -> Target {
        self.target.beside(&self.name)
    }

    fn rename(mut self, target: &Target) -> Result<(), Errno> {
        self.file().rename(target)?;
        self.name.clear();
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            // A failure cannot be reported here; `temporary::remove_abandoned` removes the file later.
            let _ = self.file().remove();
        }
    }
}

fn write_temporary<R>(
    durability: Durability,
    mode: CreationMode,
    target: &Target,
    fill: impl FnOnce(&mut BufWriter<Filling>) -> io::Result<R>,
) -> Result<(Temporary, R), DurableError> {
    let (temporary, file) = temporary_file(target, mode)?;
    let mut out = BufWriter::new(Filling(file));
    let result = fill(&mut out).map_err(target.failed("write"))?;
    let Filling(file) = out.into_inner().map_err(|error| target.failed("write")(error.into_error()))?;
    if durability == Durability::Machine {
        calls::fsync(&file).map_err(target.failed("synchronise"))?;
    }
    Ok((temporary, result))
}

fn temporary_file(target: &Target, mode: CreationMode) -> Result<(Temporary, File), DurableError> {
    with_temporary_name(target, |temporary| temporary.make_file(mode.of_file()))
}

fn with_temporary_name<T>(
    target: &Target,
    make: impl Fn(&Target) -> Result<T, Errno>,
) -> Result<(Temporary, T), DurableError> {
    // A short name of its own: the file's name with something added could pass the limit of 255 bytes.
    for attempt in 1..=NAME_ATTEMPTS {
        let name = temporary::name();
        match make(&target.beside(&name)) {
            Ok(made) => return Ok((Temporary { target: target.clone(), name }, made)),
            Err(Errno::EXIST) if attempt < NAME_ATTEMPTS => {}
            Err(errno) => return Err(target.failed("make a temporary file beside")(errno)),
        }
    }
    Err(target.not_a_file())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
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
        Target::from(&from).rename_new(&Target::from(&to)).unwrap();
        fs::write(&from, "again").unwrap();
        assert_eq!(Target::from(&from).rename_new(&Target::from(&to)), Err(Errno::EXIST));
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
        assert!(matches!(pending.commit(Durability::Machine), Err(DurableError::NotReplaceable { .. })));
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 2, "the temporary files are removed");
    }
}
