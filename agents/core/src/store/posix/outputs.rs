//! The files of outputs, which lie at the paths below the prefix directory that the application named.
//!
//! They are copied to the directory of their dataset like all files, and moved to their paths when the dataset is
//! complete ([`crate::prefix::outputs`]). So a file of an output is in the dataset's directory, or else at its path.
//!
//! Other users may write to the prefix directory: no link on the way to a file is followed, only a file of this user is
//! moved to its path, and only one of this user is replaced there.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::{AsRawFd as _, OwnedFd};

use holdfast_model::OutputPath;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::calls::{fstat, linkat, openat, renameat, renameat_with, unlinkat};
use crate::owned::{Found, MissingDirectories, OwnedError, Result, SharedDirectory};
use crate::store::dataset_store::{Occupied, OutputDirectory, OutputOccupant, Taken};
use crate::store::directory_name::DirectoryName;
use crate::temporary;

/// An open directory that contains output files.
#[derive(Debug)]
pub(super) struct PosixOutputDirectory<'a> {
    prefix: &'a SharedDirectory,
    at: SharedDirectory,
}

/// Opens the directory of an output path; `None` if it does not exist.
pub(super) fn open<'a>(
    prefix: &'a SharedDirectory,
    output_path: &OutputPath,
) -> io::Result<Option<PosixOutputDirectory<'a>>> {
    match walk(prefix, output_path, MissingDirectories::Fail) {
        Ok(at) => Ok(Some(PosixOutputDirectory { prefix, at })),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error.plain()),
    }
}

/// As [`open`]; directories that are missing are made.
pub(super) fn create<'a>(
    prefix: &'a SharedDirectory,
    output_path: &OutputPath,
) -> io::Result<PosixOutputDirectory<'a>> {
    let at = walk(prefix, output_path, MissingDirectories::Create).map_err(OwnedError::plain)?;
    Ok(PosixOutputDirectory { prefix, at })
}

/// What is at an output path.
pub(super) fn examine(prefix: &SharedDirectory, output_path: &OutputPath) -> io::Result<OutputOccupant> {
    let Some(directory) = open(prefix, output_path)? else { return Ok(OutputOccupant::Nothing) };
    directory.occupant(output_path.base_name())
}

/// Opens the regular file at an output path for reading.
pub(super) fn open_file(prefix: &SharedDirectory, output_path: &OutputPath) -> io::Result<File> {
    let Some(directory) = open(prefix, output_path)? else { return Err(io::ErrorKind::NotFound.into()) };
    directory.at.open_file(output_path.base_name(), OFlags::RDONLY)
}

/// Removes the directories of an output path that are empty, the innermost first.
pub(super) fn remove_empty_directories(prefix: &SharedDirectory, output_path: &OutputPath) {
    let mut parents: Vec<&OsStr> = output_path.parents().map(OsStr::new).collect();
    while let Some(name) = parents.pop() {
        let Ok(above) = prefix.below(parents.iter().copied(), MissingDirectories::Fail) else {
            return;
        };
        // One that is not empty ends it. What remains is removed by the user.
        if unlinkat(&above, name, AtFlags::REMOVEDIR).is_err() {
            return;
        }
    }
}

fn walk(prefix: &SharedDirectory, output_path: &OutputPath, missing: MissingDirectories) -> Result<SharedDirectory> {
    prefix.below(output_path.parents().map(OsStr::new), missing)
}

impl PosixOutputDirectory<'_> {
    /// Gives an open file this name, too.
    fn link(&self, file: &OwnedFd, name: &str, occupied: Occupied) -> Result<(), Errno> {
        let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
        let link = |name: &str| linkat(CWD, &opened, &self.at, name, AtFlags::SYMLINK_FOLLOW);
        match link(name) {
            Err(Errno::EXIST) if occupied == Occupied::Replace => {}
            linked => return linked,
        }
        let temporary = temporary::name();
        link(&temporary)?;
        let renamed = renameat(&self.at, &temporary, &self.at, name);
        // A rename to another name of the same file does nothing.
        match unlinkat(&self.at, &temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => renamed,
            Err(errno) => renamed.and(Err(errno)),
        }
    }

    /// Gives a file of `from`, which was opened as `file`, its name here. It may keep the other.
    fn take_open(
        &self,
        from: &SharedDirectory,
        file: &OwnedFd,
        name: &str,
        occupied: Occupied,
    ) -> Result<(), io::Error> {
        let others_may_write = from.others_may_write()?;
        if !others_may_write {
            let renamed = match occupied {
                Occupied::Keep => renameat_with(from, name, &self.at, name, RenameFlags::NOREPLACE),
                Occupied::Replace => renameat(from, name, &self.at, name),
            };
            match renamed {
                // A file system without this kind of rename.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
                renamed => return Ok(renamed?),
            }
        }
        // Another user may exchange the file until it is renamed: the one that was examined gets the name.
        match self.link(file, name, occupied) {
            Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS) if !others_may_write => {
                Ok(renameat(from, name, &self.at, name)?)
            }
            Err(errno @ (Errno::PERM | Errno::NOTSUP | Errno::NOSYS)) => Err(io::Error::other(format!(
                "other users may write to {}, and its file system has no hard links ({errno}): withdraw their \
                 permission with `chmod go-w`",
                from.path().display()
            ))),
            linked => Ok(linked?),
        }
    }
}

