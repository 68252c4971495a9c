//! The checkpoint files of one rank on this node: in cache, or in the prefix directory if they bypass the cache.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_core::control::ControlError;
use holdfast_core::control::meta::{FileKind, Meta};
use holdfast_core::prefix::application_name::{ApplicationNameError, LONGEST_APPLICATION_PATH, check_application_name};
use holdfast_core::prefix::new_directory::longest_name_bytes;
use holdfast_core::prefix::outputs;
use holdfast_core::prefix::summary::{self, Summary, SummaryFile};
use holdfast_core::redundancy::registry::is_redundancy_file;
use holdfast_core::redundancy::{descriptor, partner};
use holdfast_core::regular_file;
use holdfast_core::store::{self, DirectoryName, PrefixError};
use holdfast_model::{CheckpointId, OutputPath, OutputPathError, Rank};
use holdfast_wire::rank::{GroupPlace, RestartFile, RestartFiles};

use crate::state::memory::{Direct, Remembered};
use crate::store::{Store, StoreError};

/// Why a file cannot be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A checkpoint with a file of this name could not be completed, or not be read again.
    #[error("a checkpoint file cannot have the name {}: {problem}", quoted(name))]
    Name { name: String, problem: ApplicationNameError },
    /// A path that file systems do not accept, in cache or below the prefix directory.
    #[error(
        "the path of the checkpoint file {} below {} has {bytes} bytes, and {LONGEST_APPLICATION_PATH} are allowed",
        quoted(name),
        directory.display()
    )]
    LongPath { name: String, directory: PathBuf, bytes: usize },
    /// A rank uses our library in a run of LLNL's library.
    #[error(
        "the job has `checkpoint: {{source: scr-files}}`, for programs that use LLNL's library, and this program uses \
         Holdfast's: write `source: scr`"
    )]
    OtherLibrary,
    /// A rank uses the API in a run without checkpoints.
    #[error(
        "the job has `checkpoint: {{source: none}}`, and this program uses the checkpoint API: write `source: scr`"
    )]
    NoSource,
    /// Two ranks write one file, which in cache belongs to one of them.
    #[error("ranks {first} and {second} both write a file {name}, but in cache each file belongs to one rank")]
    Shared { name: String, first: Rank, second: Rank },
    /// A file of an output cannot have the path that the application named.
    #[error(
        "the file {} of an output cannot be below the prefix directory {}: {problem}",
        quoted(name),
        prefix.display()
    )]
    OutputPath { name: String, prefix: PathBuf, problem: OutputPathError },
    /// The path of a file of an output belongs to another dataset.
    #[error(transparent)]
    Taken(#[from] PrefixError),
    #[error("the directory of {} cannot be used: {source}", path.display())]
    OutputDirectory { path: PathBuf, source: io::Error },
    #[error("the file {name} could not be recorded: {source}")]
    Record { name: String, source: ControlError },
    /// The files of other ranks.
    #[error("the files of the checkpoint to restart from cannot be listed: {0}")]
    Unlisted(PrefixError),
    /// A file that is to be read is not there.
    #[error("rank {rank} cannot read its file {}: {source}", path.display())]
    Unreadable { rank: Rank, path: PathBuf, source: std::io::Error },
}

/// The files that a rank restarts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutBack {
    pub directory: PathBuf,
    /// Their base names, in the order in which they were made.
    pub files: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct RankFiles<'a> {
    pub rank: Rank,
    pub store: &'a Store,
    pub memory: &'a Remembered,
    /// The prefix directory, to which the file may be flushed.
    pub prefix: &'a Path,
    /// The job id, which is part of the name of each directory below the prefix.
    pub job_id: &'a str,
}

