//! Files that a program renames into place: `checkpoint.watch`.
//!
//! The files of one checkpoint are, for each pattern, the file that was renamed into place last. The rename with which
//! there is a new one for each pattern closes the set: what is renamed afterwards is of the next one. The files of a
//! set are opened at once, because the program may replace them, and copied when no process can write into them any
//! more. A set of which a file is replaced before it is open is not used.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Seek as _};
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use glob::Pattern;
use holdfast_client::Interrupter;
use holdfast_model::CheckpointId;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::SaveError;
use crate::files;
use crate::program::Program;
use crate::saver::{Saver, SaverContext};
use crate::words::expand;
use crate::writers::{FileIdentity, writer_of};

/// A directory that does not exist yet is looked for this often.
const DIRECTORY_LOOKED_FOR_EVERY: Duration = Duration::from_millis(200);
/// Files that are still being written are looked at after this time, and then less and less often.
const WRITERS_LOOKED_FOR: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_millis(500);
/// It is reported that no set is complete because files stay open.
const OPEN_REPORTED_AFTER: Duration = Duration::from_secs(10);
/// Several events, with names of at most 255 bytes.
const EVENT_BYTES: usize = 16 << 10;

/// The files of the next checkpoint, if they are complete: below this directory, which is the saver's own.
#[derive(Debug)]
pub(crate) struct WatchSaver {
    watch: Arc<Mutex<Watch>>,
    next: Arc<Mutex<NextSet>>,
    directory: PathBuf,
}

/// What there is for the next checkpoint.
#[derive(Debug, Default)]
enum NextSet {
    #[default]
    Nothing,
    /// The files are in the directory [`COMPLETE`].
    Complete,
    /// The program has renamed files that cannot be taken: the first ones after a complete set.
    Failed(SaveError),
}

impl WatchSaver {
    pub(crate) fn start(patterns: &[String], context: SaverContext) -> Result<Self, SaveError> {
        let patterns = patterns.iter().map(|pattern| WatchedPattern::of(&expand(pattern, &context.variables)));
        let patterns: Vec<WatchedPattern> = patterns.collect::<Result<_, _>>()?;
        let (next, directory) = (Arc::new(Mutex::new(NextSet::Nothing)), context.directory);
        files::empty(&directory)?;
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let inotify = inotify.map_err(|errno| SaveError::io("watch files for", &directory)(errno.into()))?;
        let inotify = Arc::new(inotify);
        let mut watch = Watch {
            inotify: inotify.clone(),
            set: FileSet::new(patterns),
            directories: BTreeMap::new(),
            open: None,
            unwritten_since: None,
            is_failing: false,
            next: next.clone(),
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
        Ok(WatchSaver { watch, next, directory })
    }
}

impl Saver for WatchSaver {
    /// What an earlier program has renamed is of another run: the ranks may have gone back to an older checkpoint.
    fn before_start(&mut self) -> Result<(), SaveError> {
        let mut watch = self.watch.lock();
        watch.receive();
        watch.forget();
        *self.next.lock() = NextSet::Nothing;
        files::empty(&self.directory)
    }

    fn save(&mut self, _: &Program, _: CheckpointId, into: &Path) -> Result<(), SaveError> {
        // No new set is made ready while the lock is held.
        let mut next = self.next.lock();
        match std::mem::take(&mut *next) {
            NextSet::Nothing => return Err(SaveError::NotReady),
            NextSet::Failed(error) => return Err(error),
            NextSet::Complete => {}
        }
        let complete = self.directory.join(COMPLETE);
        for (path, name) in files::written(&complete)? {
            files::move_file(&path, &into.join(name))?;
        }
        Ok(())
    }

