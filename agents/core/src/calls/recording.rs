//! What the calls of a test have changed below a directory, and the states that a loss of power can leave of it.
//!
//! A change of a file's content is safe when the file has been synced since, and a change of names when a directory of
//! it has. Of the changes that are not safe, a file system may have kept any: those of names one by one, and a write
//! also by half. A rename is kept or not, as journalling file systems do it, and not by half.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::path::Arg;

/// How many are active: in a process without one, calls do not wait for each other.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
static RECORDINGS: Mutex<Vec<Recording>> = Mutex::new(Vec::new());

/// A file, directory or link: device and number. Those that a recording knows are held open, so that no other one gets
/// their number.
type Inode = (u64, u64);

/// A change, in the order of the calls.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// A name for a new or another node.
    Add {
        directory: Inode,
        name: OsString,
        node: Inode,
    },
    Remove {
        directory: Inode,
        name: OsString,
    },
    Rename {
        from: (Inode, OsString),
        to: (Inode, OsString),
        exchange: bool,
    },
    Write {
        file: Inode,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// The file shares the blocks of another one. Unlike a write, it is kept or not, as a change of names.
    Clone {
        file: Inode,
        bytes: Vec<u8>,
    },
    /// The size is set, or raised to this one.
    Resize {
        file: Inode,
        length: u64,
        shrinks: bool,
    },
    Sync {
        node: Inode,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    File { bytes: Vec<u8>, mode: u32 },
    Directory { names: BTreeMap<OsString, Inode>, mode: u32 },
    Link(OsString),
}

/// Files and directories below one directory.
#[derive(Clone, Debug)]
struct Tree {
    root: Inode,
    nodes: BTreeMap<Inode, Node>,
}

/// What happens below a directory, from [`Recording::of`] on.
#[derive(Debug)]
pub(super) struct Recording {
    id: usize,
    path: PathBuf,
    before: Tree,
    changes: Vec<Change>,
    /// The nodes as they were made: files empty, directories without names.
    made: BTreeMap<Inode, Node>,
    held: Vec<OwnedFd>,
}

/// What happened below a directory.
#[derive(Debug)]
pub struct Recorded {
    before: Tree,
    changes: Vec<Change>,
    made: BTreeMap<Inode, Node>,
}

/// Which of the changes a loss of power has undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// The power is lost before the change of this number.
    pub at: usize,
    lost: BTreeSet<usize>,
    /// Only the first half of this write was kept.
    torn: Option<usize>,
}

/// Does `work`, and returns what the calls of all threads changed below `path` meanwhile.
///
/// # Panics
/// When the result is not what is there: something was changed by other ways.
pub fn record<T>(path: &Path, work: impl FnOnce() -> T) -> (T, Recorded) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let id = NEXT.fetch_add(1, Ordering::SeqCst);
    let recording = Recording::of(id, path);
    recordings().push(recording);
    ACTIVE.fetch_add(1, Ordering::SeqCst);
    struct Removal(usize);
    impl Drop for Removal {
        fn drop(&mut self) {
            take(self.0);
        }
    }
    let removal = Removal(id);
    let result = work();
    let recording = take(id);
    drop(removal);
    #[allow(clippy::expect_used, reason = "for tests")]
    let Recording { path, before, changes, made, held, .. } = recording.expect("it is taken once");
    let recorded = Recorded { before, changes, made };
    let (found, expected) = (Tree::read(&path, &mut Vec::new()), recorded.after(&Loss::none(recorded.changes.len())));
    let (found, expected) = (found.listed(), expected.listed());
    let paths: BTreeSet<&PathBuf> = found.keys().chain(expected.keys()).collect();
    let differs: Vec<_> = paths.into_iter().filter(|path| found.get(*path) != expected.get(*path)).collect();
    assert!(
        differs.is_empty(),
        "{differs:?} were changed by other ways than the recorded calls:\n{}",
        recorded.listed()
    );
    drop(held);
    (result, recorded)
}

