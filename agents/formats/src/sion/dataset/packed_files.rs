//! The files of a dataset's directory, packed and plain.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use holdfast_core::prefix::inspect::{Completeness, inspect};
use holdfast_core::prefix::scan::{ScanOptions, scan};
use holdfast_core::store::{DatasetFiles, FoundFile, ListedFile, OpenDataset, StoredFile};
use holdfast_model::{OutputPath, Rank};

use super::super::container::TaskStream;
use super::super::error::SionError;
use super::super::fault::Fault;
use super::super::header::KeyValue;
use super::super::key_value::RECORD_HEADER;
use super::super::physical_file::PhysicalFile;
use super::super::slot::{Slot, part_name, part_path, place};
use super::contents::{Contents, ContentsEntry, ContentsError};
use super::names::{container_name, containers, meta_name};

/// Opens the files of a dataset's directory: those in its containers, and plain ones. A
/// [`DatasetOpener`](holdfast_core::store::DatasetOpener).
pub fn open(dataset: Arc<dyn OpenDataset>) -> io::Result<Arc<dyn DatasetFiles>> {
    let listing = Listing::of(&*dataset)?;
    let sets = containers(listing.names());
    if sets.is_empty() {
        return Ok(dataset);
    }
    let (mut opened, mut damaged, mut without_first) = (Vec::new(), Vec::new(), Vec::new());
    // An application can give its files such names.
    let present: HashSet<&str> = listing.names().collect();
    let is_rank_file = |name: &str| present.contains(meta_name(name).as_str());
    let mut parts = HashSet::new();
    for (number, set) in sets.into_iter().rev() {
        let further = set.range(1..).map(|(_, name)| *name).filter(|name| !is_rank_file(name));
        parts.extend(further.clone().map(str::to_owned));
        let Some(name) = set.get(&0) else {
            let Some(name) = further.map(str::to_owned).next() else { continue };
            let problem = format!("the first file of its set, {}, is missing", container_name(number));
            let is_newest = opened.is_empty();
            if is_newest { &mut damaged } else { &mut without_first }.push((name, problem));
            continue;
        };
        match OpenContainer::open_in(&dataset, name) {
            Ok(container) => opened.push(Arc::new(container)),
            Err(_) if is_rank_file(name) => continue,
            Err(error) => damaged.push(((*name).to_owned(), error.to_string())),
        }
        parts.insert((*name).to_owned());
    }
    let plain_names = listing.0.into_iter().filter(|file| !parts.contains(&file.name));
    let plain_names = plain_names.map(|file| (file.name, file.is_regular)).collect();
    Ok(Arc::new(PackedFiles { dataset, plain_names, containers: opened, damaged, without_first }))
}

/// True if the directory has all files of all ranks that meta files, file maps and the summary list. Their contents are
/// not read.
pub(super) fn is_complete(dataset: &Arc<dyn OpenDataset>) -> bool {
    let options = ScanOptions { open, ..ScanOptions::default() };
    scan(dataset, options).is_ok_and(|found| inspect(&found).completeness == Completeness::Complete)
}

/// The names in a directory.
pub(super) struct Listing(Vec<ListedFile>);

impl Listing {
    pub(super) fn of(dataset: &dyn OpenDataset) -> io::Result<Listing> {
        Ok(Listing(dataset.list()?))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|file| file.name.as_str())
    }
}

/// Those of the files in a container of which the physical file can be used.
pub(super) fn usable_in(dataset: &Arc<dyn OpenDataset>, name: &str) -> HashSet<String> {
    let Ok(container) = OpenContainer::open_in(dataset, name) else { return HashSet::new() };
    let usable = container.contents.files.iter().filter(|(_, entry)| container.has_part_of(entry.rank));
    usable.map(|(name, _)| name.clone()).collect()
}

/// The files in a container; `None` if it cannot be read.
pub(super) fn contents_of(dataset: &Arc<dyn OpenDataset>, name: &str) -> Option<HashMap<String, ContentsEntry>> {
    Some(OpenContainer::open_in(dataset, name).ok()?.contents.files)
}

