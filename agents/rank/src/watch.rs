//! Files that a program renames into place: `checkpoint.watch`.
//!
//! The files of one checkpoint are, for each pattern, the file that was renamed into place last. They are complete when
//! there is a new one for each pattern; they are copied at once, because the program may replace them before all ranks
//! are ready. A set that changes while it is copied is not used: its next renamed files complete it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use glob::Pattern;
use holdfast_client::Interrupter;
use holdfast_model::CheckpointId;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::files;
use crate::program::Program;
use crate::saver::{SaveError, Saver, SaverContext};
use crate::words::expand;

/// A directory that does not exist yet is looked for this often.
const DIRECTORY_LOOKED_FOR_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Several events, with names of at most 255 bytes.
const EVENT_BYTES: usize = 16 << 10;

/// The files of the next checkpoint, if they are complete: below this directory, which is the saver's own.
#[derive(Debug)]
pub(crate) struct WatchSaver {
    watch: Arc<Mutex<Watch>>,
    ready: Arc<Mutex<bool>>,
    directory: PathBuf,
}

impl WatchSaver {
    /// Begins to watch.
    pub(crate) fn start(patterns: &[String], context: SaverContext) -> Result<Self, SaveError> {
        let patterns = patterns.iter().map(|pattern| WatchedPattern::of(&expand(pattern, &context.variables)));
        let patterns: Vec<WatchedPattern> = patterns.collect::<Result<_, _>>()?;
        let (ready, directory) = (Arc::new(Mutex::new(false)), context.directory);
        files::empty(&directory)?;
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let inotify = inotify.map_err(|errno| SaveError::io("watch files for", &directory)(errno.into()))?;
        let inotify = Arc::new(inotify);
        let mut watch = Watch {
            inotify: inotify.clone(),
            set: FileSet::new(patterns),
            directories: BTreeMap::new(),
            ready: ready.clone(),
            directory: directory.clone(),
            interrupter: context.interrupter,
        };
        // Before the program is started: none of its renames is missed.
        watch.find_directories(false);
        let watch = Arc::new(Mutex::new(watch));
        let watched = watch.clone();
        let run = move || run(&watched, &inotify);
        let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(run);
        thread.map_err(SaveError::io("watch files for", &directory))?;
        Ok(WatchSaver { watch, ready, directory })
    }
}

impl Saver for WatchSaver {
    /// What an earlier program has renamed is of another run: the ranks may have gone back to an older checkpoint.
    fn before_start(&mut self) -> Result<(), SaveError> {
        let mut watch = self.watch.lock();
        watch.receive();
        watch.set.forget();
        *self.ready.lock() = false;
        files::empty(&self.directory)
    }

    fn save(&mut self, _: &Program, _: CheckpointId, into: &Path) -> Result<(), SaveError> {
        // No new set is made ready while the lock is held.
        let mut ready = self.ready.lock();
        if !std::mem::take(&mut *ready) {
            return Err(SaveError::NotReady);
        }
        let complete = self.directory.join(COMPLETE);
        for (path, name) in files::written(&complete)? {
            files::move_file(&path, &into.join(name))?;
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        *self.ready.lock()
    }
}

/// The directory of a set that is complete, and of one that is being copied.
const COMPLETE: &str = "complete";
const COPYING: &str = "copying";

/// Files of one directory whose names match.
#[derive(Clone, Debug)]
pub struct WatchedPattern {
    directory: PathBuf,
    name: Pattern,
}

impl WatchedPattern {
    /// # Errors
    /// It is no pattern, or more than the last component is one.
    pub fn of(text: &str) -> Result<Self, SaveError> {
        let refused = |problem: &str| SaveError::Pattern { pattern: text.to_owned(), problem: problem.to_owned() };
        let path = Path::new(text);
        let name = path.file_name().and_then(OsStr::to_str).filter(|_| !text.ends_with('/'));
        let name = name.ok_or_else(|| refused("it does not end in the name of a file"))?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if directory.to_string_lossy().contains(['*', '?', '[']) {
            return Err(refused("only the last component can have `*`, `?` or `[`"));
        }
        let name = Pattern::new(name).map_err(|error| refused(error.msg))?;
        Ok(WatchedPattern { directory: directory.to_owned(), name })
    }
}

/// Which files are new since the last set.
#[derive(Debug)]
struct FileSet {
    patterns: Vec<WatchedPattern>,
    /// For each pattern the file that was renamed into place last, and whether it is new.
    newest: Vec<Option<(PathBuf, bool)>>,
}

impl FileSet {
    fn new(patterns: Vec<WatchedPattern>) -> Self {
        FileSet { newest: vec![None; patterns.len()], patterns }
    }