/// Compares two regular files of the same name.
fn have_same_content(
    (one, one_stat): (&SharedDirectory, &Stat),
    (other, other_stat): (&SharedDirectory, &Stat),
    name: &str,
) -> io::Result<bool> {
    if one_stat.st_size != other_stat.st_size {
        return Ok(false);
    }
    let open = |directory: &SharedDirectory| {
        Ok::<_, io::Error>(BufReader::with_capacity(1 << 20, directory.open_file(name, OFlags::RDONLY)?))
    };
    let (mut one, mut other) = (open(one)?, open(other)?);
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let both = left.len().min(right.len());
        if both == 0 || left[..both] != right[..both] {
            return Ok(left.is_empty() && right.is_empty());
        }
        one.consume(both);
        other.consume(both);
    }
}

fn is_regular(examined: &Stat) -> bool {
    FileType::from_raw_mode(examined.st_mode) == FileType::RegularFile
}

/// Why a file must not be moved or replaced.
fn refusal(examined: &Stat) -> Option<Found> {
    let (owner, ours) = (examined.st_uid, geteuid().as_raw());
    match is_regular(examined) {
        true if owner == ours => None,
        true => Some(Found::OtherOwner { owner, ours }),
        false => Some(Found::NotARegularFile),
    }
}

impl OutputDirectory for PosixOutputDirectory<'_> {
    fn occupant(&self, name: &str) -> io::Result<OutputOccupant> {
        Ok(match self.at.examine(name)? {
            None => OutputOccupant::Nothing,
            Some(found) if is_regular(&found) => OutputOccupant::File {
                bytes: u64::try_from(found.st_size).unwrap_or_default(),
                own: found.st_uid == geteuid().as_raw(),
            },
            Some(_) => OutputOccupant::Other,
        })
    }

    fn take(&self, dataset: &DirectoryName, name: &str, occupied: Occupied) -> io::Result<Taken> {
        let from = self.prefix.below([OsStr::new(dataset.as_str())], MissingDirectories::Fail)?;
        from.check_owner()?;
        let file = openat(&from, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let found = fstat(&file)?;
        let refused = |directory: &SharedDirectory, found| OwnedError::refused(&directory.path().join(name), found);
        if let Some(found) = refusal(&found) {
            return Err(refused(&from, found).into());
        }
        match self.at.examine(name)? {
            // A kill left it in both directories.
            Some(there) if (there.st_dev, there.st_ino) == (found.st_dev, found.st_ino) => {}
            Some(there) if occupied == Occupied::Keep => {
                if refusal(&there).is_some() || !have_same_content((&from, &found), (&self.at, &there), name)? {
                    return Ok(Taken::Kept);
                }
                self.take_open(&from, &file, name, Occupied::Replace)?;
            }
            Some(there) => {
                if let Some(found) = refusal(&there) {
                    return Err(refused(&self.at, found).into());
                }
                self.take_open(&from, &file, name, occupied)?;
            }
            None => match self.take_open(&from, &file, name, occupied) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(Taken::Kept),
                taken => taken?,
            },
        }
        match unlinkat(&from, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(Taken::Moved),
            Err(errno) => Err(errno.into()),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.at, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn sync(&self, taken_from: Option<&DirectoryName>) -> io::Result<()> {
        self.at.sync().map_err(OwnedError::plain)?;
        match taken_from {
            Some(dataset) => {
                let from = self.prefix.below([OsStr::new(dataset.as_str())], MissingDirectories::Fail);
                from.and_then(|from| from.sync()).map_err(OwnedError::plain)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

    fn output(path: &str) -> OutputPath {
        OutputPath::parse(path).unwrap()
    }

    #[test]
    fn only_files_of_this_user_are_replaced_and_only_on_request() {
        let prefix = tempfile::tempdir().unwrap();
        let base = SharedDirectory::open(prefix.path(), [], MissingDirectories::Fail).unwrap();
        let dataset = DirectoryName::new("plot").unwrap();
        fs::create_dir(prefix.path().join("plot")).unwrap();
        let new = prefix.path().join("plot/a");
        let there = output("x/y/a");
        assert!(open(&base, &there).unwrap().is_none());
        let directory = create(&base, &there).unwrap();
        let target = prefix.path().join("x/y/a");
        let take = |occupied| directory.take(&dataset, "a", occupied);
        symlink("elsewhere", &target).unwrap();
        fs::write(&new, "new").unwrap();
        assert_eq!(take(Occupied::Keep).unwrap(), Taken::Kept);
        assert!(take(Occupied::Replace).is_err() && new.exists());
        fs::remove_file(&target).unwrap();
        fs::write(&target, "the old").unwrap();
        assert_eq!(take(Occupied::Keep).unwrap(), Taken::Kept);
        fs::write(&target, "old").unwrap();
        assert_eq!(take(Occupied::Keep).unwrap(), Taken::Kept);
        assert_eq!((fs::read(&target).unwrap(), new.exists()), (b"old".to_vec(), true));
        if geteuid().is_root() {
            lchown(&target, Some(65_534), None).unwrap();
            let refused = take(Occupied::Replace).unwrap_err().to_string();
            assert!(refused.contains("belongs to user id 65534") && new.exists(), "{refused}");
            lchown(&target, Some(0), None).unwrap();
        }
        assert_eq!(take(Occupied::Replace).unwrap(), Taken::Moved);
        assert_eq!((fs::read(&target).unwrap(), new.exists()), (b"new".to_vec(), false));
        assert_eq!(directory.occupant("a").unwrap(), OutputOccupant::File { bytes: 3, own: true });
        // A publication that was killed moved it, and the file was copied again.
        fs::write(&new, "new").unwrap();
        assert_eq!((take(Occupied::Keep).unwrap(), new.exists()), (Taken::Moved, false));
        directory.remove("a").unwrap();
        remove_empty_directories(&base, &there);
        assert!(!prefix.path().join("x").exists() && prefix.path().exists());
    }

    #[test]
    fn no_link_on_the_way_to_an_output_is_followed() {
        let (prefix, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let base = SharedDirectory::open(prefix.path(), [], MissingDirectories::Fail).unwrap();
        symlink(other.path(), prefix.path().join("link")).unwrap();
        let there = output("link/a");
        fs::write(other.path().join("a"), "content").unwrap();
        assert!(create(&base, &there).is_err());
        assert!(examine(&base, &there).is_err() && open_file(&base, &there).is_err());
        fs::remove_file(other.path().join("a")).unwrap();
        fs::create_dir(other.path().join("empty")).unwrap();
        remove_empty_directories(&base, &output("link/empty/a"));
        assert!(other.path().join("empty").is_dir());
    }

    #[test]
    fn only_a_file_of_this_user_is_moved_to_its_path() {
        let prefix = tempfile::tempdir().unwrap();
        let base = SharedDirectory::open(prefix.path(), [], MissingDirectories::Fail).unwrap();
        let (dataset, there) = (DirectoryName::new("plot").unwrap(), output("x/a"));
        let from = prefix.path().join("plot");
        fs::create_dir(&from).unwrap();
        for mode in [0o755, 0o775] {
            fs::set_permissions(&from, fs::Permissions::from_mode(mode)).unwrap();
            fs::write(from.join("a"), format!("{mode:o}")).unwrap();
            let directory = create(&base, &there).unwrap();
            let take = |occupied| directory.take(&dataset, "a", occupied);
            assert_eq!(take(Occupied::Keep).unwrap(), Taken::Moved);
            assert_eq!(fs::read_to_string(prefix.path().join("x/a")).unwrap(), format!("{mode:o}"));
            assert_eq!(fs::read_dir(prefix.path().join("x")).unwrap().count(), 1);
            assert!(!from.join("a").exists());
            // A kill may leave it in both places.
            fs::hard_link(prefix.path().join("x/a"), from.join("a")).unwrap();
            assert_eq!(take(Occupied::Keep).unwrap(), Taken::Moved);
            assert_eq!(fs::read_dir(prefix.path().join("x")).unwrap().count(), 1);
            assert!(!from.join("a").exists());
            fs::write(from.join("a"), "another").unwrap();
            assert_eq!(take(Occupied::Keep).unwrap(), Taken::Kept);
            assert_eq!(take(Occupied::Replace).unwrap(), Taken::Moved);
            assert_eq!(fs::read_to_string(prefix.path().join("x/a")).unwrap(), "another");
            symlink("/etc/hostname", from.join("a")).unwrap();
            let refused = take(Occupied::Replace).unwrap_err().to_string();
            assert!(refused.contains("is not a regular file"), "{refused}");
            fs::remove_file(from.join("a")).unwrap();
            if geteuid().is_root() {
                fs::write(from.join("a"), "foreign").unwrap();
                lchown(from.join("a"), Some(65_534), None).unwrap();
                let refused = take(Occupied::Replace).unwrap_err().to_string();
                assert!(refused.contains("belongs to user id 65534"), "{refused}");
                fs::remove_file(from.join("a")).unwrap();
            }
            fs::remove_file(prefix.path().join("x/a")).unwrap();
        }
    }
}