fn recordings() -> MutexGuard<'static, Vec<Recording>> {
    RECORDINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(id: usize) -> Option<Recording> {
    let mut all = recordings();
    let at = all.iter().position(|recording| recording.id == id)?;
    ACTIVE.fetch_sub(1, Ordering::SeqCst);
    Some(all.remove(at))
}

/// Adds a change to all recordings.
pub(super) fn note(change: impl Fn(&mut Recording)) {
    if ACTIVE.load(Ordering::SeqCst) > 0 {
        recordings().iter_mut().for_each(change);
    }
}

fn inode(found: &Stat) -> Inode {
    (found.st_dev, found.st_ino)
}

/// Directory and last component of a name relative to an open directory.
fn place(directory: BorrowedFd<'_>, name: &impl Arg) -> Option<(Inode, OsString)> {
    let name = name.as_cow_c_str().ok()?.to_bytes().to_vec();
    let name = Path::new(std::ffi::OsStr::from_bytes(&name));
    let above = name.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = rustix::fs::statat(directory, above, AtFlags::empty()).ok()?;
    Some((inode(&found), name.file_name()?.to_owned()))
}

impl Recording {
    fn of(id: usize, path: &Path) -> Recording {
        let mut held = Vec::new();
        let before = Tree::read(path, &mut held);
        Recording { id, path: path.to_owned(), before, changes: Vec::new(), made: BTreeMap::new(), held }
    }

    fn knows(&self, node: Inode) -> bool {
        self.before.nodes.contains_key(&node) || self.made.contains_key(&node)
    }

    fn known(&self, file: BorrowedFd<'_>) -> Option<Inode> {
        let node = inode(&rustix::fs::fstat(file).ok()?);
        self.knows(node).then_some(node)
    }

    fn known_place(&self, directory: BorrowedFd<'_>, name: &impl Arg) -> Option<(Inode, OsString)> {
        place(directory, name).filter(|(directory, _)| self.knows(*directory))
    }

    pub(super) fn opened(&mut self, directory: BorrowedFd<'_>, name: &impl Arg, flags: OFlags, file: BorrowedFd<'_>) {
        if let (Some(node), true) = (self.known(file), flags.contains(OFlags::TRUNC)) {
            self.changes.push(Change::Resize { file: node, length: 0, shrinks: true });
        } else if flags.contains(OFlags::CREATE) {
            self.added(directory, name);
        }
    }

