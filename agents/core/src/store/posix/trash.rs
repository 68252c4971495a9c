//! What is removed in any case: `.hf-trash-<user id>` below the prefix directory. Datasets that are being deleted, and
//! directories of a command for the time of its work.
//!
//! A dataset moves there by a rename, so that it is gone at once, and its files are removed there by descriptors. The
//! directory belongs to this user alone (0700) and has a marker: another user can neither move anything into it nor
//! have something else in its place emptied. It stays, empty but for the marker. The names in it contain the process
//! that made them: what a process that was killed left is removed by the next one.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::process::geteuid;

use crate::calls::{fstat, renameat, statat};
use crate::durable::Durability;
use crate::owned::{Access, Found, Marker, MissingDirectories, OwnedDirectory, OwnedError, SharedDirectory};
use crate::store::directory_name::DirectoryName;
use crate::temporary;

const MARKER: Marker<'static> = Marker { kind: "trash", job: "", prefix: None, allocation: None };

fn name() -> String {
    format!(".hf-trash-{}", geteuid().as_raw())
}

/// Moves a directory of this user out of the prefix directory. Returns its name in the trash.
pub(super) fn take(prefix: &SharedDirectory, directory: &DirectoryName) -> Result<String, OwnedError> {
    let path = prefix.path().join(directory.as_str());
    let opened = prefix.below([OsStr::new(directory.as_str())], MissingDirectories::Fail)?;
    opened.check_owner()?;
    let checked = fstat(&opened).map_err(OwnedError::io("examine", &path))?;
    let trash = create(prefix)?;
    let taken = temporary::name();
    renameat(prefix, directory.as_str(), &trash, taken.as_str()).map_err(OwnedError::io("delete", &path))?;
    // It may have been exchanged since it was opened.
    let moved = statat(&trash, &taken, AtFlags::SYMLINK_NOFOLLOW);
    if moved.is_ok_and(|moved| (moved.st_dev, moved.st_ino) == (checked.st_dev, checked.st_ino)) {
        return Ok(taken);
    }
    let _ = renameat(&trash, taken.as_str(), prefix, directory.as_str());
    Err(OwnedError::refused(&path, Found::Exchanged))
}

/// A directory below the prefix directory for files that are not kept. It is removed when this is dropped, and by the
/// next process if this one is killed.
#[derive(Debug)]
pub struct ScratchDirectory {
    prefix: Arc<SharedDirectory>,
    name: String,
    path: PathBuf,
}

impl ScratchDirectory {
    /// Makes it, after the removal of those of processes that were killed.
    pub(super) fn make(prefix: &Arc<SharedDirectory>) -> Result<Self, OwnedError> {
        remove_abandoned(prefix)?;
        let trash = create(prefix)?;
        let name = temporary::name();
        let made = trash.new_directory(&name, Access::Private)?;
        let made = made.ok_or_else(|| OwnedError::refused(&trash.path().join(&name), Found::Exchanged))?;
        Ok(ScratchDirectory { prefix: prefix.clone(), name, path: made.path().to_owned() })
    }

    /// Only this user can enter it.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDirectory {
    /// What cannot be removed now is removed by the next process.
    fn drop(&mut self) {
        let _ = remove(&self.prefix, &self.name);
    }
}

/// Removes what was taken. That may take long.
pub(super) fn remove(prefix: &SharedDirectory, taken: &str) -> Result<(), OwnedError> {
    open(prefix)?.map_or(Ok(()), |trash| trash.remove_directory(taken))
}

/// Removes what processes that were killed left, on this machine or on others.
pub(super) fn remove_abandoned(prefix: &SharedDirectory) -> Result<(), OwnedError> {
    let Some(trash) = open(prefix)? else { return Ok(()) };
    let is_abandoned = |name: &OsString| {
        let found = statat(&trash, name, AtFlags::SYMLINK_NOFOLLOW);
        name.to_str().zip(found.ok()).is_some_and(|(name, found)| temporary::is_abandoned(name, &found))
    };
    trash.names()?.into_iter().filter(is_abandoned).try_for_each(|name| trash.remove_directory(&name))
}

