//! The log beside a filemap file: what changed since the file was written.
//!
//! A filemap is one file with all entries, so that adding an entry means writing all of them: routing `n` files would
//! write `n²` entries. Instead each change is appended to the log with one write, in constant time, before it takes
//! effect. From time to time ([`FilemapLog::fold`]) the file is replaced by one that contains all changes, and an empty
//! log is started.
//!
//! The log is a sequence of hash files: a header, then one record per change. The header identifies the filemap file
//! that the changes belong to by its length and CRC32. A kill between the replacement of the file and the truncation of
//! the log is therefore harmless: the log belongs to another file and is ignored. A record that a kill or a full disk
//! has truncated was not acknowledged and is ignored, too.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::change::FilemapChange;
use super::map::Filemap;
use crate::control::{ContentError, ControlError, required};
use crate::durable::{self, DurableError};
use crate::kvtree::Tree;
use crate::kvtree::file::{self, HashFileError};
use crate::kvtree::limits::Limits;
use crate::{calls, io_count, regular_file};

const VERSION: &str = "FILEMAP_LOG";
const THIS_VERSION: u32 = 1;
const BYTES: &str = "FILEMAP_BYTES";
const CRC: &str = "FILEMAP_CRC";

/// Which filemap file a log belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Base {
    /// Its length; 0: there is none.
    bytes: u64,
    crc: u32,
}

impl Base {
    fn of(content: &[u8]) -> Self {
        Base { bytes: content.len() as u64, crc: crc32fast::hash(content) }
    }

    fn to_tree(self) -> Tree {
        let mut tree = Tree::new();
        tree.put(VERSION, THIS_VERSION);
        tree.put(BYTES, self.bytes);
        tree.put(CRC, self.crc);
        tree
    }

    fn from_tree(tree: &Tree) -> Result<Self, ContentError> {
        let version: u32 = required(tree, VERSION, "a version")?;
        if version != THIS_VERSION {
            let expected = "the version of this program";
            return Err(ContentError::Value { key: VERSION.to_owned(), value: version.to_string(), expected });
        }
        Ok(Base { bytes: required(tree, BYTES, "a length")?, crc: required(tree, CRC, "a CRC32")? })
    }
}

/// The filemap file that a log belongs to, and how much of the log is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    base: Base,
    /// The valid bytes of the log.
    length: u64,
    /// The bytes after them.
    ignored: u64,
}

impl LogPosition {
    /// An empty log that belongs to what `subject` identifies; see [`read_alone`].
    pub fn alone(subject: &[u8]) -> Self {
        LogPosition { base: Base::of(subject), ..LogPosition::default() }
    }

    /// True if the filemap file contains all changes.
    pub fn is_folded(self) -> bool {
        self.length == 0
    }

    /// Bytes of the log that are ignored: they belong to an older filemap file, or to a truncated record.
    pub fn ignored_bytes(self) -> u64 {
        self.ignored
    }
}

/// Reads a filemap file and the log beside it. A log without a file counts, too: the file is then still to be written.
///
/// # Errors
/// When neither is there, one cannot be read, or the file is no filemap.
pub fn read(path: &Path, log: &Path) -> Result<(Filemap, LogPosition), ControlError> {
    let content = read_bytes(path)?;
    let base = content.as_deref().map_or(Base::default(), Base::of);
    let map = match &content {
        Some(bytes) => {
            let (tree, _) = file::decode_within(bytes, Limits::of(path))
                .map_err(|source| HashFileError::Format { path: path.to_owned(), source })?;
            Filemap::from_tree(tree).map_err(|source| ControlError::Content { path: path.to_owned(), source })?
        }
        None => Filemap::new(),
    };
    let (map, position) = read_onto(map, base, log)?;
    if content.is_none() && position.length == 0 {
        return Err(HashFileError::Read { path: path.to_owned(), source: io::ErrorKind::NotFound.into() }.into());
    }
    Ok((map, position))
}

/// Reads a log that extends no filemap file: it belongs to what `subject` identifies, and counts for nothing else. One
/// that is missing is empty.
pub fn read_alone(log: &Path, subject: &[u8]) -> Result<(Filemap, LogPosition), ControlError> {
    read_onto(Filemap::new(), LogPosition::alone(subject).base, log)
}

/// Carries out on `map` what the log records, if it belongs to `base`.
fn read_onto(mut map: Filemap, base: Base, log: &Path) -> Result<(Filemap, LogPosition), ControlError> {
    let records = read_bytes(log)?.unwrap_or_default();
    let length =
        replay(&records, base, &mut map).map_err(|source| ControlError::Content { path: log.to_owned(), source })?;
    let length = length as u64;
    Ok((map, LogPosition { base, length, ignored: records.len() as u64 - length }))
}