    /// Also if the files cannot be taken: that is to be reported.
    fn is_ready(&self) -> bool {
        !matches!(*self.next.lock(), NextSet::Nothing)
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
    /// The last set for which there was a new file of each pattern, unless one of them was replaced.
    closed: Option<ClosedSet>,
    sets: u64,
    /// The paths of the set that is open, each with whether it was renamed again after that.
    opened: BTreeMap<PathBuf, bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ClosedSet {
    number: u64,
    /// One file can match several patterns.
    paths: BTreeSet<PathBuf>,
}

impl FileSet {
    fn new(patterns: Vec<WatchedPattern>) -> Self {
        FileSet { newest: vec![None; patterns.len()], patterns, closed: None, sets: 0, opened: BTreeMap::new() }
    }

    fn directories(&self) -> BTreeSet<PathBuf> {
        self.patterns.iter().map(|pattern| pattern.directory.clone()).collect()
    }

    /// A file was renamed into place. Must be called in the order of the renames.
    fn renamed(&mut self, directory: &Path, name: &OsStr) {
        let Some(text) = name.to_str() else { return };
        let path = directory.join(name);
        let mut matches = false;
        for (pattern, newest) in self.patterns.iter().zip(&mut self.newest) {
            if pattern.directory == directory && pattern.name.matches(text) {
                *newest = Some((path.clone(), true));
                matches = true;
            }
        }
        if !matches {
            return;
        }
        if let Some(renamed_again) = self.opened.get_mut(&path) {
            *renamed_again = true;
        }
        // Its file of the set that was closed cannot be opened any more.
        self.closed.take_if(|closed| closed.paths.contains(&path));
        let new = |newest: &Option<(PathBuf, bool)>| newest.clone().filter(|(_, new)| *new).map(|(path, _)| path);
        let paths: Option<BTreeSet<PathBuf>> = self.newest.iter().map(new).collect();
        if let Some(paths) = paths {
            self.newest.iter_mut().flatten().for_each(|(_, new)| *new = false);
            self.sets += 1;
            self.closed = Some(ClosedSet { number: self.sets, paths });
        }
    }

    /// Events were lost: only what is renamed from now on counts.
    fn forget(&mut self) {
        self.newest.iter_mut().for_each(|newest| *newest = None);
        self.closed = None;
    }
}

/// A set whose files are open: what is renamed from now on does not change it.
#[derive(Debug)]
struct OpenSet {
    files: Vec<OpenFile>,
    /// When it is looked at next, and how long after that.
    at: Instant,
    pause: Duration,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    file: File,
    identity: FileIdentity,
}

/// Why a set is not copied.
#[derive(Debug)]
enum NotCopied {
    /// Its files are still being written.
    Open(SaveError),
    Failed(SaveError),
}

impl From<SaveError> for NotCopied {
    fn from(error: SaveError) -> NotCopied {
        NotCopied::Failed(error)
    }
}

#[derive(Debug)]
struct Watch {
    inotify: Arc<OwnedFd>,
    set: FileSet,
    /// The names of each directory that is watched: it can have several.
    directories: BTreeMap<i32, BTreeSet<PathBuf>>,
    open: Option<OpenSet>,
    /// Since when the files of each set were still being written.
    unwritten_since: Option<Instant>,
    /// The last set could not be taken.
    is_failing: bool,
    next: Arc<Mutex<NextSet>>,
    directory: PathBuf,
    interrupter: Interrupter,
}

fn run(watch: &Mutex<Watch>, inotify: &OwnedFd) {
    loop {
        let limit = watch.lock().proceed();
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        match poll(&mut [PollFd::new(inotify, PollFlags::IN)], limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return eprintln!("holdfast: files can no longer be watched: {error}"),
        }
    }
}

impl Watch {
    /// Does what there is to do; returns after which time there is more, without an event.
    fn proceed(&mut self) -> Option<Duration> {
        self.find_directories(true);
        self.receive();
        self.open_closed_set();
        if let Some(open) = self.open.take_if(|open| open.at <= Instant::now()) {
            self.take(open);
            // It has received events.
            self.open_closed_set();
        }
        let watched = self.directories.values().map(BTreeSet::len).sum::<usize>();
        let looks_for_directories = watched < self.set.directories().len();
        let writers = self.open.as_ref().map(|open| open.at.saturating_duration_since(Instant::now()));
        writers.into_iter().chain(looks_for_directories.then_some(DIRECTORY_LOOKED_FOR_EVERY)).min()
    }

    /// What was renamed until now does not count.
    fn forget(&mut self) {
        self.set.forget();
        (self.open, self.unwritten_since, self.is_failing) = (None, None, false);
    }

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
                names.for_each(|entry| self.set.renamed(&directory, &entry.file_name()));
            }
        }
    }

    /// Takes over the events that there are.
    fn receive(&mut self) {
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
        for (number, flags, name) in events {
            if flags.contains(ReadFlags::IGNORED) {
                // The directory was removed.
                self.directories.remove(&number);
            } else if let (Some(directories), Some(name)) = (self.directories.get(&number), name) {
                for directory in directories {
                    self.set.renamed(directory, &name);
                }
            }
        }
    }