    fn directories(&self) -> BTreeSet<PathBuf> {
        self.patterns.iter().map(|pattern| pattern.directory.clone()).collect()
    }

    /// A file was renamed into place; true if a pattern matches.
    fn renamed(&mut self, directory: &Path, name: &OsStr) -> bool {
        let Some(text) = name.to_str() else { return false };
        let mut matches = false;
        for (pattern, newest) in self.patterns.iter().zip(&mut self.newest) {
            if pattern.directory == directory && pattern.name.matches(text) {
                *newest = Some((directory.join(name), true));
                matches = true;
            }
        }
        matches
    }

    /// The files of the set, if there is a new one for each pattern. One file can match several patterns.
    fn complete(&self) -> Option<BTreeSet<PathBuf>> {
        self.newest.iter().map(|newest| newest.as_ref().filter(|(_, new)| *new).map(|(path, _)| path.clone())).collect()
    }

    /// The set was taken.
    fn taken(&mut self) {
        self.newest.iter_mut().flatten().for_each(|(_, new)| *new = false);
    }

    /// Events were lost: only what is renamed from now on counts.
    fn forget(&mut self) {
        self.newest.iter_mut().for_each(|newest| *newest = None);
    }
}

#[derive(Debug)]
struct Watch {
    inotify: Arc<OwnedFd>,
    set: FileSet,
    /// The names of each directory that is watched: it can have several.
    directories: BTreeMap<i32, BTreeSet<PathBuf>>,
    ready: Arc<Mutex<bool>>,
    directory: PathBuf,
    interrupter: Interrupter,
}

fn run(watch: &Mutex<Watch>, inotify: &OwnedFd) {
    loop {
        let limit = {
            let mut watch = watch.lock();
            watch.find_directories(true);
            watch.receive();
            if let Some(set) = watch.set.complete() {
                watch.take(&set);
                continue;
            }
            let incomplete =
                watch.directories.values().map(BTreeSet::len).sum::<usize>() < watch.set.directories().len();
            incomplete.then_some(&DIRECTORY_LOOKED_FOR_EVERY)
        };
        match poll(&mut [PollFd::new(inotify, PollFlags::IN)], limit) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return eprintln!("holdfast: files can no longer be watched: {error}"),
        }
    }
}

impl Watch {
    /// Watches the directories that exist. In one that the program has made since it was started, all files are its
    /// own.
    fn find_directories(&mut self, is_started: bool) {
        for directory in self.set.directories() {
            if self.directories.values().any(|names| names.contains(&directory)) {
                continue;
            }
            let flags = WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
            let Ok(number) = inotify::add_watch(&*self.inotify, &directory, flags) else { continue };
            let names = self.directories.entry(number).or_default();
            let is_new = names.is_empty();
            names.insert(directory.clone());
            if is_started && is_new {
                let names = fs::read_dir(&directory).into_iter().flatten().flatten();
                names.for_each(|entry| _ = self.set.renamed(&directory, &entry.file_name()));
            }
        }
    }

