//! The files in the cache whose content this process knows, and the choice of the file that becomes the next
//! checkpoint.
//!
//! * Where the file system can, the file of the previous checkpoint is cloned: both share the unchanged blocks.
//! * Otherwise the file of an older checkpoint is recycled when the agent evicts it. The agent deletes it when the next
//!   checkpoint starts; a second link, made before that in the directory of the newest checkpoint, keeps the file. It
//!   is written to only if that link is the last one: no checkpoint contains the file any more, and the newest one is
//!   not touched.
//! * Otherwise a new file is written.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use holdfast_formats::fti_ff::differential::Image;
use rustix::fs::ioctl_ficlone;

/// The start of the name of a second link.
const LINK: &str = ".holdfast-recycled.";
/// More files than caches keep by default; each costs memory for its fingerprints.
const MOST_FILES: usize = 4;

/// A file in the cache.
#[derive(Debug)]
struct CachedFile {
    path: PathBuf,
    identity: Identity,
    image: Image,
}

/// Distinguishes the content of files: another one has another number, size or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// The files whose content is known, the oldest first.
#[derive(Debug, Default)]
pub(super) struct CachedFiles {
    files: Vec<CachedFile>,
    /// Links of files that may be evicted by the start of the next checkpoint.
    links: Vec<(PathBuf, Identity)>,
    /// Devices that cannot clone.
    without_clone: Vec<u64>,
}

/// The file that becomes the next checkpoint.
#[derive(Debug)]
pub(super) struct NextFile<'a> {
    pub(super) file: File,
    /// Its content, if it is not empty.
    pub(super) held: Option<&'a Image>,
    /// The content of the previous checkpoint.
    pub(super) previous: Option<&'a Image>,
}

impl CachedFiles {
    /// `restart` is the directory of the checkpoint to restart from, which may contain links of an earlier process.
    pub(super) fn new(restart: Option<&Path>) -> CachedFiles {
        for entry in restart.into_iter().flat_map(fs::read_dir).flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(LINK) {
                // A link that is left only takes space until the directory is deleted.
                let _ = fs::remove_file(entry.path());
            }
        }
        CachedFiles::default()
    }

    /// The content of the newest checkpoint of this process.
    pub(super) fn newest(&self) -> Option<&Image> {
        self.files.last().map(|file| &file.image)
    }

    /// Before a checkpoint is started: links the files that its start may evict.
    pub(super) fn link(&mut self) {
        self.unlink();
        self.files.retain(|file| Identity::of_path(&file.path).is_ok_and(|found| found == file.identity));
        let Some((newest, older)) = self.files.split_last() else { return };
        let Some(directory) = newest.path.parent() else { return };
        for (number, file) in older.iter().enumerate() {
            let name = file.path.file_name().unwrap_or_default().to_string_lossy();
            let link = directory.join(format!("{LINK}{number}.{name}"));
            // Without a link the file is not recycled.
            if fs::hard_link(&file.path, &link).is_ok() {
                self.links.push((link, file.identity));
            }
        }
    }

    /// Opens the file of the next checkpoint at this path, which its start has made possible.
    pub(super) fn open(&mut self, path: &Path) -> io::Result<NextFile<'_>> {
        if let Some(file) = self.clone_newest(path)? {
            let newest = self.newest();
            return Ok(NextFile { file, held: newest, previous: newest });
        }
        // The newest of the evicted files differs least.
        while let Some((link, identity)) = self.links.pop() {
            let evicted = fs::symlink_metadata(&link).is_ok_and(|found| found.nlink() == 1);
            let known = self.files.iter().position(|file| file.identity == identity);
            if let (true, Some(known)) = (evicted, known)
                && fs::rename(&link, path).is_ok()
            {
                self.unlink();
                let file = OpenOptions::new().read(true).write(true).open(path)?;
                let held = self.files.get(known).map(|file| &file.image);
                return Ok(NextFile { file, held, previous: self.newest() });
            }
            let _ = fs::remove_file(&link);
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(NextFile { file, held: None, previous: self.newest() })
    }

    /// Records the content of a file that is complete.
    pub(super) fn add(&mut self, path: &Path, image: Image) {
        let Ok(identity) = Identity::of_path(path) else { return };
        // A recycled file is not what it was.
        self.files.retain(|file| (file.identity.device, file.identity.inode) != (identity.device, identity.inode));
        self.files.push(CachedFile { path: path.to_owned(), identity, image });
        if self.files.len() > MOST_FILES {
            self.files.remove(0);
        }
    }

    /// Forgets a file that is not part of a checkpoint.
    pub(super) fn forget(&mut self, path: &Path) {
        self.files.retain(|file| file.path != path);
    }

    pub(super) fn unlink(&mut self) {
        for (link, _) in self.links.drain(..) {
            let _ = fs::remove_file(link);
        }
    }

    /// A clone of the newest file, if the file system can make one.
    fn clone_newest(&mut self, path: &Path) -> io::Result<Option<File>> {
        let Some(newest) = self.files.last() else { return Ok(None) };
        if self.without_clone.contains(&newest.identity.device) {
            return Ok(None);
        }
        let Ok(original) = File::open(&newest.path) else { return Ok(None) };
        let unchanged = original.metadata().is_ok_and(|found| Identity::of(&found) == newest.identity);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        if unchanged && ioctl_ficlone(&file, &original).is_ok() {
            self.unlink();
            return Ok(Some(file));
        }
        if unchanged {
            self.without_clone.push(newest.identity.device);
        }
        drop(file);
        fs::remove_file(path)?;
        Ok(None)
    }
}

