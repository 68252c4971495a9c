//! A dataset in a directory.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use holdfast_model::OutputPath;

use super::outputs;
use crate::durable::{self, CreationMode, Durability, DurableError, Pending};
use crate::owned::SharedDirectory;
use crate::store::base_name::check_base_name;
use crate::store::dataset_files::{DatasetFiles, FoundFile, ListedFile, OpenDataset, StoredFile};
use crate::store::dataset_store::OutputOccupant;
use crate::store::staged::{Staged, StagedFile, StagedWriter};
use crate::{regular_file, temporary};

/// The plain files of a directory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PosixDataset {
    /// The path that the user knows.
    location: PathBuf,
    /// The path by which the files are accessed.
    through: PathBuf,
    /// The prefix directory, for files at output paths.
    prefix: PathBuf,
    durability: Durability,
    /// `through` leads to it, if the directory was opened.
    opened: Option<Arc<SharedDirectory>>,
}

impl PosixDataset {
    /// The dataset in a directory that a user or a request names, which need not exist. It is accessed by its path.
    pub fn at(directory: &Path) -> PosixDataset {
        PosixDataset::named(directory, Durability::Machine)
    }

    /// The files of a dataset in cache, whose directory only this user may write to.
    pub fn in_cache(directory: &Path) -> PosixDataset {
        PosixDataset::named(directory, Durability::Process)
    }

    fn named(directory: &Path, durability: Durability) -> PosixDataset {
        let prefix = match directory.parent() {
            Some(parent) if directory.file_name().is_some() => parent.to_owned(),
            _ => directory.join(".."),
        };
        let directory = directory.to_owned();
        PosixDataset { location: directory.clone(), through: directory, prefix, durability, opened: None }
    }

    /// The dataset in a directory of a store. It is accessed through the descriptor: a directory that is exchanged
    /// later has no effect.
    pub(super) fn opened(directory: SharedDirectory, prefix: &Path) -> PosixDataset {
        let through = PathBuf::from(format!("/proc/self/fd/{}", directory_number(&directory)));
        PosixDataset {
            location: directory.path().to_owned(),
            through,
            prefix: prefix.to_owned(),
            durability: Durability::Machine,
            opened: Some(Arc::new(directory)),
        }
    }

    /// The path of a file of the directory itself.
    fn inside(&self, name: &str) -> io::Result<PathBuf> {
        check_base_name(name).map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
        Ok(self.through.join(name))
    }

    /// As [`inside`](Self::inside), for a file that is written.
    fn target(&self, name: &str) -> Result<PathBuf, DurableError> {
        let refused = |source| DurableError::Io { action: "write", path: self.path_of(name), source };
        self.inside(name).map_err(refused)
    }

    /// The path of a file: in the directory if there is anything of this name, otherwise `None` if it is at the output
    /// path.
    fn found_inside(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<Option<PathBuf>> {
        let inside = self.inside(name)?;
        let is_missing =
            || matches!(fs::symlink_metadata(&inside), Err(error) if error.kind() == io::ErrorKind::NotFound);
        Ok((output_path.is_none() || !is_missing()).then_some(inside))
    }
}

impl PosixDataset {
    fn create_file(&self, name: &str) -> Result<PosixStagedFile, DurableError> {
        let (location, path) = (self.path_of(name), self.target(name)?);
        let mode = CreationMode::of_dataset(self.durability);
        let (pending, file) = Pending::create(&path, mode).map_err(|error| error.at(&location))?;
        let id = pending.temporary_path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let part = PosixWriter { file, durability: self.durability };
        let (durability, opened) = (self.durability, self.opened.clone());
        Ok(PosixStagedFile { part, pending, id, location, durability, _opened: opened })
    }
}

fn directory_number(directory: &SharedDirectory) -> i32 {
    use std::os::fd::AsFd as _;
    directory.as_fd().as_raw_fd()
}

impl DatasetFiles for PosixDataset {
    fn location(&self) -> &Path {
        &self.location
    }

    fn stored(&self) -> Arc<dyn OpenDataset> {
        Arc::new(self.clone())
    }

    fn list(&self) -> io::Result<Vec<ListedFile>> {
        let mut listed = Vec::new();
        for entry in fs::read_dir(&self.through)? {
            let entry = entry?;
            // A name that is no text is none of ours.
            let Some(name) =
                entry.file_name().to_str().filter(|name| !temporary::is_temporary(name)).map(str::to_owned)
            else {
                continue;
            };
            listed.push(ListedFile { name, is_regular: entry.file_type()?.is_file() });
        }
        Ok(listed)
    }

    fn examine(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<FoundFile> {
        match (self.found_inside(name, output_path)?, output_path) {
            (Some(path), _) => fs::symlink_metadata(path).map(|found| match found.is_file() {
                true => FoundFile::Regular(found.len()),
                false => FoundFile::Other,
            }),
            (None, None) => Err(io::ErrorKind::NotFound.into()),
            (None, Some(output_path)) => match outputs::examine(&self.prefix, output_path)? {
                OutputOccupant::Nothing => Err(io::ErrorKind::NotFound.into()),
                OutputOccupant::File { bytes, .. } => Ok(FoundFile::Regular(bytes)),
                OutputOccupant::Other => Ok(FoundFile::Other),
            },
        }
    }

    fn open(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<Box<dyn StoredFile>> {
        let file = match (self.found_inside(name, output_path)?, output_path) {
            (Some(path), _) => regular_file::open_no_link(&path)?,
            (None, None) => return Err(io::ErrorKind::NotFound.into()),
            (None, Some(output_path)) => outputs::open_file(&self.prefix, output_path)?,
        };
        Ok(Box::new(RegularFile::of(file)?))
    }
}

impl OpenDataset for PosixDataset {
    fn durability(&self) -> Durability {
        self.durability
    }

    fn create(&self, name: &str) -> Result<Box<dyn StagedFile>, DurableError> {
        Ok(Box::new(self.create_file(name)?))
    }

    fn abandoned(&self) -> io::Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.through)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(metadata) = entry.metadata() else { continue };
            if temporary::is_temporary(&name) && metadata.is_file() && temporary::is_abandoned(&name, &metadata) {
                found.push((name, metadata.len()));
            }
        }
        Ok(found)
    }

