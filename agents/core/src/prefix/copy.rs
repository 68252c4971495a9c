//! Copies of datasets of other users: nothing is rebuilt in theirs, and none of their files is moved.

use std::collections::{BTreeMap, BTreeSet};

use chrono::NaiveDateTime;
use holdfast_model::{CheckpointId, Dataset, OutputPath};

use super::dataset::{self, DATASET_FILE};
use super::scan::{ScanOptions, scan, unlisted};
use super::summary::{self, SUMMARY_FILE};
use super::{delete, index, new_directory};
use crate::store::{DatasetAccess, DatasetFiles, DatasetStore, DirectoryName, OpenDataset, PrefixError, Result};

/// What the directories of copies have in the place of a job id.
const JOB: &str = "copy";
const REMEDY: &str = "check that you may read the dataset, and that the prefix directory has space left";
/// The size of the buffer, bytes.
const BLOCK: usize = 1 << 20;

/// Copies the files of a dataset to a new directory of this user, and enters that into the index without COMPLETE. The
/// copy is no output: its files are not moved to paths that the other user named. `None` if nothing in the dataset can
/// be used.
///
/// # Errors
/// The first file that cannot be read or written; nothing is left of the copy then.
pub fn copy(
    store: &dyn DatasetStore,
    from: &DirectoryName,
    now: NaiveDateTime,
    options: ScanOptions,
    on_bytes: &dyn Fn(u64),
) -> Result<Option<DirectoryName>> {
    let source = store.open(from, DatasetAccess::Read)?;
    let Some(identity) = scan(&source, options)?.identity else { return Ok(None) };
    // What cannot be read declares nothing.
    let declared = dataset::read(store, from).ok().flatten().unwrap_or_default();
    let declared = Dataset { output: false, direct: None, ..declared };
    let directory = new_directory::create(store, now, JOB, identity.id, declared.name.as_deref())?;
    match fill(store, &*source, &directory, &declared, on_bytes)
        .and_then(|()| enter(store, identity.id, &directory, now))
    {
        Ok(()) => Ok(Some(directory)),
        Err(error) => {
            // The first error is the one to report.
            let _ = delete::delete(store, &directory);
            Err(error)
        }
    }
}

fn enter(store: &dyn DatasetStore, id: CheckpointId, directory: &DirectoryName, now: NaiveDateTime) -> Result<()> {
    index::update(store, |index| index.add(id, directory, now))
}

fn fill(
    store: &dyn DatasetStore,
    source: &dyn OpenDataset,
    directory: &DirectoryName,
    declared: &Dataset,
    on_bytes: &dyn Fn(u64),
) -> Result<()> {
    let target = store.open(directory, DatasetAccess::Write)?;
    dataset::write(declared, JOB, &*target)?;
    let listed = source.list().map_err(unlisted(source.location()))?;
    let inside: BTreeSet<String> = listed.into_iter().filter(|file| file.is_regular).map(|file| file.name).collect();
    // Files of an output that are at their paths are copied from there.
    let summary = summary::read(source).ok();
    let outside: BTreeMap<String, OutputPath> = summary
        .iter()
        .flat_map(|summary| summary.output_files())
        .map(|(path, file)| (file.name.clone(), path.clone()))
        .filter(|(name, _)| !inside.contains(name))
        .collect();
    let inside = inside.iter().filter(|name| ![SUMMARY_FILE, DATASET_FILE].contains(&name.as_str()));
    for (name, path) in inside.map(|name| (name, None)).chain(outside.iter().map(|(name, path)| (name, Some(path)))) {
        copy_file(source, &*target, name, path, on_bytes)?;
    }
    // It may be all that tells how many files each rank wrote.
    let Some(mut of_copy) = summary else { return Ok(()) };
    of_copy.complete = false;
    of_copy.by_rank.values_mut().flat_map(|rank| &mut rank.files).for_each(|file| file.output_path = None);
    summary::write(&*target, &of_copy)
}