/// Why a container is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContainerError {
    #[error(transparent)]
    Sion(#[from] SionError),
    #[error(transparent)]
    Contents(#[from] ContentsError),
    #[error("it has no mapping of ranks to tasks, or no table of contents")]
    NotOurs,
}

/// A container of a dataset. Its first file and the one with the table of contents are read when it is opened, the
/// others when a file in them is needed: a node that fetches its ranks opens few of them.
#[derive(Debug)]
pub(super) struct OpenContainer {
    /// The first file.
    path: PathBuf,
    source: PartSource,
    parts: Vec<OnceLock<Result<PhysicalFile, String>>>,
    /// Of each rank, and of the table of contents.
    places: Vec<Slot>,
    pub(super) contents: Contents,
}

/// Where the physical files of a container are.
#[derive(Clone, Debug)]
enum PartSource {
    /// At the path that the user gave, and beside it.
    Path(PathBuf),
    /// In a dataset, with this name of the first one.
    Dataset(Arc<dyn OpenDataset>, String),
}

impl PartSource {
    fn path(&self, number: u32) -> PathBuf {
        match self {
            PartSource::Path(path) => part_path(path, number),
            PartSource::Dataset(dataset, name) => dataset.path_of(&part_name(name, number)),
        }
    }

    fn open(&self, number: u32) -> Result<PhysicalFile, SionError> {
        match self {
            PartSource::Path(path) => PhysicalFile::open(&part_path(path, number)),
            PartSource::Dataset(dataset, name) => PhysicalFile::open_in(&**dataset, &part_name(name, number)),
        }
    }
}

impl OpenContainer {
    /// Opens a container that the user named, also by a link.
    pub(super) fn open(path: &Path) -> Result<OpenContainer, ContainerError> {
        OpenContainer::open_from(PartSource::Path(path.to_owned()))
    }

    /// Opens a container in the directory of a dataset. As for its plain files, links are not followed.
    pub(super) fn open_in(dataset: &Arc<dyn OpenDataset>, name: &str) -> Result<OpenContainer, ContainerError> {
        OpenContainer::open_from(PartSource::Dataset(Arc::clone(dataset), name.to_owned()))
    }

    fn open_from(source: PartSource) -> Result<OpenContainer, ContainerError> {
        let first = source.open(0)?;
        let header = &first.header;
        let files = header.files;
        if header.key_value != KeyValue::Inline || !header.belongs(0, files) {
            return Err(ContainerError::NotOurs);
        }
        let places: Vec<Slot> = match first.mapping().unwrap_or_default() {
            [] if files == 1 => (0..header.tasks()).map(|local| Slot { part: 0, local }).collect(),
            entries => {
                entries.iter().map(|entry| Slot::of(*entry)).collect::<Option<_>>().ok_or(ContainerError::NotOurs)?
            }
        };
        // The number of files is not larger than that of the tasks in the mapping, which is in the file.
        let parts =
            usize::try_from(files).ok().filter(|files| *files <= places.len()).ok_or(ContainerError::NotOurs)?;
        let ranks = places.len().checked_sub(1).and_then(|ranks| u32::try_from(ranks).ok());
        let ranks = ranks.ok_or(ContainerError::NotOurs)?;
        let mut container = OpenContainer {
            path: source.path(0),
            source,
            parts: (0..parts).map(|_| OnceLock::new()).collect(),
            places,
            contents: Contents::default(),
        };
        if let Some(slot) = container.parts.first() {
            // It is empty.
            let _ = slot.set(Ok(first));
        }
        let contents = container.stream(ranks, RECORD_HEADER).map_err(ContentsError::Lost)?;
        let mut reader = BufReader::with_capacity(1 << 18, contents);
        container.contents = Contents::read(&container.path, &mut reader, ranks)?;
        Ok(container)
    }

    fn part(&self, number: usize) -> Result<&PhysicalFile, String> {
        let slot = self.parts.get(number).ok_or("its mapping names a file that the set does not have")?;
        let files = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let part = slot.get_or_init(|| {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let part = self.source.open(number).map_err(|error| error.to_string())?;
            let header = &part.header;
            if header.belongs(number, files) && header.key_value == KeyValue::Inline {
                Ok(part)
            } else {
                Err(format!("{} is a file of another set", part.path.display()))
            }
        });
        part.as_ref().map_err(Clone::clone)
    }

    /// The stream of a rank from an offset on, or after the last rank the table of contents.
    fn stream(&self, rank: u32, offset: u64) -> Result<TaskStream<'_>, String> {
        let task = usize::try_from(rank).unwrap_or(usize::MAX);
        let Slot { part, local } = *self.places.get(task).ok_or("its mapping lacks the rank")?;
        let part = self.part(part)?;
        if part.header.global_ranks.get(local).copied() != Some(i64::from(rank)) {
            let stored = part.header.global_ranks.get(local).copied().unwrap_or(-1);
            let fault = Fault::MappingRank { rank: rank.into(), stored };
            return Err(SionError::damaged(&part.path)(fault).to_string());
        }
        Ok(TaskStream::at(part, local, offset))
    }

    /// The stream of a rank, if it has the length that the table of contents records.
    fn checked_stream(&self, rank: Rank, offset: u64) -> Result<TaskStream<'_>, String> {
        let stream = self.stream(rank.0, offset)?;
        let (stored, recorded) = (stream.length, self.contents.streams.get(&rank).copied().unwrap_or(0));
        match stored == recorded {
            true => Ok(stream),
            false => Err(format!(
                "{}: the stream of rank {rank} has {stored} bytes, the table of contents records {recorded}",
                stream.path().display()
            )),
        }
    }

    /// The parts that cannot be used. One without files of a rank is included.
    pub(super) fn damaged_parts(&self) -> Vec<DamagedPart> {
        let mut ranks: BTreeMap<usize, Vec<Rank>> = (0..self.parts.len()).map(|part| (part, Vec::new())).collect();
        for rank in self.contents.streams.keys() {
            if let Some(Slot { part, .. }) = self.places.get(task_of(*rank)) {
                ranks.entry(*part).or_default().push(*rank);
            }
        }
        let damaged = ranks.into_iter().filter_map(|(number, ranks)| {
            let problem = self.part(number).err()?;
            let path = self.source.path(u32::try_from(number).unwrap_or(u32::MAX));
            let name = place(&path);
            Some(DamagedPart { name, problem, ranks })
        });
        damaged.collect()
    }

    /// True if the physical file with the stream of a rank can be used.
    fn has_part_of(&self, rank: Rank) -> bool {
        self.places.get(task_of(rank)).is_some_and(|place| self.part(place.part).is_ok())
    }

    fn find(&self, name: &str) -> Option<ContentsEntry> {
        self.contents.files.get(name).copied()
    }
}