/// Applies the changes that the log of this filemap file records; returns the number of valid bytes.
fn replay(records: &[u8], base: Base, map: &mut Filemap) -> Result<usize, ContentError> {
    let Ok((header, mut length)) = file::decode(records) else { return Ok(0) };
    if Base::from_tree(&header)? != base {
        return Ok(0);
    }
    while let Ok((record, bytes)) = file::decode(&records[length..]) {
        FilemapChange::from_tree(&record)?.apply(map);
        length += bytes;
    }
    Ok(length)
}

/// The filemap of these records behind a valid header.
#[cfg(any(test, fuzzing))]
pub(crate) fn replayed(records: &[u8]) -> Result<Filemap, ContentError> {
    let mut map = Filemap::new();
    let header = file::encode(&Base::default().to_tree());
    replay(&[header.as_slice(), records].concat(), Base::default(), &mut map)?;
    Ok(map)
}

fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, HashFileError> {
    let cannot_read = |source| HashFileError::Read { path: path.to_owned(), source };
    let file = match regular_file::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot_read(error)),
    };
    let mut bytes = Vec::new();
    let most = Limits::of(path).bytes;
    file.take(most + 1).read_to_end(&mut bytes).map_err(cannot_read)?;
    if bytes.len() as u64 > most {
        // If it were read in part, its last records would be ignored, and later truncated.
        return Err(cannot_read(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it is too large for a filemap or its log",
        )));
    }
    Ok(Some(bytes))
}

/// The log of a filemap, to append to.
#[derive(Debug)]
pub struct FilemapLog {
    pub path: PathBuf,
    pub position: LogPosition,
    /// Opened at the first change.
    file: Option<File>,
    /// The bytes after the position must be truncated before anything is appended.
    has_rest: bool,
}

impl FilemapLog {
    /// The log at `path`, at the position that [`read`] returned; the default position belongs to no filemap file.
    pub fn new(path: PathBuf, position: LogPosition) -> Self {
        FilemapLog { path, position, file: None, has_rest: true }
    }

    /// Appends a change. When this returns, the change survives the process.
    ///
    /// # Errors
    /// When it cannot be written; the change has then not been made.
    pub fn append(&mut self, change: &FilemapChange) -> Result<(), ControlError> {
        let mut bytes = match self.position.length {
            0 => file::encode(&self.position.base.to_tree()),
            _ => Vec::new(),
        };
        bytes.extend(file::packed(&self.path, &change.to_tree())?);
        let writing = |source| failed("write", &self.path, source);
        let file = match self.file.take() {
            Some(file) => file,
            None => regular_file::append(&self.path).map_err(writing)?,
        };
        if self.has_rest {
            calls::ftruncate(&file, self.position.length).map_err(io::Error::from).map_err(writing)?;
            self.position.ignored = 0;
        }
        io_count::written(bytes.len());
        let written = calls::write_all(&file, &bytes);
        // An incomplete record would hide the records after it.
        self.has_rest = written.is_err() && calls::ftruncate(&file, self.position.length).is_err();
        self.file = Some(file);
        written.map_err(|source| failed("write", &self.path, source))?;
        self.position.length += bytes.len() as u64;
        Ok(())
    }

