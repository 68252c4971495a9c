//! A store in memory, for tests: the least that another store can do.
//!
//! It has objects under paths, as an object storage does: no directories, no renames, no links, no locks. An object
//! appears whole or not at all. Index and current dataset are one object with a version, which a change replaces only
//! if it still has the version that the change began with. A step can be chosen at which its user dies.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use holdfast_model::OutputPath;

use super::dataset_files::{DatasetFiles, FoundFile, ListedFile, OpenDataset, StoredFile};
use super::dataset_store::{
    DatasetAccess, DatasetOccupant, DatasetStore, Occupied, OutputDirectory, OutputOccupant, RecordsChange, Removal,
    Taken,
};
use super::directory_name::DirectoryName;
use super::error::PrefixError;
use super::staged::{Staged, StagedFile, StagedWriter};
use crate::durable::{Durability, DurableError};
use crate::kvtree::Tree;
use crate::kvtree::file;

/// The payload of the panic with which the user of a store dies.
#[derive(Debug)]
struct Killed;

#[derive(Clone, Debug)]
pub struct MemoryStore {
    location: PathBuf,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Clone, Debug, Default)]
struct Shared {
    /// By path; that of a dataset itself ends with a slash.
    objects: BTreeMap<String, Vec<u8>>,
    /// Files that are not committed, by dataset and id.
    staged: BTreeMap<(String, String), StagedObject>,
    index: Option<Tree>,
    current: Option<DirectoryName>,
    version: u64,
    next_id: u64,
    /// Counts the users that died: what an earlier one staged is abandoned.
    life: u64,
    /// Steps until the user dies.
    left: Option<u64>,
    dead: bool,
}

#[derive(Clone, Debug, Default)]
struct StagedObject {
    bytes: Vec<u8>,
    life: u64,
}

impl Shared {
    /// A change is about to be made. The user dies before it, if it was chosen.
    fn step(&mut self) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.dead = true;
            }
        }
        if self.dead {
            resume_unwind(Box::new(Killed));
        }
    }

    fn put(&mut self, path: String, bytes: Vec<u8>) {
        self.step();
        self.objects.insert(path, bytes);
    }

    fn remove(&mut self, path: &str) {
        if self.objects.contains_key(path) {
            self.step();
            self.objects.remove(path);
        }
    }

    fn has_below(&self, directory: &str) -> bool {
        self.objects.range(directory.to_owned()..).next().is_some_and(|(path, _)| path.starts_with(directory))
    }
}

impl MemoryStore {
    pub fn new() -> MemoryStore {
        MemoryStore { location: PathBuf::from("/memory"), shared: Arc::default() }
    }

    /// A store with the content of a prefix directory; `None` if it has something that only a file system can hold.
    pub fn copy_of(prefix: &Path) -> Option<MemoryStore> {
        let mut shared = Shared::default();
        copy_directory(prefix, "", &mut shared)?;
        Some(MemoryStore { location: prefix.to_owned(), shared: Arc::new(Mutex::new(shared)) })
    }

    /// Another store with the same content, whose user lives.
    pub fn fork(&self) -> MemoryStore {
        let mut shared = self.lock().clone();
        (shared.life, shared.left, shared.dead) = (shared.life + 1, None, false);
        MemoryStore { location: self.location.clone(), shared: Arc::new(Mutex::new(shared)) }
    }

    /// The user dies at the `nth` change from now, counted from 1.
    fn arm(&self, nth: u64) {
        self.lock().left = Some(nth);
    }

    /// Does this work in forks, whose users are killed at the first, second, … change, until one ends before. `check`
    /// gets the store that each leaves behind, the number of the change, and whether the work ended before it. Returns
    /// the number of users that were killed.
    pub fn killed_at_each_instant(
        &self,
        work: impl Fn(&MemoryStore),
        mut check: impl FnMut(&MemoryStore, u64, bool),
    ) -> u64 {
        let mut instant = 1;
        loop {
            let killed = self.fork();
            killed.arm(instant);
            let ended = match catch_unwind(AssertUnwindSafe(|| work(&killed))) {
                Ok(()) => true,
                Err(panic) if panic.is::<Killed>() => false,
                Err(panic) => resume_unwind(panic),
            };
            check(&killed.fork(), instant, ended);
            if ended {
                return instant - 1;
            }
            instant += 1;
        }
    }