    /// Opens the files of the newest set, unless one is replaced meanwhile. It takes the place of an older one.
    fn open_closed_set(&mut self) {
        while let Some(closed) = self.set.closed.clone() {
            let files: Result<Vec<OpenFile>, SaveError> = closed.paths.iter().map(|path| open(path)).collect();
            self.receive();
            if self.set.closed.as_ref() != Some(&closed) {
                continue;
            }
            self.set.closed = None;
            match files {
                Ok(files) => {
                    self.set.opened = closed.paths.into_iter().map(|path| (path, false)).collect();
                    self.open = Some(OpenSet { files, at: Instant::now(), pause: *WRITERS_LOOKED_FOR.start() });
                }
                Err(error) => self.failed(error),
            }
        }
    }

    /// Copies a set, or looks at it again later.
    fn take(&mut self, set: OpenSet) {
        let copied = copy_set(&set.files, &self.directory.join(COPYING));
        self.receive();
        // The kernel reports a rename just after it has made it: this file was renamed after the set was closed.
        let is_newer = |OpenFile { path, identity, .. }: &OpenFile| {
            self.set.opened.get(path) == Some(&true) && FileIdentity::at(path).is_ok_and(|found| found == *identity)
        };
        if set.files.iter().any(is_newer) {
            return;
        }
        match copied.and_then(|()| Ok(self.finish()?)) {
            Ok(()) => {}
            Err(NotCopied::Failed(error)) => self.failed(error),
            Err(NotCopied::Open(error)) => {
                let since = *self.unwritten_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= OPEN_REPORTED_AFTER && !self.is_failing {
                    self.failed(error);
                }
                let pause = (set.pause * 2).min(*WRITERS_LOOKED_FOR.end());
                self.open = Some(OpenSet { at: Instant::now() + set.pause, pause, ..set });
            }
        }
    }

    fn finish(&mut self) -> Result<(), SaveError> {
        let mut next = self.next.lock();
        let (copying, complete) = (self.directory.join(COPYING), self.directory.join(COMPLETE));
        let _ = fs::remove_dir_all(&complete);
        *next = NextSet::Nothing;
        fs::rename(&copying, &complete).map_err(SaveError::io("move", &copying))?;
        *next = NextSet::Complete;
        drop(next);
        (self.unwritten_since, self.is_failing) = (None, false);
        self.interrupter.interrupt();
        Ok(())
    }

    /// The files of a set cannot be taken. The first failure is that of the next checkpoint, unless there is an older
    /// set, or a newer one comes before all ranks have one: otherwise there would be no sign of it.
    fn failed(&mut self, error: SaveError) {
        eprintln!("holdfast: files of a checkpoint were not taken: {error}");
        if std::mem::replace(&mut self.is_failing, true) {
            return;
        }
        let mut next = self.next.lock();
        if matches!(*next, NextSet::Nothing) {
            *next = NextSet::Failed(error);
            drop(next);
            self.interrupter.interrupt();
        }
    }
}

fn open(path: &Path) -> Result<OpenFile, SaveError> {
    let gone = |errno| match errno {
        Errno::NOENT => SaveError::Gone { path: path.to_owned() },
        Errno::LOOP => SaveError::NotAFile { path: path.to_owned(), found: "a symbolic link" },
        errno => SaveError::io("open", path)(errno.into()),
    };
    // A named pipe would be waited for.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(gone)?);
    let metadata = file.metadata().map_err(SaveError::io("read", path))?;
    if !metadata.is_file() {
        return Err(SaveError::NotAFile { path: path.to_owned(), found: "not a regular file" });
    }
    Ok(OpenFile { path: path.to_owned(), identity: FileIdentity::of(&metadata, path), file })
}

/// Copies the files of a set, which must not change meanwhile.
fn copy_set(set: &[OpenFile], into: &Path) -> Result<(), NotCopied> {
    let identities: Vec<FileIdentity> = set.iter().map(|file| file.identity.clone()).collect();
    let closed = || writer_of(&identities).map_or(Ok(()), |writer| Err(NotCopied::Open(SaveError::StillOpen(writer))));
    let stamps = || set.iter().map(stamp).collect::<Result<Vec<_>, _>>();
    closed()?;
    let before = stamps()?;
    files::empty(into)?;
    for OpenFile { path, file, .. } in set {
        let name = path.file_name().unwrap_or_default();
        let to = into.join(name);
        if to.exists() {
            let problem = format!("two files of a checkpoint have the name {}", name.display());
            return Err(SaveError::Pattern { pattern: path.display().to_string(), problem }.into());
        }
        let mut source = file;
        source.rewind().map_err(SaveError::io("read", path))?;
        let mut target = File::create_new(&to).map_err(SaveError::io("make", &to))?;
        io::copy(&mut source, &mut target).map_err(files::not_copied(path, &to))?;
    }
    closed()?;
    match stamps()?.iter().zip(&before).zip(set).find(|((after, before), _)| after != before) {
        Some((_, OpenFile { path, .. })) => {
            Err(NotCopied::Open(SaveError::NotAFile { path: path.clone(), found: "still being written" }))
        }
        None => Ok(()),
    }
}

