//! The files in the cache whose content this process knows, and the choice of the file that becomes the next
//! checkpoint.
//!
//! * Where the file system can, the file of the previous checkpoint is cloned: both share the unchanged blocks.
//! * Otherwise the file of an older checkpoint is recycled when the agent evicts it. The agent deletes it when the next
//!   checkpoint starts; a second link, made before that in the directory of the newest checkpoint, keeps the file. It
//!   is written to only if that link is the last one: no checkpoint contains the file any more, and the newest one is
//!   not touched.
//! * Otherwise a new file is written.
//!
//! A file that has the content of another checkpoint is made invalid on disk before it is written to. Nothing else is
//! synced in a cache.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::calls;
use holdfast_formats::fti_ff::differential::Image;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};

/// The start of the name of a second link.
pub(super) const LINK: &str = ".holdfast-recycled.";
/// More files than caches keep by default; each costs memory for its fingerprints.
const MOST_FILES: usize = 4;

/// A file in the cache.
#[derive(Debug)]
struct CachedFile {
    path: PathBuf,
    identity: Identity,
    image: Arc<Image>,
}

/// Distinguishes the content of files: another one has another number, size or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: i64,
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
pub(super) struct NextFile {
    pub(super) file: File,
    /// Its content, if it is not empty.
    pub(super) held: Option<Arc<Image>>,
    /// The content of the previous checkpoint.
    pub(super) previous: Option<Arc<Image>>,
}

impl CachedFiles {
    /// `restart` is the directory of the checkpoint to restart from, which may contain links of an earlier process.
    pub(super) fn new(restart: Option<&Path>) -> CachedFiles {
        for entry in restart.into_iter().flat_map(fs::read_dir).flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(LINK) {
                remove(&entry.path());
            }
        }
        CachedFiles::default()
    }

    /// The content of the newest checkpoint of this process.
    pub(super) fn newest(&self) -> Option<Arc<Image>> {
        self.files.last().map(|file| Arc::clone(&file.image))
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
            if calls::linkat(CWD, &file.path, CWD, &link, AtFlags::empty()).is_ok() {
                self.links.push((link, file.identity));
            }
        }
    }

    /// Opens the file of the next checkpoint at this path, which its start has made possible.
    pub(super) fn open(&mut self, path: &Path) -> io::Result<NextFile> {
        if let Some(file) = self.clone_newest(path)? {
            let newest = self.newest();
            return Ok(NextFile { file, held: newest.clone(), previous: newest });
        }
        // The newest of the evicted files differs least.
        while let Some((link, identity)) = self.links.pop() {
            if let Some(known) = self.files.iter().position(|file| file.identity == identity)
                && let Some(file) = self.files.get(known).and_then(|file| recycle(&link, &file.image, path).ok())
            {
                self.unlink();
                let held = self.files.get(known).map(|file| Arc::clone(&file.image));
                return Ok(NextFile { file, held, previous: self.newest() });
            }
            remove(&link);
        }
        let file = open(path, OFlags::CREATE | OFlags::TRUNC)?;
        Ok(NextFile { file, held: None, previous: self.newest() })
    }

    /// Records the content of a file that is complete.
    pub(super) fn add(&mut self, path: &Path, image: Image) {
        let Ok(identity) = Identity::of_path(path) else { return };
        // A recycled file is not what it was.
        self.files.retain(|file| (file.identity.device, file.identity.inode) != (identity.device, identity.inode));
        self.files.push(CachedFile { path: path.to_owned(), identity, image: Arc::new(image) });
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
            remove(&link);
        }
    }

    /// A clone of the newest file, if the file system can make one.
    fn clone_newest(&mut self, path: &Path) -> io::Result<Option<File>> {
        let Some(newest) = self.files.last() else { return Ok(None) };
        if self.without_clone.contains(&newest.identity.device) {
            return Ok(None);
        }
        let Ok(original) = calls::openat(CWD, &newest.path, OFlags::RDONLY, Mode::empty()) else { return Ok(None) };
        let unchanged = calls::fstat(&original).is_ok_and(|found| Identity::of(&found) == newest.identity);
        let file = open(path, OFlags::CREATE | OFlags::TRUNC)?;
        if unchanged {
            match calls::clone_file(&file, &original) {
                Ok(()) if newest.image.invalidate(&file).is_ok() => {
                    self.unlink();
                    return Ok(Some(file));
                }
                Ok(()) => {}
                Err(_) => self.without_clone.push(newest.identity.device),
            }
        }
        drop(file);
        calls::unlinkat(CWD, path, AtFlags::empty())?;
        Ok(None)
    }
}

impl Drop for CachedFiles {
    fn drop(&mut self) {
        self.unlink();
    }
}

impl Identity {
    fn of(found: &Stat) -> Identity {
        let modified = (found.st_mtime, found.st_mtime_nsec);
        Identity { device: found.st_dev, inode: found.st_ino, bytes: found.st_size, modified }
    }

    fn of_path(path: &Path) -> io::Result<Identity> {
        Ok(Identity::of(&calls::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?))
    }
}

/// Gives the file of an evicted checkpoint, whose last link this is, another name.
fn recycle(link: &Path, content: &Image, path: &Path) -> io::Result<File> {
    let file = open(link, OFlags::empty())?;
    if calls::fstat(&file)?.st_nlink != 1 {
        return Err(io::Error::other("a checkpoint contains the file"));
    }
    content.invalidate(&file)?;
    calls::renameat(CWD, link, CWD, path)?;
    Ok(file)
}

/// Opens a file for reading and writing.
fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    Ok(calls::openat(CWD, path, OFlags::RDWR | flags, Mode::from_raw_mode(0o666))?.into())
}

/// Removes a link. One that is left takes only space until its directory is deleted.
fn remove(link: &Path) {
    let _ = calls::unlinkat(CWD, link, AtFlags::empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::fs::MetadataExt as _;

    use holdfast_formats::fti_ff::layout::Layout;

    /// Bytes in place of the metadata, and a content.
    fn content(metadata: u8, number: i32) -> Vec<u8> {
        [vec![metadata; Layout::A.meta_bytes()], number.to_string().into_bytes()].concat()
    }

    /// Writes a file as checkpoint `number` in its own directory.
    fn checkpoint(files: &mut CachedFiles, cache: &Path, number: i32) -> PathBuf {
        let directory = cache.join(format!("checkpoint.{number}"));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("Ckpt-Rank0.fti");
        drop(files.open(&path).unwrap());
        fs::write(&path, content(1, number)).unwrap();
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
        assert_eq!(fs::read(&first).unwrap(), content(1, 1));
        files.unlink();

        // The first is evicted: its file becomes the next one, with its content, and without its metadata.
        files.link();
        fs::remove_dir_all(first.parent().unwrap()).unwrap();
        fs::create_dir(cache.path().join("checkpoint.4")).unwrap();
        let fourth = cache.path().join("checkpoint.4/Ckpt-Rank0.fti");
        let next = files.open(&fourth).unwrap();
        assert!(next.held.is_some() && next.previous.is_some());
        assert_eq!((fs::metadata(&fourth).unwrap().ino(), fs::read(&fourth).unwrap()), (inode, content(0, 1)));
        assert_eq!(links(cache.path()), 0);
        for (path, number) in [(second, 2), (third, 3)] {
            assert_eq!(fs::read(path).unwrap(), content(1, number), "other files are unchanged");
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