    /// All files by path, with the records as a prefix directory has them.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let shared = self.lock();
        let mut files = shared.objects.clone();
        files.retain(|path, _| !path.ends_with('/'));
        files.extend(shared.index.as_ref().map(|index| ("index.scr".to_owned(), file::encode(index))));
        files.extend(shared.current.as_ref().map(|name| ("scr.current".to_owned(), name.as_str().into())));
        files
    }

    /// The files that were never committed.
    pub fn staged(&self) -> usize {
        self.lock().staged.len()
    }

    pub fn put(&self, path: &str, bytes: &[u8]) {
        self.lock().put(path.to_owned(), bytes.to_vec());
    }

    /// Removes an object, or all below a directory.
    pub fn take_away(&self, path: &str) {
        let below = format!("{path}/");
        self.lock().objects.retain(|known, _| known != path && !known.starts_with(&below));
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overtaken(&self) -> PrefixError {
        PrefixError::Overtaken { location: self.location.clone() }
    }

    fn dataset(&self, name: &DirectoryName) -> MemoryDataset {
        MemoryDataset { store: self.clone(), name: name.as_str().to_owned(), location: self.path_of(name) }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

fn copy_directory(from: &Path, path: &str, shared: &mut Shared) -> Option<()> {
    for entry in fs::read_dir(from).ok()? {
        let entry = entry.ok()?;
        let (name, kind) = (entry.file_name().into_string().ok()?, entry.file_type().ok()?);
        match (path, name.as_str()) {
            ("", ".holdfast") => {}
            ("", "index.scr") => shared.index = Some(file::read(&entry.path()).ok()?),
            ("", "scr.current") => {
                let target = fs::read_link(entry.path()).ok()?;
                shared.current = Some(DirectoryName::new(target.to_str()?).ok()?);
            }
            _ if kind.is_dir() => {
                let directory = format!("{path}{name}/");
                copy_directory(&entry.path(), &directory, shared)?;
                if path.is_empty() {
                    shared.objects.insert(directory, Vec::new());
                }
            }
            _ if kind.is_file() => {
                shared.objects.insert(format!("{path}{name}"), fs::read(entry.path()).ok()?);
            }
            _ => return None,
        }
    }
    Some(())
}

impl DatasetStore for MemoryStore {
    fn location(&self) -> &Path {
        &self.location
    }

    fn index(&self) -> Result<Option<Tree>, PrefixError> {
        Ok(self.lock().index.clone())
    }

    fn current(&self) -> Result<Option<DirectoryName>, PrefixError> {
        Ok(self.lock().current.clone())
    }

    fn begin_change(&self) -> Result<Box<dyn RecordsChange + '_>, PrefixError> {
        let version = self.lock().version;
        Ok(Box::new(MemoryChange { store: self, version }))
    }

    fn occupant(&self, name: &DirectoryName) -> io::Result<DatasetOccupant> {
        let shared = self.lock();
        Ok(match shared.objects.contains_key(&format!("{name}/")) {
            true => DatasetOccupant::Dataset,
            false if shared.objects.contains_key(name.as_str()) => DatasetOccupant::Other,
            false => DatasetOccupant::Nothing,
        })
    }

    fn names(&self) -> io::Result<Vec<DirectoryName>> {
        let shared = self.lock();
        let names = shared.objects.keys().filter_map(|path| path.strip_suffix('/'));
        Ok(names.filter_map(|name| DirectoryName::new(name).ok()).collect())
    }

    fn modified(&self, _: &DirectoryName) -> io::Result<SystemTime> {
        Ok(SystemTime::now())
    }

    fn create(&self, name: &DirectoryName) -> Result<bool, PrefixError> {
        let mut shared = self.lock();
        let directory = format!("{name}/");
        if shared.has_below(&directory) || shared.objects.contains_key(name.as_str()) {
            return Ok(false);
        }
        shared.put(directory, Vec::new());
        Ok(true)
    }

    fn open(&self, name: &DirectoryName, access: DatasetAccess) -> Result<Arc<dyn OpenDataset>, PrefixError> {
        match self.occupant(name) {
            Ok(DatasetOccupant::Dataset) => {}
            Ok(DatasetOccupant::Nothing) if access == DatasetAccess::Create => {
                self.create(name)?;
            }
            _ => {
                let missing = PrefixError::io("open the dataset", self.path_of(name), "give the name of another one");
                return Err(missing(io::ErrorKind::NotFound.into()));
            }
        }
        Ok(Arc::new(self.dataset(name)))
    }

    fn delete(&self, name: &DirectoryName) -> Result<Removal, PrefixError> {
        let directory = format!("{name}/");
        self.lock().remove(&directory);
        let store = self.clone();
        Ok(Removal::new(move || {
            let mut shared = store.lock();
            let left: Vec<String> =
                shared.objects.keys().filter(|path| path.starts_with(&directory)).cloned().collect();
            left.iter().for_each(|path| shared.remove(path));
            Ok(())
        }))
    }

    fn remove_if_empty(&self, name: &DirectoryName) {
        let mut shared = self.lock();
        let directory = format!("{name}/");
        if !shared.objects.keys().any(|path| path.starts_with(&directory) && *path != directory) {
            shared.remove(&directory);
        }
    }

    fn output_directory(&self, path: &OutputPath) -> io::Result<Option<Box<dyn OutputDirectory + '_>>> {
        self.create_output_directory(path).map(Some)
    }

    fn create_output_directory(&self, path: &OutputPath) -> io::Result<Box<dyn OutputDirectory + '_>> {
        let directory = path.as_str().strip_suffix(path.base_name()).unwrap_or_default().to_owned();
        Ok(Box::new(MemoryOutputs { store: self, directory }))
    }

    fn remove_empty_directories(&self, _: &OutputPath) {}
}