/// A physical file that cannot be used.
pub(super) struct DamagedPart {
    pub(super) name: String,
    pub(super) problem: String,
    /// The ranks whose files are in it.
    pub(super) ranks: Vec<Rank>,
}

fn task_of(rank: Rank) -> usize {
    usize::try_from(rank.0).unwrap_or(usize::MAX)
}

/// The files of a directory with containers.
#[derive(Debug)]
pub(super) struct PackedFiles {
    dataset: Arc<dyn OpenDataset>,
    /// Whether each is a regular file.
    plain_names: HashMap<String, bool>,
    /// Newest first.
    containers: Vec<Arc<OpenContainer>>,
    damaged: Vec<(String, String)>,
    without_first: Vec<(String, String)>,
}

impl PackedFiles {
    /// The files of one container, whatever is beside it.
    pub(super) fn of_container(dataset: Arc<dyn OpenDataset>, container: Arc<OpenContainer>) -> PackedFiles {
        PackedFiles {
            dataset,
            plain_names: HashMap::new(),
            containers: vec![container],
            damaged: Vec::new(),
            without_first: Vec::new(),
        }
    }

    /// A file that is not there may be in a container that cannot be used.
    fn missing(&self, error: io::Error) -> io::Error {
        match self.damaged.first().or(self.without_first.first()) {
            Some((name, problem)) if error.kind() == io::ErrorKind::NotFound => {
                io::Error::new(error.kind(), format!("it is in no file that can be used: {name}: {problem}"))
            }
            _ => error,
        }
    }

