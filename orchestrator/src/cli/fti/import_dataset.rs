//! Datasets of files that another program wrote: each rank's file is copied into a new directory, which is then added
//! to the index.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use chrono::NaiveDateTime;
use holdfast_core::control::meta::Meta;
use holdfast_core::prefix::rank_filemap::{FilemapWriter, RankFilemap};
use holdfast_core::prefix::{AddOptions, AddReport, add, dataset, delete, index, new_directory};
use holdfast_core::store::dataset_files::write_meta;
use holdfast_core::store::{DatasetAccess, DatasetStore, DirectoryName, OpenDataset};
use holdfast_model::{CheckpointId, Dataset, Rank};

use crate::cli::failure::Failure;
use crate::exit;

type Result<T> = std::result::Result<T, Failure>;

const REMEDY: &str = "check that you may read the file, and that the prefix directory has space left";
/// The size of the buffer, bytes.
const BLOCK: usize = 1 << 20;

/// A new dataset, which is not in the index until [`Import::finish`].
pub(super) struct Import<'a> {
    store: &'a dyn DatasetStore,
    dataset: Arc<dyn OpenDataset>,
    directory: DirectoryName,
    id: CheckpointId,
    ranks: u32,
}

impl<'a> Import<'a> {
    /// Makes the directory, with `job` in its name. The dataset gets the id after the highest of the index.
    ///
    /// # Errors
    /// Those of the store; nothing is left then but an empty directory.
    pub(super) fn begin(
        store: &'a dyn DatasetStore,
        now: NaiveDateTime,
        job: &str,
        declared: &Dataset,
        ranks: u32,
    ) -> Result<Import<'a>> {
        let known = index::read(store)?.unwrap_or_default().entries();
        let id = known.iter().map(|entry| entry.id).max().unwrap_or(CheckpointId::NONE).next();
        let directory = new_directory::create(store, now, job, id, declared.name.as_deref())?;
        let opened = store.open(&directory, DatasetAccess::Write)?;
        dataset::write(declared, job, &*opened)?;
        Ok(Import { store, dataset: opened, directory, id, ranks })
    }

    /// The id of the dataset.
    pub(super) fn id(&self) -> CheckpointId {
        self.id
    }

    /// Copies the only file of a rank, under this name. Returns its size in bytes.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub(super) fn put(&self, rank: Rank, name: &str, from: &Path) -> Result<u64> {
        let failed = |error: &(dyn std::error::Error + 'static)| {
            Failure::of(exit::UNAVAILABLE, error).at(self.dataset.path_of(name).display()).remedy(REMEDY)
        };
        let mut file = File::open(from).map_err(|error| failed(&error))?;
        let staged = self.dataset.create(name).map_err(|error| failed(&error))?;
        let (mut hasher, mut size, mut buffer) = (crc32fast::Hasher::new(), 0_u64, vec![0; BLOCK]);
        loop {
            let read = file.read(&mut buffer).map_err(|error| failed(&error))?;
            let piece = buffer.get(..read).unwrap_or_default();
            if piece.is_empty() {
                break;
            }
            hasher.update(piece);
            staged.write_at(piece, size).map_err(|error| failed(&error))?;
            size += read as u64;
        }
        staged.sync().map_err(|error| failed(&error))?;
        staged.commit().map_err(|error| failed(&error))?;
        let crc = Some(hasher.finalize());
        let meta = Meta { crc, ..Meta::of_application(name, size, self.id, rank, self.ranks) };
        write_meta(&*self.dataset, &meta).map_err(|error| failed(&error))?;
        let filemap = RankFilemap { rank, id: self.id, files: vec![name.to_owned()], expected: 1 };
        filemap.write(&*self.dataset, FilemapWriter::Copy)?;
        Ok(size)
    }

    /// Verifies the files, and adds the dataset to the index; a restart takes it first.
    ///
    /// # Errors
    /// As [`add`].
    pub(super) fn finish(&self, now: NaiveDateTime, options: &AddOptions) -> Result<AddReport> {
        let options = AddOptions { dry_run: false, make_current: true, ..*options };
        Ok(add(self.store, &self.directory, now, &options, &|_| {})?)
    }

    /// Removes what was written.
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub(super) fn abandon(self) -> Result<()> {
        Ok(delete::delete(self.store, &self.directory).map(drop)?)
    }
}