#[derive(Debug)]
struct MemoryChange<'a> {
    store: &'a MemoryStore,
    version: u64,
}

impl MemoryChange<'_> {
    fn unchanged(&self) -> Result<MutexGuard<'_, Shared>, PrefixError> {
        let shared = self.store.lock();
        if shared.version == self.version { Ok(shared) } else { Err(self.store.overtaken()) }
    }

    fn swap(&mut self, change: impl FnOnce(&mut Shared)) -> Result<(), PrefixError> {
        let mut shared = self.unchanged()?;
        shared.step();
        change(&mut shared);
        shared.version += 1;
        let version = shared.version;
        drop(shared);
        self.version = version;
        Ok(())
    }
}

impl RecordsChange for MemoryChange<'_> {
    fn index(&self) -> Result<Option<Tree>, PrefixError> {
        Ok(self.unchanged()?.index.clone())
    }

    fn current(&self) -> Result<Option<DirectoryName>, PrefixError> {
        Ok(self.unchanged()?.current.clone())
    }

    fn set_index(&mut self, index: &Tree) -> Result<(), PrefixError> {
        self.swap(|shared| shared.index = Some(index.clone()))
    }

    fn set_current(&mut self, current: &DirectoryName) -> Result<(), PrefixError> {
        self.swap(|shared| shared.current = Some(current.clone()))
    }

    fn remove_current(&mut self) -> Result<bool, PrefixError> {
        let had = self.current()?.is_some();
        if had {
            self.swap(|shared| shared.current = None)?;
        }
        Ok(had)
    }
}

#[derive(Debug)]
struct MemoryOutputs<'a> {
    store: &'a MemoryStore,
    directory: String,
}

impl OutputDirectory for MemoryOutputs<'_> {
    fn occupant(&self, name: &str) -> io::Result<OutputOccupant> {
        let (shared, path) = (self.store.lock(), format!("{}{name}", self.directory));
        Ok(match shared.objects.get(&path) {
            Some(object) => OutputOccupant::File { bytes: object.len() as u64, own: true },
            None if shared.has_below(&format!("{path}/")) => OutputOccupant::Other,
            None => OutputOccupant::Nothing,
        })
    }

    fn take(&self, dataset: &DirectoryName, name: &str, occupied: Occupied) -> io::Result<Taken> {
        let (from, to) = (format!("{dataset}/{name}"), format!("{}{name}", self.directory));
        let mut shared = self.store.lock();
        let bytes = shared.objects.get(&from).cloned().ok_or(io::ErrorKind::NotFound)?;
        let is_other = shared.objects.get(&to).is_some_and(|there| *there != bytes);
        if occupied == Occupied::Keep && (is_other || shared.has_below(&format!("{to}/"))) {
            return Ok(Taken::Kept);
        }
        shared.put(to, bytes);
        shared.remove(&from);
        Ok(Taken::Moved)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.store.lock().remove(&format!("{}{name}", self.directory));
        Ok(())
    }

    fn sync(&self, _: Option<&DirectoryName>) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct MemoryDataset {
    store: MemoryStore,
    name: String,
    location: PathBuf,
}

impl MemoryDataset {
    fn object(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }

    fn bytes(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<Vec<u8>> {
        let shared = self.store.lock();
        let inside = shared.objects.get(&self.object(name));
        let found = inside.or_else(|| shared.objects.get(output_path?.as_str()));
        Ok(found.cloned().ok_or(io::ErrorKind::NotFound)?)
    }
}

impl DatasetFiles for MemoryDataset {
    fn location(&self) -> &Path {
        &self.location
    }

    fn stored(&self) -> Arc<dyn OpenDataset> {
        Arc::new(self.clone())
    }

    fn list(&self) -> io::Result<Vec<ListedFile>> {
        let (shared, directory) = (self.store.lock(), self.object(""));
        let names = shared.objects.keys().filter_map(|path| path.strip_prefix(&directory));
        let files = names.filter(|name| !name.is_empty() && !name.contains('/'));
        Ok(files.map(|name| ListedFile { name: name.to_owned(), is_regular: true }).collect())
    }