    /// The container that has this file: the newest of which the physical file can be used, or else the newest. `None`
    /// if it is a plain file, or there is none.
    fn packed(&self, name: &str) -> Option<(&Arc<OpenContainer>, ContentsEntry)> {
        if self.plain_names.contains_key(name) {
            return None;
        }
        let mut with_file = self.containers.iter().filter_map(|container| Some((container, container.find(name)?)));
        let newest = with_file.next()?;
        let is_usable =
            |(container, entry): &(&Arc<OpenContainer>, ContentsEntry)| container.checked_stream(entry.rank, 0).is_ok();
        if is_usable(&newest) {
            return Some(newest);
        }
        Some(with_file.find(is_usable).unwrap_or(newest))
    }
}

fn unreadable(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

impl DatasetFiles for PackedFiles {
    fn location(&self) -> &Path {
        self.dataset.location()
    }

    fn stored(&self) -> Arc<dyn OpenDataset> {
        Arc::clone(&self.dataset)
    }

    fn list(&self) -> io::Result<Vec<ListedFile>> {
        let plain = self.plain_names.iter().map(|(name, is_regular)| (name.clone(), *is_regular));
        let mut listed: HashMap<String, bool> = plain.collect();
        for container in &self.containers {
            for (name, entry) in &container.contents.files {
                // Those of a lost part are missing: the part is reported once.
                if container.has_part_of(entry.rank) {
                    listed.entry(name.clone()).or_insert(true);
                }
            }
        }
        Ok(listed.into_iter().map(|(name, is_regular)| ListedFile { name, is_regular }).collect())
    }

    fn examine(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<FoundFile> {
        match self.packed(name) {
            None => self.dataset.examine(name, output_path).map_err(|error| self.missing(error)),
            Some((container, entry)) => {
                container.checked_stream(entry.rank, 0).map_err(unreadable)?;
                Ok(FoundFile::Regular(entry.bytes))
            }
        }
    }

    fn open(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<Box<dyn StoredFile>> {
        match self.packed(name) {
            None => self.dataset.open(name, output_path).map_err(|error| self.missing(error)),
            Some((container, entry)) => Ok(Box::new(PackedContent::open(container, name, entry)?)),
        }
    }

    fn is_packed(&self, name: &str) -> bool {
        !self.plain_names.contains_key(name) && self.containers.iter().any(|container| container.find(name).is_some())
    }

    fn damaged_containers(&self) -> Vec<(String, String)> {
        let parts = self.containers.iter().flat_map(|container| container.damaged_parts());
        let parts = parts.filter(|part| !part.ranks.is_empty());
        let parts = parts.map(|DamagedPart { name, problem, .. }| (name, problem));
        self.damaged.iter().cloned().chain(parts).collect()
    }

    fn containers_without_first_file(&self) -> Vec<(String, String)> {
        self.without_first.clone()
    }
}

/// A file in a container.
#[derive(Debug)]
pub(super) struct PackedContent {
    container: Arc<OpenContainer>,
    entry: ContentsEntry,
}

impl PackedContent {
    pub(super) fn open(container: &Arc<OpenContainer>, name: &str, entry: ContentsEntry) -> io::Result<PackedContent> {
        let before = entry.offset.saturating_sub(RECORD_HEADER);
        let mut stream = container.checked_stream(entry.rank, before).map_err(unreadable)?;
        let mut header = [[0_u8; 8]; 2];
        stream.read_exact(header.as_flattened_mut())?;
        let order = stream.part.header.byte_order;
        let [key, length] = header.map(|bytes| order.u64(bytes));
        if (key, length) != (entry.key, entry.bytes) {
            let path = stream.path().display();
            let problem = format!("{path}: the record of {name} is not the one that the table of contents records");
            return Err(unreadable(problem));
        }
        Ok(PackedContent { container: Arc::clone(container), entry })
    }
}

impl StoredFile for PackedContent {
    fn length(&self) -> u64 {
        self.entry.bytes
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let ContentsEntry { rank, offset: begin, bytes, .. } = self.entry;
        let left = usize::try_from(bytes.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        let mut stream = self.container.stream(rank.0, begin.saturating_add(offset)).map_err(unreadable)?;
        stream.read(buffer.get_mut(..left).unwrap_or_default())
    }
}