impl Drop for CachedFiles {
    fn drop(&mut self) {
        self.unlink();
    }
}

impl Identity {
    fn of(found: &fs::Metadata) -> Identity {
        let modified = (found.mtime(), found.mtime_nsec());
        Identity { device: found.dev(), inode: found.ino(), bytes: found.len(), modified }
    }

    fn of_path(path: &Path) -> io::Result<Identity> {
        fs::symlink_metadata(path).map(|found| Identity::of(&found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use holdfast_formats::fti_ff::layout::Layout;

    /// Writes a file as checkpoint `number` in its own directory.
    fn checkpoint(files: &mut CachedFiles, cache: &Path, number: i32) -> PathBuf {
        let directory = cache.join(format!("checkpoint.{number}"));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("Ckpt-Rank0.fti");
        drop(files.open(&path).unwrap());
        fs::write(&path, format!("content {number}")).unwrap();
        files.add(&path, Image::of_file(Layout::A, &[]));
        path
    }

    fn links(cache: &Path) -> usize {
        let below = fs::read_dir(cache).unwrap().flatten().flat_map(|entry| fs::read_dir(entry.path()).unwrap());
        below.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(LINK)).count()
    }

    /// File systems that clone are treated as one that does not.
    fn without_clone(cache: &Path) -> CachedFiles {
        let device = fs::metadata(cache).unwrap().dev();
        let mut files = CachedFiles::default();
        files.without_clone.push(device);
        files
    }

    #[test]
    fn only_an_evicted_file_is_written_to_again() {
        let cache = tempfile::tempdir().unwrap();
        let mut files = without_clone(cache.path());
        let (first, second) = (checkpoint(&mut files, cache.path(), 1), checkpoint(&mut files, cache.path(), 2));
        let inode = fs::metadata(&first).unwrap().ino();

        // Nothing is evicted: a new file.
        files.link();
        let third = checkpoint(&mut files, cache.path(), 3);
        assert_eq!(fs::read(&first).unwrap(), b"content 1");
        files.unlink();

        // The first is evicted: its file becomes the next one, with its content.
        files.link();
        fs::remove_dir_all(first.parent().unwrap()).unwrap();
        fs::create_dir(cache.path().join("checkpoint.4")).unwrap();
        let fourth = cache.path().join("checkpoint.4/Ckpt-Rank0.fti");
        let next = files.open(&fourth).unwrap();
        assert!(next.held.is_some() && next.previous.is_some());
        assert_eq!((fs::metadata(&fourth).unwrap().ino(), fs::read(&fourth).unwrap()), (inode, b"content 1".to_vec()));
        assert_eq!(links(cache.path()), 0);
        for (path, number) in [(second, 2), (third, 3)] {
            assert_eq!(fs::read(path).unwrap(), format!("content {number}").as_bytes(), "other files are unchanged");
        }
    }

    #[test]
    fn the_newest_file_is_never_recycled() {
        let cache = tempfile::tempdir().unwrap();
        let mut files = without_clone(cache.path());
        let first = checkpoint(&mut files, cache.path(), 1);
        files.link();
        assert_eq!(links(cache.path()), 0);
        fs::remove_dir_all(first.parent().unwrap()).unwrap();
        fs::create_dir(cache.path().join("checkpoint.2")).unwrap();
        assert!(files.open(&cache.path().join("checkpoint.2/Ckpt-Rank0.fti")).unwrap().held.is_none());
    }

    #[test]
    fn a_file_that_was_changed_is_not_used() {
        let cache = tempfile::tempdir().unwrap();
        let mut files = without_clone(cache.path());
        let (first, _) = (checkpoint(&mut files, cache.path(), 1), checkpoint(&mut files, cache.path(), 2));
        fs::write(&first, "other content").unwrap();
        files.link();
        assert_eq!(links(cache.path()), 0);
    }

    #[test]
    fn links_of_an_earlier_process_are_removed() {
        let cache = tempfile::tempdir().unwrap();
        let mut files = without_clone(cache.path());
        checkpoint(&mut files, cache.path(), 1);
        let second = checkpoint(&mut files, cache.path(), 2);
        files.link();
        assert_eq!(links(cache.path()), 1);
        // The process was killed.
        std::mem::forget(files);
        drop(CachedFiles::new(second.parent()));
        assert_eq!(links(cache.path()), 0);
    }
}