    /// A file, directory or link was made, or got another name.
    pub(super) fn added(&mut self, directory: BorrowedFd<'_>, name: &impl Arg) {
        let Some((above, last)) = self.known_place(directory, name) else { return };
        let Ok(held) = rustix::fs::openat(
            directory,
            name.as_cow_c_str().unwrap_or_default().as_ref(),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        ) else {
            return;
        };
        let Ok(found) = rustix::fs::fstat(&held) else { return };
        let node = inode(&found);
        if !self.knows(node) {
            let made = match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => Node::Directory { names: BTreeMap::new(), mode: found.st_mode },
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(&held, "", Vec::new()).unwrap_or_default();
                    Node::Link(OsString::from_vec(target.into_bytes()))
                }
                _ => Node::File { bytes: Vec::new(), mode: found.st_mode },
            };
            self.made.insert(node, made);
            self.held.push(held);
        } else if self.names(above, &last) == Some(node) {
            // An existing file was opened with the flag that would have made it.
            return;
        }
        self.changes.push(Change::Add { directory: above, name: last, node });
    }

    /// What has a name at the end of what was recorded.
    fn names(&self, directory: Inode, name: &OsString) -> Option<Inode> {
        let recorded = Recorded { before: self.before.clone(), changes: self.changes.clone(), made: self.made.clone() };
        match recorded.after(&Loss::none(self.changes.len())).nodes.get(&directory)? {
            Node::Directory { names, .. } => names.get(name).copied(),
            Node::File { .. } | Node::Link(_) => None,
        }
    }

    pub(super) fn removed(&mut self, directory: BorrowedFd<'_>, name: &impl Arg) {
        if let Some((directory, name)) = self.known_place(directory, name) {
            self.changes.push(Change::Remove { directory, name });
        }
    }

    pub(super) fn renamed(
        &mut self,
        from: (BorrowedFd<'_>, &impl Arg),
        to: (BorrowedFd<'_>, &impl Arg),
        flags: RenameFlags,
    ) {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        match (self.known_place(from.0, from.1), self.known_place(to.0, to.1)) {
            (Some(from), Some(to)) => self.changes.push(Change::Rename { from, to, exchange }),
            (Some((directory, name)), None) => self.changes.push(Change::Remove { directory, name }),
            (None, Some(_)) => self.added(to.0, to.1),
            (None, None) => {}
        }
    }

    pub(super) fn synced(&mut self, file: BorrowedFd<'_>) {
        if let Some(node) = self.known(file) {
            self.changes.push(Change::Sync { node });
        }
    }

    pub(super) fn resized(&mut self, file: BorrowedFd<'_>, length: u64) {
        if let Some(file) = self.known(file) {
            self.changes.push(Change::Resize { file, length, shrinks: true });
        }
    }

    pub(super) fn allocated(&mut self, file: BorrowedFd<'_>, length: u64) {
        if let Some(file) = self.known(file) {
            self.changes.push(Change::Resize { file, length, shrinks: false });
        }
    }

    pub(super) fn written(&mut self, file: BorrowedFd<'_>, bytes: &[u8], offset: u64) {
        if let Some(file) = self.known(file) {
            self.changes.push(Change::Write { file, offset, bytes: bytes.to_vec() });
        }
    }

    pub(super) fn cloned(&mut self, file: BorrowedFd<'_>) {
        if let (Some(node), Ok(bytes)) = (self.known(file), fs::read(format!("/proc/self/fd/{}", file.as_raw_fd()))) {
            self.changes.push(Change::Clone { file: node, bytes });
        }
    }

    /// The bytes were written before the file's position, which is behind them.
    pub(super) fn appended(&mut self, file: BorrowedFd<'_>, bytes: &[u8]) {
        if let Ok(end) = rustix::fs::tell(file) {
            self.written(file, bytes, end.saturating_sub(bytes.len() as u64));
        }
    }
}

impl Loss {
    /// No change before this one is lost: the process was killed, or nothing happened.
    pub fn none(at: usize) -> Loss {
        Loss { at, ..Loss::default() }
    }
}

impl Recorded {
    /// How many changes were recorded.
    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    /// The states that a loss of power before the change of this number can leave: of the last `most` changes that are
    /// not safe any ones are lost, or one write by half; in addition the state without any change that is not safe,
    /// and those without what is not safe of the content of one file: names are often written earlier. The first is
    /// that of a killed process.
    pub fn losses(&self, at: usize, most: usize) -> Vec<Loss> {
        let unsafe_ones: Vec<usize> = (0..at).filter(|change| !self.is_safe(*change, at)).collect();
        let last = unsafe_ones.get(unsafe_ones.len().saturating_sub(most)..).unwrap_or_default();
        let mut losses = Vec::new();
        for chosen in 0..1_usize << last.len() {
            let is_chosen = |(bit, change): (usize, &usize)| (chosen >> bit & 1 == 1).then_some(*change);
            losses.push(Loss { at, lost: last.iter().enumerate().filter_map(is_chosen).collect(), torn: None });
        }
        if unsafe_ones.len() > last.len() {
            losses.push(Loss { at, lost: unsafe_ones.iter().copied().collect(), torn: None });
        }
        let mut contents: BTreeMap<Inode, BTreeSet<usize>> = BTreeMap::new();
        for change in &unsafe_ones {
            if let Some(Change::Write { file, .. } | Change::Resize { file, .. }) = self.changes.get(*change) {
                contents.entry(*file).or_default().insert(*change);
            }
        }
        // The others are among the last changes.
        contents.retain(|_, lost| lost.first() < last.first());
        losses.extend(contents.into_values().map(|lost| Loss { at, lost, torn: None }));
        let writes = last.iter().filter(|change| matches!(self.changes.get(**change), Some(Change::Write { .. })));
        losses.extend(writes.map(|write| Loss { at, lost: BTreeSet::new(), torn: Some(*write) }));
        losses
    }

    /// True if a loss of power before `at` cannot undo a change.
    fn is_safe(&self, change: usize, at: usize) -> bool {
        let affected = match self.changes.get(change) {
            Some(Change::Add { directory, .. } | Change::Remove { directory, .. }) => vec![*directory],
            Some(Change::Rename { from, to, .. }) => vec![from.0, to.0],
            Some(Change::Write { file, .. } | Change::Clone { file, .. } | Change::Resize { file, .. }) => vec![*file],
            Some(Change::Sync { .. }) | None => return true,
        };
        let later = self.changes.get(change..at).unwrap_or_default();
        later.iter().any(|later| matches!(later, Change::Sync { node } if affected.contains(node)))
    }

    /// Makes the state that is left, in a directory that does not exist.
    ///
    /// # Panics
    /// When a file cannot be made.
    pub fn make(&self, loss: &Loss, directory: &Path) {
        let tree = self.after(loss);
        tree.make(tree.root, directory, &mut BTreeMap::new());
    }

    /// What a loss has undone, for messages.
    pub fn describe(&self, loss: &Loss) -> String {
        let shown = |number: usize| {
            self.changes.get(number).map_or("the end".to_owned(), |change| format!("{number}: {change}"))
        };
        let lost: Vec<String> = loss.lost.iter().map(|number| shown(*number)).collect();
        let torn = loss.torn.map(|number| format!(", with half of {}", shown(number))).unwrap_or_default();
        format!("before {} of {}, without [{}]{torn}", shown(loss.at), self.changes.len(), lost.join("; "))
    }

    /// All changes, a line each, for messages.
    pub fn listed(&self) -> String {
        self.changes.iter().enumerate().map(|(number, change)| format!("{number}: {change}\n")).collect()
    }

    fn after(&self, loss: &Loss) -> Tree {
        let mut tree = self.before.clone();
        tree.nodes.extend(self.made.iter().map(|(inode, node)| (*inode, node.clone())));
        for (number, change) in self.changes.iter().enumerate().take(loss.at) {
            if !loss.lost.contains(&number) {
                tree.apply(change, loss.torn == Some(number));
            }
        }
        tree
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Add { name, .. } => write!(f, "new name {}", name.display()),
            Change::Remove { name, .. } => write!(f, "removal of {}", name.display()),
            Change::Rename { from, to, .. } => write!(f, "rename of {} to {}", from.1.display(), to.1.display()),
            Change::Write { offset, bytes, .. } => write!(f, "write of {} bytes at {offset}", bytes.len()),
            Change::Clone { bytes, .. } => write!(f, "clone of {} bytes", bytes.len()),
            Change::Resize { length, .. } => write!(f, "new size {length}"),
            Change::Sync { .. } => f.write_str("sync"),
        }
    }
}