fn copy_file(
    source: &dyn DatasetFiles,
    target: &dyn OpenDataset,
    name: &str,
    path: Option<&OutputPath>,
    on_bytes: &dyn Fn(u64),
) -> Result<()> {
    let failed = || PrefixError::io("copy", source.path_of(name), REMEDY);
    let file = source.open(name, path).map_err(failed())?;
    let staged = target.create(name)?;
    let mut buffer = vec![0; BLOCK];
    let mut offset = 0;
    loop {
        let read = file.read_at(&mut buffer, offset).map_err(failed())?;
        if read == 0 {
            break;
        }
        staged.write_at(&buffer[..read], offset).map_err(failed())?;
        offset += read as u64;
        on_bytes(read as u64);
    }
    staged.sync().map_err(failed())?;
    Ok(staged.commit()?)
}

#[cfg(test)]
mod tests {
    use super::super::tests::world::{each_store, name, some_time};
    use super::*;
    use crate::control::meta::{FileKind, Meta};
    use crate::prefix::add::{AddOptions, AddOutcome, add};
    use crate::prefix::outputs;
    use crate::prefix::rank_filemap::{FilemapWriter, RankFilemap};
    use crate::store::dataset_files::write_meta;
    use holdfast_model::Rank;

    #[test]
    fn a_copy_has_all_files_and_claims_no_paths() {
        each_store(|world| {
            let store = world.store();
            let dataset = Dataset { name: Some("plot".to_owned()), output: true, ..Dataset::default() };
            let theirs = world.dataset("plot");
            dataset::write(&dataset, "17", &*theirs).unwrap();
            for (rank, path) in [(0, "out/a"), (1, "out/b")] {
                let output_path = Some(OutputPath::parse(path).unwrap());
                let (file, checkpoint, rank) = (path[4..].to_owned(), CheckpointId(3), Rank(rank));
                world.put(&format!("plot/{file}"), path.as_bytes());
                let (kind, crc) = (FileKind::Full, Some(crc32fast::hash(path.as_bytes())));
                let meta = Meta { file, kind, size: 5, checkpoint, rank, ranks: 2, complete: true, crc, output_path };
                write_meta(&*theirs, &meta).unwrap();
                let filemap = RankFilemap { rank, id: checkpoint, files: vec![meta.file], expected: 1 };
                filemap.write(&*theirs, FilemapWriter::Copy).unwrap();
            }
            let options = AddOptions::default();
            let report = add(store, &name("plot"), some_time(), &options, &|_| {}).unwrap();
            assert_eq!(report.outcome, AddOutcome::Complete, "{report:?}");
            assert!(world.get("out/a").is_some() && world.get("plot/a").is_none());
            let copied = copy(store, &name("plot"), some_time(), ScanOptions::default(), &|_| {}).unwrap().unwrap();
            assert_eq!(copied, name("plot.3"));
            let report = add(store, &copied, some_time(), &options, &|_| {}).unwrap();
            assert_eq!((report.outcome, report.unplaced), (AddOutcome::Complete, None));
            for file in ["a", "b"] {
                assert_eq!(world.get(&format!("plot.3/{file}")), world.get(&format!("out/{file}")));
            }
            assert_eq!(outputs::remove::outside(store, &copied).unwrap(), []);
            assert_eq!(summary::of(store, &copied).unwrap().output_files().len(), 2, "as the meta files have them");
            // A flush leaves no filemaps: only its summary tells how many files there were.
            for rank in 0..2 {
                world.take_away(&format!("plot/{rank}.scrfilemap"));
            }
            let copied = copy(store, &name("plot"), some_time(), ScanOptions::default(), &|_| {}).unwrap().unwrap();
            let report = add(store, &copied, some_time(), &options, &|_| {}).unwrap();
            assert_eq!((report.outcome, report.unplaced), (AddOutcome::Complete, None));
            world.dataset("empty");
            assert_eq!(copy(store, &name("empty"), some_time(), ScanOptions::default(), &|_| {}).unwrap(), None);
        });
    }
}