    fn take_over(&self, name: &str, abandoned: &str) -> Result<Option<Box<dyn StagedFile>>, DurableError> {
        let mut staged = self.create_file(name)?;
        // Under a name of this process it is not abandoned any more.
        let taken = self.inside(abandoned).and_then(|path| {
            let own = staged.pending.temporary_path();
            fs::rename(path, own)?;
            regular_file::open_writable(own)
        });
        match taken {
            Ok(file) => {
                staged.part.file = file;
                Ok(Some(Box::new(staged)))
            }
            Err(_) => Ok(None),
        }
    }

    fn attach(&self, id: &str) -> io::Result<Box<dyn StagedWriter>> {
        let file = regular_file::open_writable(&self.inside(id)?)?;
        Ok(Box::new(PosixWriter { file, durability: self.durability }))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), DurableError> {
        let path = self.target(name)?;
        let replaced = match self.durability {
            Durability::Process => durable::replace_unsynced(&path, bytes),
            Durability::Machine => durable::replace(&path, CreationMode::Umask, bytes),
        };
        replaced.map_err(|error| error.at(&self.path_of(name)))
    }

    fn remove(&self, names: &[&str]) -> Result<(), DurableError> {
        let mut removed = false;
        for name in names {
            let path = self.target(name)?;
            removed |= durable::remove_unsynced(&path).map_err(|error| error.at(&self.path_of(name)))?;
        }
        match self.durability {
            Durability::Machine if removed => {
                durable::sync_directory(&self.through).map_err(|error| error.at(&self.location))
            }
            _ => Ok(()),
        }
    }

    fn remove_staged(&self, which: Staged) -> io::Result<()> {
        match which {
            Staged::Abandoned => temporary::remove_abandoned(&self.through).map(drop),
            Staged::All => temporary::remove_all(&self.through),
        }
    }

    fn is_own(&self, name: &str) -> io::Result<bool> {
        Ok(fs::symlink_metadata(self.inside(name)?)?.uid() == rustix::process::geteuid().as_raw())
    }

    fn modified(&self, name: &str) -> io::Result<SystemTime> {
        fs::symlink_metadata(self.inside(name)?)?.modified()
    }

    fn block_bytes(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.through)?.blksize())
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
        self.file.write_all_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        match self.durability {
            Durability::Process => Ok(()),
            Durability::Machine => self.file.sync_all(),
        }
    }
}

/// A file under a temporary name.
#[derive(Debug)]
struct PosixStagedFile {
    part: PosixWriter,
    pending: Pending,
    id: String,
    location: PathBuf,
    durability: Durability,
    /// The path of `pending` leads through it, also after the dataset was closed: it is closed last.
    _opened: Option<Arc<SharedDirectory>>,
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
        &self.id
    }

    fn commit(self: Box<Self>) -> Result<(), DurableError> {
        let PosixStagedFile { pending, location, durability, .. } = *self;
        pending.commit_as(durability).map_err(|error| error.at(&location))
    }

    fn abandon(self: Box<Self>) {
        let own = self.pending.temporary_path();
        // If it cannot be renamed, it is removed.
        let _ = fs::rename(own, own.with_file_name(temporary::abandoned_name()));
    }

    fn commit_new(self: Box<Self>) -> Result<bool, DurableError> {
        let PosixStagedFile { pending, location, .. } = *self;
        pending.commit_new().map_err(|error| error.at(&location))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::owned::MissingDirectories;

    #[test]
    fn an_abandoned_file_is_taken_over_once_with_its_content_and_gets_its_name() {
        let scratch = tempfile::tempdir().unwrap();
        // The first process of the machine began at another time.
        let of_ended = format!("{}-1-1-0.tmp", temporary::name().rsplitn(4, '-').last().unwrap());
        fs::write(scratch.path().join(&of_ended), b"half").unwrap();
        let files = PosixDataset::at(scratch.path());
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
        let files = PosixDataset::at(scratch.path());
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
        let open = SharedDirectory::open(prefix.path(), [std::ffi::OsStr::new("plot")], MissingDirectories::Fail);
        let opened = PosixDataset::opened(open.unwrap(), prefix.path());
        for files in [&opened, &PosixDataset::at(&directory), &PosixDataset::at(&directory.join("."))] {
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
        let staged = |name| {
            let open = SharedDirectory::open(prefix.path(), [std::ffi::OsStr::new("plot")], MissingDirectories::Fail);
            PosixDataset::opened(open.unwrap(), prefix.path()).create(name).unwrap()
        };
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
        let open = SharedDirectory::open(prefix.path(), [std::ffi::OsStr::new("plot")], MissingDirectories::Fail);
        let dataset = PosixDataset::opened(open.unwrap(), prefix.path());
        let known = dataset.location().join("taken").display().to_string();
        assert_eq!(known, prefix.path().join("plot/taken").display().to_string());
        let errors = [dataset.create("taken").unwrap_err(), dataset.replace("taken", b"").unwrap_err()];
        assert!(errors.iter().all(|error| error.to_string().contains(&known)), "{errors:?}");
        let error = dataset.remove(&["taken"]).unwrap_err().to_string();
        assert!(error.contains(&known) && !error.contains("/proc/self"), "{error}");
    }
}