    /// Replaces the filemap file at `path` by the content of `map`, and starts an empty log.
    ///
    /// # Errors
    /// When the file cannot be replaced; it and the log are then as they were.
    pub fn fold(&mut self, path: &Path, map: &Filemap) -> Result<(), ControlError> {
        let bytes = file::packed(path, map.tree())?;
        durable::replace_unsynced(path, &bytes).map_err(HashFileError::from)?;
        self.position = LogPosition { base: Base::of(&bytes), ..LogPosition::default() };
        // The log's records belong to the old file. If they cannot be removed now, they are removed before the next
        // change.
        self.has_rest = self.file.as_ref().is_none_or(|file| calls::ftruncate(file, 0).is_err());
        Ok(())
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> ControlError {
    HashFileError::Write(DurableError::Io { action, path: path.to_owned(), source }).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::filemap::RankChange;
    use holdfast_model::{CheckpointId, NodeName, Rank};
    use std::fs;

    const ID: CheckpointId = CheckpointId(3);
    const RANK: Rank = Rank(1);

    struct World {
        directory: tempfile::TempDir,
        map: Filemap,
        log: FilemapLog,
    }

    impl World {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let log = FilemapLog::new(directory.path().join("log"), LogPosition::default());
            World { directory, map: Filemap::new(), log }
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("filemap_0.scrinfo")
        }

        fn change(&mut self, change: RankChange) {
            let change = FilemapChange::of_rank(ID, RANK, change);
            if !change.is_void(&self.map) {
                self.log.append(&change).unwrap();
                change.apply(&mut self.map);
            }
        }

        fn fold(&mut self) {
            let path = self.path();
            self.log.fold(&path, &self.map).unwrap();
        }

        fn read(&self) -> (Filemap, LogPosition) {
            read(&self.path(), &self.log.path).unwrap()
        }

        /// The files have the expected content, and the log is at the expected position.
        fn check(&self) {
            assert_eq!(self.read(), (self.map.clone(), self.log.position));
        }
    }

    fn descriptor() -> Tree {
        let mut tree = Tree::new();
        tree.put("TYPE", "XOR");
        tree.put("GROUP_ID", 0);
        tree
    }

    fn every_change() -> Vec<RankChange> {
        vec![
            RankChange::SetDescriptor(descriptor()),
            RankChange::AddFile("/cache/a".to_owned()),
            RankChange::AddFile("/cache/b".to_owned()),
            RankChange::SetPartner(NodeName::from("node3")),
            RankChange::SetExpected(2),
            RankChange::RemoveFile("/cache/a".to_owned()),
            RankChange::UnsetExpected,
            RankChange::AddFile("/cache/a".to_owned()),
            RankChange::Remove,
        ]
    }

    #[test]
    fn every_change_is_read_back_in_the_order_of_its_elements_folded_or_not() {
        for fold_after in 0..=every_change().len() {
            let mut world = World::new();
            for (at, change) in every_change().into_iter().enumerate() {
                if at == fold_after {
                    world.fold();
                    assert!(world.log.position.is_folded());
                }
                world.change(change);
                world.check();
            }
            world.change(RankChange::AddFile("/cache/c".to_owned()));
            let removal = FilemapChange::remove_checkpoint(ID);
            world.log.append(&removal).unwrap();
            removal.apply(&mut world.map);
            world.check();
            assert!(world.map.is_empty() && removal.is_void(&world.map));
        }
    }

    #[test]
    fn a_change_costs_the_same_however_many_files_there_are() {
        let mut world = World::new();
        let mut lengths = Vec::new();
        for file in 10_000..12_000 {
            let before = world.log.position.length;
            world.change(RankChange::AddFile(format!("/cache/{file}")));
            lengths.push(world.log.position.length - before);
        }
        assert!(lengths[1..].iter().all(|length| *length == lengths[1]), "the log grows by one record a file");
        assert!(!world.path().exists(), "the filemap was written");
        world.change(RankChange::AddFile("/cache/10000".to_owned()));
        world.check();
    }

    #[test]
    fn a_truncated_record_is_ignored_and_overwritten_by_the_next() {
        let mut world = World::new();
        world.change(RankChange::AddFile("/cache/a".to_owned()));
        let (one, whole) = (world.map.clone(), world.log.position.length);
        world.change(RankChange::AddFile("/cache/b".to_owned()));
        let bytes = fs::read(&world.log.path).unwrap();
        for end in 0..bytes.len() {
            fs::write(&world.log.path, &bytes[..end]).unwrap();
            let Ok((found, position)) = read(&world.path(), &world.log.path) else {
                assert!((end as u64) < whole, "nothing was found in {end} bytes");
                continue;
            };
            let counts = if (end as u64) < whole { position.length } else { whole };
            assert_eq!((position.length, position.ignored), (counts, end as u64 - counts));
            assert!(end as u64 >= whole && found == one || found.is_empty(), "{end} bytes: {found:?}");
            let mut log = FilemapLog::new(world.log.path.clone(), position);
            let (mut map, change) =
                (found, FilemapChange::of_rank(ID, RANK, RankChange::AddFile("/cache/c".to_owned())));
            log.append(&change).unwrap();
            change.apply(&mut map);
            assert_eq!(read(&world.path(), &log.path).unwrap(), (map, log.position), "{end} bytes");
        }
    }

    #[test]
    fn a_log_of_an_older_filemap_is_ignored() {
        let mut world = World::new();
        world.change(RankChange::AddFile("/cache/a".to_owned()));
        world.change(RankChange::RemoveFile("/cache/a".to_owned()));
        world.change(RankChange::AddFile("/cache/b".to_owned()));
        let old = fs::read(&world.log.path).unwrap();
        world.fold();
        // As after a kill before the log was truncated.
        fs::write(&world.log.path, &old).unwrap();
        let (found, position) = world.read();
        assert_eq!(found, world.map);
        assert!(position.is_folded() && position.ignored_bytes() == old.len() as u64);
        let mut log = FilemapLog::new(world.log.path.clone(), position);
        let change = FilemapChange::of_rank(ID, RANK, RankChange::AddFile("/cache/c".to_owned()));
        log.append(&change).unwrap();
        change.apply(&mut world.map);
        assert_eq!(read(&world.path(), &log.path).unwrap().0, world.map);
    }

    #[test]
    fn an_unknown_record_is_an_error() {
        let mut world = World::new();
        world.change(RankChange::AddFile("/cache/a".to_owned()));
        let mut strange = Tree::new();
        strange.put("CKPT", 3);
        strange.put("CHANGE", "TURN_UPSIDE_DOWN");
        let mut bytes = fs::read(&world.log.path).unwrap();
        bytes.extend(file::encode(&strange));
        fs::write(&world.log.path, bytes).unwrap();
        let error = read(&world.path(), &world.log.path).unwrap_err().to_string();
        assert!(error.contains("TURN_UPSIDE_DOWN"), "{error}");
    }
}
