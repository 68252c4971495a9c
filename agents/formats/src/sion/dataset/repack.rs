//! Moves plain files of a dataset into a container: those of members that were rebuilt.
//!
//! They are removed when they are in a complete container. A kill in between leaves both, with equal content.

use std::collections::BTreeMap;
use std::io::{self, Read, Write as _};
use std::path::PathBuf;

use holdfast_core::control::ControlError;
use holdfast_core::control::content::{ContentMismatch, FileContent, RecordedContent};
use holdfast_core::control::meta::EXTENSION;
use holdfast_core::prefix::rank_filemap::RankFilemap;
use holdfast_core::store::dataset_files::read_meta;
use holdfast_core::store::{DatasetFiles, FoundFile, StoredFile};
use holdfast_core::workers;
use holdfast_model::{ContainerRequest, PackedRank, Rank};

use super::super::error::SionError;
use super::create::DatasetCreation;
use super::rank_writer::{PlacedFiles, RankWriter};
use crate::input::PIECE_BYTES;

/// Why files were not moved into a container. They stay plain files.
#[derive(Debug, thiserror::Error)]
pub enum RepackError {
    /// The container cannot be created or written.
    #[error(transparent)]
    Container(#[from] SionError),
    /// A meta file cannot be used.
    #[error(transparent)]
    Meta(#[from] ControlError),
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file is not what its meta file records.
    #[error("{} {mismatch}", path.display())]
    Mismatch { rank: Rank, path: PathBuf, mismatch: ContentMismatch },
    #[error("the container has no room for rank {0}")]
    NoPlace(Rank),
}

/// Copies the files of these ranks, their meta files and file maps into another container, compares them with their
/// meta files meanwhile, and removes the plain files. Returns what [`DatasetCreation::commit`] returns.
///
/// # Errors
/// When a file is damaged or cannot be read, or the container cannot be written: nothing was removed then. When a plain
/// file cannot be removed: it can be used as before.
pub fn repack(
    files: &dyn DatasetFiles,
    request: &ContainerRequest,
    of_rank: &BTreeMap<Rank, Vec<String>>,
) -> Result<Option<SionError>, RepackError> {
    let dataset = files.stored();
    let ContainerRequest { ranks, streams, files: parts } = request;
    let creation = DatasetCreation::new(files.stored(), *ranks, streams, *parts)?;
    let places = creation.places();
    let placed = PlacedFiles::open(&*dataset, &places)?;
    let listed: Vec<(&Rank, &Vec<String>)> = of_rank.iter().collect();
    let packed = workers::map(&listed, workers::default_threads(), 1, |(rank, names)| {
        let place = places.ranks.get(rank).and_then(|place| placed.writer(*place));
        let mut writer = place.ok_or(RepackError::NoPlace(**rank))?;
        for name in *names {
            add(files, **rank, &mut writer, name)?;
        }
        let filemap = RankFilemap::name_of(**rank);
        if matches!(files.examine(&filemap, None), Ok(FoundFile::Regular(_))) {
            copy(files, &mut writer, &filemap)?;
        }
        Ok((**rank, writer.end()))
    });
    let packed = packed.into_iter().collect::<Result<BTreeMap<Rank, PackedRank>, RepackError>>()?;
    placed.synchronise()?;
    Ok(creation.commit(&packed)?)
}

/// Adds a file and its meta file.
fn add(files: &dyn DatasetFiles, rank: Rank, writer: &mut RankWriter<'_>, name: &str) -> Result<(), RepackError> {
    let meta = read_meta(files, name)?;
    let content = copy(files, writer, name)?;
    let mismatch = |mismatch| RepackError::Mismatch { rank, path: files.path_of(name), mismatch };
    RecordedContent::from(&meta).check(content).map_err(mismatch)?;
    copy(files, writer, &format!("{name}{EXTENSION}")).map(drop)
}

fn copy(files: &dyn DatasetFiles, writer: &mut RankWriter<'_>, name: &str) -> Result<FileContent, RepackError> {
    let unreadable = |source| RepackError::Read { path: files.path_of(name), source };
    let stored = files.open(name, None).map_err(unreadable)?;
    let length = usize::try_from(stored.length()).unwrap_or(PIECE_BYTES);
    let mut piece = vec![0; length.clamp(1, PIECE_BYTES)];
    let (mut hasher, mut bytes) = (crc32fast::Hasher::new(), 0_u64);
    let stored: &dyn StoredFile = &*stored;
    let mut reader = stored.reader();
    let path = writer.path;
    let mut content = writer.content();
    loop {
        let read = match reader.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(unreadable(error)),
        };
        let now = piece.get(..read).unwrap_or_default();
        hasher.update(now);
        content.write_all(now).map_err(SionError::io("write", path))?;
        bytes = bytes.saturating_add(read as u64);
    }
    writer.finish(name, bytes)?;
    Ok(FileContent { bytes, crc: hasher.finalize() })
}
