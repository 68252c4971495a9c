//! A dataset in a directory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast_model::OutputPath;
use rustix::fs::{FileType, OFlags, Stat};

use super::outputs;
use crate::calls::{self, fstat};
use crate::durable::{self, CreationMode, Durability, DurableError, Pending, Target};
use crate::owned::{MissingDirectories, OwnedError, SharedDirectory};
use crate::store::base_name::check_base_name;
use crate::store::dataset_files::{DatasetFiles, FoundFile, ListedFile, OpenDataset, StoredFile};
use crate::store::dataset_store::OutputOccupant;
use crate::store::staged::{Staged, StagedFile, StagedWriter};
use crate::store::stall;
use crate::temporary;

/// The plain files of an open directory: one that is exchanged later has no effect. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PosixDataset {
    directory: Arc<SharedDirectory>,
    /// For files at output paths. None are there for datasets in cache.
    prefix: Option<Arc<SharedDirectory>>,
    durability: Durability,
}

impl PosixDataset {
    /// The dataset in a directory that a user names on the command line.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn at(directory: &Path) -> io::Result<PosixDataset> {
        let above = match directory.parent() {
            Some(above) if directory.file_name().is_some() && !above.as_os_str().is_empty() => above.to_owned(),
            _ => directory.join(".."),
        };
        let (directory, prefix) = (open(directory)?, open(&above)?);
        Ok(PosixDataset { directory, prefix: Some(prefix), durability: Durability::Machine })
    }

    /// The dataset in a directory of the cache, which only this user may write to.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn in_cache(directory: &Path) -> io::Result<PosixDataset> {
        Ok(PosixDataset { directory: open(directory)?, prefix: None, durability: Durability::Process })
    }

    /// The dataset in a directory of a store.
    pub(super) fn opened(directory: SharedDirectory, prefix: &Arc<SharedDirectory>) -> PosixDataset {
        let (directory, prefix) = (Arc::new(directory), Some(prefix.clone()));
        PosixDataset { directory, prefix, durability: Durability::Machine }
    }

    /// A name of the directory itself, for a file that is written.
    fn target(&self, name: &str) -> Result<Target, DurableError> {
        match inside(name) {
            Ok(name) => Ok(Target::inside(&self.directory, name)),
            Err(source) => Err(DurableError::Io { action: "write", path: self.path_of(name), source }),
        }
    }

    fn staged(&self, (pending, file): (Pending, File)) -> PosixStagedFile {
        PosixStagedFile { part: PosixWriter { file, durability: self.durability }, pending }
    }

    /// What has this name in the directory itself.
    fn found(&self, name: &str) -> io::Result<Stat> {
        Ok(self.directory.examine(inside(name)?)?.ok_or(io::ErrorKind::NotFound)?)
    }

    /// The prefix directory, if the file is at its output path: nothing in the directory has its name.
    fn outside<'a>(
        &self,
        name: &str,
        output_path: Option<&'a OutputPath>,
    ) -> io::Result<Option<(&SharedDirectory, &'a OutputPath)>> {
        match (&self.prefix, output_path) {
            (Some(prefix), Some(path)) if self.directory.examine(inside(name)?)?.is_none() => Ok(Some((prefix, path))),
            _ => Ok(None),
        }
    }
}

fn open(directory: &Path) -> io::Result<Arc<SharedDirectory>> {
    Ok(Arc::new(SharedDirectory::open(directory, [], MissingDirectories::Fail).map_err(OwnedError::plain)?))
}

/// The name of a file of the directory itself.
fn inside(name: &str) -> io::Result<&str> {
    check_base_name(name).map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
    Ok(name)
}

fn is_regular(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
}

/// The time of the last change.
pub(super) fn modified(found: &Stat) -> SystemTime {
    let nanoseconds = u32::try_from(found.st_mtime_nsec).unwrap_or_default();
    match u64::try_from(found.st_mtime) {
        Ok(seconds) => SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds),
        Err(_) => SystemTime::UNIX_EPOCH,
    }
}