    /// Takes over the events that there are; true if one of them is of a file that matches, or if events were lost.
    fn receive(&mut self) -> bool {
        let mut buffer = vec![MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = Vec::new();
        let mut lost = false;
        let mut reader = Reader::new(&*self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            lost |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            let name = event.file_name().map(|name| OsString::from(OsStr::from_bytes(name.to_bytes())));
            events.push((event.wd(), event.events(), name));
        }
        if lost {
            self.set.forget();
        }
        let mut matches = false;
        for (number, flags, name) in events {
            if flags.contains(ReadFlags::IGNORED) {
                // The directory was removed.
                self.directories.remove(&number);
            } else if let (Some(directories), Some(name)) = (self.directories.get(&number), name) {
                for directory in directories {
                    matches |= self.set.renamed(directory, &name);
                }
            }
        }
        matches || lost
    }

    /// Copies a set, unless it changes meanwhile.
    fn take(&mut self, set: &BTreeSet<PathBuf>) {
        self.set.taken();
        let copying = self.directory.join(COPYING);
        if let Err(error) = copy_set(set, &copying) {
            return eprintln!("holdfast: files of a checkpoint were not taken: {error}");
        }
        if self.receive() {
            // Files of the next set may be among the copies.
            return;
        }
        let mut ready = self.ready.lock();
        let complete = self.directory.join(COMPLETE);
        let _ = fs::remove_dir_all(&complete);
        match fs::rename(&copying, &complete) {
            Ok(()) => *ready = true,
            Err(error) => return eprintln!("holdfast: files of a checkpoint were not taken: {error}"),
        }
        drop(ready);
        self.interrupter.interrupt();
    }
}

fn copy_set(set: &BTreeSet<PathBuf>, into: &Path) -> Result<(), SaveError> {
    files::empty(into)?;
    for path in set {
        let name = path.file_name().unwrap_or_default();
        let to = into.join(name);
        if to.exists() {
            let problem = format!("two files of a checkpoint have the name {}", name.display());
            return Err(SaveError::Pattern { pattern: path.display().to_string(), problem });
        }
        copy_complete(path, &to)?;
    }
    Ok(())
}

/// Copies a file, which must not change meanwhile.
fn copy_complete(from: &Path, to: &Path) -> Result<(), SaveError> {
    let metadata = fs::symlink_metadata(from).map_err(SaveError::io("read", from))?;
    if !metadata.is_file() {
        return Err(SaveError::NotAFile { path: from.to_owned(), found: "not a regular file" });
    }
    let mut source = File::open(from).map_err(SaveError::io("open", from))?;
    let stamp = |file: &File| file.metadata().map(|at| (at.ino(), at.len(), at.mtime(), at.mtime_nsec()));
    let before = stamp(&source).map_err(SaveError::io("read", from))?;
    let mut target = File::create_new(to).map_err(SaveError::io("make", to))?;
    io::copy(&mut source, &mut target).map_err(SaveError::io("copy", from))?;
    let after = stamp(&source).map_err(SaveError::io("read", from))?;
    if before != after {
        return Err(SaveError::NotAFile { path: from.to_owned(), found: "still being written" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(patterns: &[&str]) -> FileSet {
        FileSet::new(patterns.iter().map(|pattern| WatchedPattern::of(pattern).unwrap()).collect())
    }

    fn renamed(set: &mut FileSet, path: &str) -> bool {
        let path = Path::new(path);
        set.renamed(path.parent().unwrap(), path.file_name().unwrap())
    }

    fn complete(set: &FileSet) -> Option<Vec<String>> {
        Some(set.complete()?.into_iter().map(|path| path.display().to_string()).collect())
    }

    #[test]
    fn a_set_has_the_newest_file_of_each_pattern_and_the_next_one_needs_a_new_file_of_each() {
        let mut files = set(&["state/field_*", "state/index", "state/i*"]);
        assert!(renamed(&mut files, "state/field_1") && renamed(&mut files, "state/field_2"));
        assert_eq!(complete(&files), None);
        assert!(!renamed(&mut files, "state/other") && !renamed(&mut files, "elsewhere/index"));
        assert!(renamed(&mut files, "state/index"));
        assert_eq!(complete(&files).unwrap(), ["state/field_2", "state/index"], "one file can match two patterns");
        files.taken();
        assert!(renamed(&mut files, "state/index"));
        assert_eq!(complete(&files), None);
        assert!(renamed(&mut files, "state/field_2"));
        files.forget();
        assert_eq!(complete(&files), None, "events were lost");
    }

    #[test]
    fn a_pattern_is_of_the_last_component_only() {
        for (text, problem) in [
            ("*/state", "only the last component"),
            ("state/", "does not end in the name of a file"),
            ("state/[a", "is not a pattern of files"),
        ] {
            let error = WatchedPattern::of(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        assert_eq!(set(&["a*", "./b"]).directories(), BTreeSet::from([".".into()]), "the working directory");
    }

    #[test]
    fn a_file_is_copied_only_if_it_is_regular() {
        let base = tempfile::tempdir().unwrap();
        let (file, link, copy) = (base.path().join("file"), base.path().join("link"), base.path().join("copy"));
        fs::write(&file, "state").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(matches!(copy_complete(&link, &copy), Err(SaveError::NotAFile { .. })));
        copy_complete(&file, &copy).unwrap();
        assert_eq!(fs::read_to_string(copy).unwrap(), "state");
    }
}