fn create(prefix: &SharedDirectory) -> Result<OwnedDirectory, OwnedError> {
    let trash = prefix.create_directory(name(), Access::Private)?;
    if is_new(&trash)? {
        trash.mark(&MARKER, Durability::Machine)?;
    }
    trash.check_marker(&MARKER)?;
    Ok(trash)
}

fn open(prefix: &SharedDirectory) -> Result<Option<OwnedDirectory>, OwnedError> {
    let Some(trash) = prefix.open_directory(name(), Access::Private)? else { return Ok(None) };
    if is_new(&trash)? {
        return Ok(None);
    }
    trash.check_marker(&MARKER).map(|()| Some(trash))
}

/// True if it is empty: it has no marker yet, because its maker was killed, or has not written it yet.
fn is_new(trash: &OwnedDirectory) -> Result<bool, OwnedError> {
    // Those of a marker that was not completed.
    temporary::remove_abandoned(trash).map_err(OwnedError::io("empty", trash.path()))?;
    Ok(trash.names()?.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
    use std::time::{Duration, SystemTime};

    use super::*;

    fn dataset(name: &str) -> DirectoryName {
        DirectoryName::new(name).unwrap()
    }

    #[test]
    fn a_dataset_is_gone_at_once_and_its_files_are_removed_without_following_a_link() {
        let (prefix, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = prefix.path();
        let base = SharedDirectory::open(at, [], MissingDirectories::Fail).unwrap();
        fs::create_dir_all(at.join("one/below")).unwrap();
        fs::write(at.join("one/below/file"), "content").unwrap();
        fs::write(other.path().join("kept"), "").unwrap();
        symlink(other.path(), at.join("one/link")).unwrap();
        let taken = take(&base, &dataset("one")).unwrap();
        assert!(!at.join("one").exists() && at.join(name()).join(&taken).join("below/file").exists());
        remove_abandoned(&base).unwrap();
        assert!(at.join(name()).join(&taken).exists(), "this process runs");
        remove(&base, &taken).unwrap();
        assert!(!at.join(name()).join(&taken).exists() && other.path().join("kept").exists());
        let ended = at.join(name()).join(format!(".hf-{}-4194303-1-1.tmp", taken.split('-').nth(1).unwrap()));
        let of_other_machines = ["1", "2"].map(|number| at.join(name()).join(format!(".hf-{number:0>16}-1-1-1.tmp")));
        for left in [&ended, &of_other_machines[0], &of_other_machines[1]] {
            fs::create_dir_all(left.join("below")).unwrap();
        }
        let long_ago = SystemTime::now() - Duration::from_secs(7 * 86_400);
        fs::File::open(&of_other_machines[0]).unwrap().set_modified(long_ago).unwrap();
        remove_abandoned(&base).unwrap();
        let left = [&ended, &of_other_machines[0], &of_other_machines[1]].map(|left| left.exists());
        assert_eq!(left, [false, false, true], "whether a process of another machine runs is unknown for a day");
    }

    #[test]
    fn only_what_is_of_this_user_is_taken_and_emptied() {
        let prefix = tempfile::tempdir().unwrap();
        let at = prefix.path();
        let base = SharedDirectory::open(at, [], MissingDirectories::Fail).unwrap();
        fs::create_dir(at.join("results")).unwrap();
        symlink("results", at.join("link")).unwrap();
        assert!(take(&base, &dataset("link")).unwrap_err().is_link());
        // A directory of this user that another one has renamed: it has no marker.
        fs::rename(at.join("results"), at.join(name())).unwrap();
        fs::set_permissions(at.join(name()), fs::Permissions::from_mode(0o700)).unwrap();
        fs::create_dir(at.join(name()).join(".hf-1-1-1-1.tmp")).unwrap();
        assert_eq!(remove_abandoned(&base).unwrap_err().found(), Some(&Found::NoMarker));
        assert!(at.join(name()).join(".hf-1-1-1-1.tmp").exists());
        if geteuid().is_root() {
            fs::remove_dir_all(at.join(name())).unwrap();
            fs::create_dir(at.join("foreign")).unwrap();
            lchown(at.join("foreign"), Some(65_534), None).unwrap();
            assert!(take(&base, &dataset("foreign")).unwrap_err().is_refusal());
            assert!(at.join("foreign").is_dir());
        }
    }
}