impl DatasetFiles for PosixDataset {
    fn location(&self) -> &Path {
        self.directory.path()
    }

    fn stored(&self) -> Arc<dyn OpenDataset> {
        Arc::new(self.clone())
    }

    fn list(&self) -> io::Result<Vec<ListedFile>> {
        let mut listed = Vec::new();
        for (name, file_type) in calls::entries(&self.directory)? {
            // A name that is no text is none of ours.
            let Some(name) = name.to_str().filter(|name| !temporary::is_temporary(name)) else { continue };
            let is_regular = match file_type {
                // It may have been removed since.
                FileType::Unknown => self.directory.examine(name)?.is_some_and(|found| is_regular(&found)),
                known => known == FileType::RegularFile,
            };
            listed.push(ListedFile { name: name.to_owned(), is_regular });
        }
        Ok(listed)
    }

    fn examine(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<FoundFile> {
        match self.outside(name, output_path)? {
            None => match self.found(name)? {
                found if is_regular(&found) => Ok(FoundFile::Regular(u64::try_from(found.st_size).unwrap_or_default())),
                _ => Ok(FoundFile::Other),
            },
            Some((prefix, output_path)) => match outputs::examine(prefix, output_path)? {
                OutputOccupant::Nothing => Err(io::ErrorKind::NotFound.into()),
                OutputOccupant::File { bytes, .. } => Ok(FoundFile::Regular(bytes)),
                OutputOccupant::Other => Ok(FoundFile::Other),
            },
        }
    }

    fn open(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<Box<dyn StoredFile>> {
        if self.durability == Durability::Machine {
            stall::wait();
        }
        let file = match self.outside(name, output_path)? {
            None => self.directory.open_file(inside(name)?, OFlags::RDONLY)?,
            Some((prefix, output_path)) => outputs::open_file(prefix, output_path)?,
        };
        Ok(Box::new(RegularFile::of(file)?))
    }
}

impl OpenDataset for PosixDataset {
    fn durability(&self) -> Durability {
        self.durability
    }

    fn create(&self, name: &str) -> Result<Box<dyn StagedFile>, DurableError> {
        Ok(Box::new(self.staged(Pending::create(self.target(name)?, CreationMode::of_dataset(self.durability))?)))
    }

    fn abandoned(&self) -> io::Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for name in calls::names(&self.directory)? {
            let Some(name) = name.to_str().filter(|name| temporary::is_temporary(name)) else { continue };
            let Some(file) = self.directory.examine(name)? else { continue };
            if is_regular(&file) && temporary::is_abandoned(name, &file) {
                found.push((name.to_owned(), u64::try_from(file.st_size).unwrap_or_default()));
            }
        }
        Ok(found)
    }

    fn take_over(&self, name: &str, abandoned: &str) -> Result<Option<Box<dyn StagedFile>>, DurableError> {
        let (target, abandoned) = (self.target(name)?, self.target(abandoned)?);
        let taken = Pending::take_over(target, CreationMode::of_dataset(self.durability), &abandoned)?;
        Ok(taken.map(|taken| Box::new(self.staged(taken)) as Box<dyn StagedFile>))
    }

    fn attach(&self, id: &str) -> io::Result<Box<dyn StagedWriter>> {
        let file = self.directory.open_file(inside(id)?, OFlags::RDWR)?;
        Ok(Box::new(PosixWriter { file, durability: self.durability }))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), DurableError> {
        match self.durability {
            Durability::Process => durable::replace_unsynced(self.target(name)?, bytes),
            Durability::Machine => durable::replace(self.target(name)?, CreationMode::Umask, bytes),
        }
    }

    fn remove(&self, names: &[&str]) -> Result<(), DurableError> {
        let mut removed = false;
        for name in names {
            removed |= durable::remove_unsynced(self.target(name)?)?;
        }
        match self.durability {
            Durability::Machine if removed => calls::sync_directory(&self.directory).map_err(|errno| {
                let (action, path) = ("synchronise the directory", self.location().to_owned());
                DurableError::Io { action, path, source: errno.into() }
            }),
            _ => Ok(()),
        }
    }

    fn remove_staged(&self, which: Staged) -> io::Result<()> {
        match which {
            Staged::Abandoned => temporary::remove_abandoned(&self.directory).map(drop),
            Staged::All => temporary::remove_all(&self.directory),
        }
    }

    fn is_own(&self, name: &str) -> io::Result<bool> {
        Ok(self.found(name)?.st_uid == rustix::process::geteuid().as_raw())
    }

    fn modified(&self, name: &str) -> io::Result<SystemTime> {
        Ok(modified(&self.found(name)?))
    }

    fn block_bytes(&self) -> io::Result<u64> {
        Ok(u64::try_from(fstat(&self.directory)?.st_blksize).unwrap_or_default())
    }
}

/// An open regular file.
#[derive(Debug)]
pub struct RegularFile {
    pub file: File,
    length: u64,
}

impl RegularFile {
    pub fn of(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(RegularFile { file, length })
    }
}

impl StoredFile for RegularFile {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
}

#[derive(Debug)]
struct PosixWriter {
    file: File,
    durability: Durability,
}

impl StagedWriter for PosixWriter {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.durability == Durability::Machine {
            stall::wait();
        }
        calls::write_all_at(&self.file, bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        match self.durability {
            Durability::Process => Ok(()),
            Durability::Machine => Ok(calls::fsync(&self.file)?),
        }
    }
}

/// A file under a temporary name.
#[derive(Debug)]
struct PosixStagedFile {
    part: PosixWriter,
    pending: Pending,
}

impl StagedWriter for PosixStagedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.part.write_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.part.read_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.part.sync()
    }
}

