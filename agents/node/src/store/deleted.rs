//! Files that were deleted while their space is not needed yet.
//!
//! Freeing the pages of a large file in memory takes half as long as writing them, and a checkpoint that begins would
//! wait for it. The kernel frees a deleted file when it is closed. So the files of evicted checkpoints stay open until
//! the new checkpoint is complete, if their file system has room for both; another thread closes them then.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;

use parking_lot::Mutex;
use rustix::fs::{OFlags, fstatvfs};

/// Smaller ones are freed fast.
const LARGE: u64 = 1 << 20;
/// At most so many are open.
const MOST: usize = 256;

/// The deleted files that are still open.
#[derive(Debug, Default)]
pub(super) struct DeletedFiles(Mutex<Vec<File>>);

impl DeletedFiles {
    /// Opens files that are to be deleted. Those that cannot be opened are freed at once, and so are all of a file
    /// system that has not twice as much room as they take, and a twentieth of its size.
    pub(super) fn keep_open<'a>(&self, files: impl IntoIterator<Item = &'a Path>) {
        self.keep_open_if(files, has_room);
    }

    fn keep_open_if<'a>(&self, files: impl IntoIterator<Item = &'a Path>, has_room: impl Fn(&File, u64) -> bool) {
        let mut of_devices: BTreeMap<u64, (u64, Vec<File>)> = BTreeMap::new();
        for file in files.into_iter().filter_map(open_large).take(MOST) {
            let Ok(metadata) = file.metadata() else { continue };
            let (bytes, opened) = of_devices.entry(metadata.dev()).or_default();
            *bytes += metadata.blocks() * 512;
            opened.push(file);
        }
        of_devices.retain(|_, (bytes, opened)| opened.first().is_some_and(|file| has_room(file, *bytes)));
        self.0.lock().extend(of_devices.into_values().flat_map(|(_, opened)| opened));
    }

    /// Frees their space, and waits for it.
    pub(super) fn free(&self) {
        let files = std::mem::take(&mut *self.0.lock());
        drop(files);
    }

    /// Frees their space on another thread.
    pub(super) fn free_behind(&self) {
        let files = std::mem::take(&mut *self.0.lock());
        if !files.is_empty() {
            // Without the thread they are closed here, with the closure.
            let _ = thread::Builder::new().name("deleted-files".to_owned()).spawn(move || drop(files));
        }
    }
}

fn open_large(path: &Path) -> Option<File> {
    // What a program has put there instead must neither be followed nor waited for.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let is_large = |file: &File| file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() >= LARGE);
    let flags = i32::try_from(flags).ok()?;
    OpenOptions::new().read(true).custom_flags(flags).open(path).ok().filter(is_large)
}

fn has_room(file: &File, bytes: u64) -> bool {
    fstatvfs(file).is_ok_and(|space| {
        let available = space.f_bavail.saturating_mul(space.f_frsize);
        let size = space.f_blocks.saturating_mul(space.f_frsize);
        available >= bytes.saturating_mul(2).saturating_add(size / 20)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn large_files_stay_open_until_they_are_freed_and_others_are_not_opened() {
        let base = tempfile::tempdir().unwrap();
        let path = |name: &str| base.path().join(name);
        fs::write(path("large"), vec![1; LARGE as usize]).unwrap();
        fs::write(path("small"), "x").unwrap();
        std::os::unix::fs::symlink(path("large"), path("link")).unwrap();
        let files: Vec<_> = ["large", "small", "link", "missing"].map(path).into();
        let deleted = DeletedFiles::default();
        deleted.keep_open_if(files.iter().map(|file| file.as_path()), |_, _| false);
        assert!(deleted.0.lock().is_empty());
        deleted.keep_open_if(files.iter().map(|file| file.as_path()), |_, bytes| bytes >= LARGE);
        assert_eq!(deleted.0.lock().len(), 1);
        fs::remove_file(path("large")).unwrap();
        assert_eq!(deleted.0.lock()[0].metadata().unwrap().nlink(), 0);
        deleted.free_behind();
        assert!(deleted.0.lock().is_empty());
    }

    #[test]
    fn files_are_not_kept_open_where_there_is_no_room_for_others() {
        let base = tempfile::tempfile().unwrap();
        assert!(!has_room(&base, u64::MAX / 4));
    }
}