    fn examine(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<FoundFile> {
        Ok(FoundFile::Regular(self.bytes(name, output_path)?.len() as u64))
    }

    fn open(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<Box<dyn StoredFile>> {
        Ok(Box::new(MemoryFile(self.bytes(name, output_path)?)))
    }
}

impl OpenDataset for MemoryDataset {
    fn durability(&self) -> Durability {
        Durability::Machine
    }

    fn create(&self, name: &str) -> Result<Box<dyn StagedFile>, DurableError> {
        let mut shared = self.store.lock();
        shared.next_id += 1;
        let (id, life) = (format!("staged-{}", shared.next_id), shared.life);
        shared.staged.insert((self.name.clone(), id.clone()), StagedObject { bytes: Vec::new(), life });
        drop(shared);
        Ok(Box::new(MemoryStaged { dataset: self.clone(), id, name: Some(name.to_owned()) }))
    }

    fn attach(&self, id: &str) -> io::Result<Box<dyn StagedWriter>> {
        let key = (self.name.clone(), id.to_owned());
        match self.store.lock().staged.contains_key(&key) {
            true => Ok(Box::new(MemoryStaged { dataset: self.clone(), id: id.to_owned(), name: None })),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), DurableError> {
        self.store.lock().put(self.object(name), bytes.to_vec());
        Ok(())
    }

    fn remove(&self, names: &[&str]) -> Result<(), DurableError> {
        let mut shared = self.store.lock();
        names.iter().for_each(|name| shared.remove(&self.object(name)));
        Ok(())
    }

    fn remove_staged(&self, which: Staged) -> io::Result<()> {
        let mut shared = self.store.lock();
        let life = shared.life;
        let is_left = |object: &StagedObject| which == Staged::All || object.life < life;
        shared.staged.retain(|(dataset, _), object| *dataset != self.name || !is_left(object));
        Ok(())
    }

    fn is_own(&self, _name: &str) -> io::Result<bool> {
        Ok(true)
    }

    fn modified(&self, _: &str) -> io::Result<SystemTime> {
        Ok(SystemTime::now())
    }

    fn block_bytes(&self) -> io::Result<u64> {
        Ok(1)
    }
}

#[derive(Debug)]
struct MemoryFile(Vec<u8>);

impl StoredFile for MemoryFile {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..length), rest.get(..length)) {
            to.copy_from_slice(from);
        }
        Ok(length)
    }
}

/// A file that is not committed; with a name, if this process created it.
#[derive(Debug)]
struct MemoryStaged {
    dataset: MemoryDataset,
    id: String,
    name: Option<String>,
}

impl MemoryStaged {
    fn key(&self) -> (String, String) {
        (self.dataset.name.clone(), self.id.clone())
    }

    /// Gives it its name, if that is free or may be replaced.
    fn name_it(mut self, replace: bool) -> bool {
        let (key, name) = (self.key(), self.name.take().unwrap_or_default());
        let path = self.dataset.object(&name);
        let mut shared = self.dataset.store.lock();
        if !replace && shared.objects.contains_key(&path) {
            shared.staged.remove(&key);
            return false;
        }
        shared.step();
        let object = shared.staged.remove(&key).unwrap_or_default();
        shared.objects.insert(path, object.bytes);
        true
    }
}

impl StagedWriter for MemoryStaged {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut shared = self.dataset.store.lock();
        let object = shared.staged.get_mut(&self.key()).ok_or(io::ErrorKind::NotFound)?;
        let begin = usize::try_from(offset).map_err(io::Error::other)?;
        let end = begin.saturating_add(bytes.len());
        if object.bytes.len() < end {
            object.bytes.resize(end, 0);
        }
        if let Some(to) = object.bytes.get_mut(begin..end) {
            to.copy_from_slice(bytes);
        }
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let shared = self.dataset.store.lock();
        let object = shared.staged.get(&self.key()).ok_or(io::ErrorKind::NotFound)?;
        let file: &dyn StoredFile = &MemoryFile(object.bytes.clone());
        file.read_exact_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl StagedFile for MemoryStaged {
    fn id(&self) -> &str {
        &self.id
    }

    fn commit(self: Box<Self>) -> Result<(), DurableError> {
        self.name_it(true);
        Ok(())
    }

    fn commit_new(self: Box<Self>) -> Result<bool, DurableError> {
        Ok(self.name_it(false))
    }
}

impl Drop for MemoryStaged {
    fn drop(&mut self) {
        let mut shared = self.dataset.store.lock();
        // A dead process removes nothing.
        if self.name.is_some() && !shared.dead {
            let key = (self.dataset.name.clone(), self.id.clone());
            shared.staged.remove(&key);
        }
    }
}