impl StagedFile for PosixStagedFile {
    fn id(&self) -> &str {
        self.pending.temporary_name()
    }

    fn commit(self: Box<Self>) -> Result<(), DurableError> {
        self.pending.commit(self.part.durability)
    }

    fn abandon(self: Box<Self>) {
        self.pending.abandon();
    }

    fn commit_new(self: Box<Self>) -> Result<bool, DurableError> {
        self.pending.commit_new()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;

    use super::*;

    /// The dataset `plot`.
    fn dataset_in(prefix: &Path) -> PosixDataset {
        let prefix = open(prefix).unwrap();
        let directory = prefix.below([std::ffi::OsStr::new("plot")], MissingDirectories::Fail);
        PosixDataset::opened(directory.unwrap(), &prefix)
    }

    #[test]
    fn an_abandoned_file_is_taken_over_once_with_its_content_and_gets_its_name() {
        let scratch = tempfile::tempdir().unwrap();
        // The first process of the machine began at another time.
        let of_ended = format!("{}-1-1-0.tmp", temporary::name().rsplitn(4, '-').last().unwrap());
        fs::write(scratch.path().join(&of_ended), b"half").unwrap();
        let files = PosixDataset::at(scratch.path()).unwrap();
        let (running, left) = (files.create("b").unwrap(), files.create("c").unwrap());
        left.write_at(b"left", 0).unwrap();
        left.abandon();
        let left = files.abandoned().unwrap().into_iter().find(|(name, _)| *name != of_ended).unwrap();
        assert!(files.take_over("c", &left.0).unwrap().is_some() && left.1 == 4);
        assert_eq!(files.abandoned().unwrap(), [(of_ended.clone(), 4)]);
        let staged = files.take_over("a", &of_ended).unwrap().unwrap();
        assert!(files.take_over("a", &of_ended).unwrap().is_none() && files.abandoned().unwrap().is_empty());
        staged.write_at(b" and half", 4).unwrap();
        staged.commit().unwrap();
        drop(running);
        let left: Vec<_> = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!((left, fs::read(scratch.path().join("a")).unwrap()), (vec!["a".into()], b"half and half".to_vec()));
    }

    #[test]
    fn plain_files_are_listed_examined_and_read_and_nothing_else_is_opened() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("a"), b"content").unwrap();
        fs::create_dir(scratch.path().join("b")).unwrap();
        std::os::unix::fs::symlink("a", scratch.path().join("c")).unwrap();
        fs::write(scratch.path().join(".hf-0-1-2-3.tmp"), b"").unwrap();
        let files = PosixDataset::at(scratch.path()).unwrap();
        let mut listed = files.list().unwrap();
        listed.sort_by(|one, next| one.name.cmp(&next.name));
        let listed: Vec<_> = listed.iter().map(|file| (file.name.as_str(), file.is_regular)).collect();
        assert_eq!(listed, [("a", true), ("b", false), ("c", false)]);
        assert_eq!(files.examine("a", None).unwrap(), FoundFile::Regular(7));
        assert_eq!(files.examine("c", None).unwrap(), FoundFile::Other);
        assert_eq!(files.examine("d", None).unwrap_err().kind(), io::ErrorKind::NotFound);
        for other in ["b", "c", "d", "../a"] {
            assert!(files.open(other, None).is_err(), "{other}");
        }
        let file = files.open("a", None).unwrap();
        let (mut part, mut all) = ([0; 3], Vec::new());
        file.read_exact_at(&mut part, 2).unwrap();
        file.reader().read_to_end(&mut all).unwrap();
        assert_eq!((&part, all.as_slice(), file.length()), (b"nte", b"content".as_slice(), 7));
        assert!(file.read_exact_at(&mut part, 5).is_err());
    }

    #[test]
    fn a_file_is_found_in_the_directory_of_its_dataset_or_else_at_its_path() {
        let prefix = tempfile::tempdir().unwrap();
        let directory = prefix.path().join("plot");
        fs::create_dir(&directory).unwrap();
        let there = OutputPath::parse("out/a").unwrap();
        fs::create_dir(prefix.path().join("out")).unwrap();
        fs::write(prefix.path().join("out/a"), "content").unwrap();
        let opened = dataset_in(prefix.path());
        for files in [&opened, &PosixDataset::at(&directory).unwrap(), &PosixDataset::at(&directory.join(".")).unwrap()]
        {
            assert_eq!(files.examine("a", Some(&there)).unwrap(), FoundFile::Regular(7));
            assert_eq!(files.open("a", Some(&there)).unwrap().length(), 7);
            assert!(files.examine("a", None).is_err());
        }
        fs::write(directory.join("a"), "inside").unwrap();
        assert_eq!(opened.examine("a", Some(&there)).unwrap(), FoundFile::Regular(6));
        fs::remove_file(directory.join("a")).unwrap();
        std::os::unix::fs::symlink("elsewhere", directory.join("a")).unwrap();
        assert_eq!(opened.examine("a", Some(&there)).unwrap(), FoundFile::Other, "a link in its place is not passed");
    }

    #[test]
    fn a_staged_file_outlives_its_dataset() {
        let prefix = tempfile::tempdir().unwrap();
        let directory = prefix.path().join("plot");
        fs::create_dir(&directory).unwrap();
        let staged = |name| dataset_in(prefix.path()).create(name).unwrap();
        let (dropped, committed) = (staged("a"), staged("b"));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        drop(dropped);
        committed.commit().unwrap();
        let names: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["b"]);
    }

    #[test]
    fn errors_name_the_path_that_the_user_knows() {
        let prefix = tempfile::tempdir().unwrap();
        fs::create_dir_all(prefix.path().join("plot/taken")).unwrap();
        let dataset = dataset_in(prefix.path());
        let known = dataset.location().join("taken").display().to_string();
        assert_eq!(known, prefix.path().join("plot/taken").display().to_string());
        let errors = [dataset.create("taken").unwrap_err(), dataset.replace("taken", b"").unwrap_err()];
        assert!(errors.iter().all(|error| error.to_string().contains(&known)), "{errors:?}");
        let error = dataset.remove(&["taken"]).unwrap_err().to_string();
        assert!(error.contains(&known) && !error.contains("/proc/self"), "{error}");
    }
}