impl RankFiles<'_> {
    /// Records a file that is to be written; returns its path.
    ///
    /// # Errors
    /// When a checkpoint with such a file could not be completed, the file belongs to another rank of this node, or it
    /// cannot be recorded.
    pub fn add(&self, checkpoint: CheckpointId, named: &str) -> Result<PathBuf, FileError> {
        // Only the last component counts, as in SCR 1, except for the files of outputs.
        let name = named.rsplit('/').next().unwrap_or_default();
        let refused = |problem| FileError::Name { name: name.to_owned(), problem };
        check_application_name(name).map_err(refused)?;
        let output_path = self.output_path(checkpoint, named)?;
        self.check_path_length(checkpoint, name, output_path.as_ref())?;
        let record = |source| FileError::Record { name: name.to_owned(), source };
        if let Some(direct) = &self.memory.read().direct {
            let Some(output_path) = output_path else {
                self.memory.add_direct_file(checkpoint, self.rank, name).map_err(record)?;
                return Ok(direct.directory.join(name));
            };
            self.memory.add_direct_file(checkpoint, self.rank, output_path.as_str()).map_err(record)?;
            let path = self.prefix.join(output_path.as_str());
            let unusable = |source| FileError::OutputDirectory { path: path.clone(), source };
            let store = store::open(self.prefix).map_err(io::Error::other);
            store.and_then(|store| store.create_output_directory(&output_path).map(drop)).map_err(unusable)?;
            return Ok(path);
        }
        // Refused now if the other rank is on this node; otherwise when the checkpoint is completed.
        if let Some(first) = self.store.writer(checkpoint, name).filter(|other| *other != self.rank) {
            return Err(FileError::Shared { name: name.to_owned(), first, second: self.rank });
        }
        let path = self.store.add_file(checkpoint, self.rank, self.rank, name)?;
        if output_path.is_some() {
            // The path survives the loss of this agent with the file.
            let (file, kind, rank) = (name.to_owned(), FileKind::Full, self.rank);
            let (size, ranks, complete, crc) = (0, 0, false, None);
            let meta = Meta { file, kind, size, checkpoint, rank, ranks, complete, crc, output_path };
            meta.write_unsynced(&path).map_err(record)?;
        }
        Ok(path)
    }

    /// Where a file of an output belongs below the prefix directory; `None` if the dataset is no output.
    fn output_path(&self, checkpoint: CheckpointId, named: &str) -> Result<Option<OutputPath>, FileError> {
        let descriptions = self.store.descriptions.read()?;
        let Some(dataset) = descriptions.get(&checkpoint).filter(|dataset| dataset.output) else { return Ok(None) };
        let real = fs::canonicalize(self.prefix);
        let prefixes: Vec<&Path> = std::iter::once(self.prefix).chain(real.as_deref().ok()).collect();
        let refused =
            |problem| FileError::OutputPath { name: named.to_owned(), prefix: self.prefix.to_owned(), problem };
        let output_path = OutputPath::of_name(named, &prefixes).map_err(refused)?;
        // Without a prefix directory there is no other output.
        if let Ok(store) = store::open(self.prefix) {
            let own = dataset.direct.as_deref().and_then(|directory| DirectoryName::new(directory).ok());
            let name = dataset.name.as_deref();
            let replaced = outputs::check_path(&*store, own.as_ref(), checkpoint, name, &output_path)?;
            if own.is_some() {
                // The rank writes over these files before its output is complete.
                outputs::place::give_up(&*store, &replaced)?;
            }
        }
        Ok(Some(output_path))
    }

    /// The file and its meta file have a path here, and one below the prefix directory after a flush.
    fn check_path_length(
        &self,
        checkpoint: CheckpointId,
        name: &str,
        output_path: Option<&OutputPath>,
    ) -> Result<(), FileError> {
        if let Some(output_path) = output_path {
            let bytes = self.prefix.as_os_str().len() + "/".len() + output_path.as_str().len();
            if bytes > LONGEST_APPLICATION_PATH {
                let (name, directory) = (output_path.to_string(), self.prefix.to_owned());
                return Err(FileError::LongPath { name, directory, bytes });
            }
        }
        let here = self.directory(checkpoint)?;
        let longest_name = longest_name_bytes(self.job_id);
        let flushed = self.prefix.as_os_str().len() + "/".len() + longest_name;
        for (directory, directory_bytes) in [(here.as_path(), here.as_os_str().len()), (self.prefix, flushed)] {
            let bytes = directory_bytes + "/".len() + name.len();
            if bytes > LONGEST_APPLICATION_PATH {
                let (name, directory) = (name.to_owned(), directory.to_owned());
                return Err(FileError::LongPath { name, directory, bytes });
            }
        }
        Ok(())
    }

    /// The directory of the rank's files.
    ///
    /// # Errors
    /// When the checkpoint was not started here.
    pub fn directory(&self, checkpoint: CheckpointId) -> Result<PathBuf, FileError> {
        match &self.memory.read().direct {
            Some(direct) => Ok(direct.directory.clone()),
            None => Ok(self.store.rank_directory(checkpoint, self.rank)?),
        }
    }

    /// The rank's place in its group, if the scheme of the checkpoint keeps copies of its files on another node.
    pub fn mirrored(&self, checkpoint: CheckpointId) -> Option<GroupPlace> {
        let described = descriptor::from_tree(&self.store.descriptor(checkpoint, self.rank)?).ok()?;
        let place = GroupPlace { group: described.group_id, size: described.group_size, index: described.group_rank };
        (described.descriptor.scheme == partner::NAME).then_some(place)
    }

    /// The rank's files without redundancy files.
    ///
    /// # Errors
    /// When the checkpoint is not here.
    pub fn written(&self, checkpoint: CheckpointId) -> Result<PutBack, FileError> {
        if let Some(direct) = &self.memory.read().direct {
            let files = direct.files.get(&self.rank).cloned().unwrap_or_default();
            return Ok(PutBack { directory: direct.directory.clone(), files });
        }
        let directory = self.store.rank_directory(checkpoint, self.rank)?;
        // The filemap lists the newest first, the redundancy file included.
        let mut files = self.store.files(checkpoint, self.rank);
        files.retain(|name| !is_redundancy_file(name));
        files.reverse();
        Ok(PutBack { directory, files })
    }

    /// The files of the checkpoint to restart from that the rank can read: its own, unless another number of ranks than
    /// the `running` ones wrote them.
    ///
    /// # Errors
    /// When the checkpoint is not here, or its summary cannot be read.
    pub fn restart_files(&self, checkpoint: CheckpointId, running: u32) -> Result<RestartFiles, FileError> {
        if let Some(direct) = &self.memory.read().direct
            && let Some(ranks) = direct.written_by
        {
            let summary = summary_in(direct)?;
            let ranks_with_files = (0..ranks).map(Rank);
            let files = ranks_with_files.flat_map(|rank| {
                // The summary lists the newest first.
                let mut files: Vec<RestartFile> = summary
                    .to_fetch(rank)
                    .map(|file| RestartFile { name: listed_name(file).to_owned(), rank })
                    .collect();
                files.reverse();
                files
            });
            return Ok(RestartFiles { ranks, files: files.collect() });
        }
        let own = self.written(checkpoint)?.files.into_iter();
        let files = own.map(|name| RestartFile { name, rank: self.rank }).collect();
        Ok(RestartFiles { ranks: running, files })
    }

    /// The path of a file that is to be read, if it can be opened: that of the rank with this base name, or, if another
    /// number of ranks wrote the checkpoint, that of any rank.
    pub fn readable(&self, checkpoint: CheckpointId, named: &str, base_name: &str) -> Result<PathBuf, FileError> {
        let path = match &self.memory.read().direct {
            Some(direct) if direct.written_by.is_some() && self.store.descriptions.is_output(checkpoint)? => {
                let summary = summary_in(direct)?;
                let mut files = summary.by_rank.values().flat_map(|rank| &rank.files).filter(|file| file.fetch);
                match files.find(|file| listed_name(file) == named).and_then(|file| file.output_path.as_ref()) {
                    Some(path) => direct.prefix().join(path.as_str()),
                    None => direct.directory.join(base_name),
                }
            }
            Some(direct) => direct.path(self.rank, base_name),
            None => self.store.rank_directory(checkpoint, self.rank)?.join(base_name),
        };
        match regular_file::open(&path) {
            Ok(_) => Ok(path),
            Err(source) => Err(FileError::Unreadable { rank: self.rank, path, source }),
        }
    }
}

/// The summary of a dataset below the prefix.
fn summary_in(direct: &Direct) -> Result<Summary, FileError> {
    let name = direct.directory.file_name().unwrap_or_default().to_string_lossy();
    let directory = DirectoryName::given(&name).map_err(|error| FileError::Unlisted(error.into()))?;
    let store = store::open(direct.prefix()).map_err(FileError::Unlisted)?;
    summary::of(&*store, &directory).map_err(FileError::Unlisted)
}

/// The name by which a file of another rank is routed.
fn listed_name(file: &SummaryFile) -> &str {
    file.output_path.as_ref().map_or(&file.name, OutputPath::as_str)
}

/// A name as it is shown in messages, which a long one would make unreadable.
fn quoted(name: &str) -> String {
    const SHOWN: usize = 80;
    if name.chars().count() <= SHOWN {
        return format!("{name:?}");
    }
    format!("{:?}…", name.chars().take(SHOWN).collect::<String>())
}