/// What shows that a file has changed.
fn stamp(open: &OpenFile) -> Result<(u64, i64, i64), SaveError> {
    let metadata = open.file.metadata().map_err(SaveError::io("read", &open.path))?;
    Ok((metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(patterns: &[&str]) -> FileSet {
        FileSet::new(patterns.iter().map(|pattern| WatchedPattern::of(pattern).unwrap()).collect())
    }

    fn renamed(set: &mut FileSet, path: &str) {
        let path = Path::new(path);
        set.renamed(path.parent().unwrap(), path.file_name().unwrap());
    }

    fn closed(set: &FileSet) -> Option<Vec<String>> {
        Some(set.closed.as_ref()?.paths.iter().map(|path| path.display().to_string()).collect())
    }

    #[test]
    fn a_set_has_the_newest_file_of_each_pattern_and_the_next_one_needs_a_new_file_of_each() {
        let mut files = set(&["state/field_*", "state/index", "state/i*"]);
        for path in ["state/field_1", "state/field_2", "state/other", "elsewhere/index"] {
            renamed(&mut files, path);
            assert_eq!(closed(&files), None, "{path}");
        }
        renamed(&mut files, "state/index");
        assert_eq!(closed(&files).unwrap(), ["state/field_2", "state/index"], "one file can match two patterns");
        files.closed = None;
        renamed(&mut files, "state/index");
        assert_eq!(closed(&files), None);
        renamed(&mut files, "state/field_2");
        assert_eq!(files.closed.as_ref().map(|closed| closed.number), Some(2));
        renamed(&mut files, "state/index");
        files.forget();
        renamed(&mut files, "state/field_2");
        assert_eq!(closed(&files), None, "events were lost");
    }

    #[test]
    fn a_set_is_closed_by_the_rename_that_completes_it_and_never_mixed_with_the_next_one() {
        let mut files = set(&["a", "b"]);
        for path in ["./a", "./b", "./a"] {
            renamed(&mut files, path);
        }
        assert_eq!(closed(&files), None, "the first `a` has been replaced");
        renamed(&mut files, "./b");
        assert_eq!(closed(&files).unwrap(), ["./a", "./b"]);
        let mut files = set(&["a_*", "b_*"]);
        for path in ["./a_1", "./b_1", "./a_2"] {
            renamed(&mut files, path);
        }
        assert_eq!(closed(&files).unwrap(), ["./a_1", "./b_1"], "the second `a` has not taken the place of the first");
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
    fn only_a_regular_file_is_opened() {
        let base = tempfile::tempdir().unwrap();
        let path = |name: &str| base.path().join(name);
        fs::write(path("file"), "state").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), 0o600.into()).unwrap();
        assert!(matches!(open(&path("link")), Err(SaveError::NotAFile { found: "a symbolic link", .. })));
        assert!(matches!(open(&path("pipe")), Err(SaveError::NotAFile { .. })));
        assert!(matches!(open(&path("gone")), Err(SaveError::Gone { .. })));
        assert!(open(&path("file")).is_ok());
    }

    #[test]
    fn a_set_is_copied_as_it_was_when_it_was_opened_and_not_while_it_is_written() {
        let base = tempfile::tempdir().unwrap();
        let (path, into) = (base.path().join("file"), base.path().join("copies"));
        fs::write(&path, "first").unwrap();
        let set = [open(&path).unwrap()];
        let writer = File::options().append(true).open(&path).unwrap();
        let refused = copy_set(&set, &into);
        assert!(matches!(refused, Err(NotCopied::Open(SaveError::StillOpen(_)))), "{refused:?}");
        drop(writer);
        fs::write(base.path().join("new"), "second").unwrap();
        fs::rename(base.path().join("new"), &path).unwrap();
        copy_set(&set, &into).unwrap();
        assert_eq!(fs::read_to_string(into.join("file")).unwrap(), "first");
    }
}