#[allow(clippy::unwrap_used, clippy::panic, reason = "for tests")]
impl Tree {
    fn read(path: &Path, held: &mut Vec<OwnedFd>) -> Tree {
        let mut nodes = BTreeMap::new();
        let root = Tree::read_node(path, &mut nodes, held);
        Tree { root, nodes }
    }

    fn read_node(path: &Path, nodes: &mut BTreeMap<Inode, Node>, held: &mut Vec<OwnedFd>) -> Inode {
        let found = fs::symlink_metadata(path).unwrap();
        let inode = (found.dev(), found.ino());
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        held.push(rustix::fs::openat(CWD, path, flags, Mode::empty()).unwrap());
        let mode = found.mode();
        let node = if found.is_dir() {
            let mut names = BTreeMap::new();
            for entry in fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                names.insert(entry.file_name(), Tree::read_node(&entry.path(), nodes, held));
            }
            Node::Directory { names, mode }
        } else if found.is_symlink() {
            Node::Link(fs::read_link(path).unwrap().into_os_string())
        } else if found.is_file() {
            Node::File { bytes: fs::read(path).unwrap(), mode }
        } else {
            panic!("{}: only files, directories and links can be recorded", path.display());
        };
        nodes.insert(inode, node);
        inode
    }

    fn make(&self, inode: Inode, path: &Path, made: &mut BTreeMap<Inode, PathBuf>) {
        match &self.nodes[&inode] {
            Node::Directory { names, mode } => {
                fs::create_dir(path).unwrap();
                for (name, node) in names {
                    self.make(*node, &path.join(name), made);
                }
                fs::set_permissions(path, fs::Permissions::from_mode(*mode & 0o7777)).unwrap();
            }
            Node::Link(target) => symlink(target, path).unwrap(),
            Node::File { bytes, mode } => match made.get(&inode) {
                Some(first) => fs::hard_link(first, path).unwrap(),
                None => {
                    fs::write(path, bytes).unwrap();
                    fs::set_permissions(path, fs::Permissions::from_mode(*mode & 0o7777)).unwrap();
                    made.insert(inode, path.to_owned());
                }
            },
        }
    }

    /// Every path below the root and what is there.
    fn listed(&self) -> BTreeMap<PathBuf, Option<&Node>> {
        let mut listed = BTreeMap::new();
        let mut directories = vec![(PathBuf::new(), self.root)];
        while let Some((path, inode)) = directories.pop() {
            if let Some(Node::Directory { names, .. }) = self.nodes.get(&inode) {
                listed.insert(path.clone(), None);
                directories.extend(names.iter().map(|(name, node)| (path.join(name), *node)));
            } else {
                listed.insert(path, self.nodes.get(&inode));
            }
        }
        listed
    }

    fn names(&mut self, directory: Inode) -> Option<&mut BTreeMap<OsString, Inode>> {
        match self.nodes.get_mut(&directory)? {
            Node::Directory { names, .. } => Some(names),
            Node::File { .. } | Node::Link(_) => None,
        }
    }

    /// Where an earlier change was lost, a later one may have nothing to act on.
    fn apply(&mut self, change: &Change, torn: bool) {
        match change {
            Change::Add { directory, name, node } => {
                let Some(names) = self.names(*directory) else { return };
                names.insert(name.clone(), *node);
            }
            Change::Remove { directory, name } => {
                let Some(names) = self.names(*directory) else { return };
                names.remove(name);
            }
            Change::Rename { from, to, exchange } => {
                let Some(node) = self.names(from.0).and_then(|names| names.remove(&from.1)) else { return };
                let Some(replaced) = self.names(to.0).map(|names| names.insert(to.1.clone(), node)) else { return };
                if let (Some(other), true, Some(names)) = (replaced, *exchange, self.names(from.0)) {
                    names.insert(from.1.clone(), other);
                }
            }
            Change::Write { file, offset, bytes } => {
                let Some(Node::File { bytes: content, .. }) = self.nodes.get_mut(file) else { return };
                let bytes = if torn { &bytes[..bytes.len() / 2] } else { bytes.as_slice() };
                let start = usize::try_from(*offset).unwrap();
                let end = start + bytes.len();
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(bytes);
            }
            Change::Clone { file, bytes } => {
                let Some(Node::File { bytes: content, .. }) = self.nodes.get_mut(file) else { return };
                content.clone_from(bytes);
            }
            Change::Resize { file, length, shrinks } => {
                let Some(Node::File { bytes: content, .. }) = self.nodes.get_mut(file) else { return };
                let length = usize::try_from(*length).unwrap();
                content.resize(if *shrinks { length } else { length.max(content.len()) }, 0);
            }
            Change::Sync { .. } => {}
        }
    }
}
