//! The files of outputs: at the paths that the application named, as in SCR 3.
//!
//! A copy, a rebuild and a scan work in the directory of the dataset. When the dataset is complete, its publication
//! moves each file to its path, after the summary, which lists the paths, and before the entry with COMPLETE 1. A kill
//! leaves every file in the dataset or at its path, where readers find it, and the next publication moves the rest.
//!
//! A path belongs to one dataset of the index. The same path in a later attempt of the same output (it has the same
//! name, or an id that the run has gone back behind) replaces the earlier dataset, which is deleted first. Ranks that
//! write the later one at its paths themselves replace files of the earlier one before that: it is marked as not
//! complete before they get the first such path ([`give_up`](place::give_up)). Any other dataset with that path keeps
//! it, and the publication fails.
//!
//! What no dataset of this user has recorded is never replaced by a publication: the new file stays in the directory of
//! its dataset, which is complete ([`Unplaced`]), until the user makes room or has it replaced
//! ([`place`]). Datasets of other users in the same store claim no paths.
//!
//! * [`place`]: moving the files; [`remove`]: removing them.

pub mod place;
pub mod remove;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use holdfast_model::dataset::default_name;
use holdfast_model::{CheckpointId, Dataset, OutputPath, Unplaced};

use super::index::{Index, IndexEntry};
use super::summary::{OLD_SUMMARY_FILE, exists};
use super::{dataset, index, ownership, rank_filemap, summary};
use crate::control::meta::{self, Meta};
use crate::redundancy::registry;
use crate::store::{DatasetAccess, DatasetOccupant, DatasetStore, DirectoryName, OutputOccupant, PrefixError, known};

const PLACE_REMEDY: &str = "the file stays in the directory of its dataset; make its place free, then repeat";

/// Checks that an output may have a file at this path, when the application names it: in time for another name. A path
/// where there is no file is not looked up. `own` is the directory of the output, if it has one already. Returns the
/// earlier attempts of the output that have a file there.
///
/// # Errors
/// [`PrefixError::OutputPathTaken`], [`PrefixError::InDataset`], and those of reading the store.
pub fn check_path(
    store: &dyn DatasetStore,
    own: Option<&DirectoryName>,
    id: CheckpointId,
    name: Option<&str>,
    output_path: &OutputPath,
) -> Result<BTreeSet<DirectoryName>, PrefixError> {
    let parent = output_path.parents().next().and_then(|parent| DirectoryName::new(parent).ok());
    let is_nothing = |parent| matches!(store.occupant(&parent), Ok(DatasetOccupant::Nothing));
    if examine(store, output_path)? == OutputOccupant::Nothing && parent.is_none_or(is_nothing) {
        return Ok(BTreeSet::new());
    }
    let name = name.map_or_else(|| default_name(id), str::to_owned);
    let index = index::read(store)?.unwrap_or_default();
    replaced(store, &index, own, id, &name, [output_path])
}

/// The earlier attempts of an output that have files at these paths.
///
/// # Errors
/// When a file at one of them is of another dataset.
fn replaced<'a>(
    store: &dyn DatasetStore,
    index: &Index,
    own: Option<&DirectoryName>,
    id: CheckpointId,
    name: &str,
    paths: impl IntoIterator<Item = &'a OutputPath>,
) -> Result<BTreeSet<DirectoryName>, PrefixError> {
    let (mut replaced, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for path in paths {
        replaced.extend(check_directory(store, index, own, id, name, path)?);
        if examine(store, path)? != OutputOccupant::Nothing {
            taken.insert(path);
        }
    }
    if !taken.is_empty() {
        let owners = owners(store, index, own, &taken)?;
        owners.iter().try_for_each(|owner| owner.check_replaceable(id, name))?;
        replaced.extend(owners.into_iter().map(|owner| owner.entry.directory));
    }
    Ok(replaced)
}

fn examine(store: &dyn DatasetStore, path: &OutputPath) -> Result<OutputOccupant, PrefixError> {
    let parent = store.output_directory(path);
    let examined =
        parent.and_then(|parent| parent.map_or(Ok(OutputOccupant::Nothing), |at| at.occupant(path.base_name())));
    examined.map_err(failed(store, "examine", path, PLACE_REMEDY))
}

fn failed(
    store: &dyn DatasetStore,
    action: &'static str,
    path: &OutputPath,
    remedy: &'static str,
) -> impl FnOnce(io::Error) -> PrefixError + use<> {
    PrefixError::io(action, store.location().join(path.as_str()), remedy)
}

/// The datasets of a job with files that are not at their paths although the dataset is complete.
///
/// # Errors
/// Those of reading the index.
pub fn unplaced_of_job(store: &dyn DatasetStore, job: &str) -> Result<Vec<Unplaced>, PrefixError> {
    let entries = index::read(store)?.unwrap_or_default().entries().into_iter();
    let complete = entries.filter(|entry| entry.complete == Some(true));
    let of_job = complete.filter(|entry| dataset::job_of(store, &entry.directory).as_deref() == Some(job));
    of_job.filter_map(|entry| unplaced(store, &entry.directory).transpose()).collect()
}

/// The files of a complete dataset of this user that are not at their paths; `None` if there is none.
///
/// # Errors
/// When the file system fails.
pub fn unplaced(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<Option<Unplaced>, PrefixError> {
    if output_record(store, directory)?.is_none() || !ownership::is_own(store, directory)? {
        return Ok(None);
    }
    let Some(here) = known(store.open(directory, DatasetAccess::Read))? else { return Ok(None) };
    let listed = here.list().map_err(PrefixError::io("list", here.location(), PLACE_REMEDY));
    let listed: BTreeSet<String> = known(listed)?.unwrap_or_default().into_iter().map(|file| file.name).collect();
    // The summary may be large.
    if listed.iter().all(|name| is_of_a_dataset(name)) {
        return Ok(None);
    }
    let Some(summary) = known(summary::read(&*here))? else { return Ok(None) };
    let waiting = summary
        .output_files()
        .into_iter()
        .filter(|(path, file)| !is_inside(directory, path) && listed.contains(&file.name));
    Ok(waiting.map(|(path, _)| path).fold(None, |unplaced, path| add_unplaced(unplaced, directory, path)))
}

fn add_unplaced(unplaced: Option<Unplaced>, directory: &DirectoryName, path: &OutputPath) -> Option<Unplaced> {
    let first = || Unplaced { directory: directory.to_string(), path: path.clone(), files: 0 };
    let mut unplaced = unplaced.unwrap_or_else(first);
    unplaced.files += 1;
    Some(unplaced)
}

/// The paths with the same directory, of each directory.
fn by_directory<'a>(paths: impl Iterator<Item = &'a OutputPath>) -> Vec<Vec<&'a OutputPath>> {
    let mut directories: BTreeMap<Vec<&str>, Vec<&OutputPath>> = BTreeMap::new();
    for path in paths {
        directories.entry(path.parents().collect()).or_default().push(path);
    }
    directories.into_values().collect()
}

/// True for the names of the files that SCR and Holdfast write beside those of the application.
pub(super) fn is_of_a_dataset(name: &str) -> bool {
    name.ends_with(meta::EXTENSION)
        || name.ends_with(rank_filemap::SUFFIX)
        || [OLD_SUMMARY_FILE, dataset::DATASET_FILE].contains(&name)
        || registry::is_redundancy_file(name)
}

/// A dataset of the index that has a file at a path.
struct Owner<'a> {
    entry: IndexEntry,
    name: String,
    path: &'a OutputPath,
}

impl Owner<'_> {
    /// A later attempt of an output replaces the earlier one. After a restart from an older checkpoint, ids are given
    /// out again: a dataset with this id or a higher one is of the run before.
    fn check_replaceable(&self, id: CheckpointId, name: &str) -> Result<(), PrefixError> {
        if self.name == name || self.entry.id >= id {
            return Ok(());
        }
        Err(PrefixError::OutputPathTaken {
            path: self.path.clone(),
            name: self.name.clone(),
            directory: self.entry.directory.clone(),
        })
    }
}

/// The other datasets of this user in the index that have files at these paths.
fn owners<'a>(
    store: &dyn DatasetStore,
    index: &Index,
    own: Option<&DirectoryName>,
    taken: &BTreeSet<&'a OutputPath>,
) -> Result<Vec<Owner<'a>>, PrefixError> {
    let mut owners = Vec::new();
    for entry in index.entries() {
        if own == Some(&entry.directory) || !ownership::is_own(store, &entry.directory)? {
            continue;
        }
        // A dataset whose record or summary is damaged claims nothing.
        let Some(record) = output_record(store, &entry.directory)? else { continue };
        let Some(summary) = known(summary::of(store, &entry.directory))? else { continue };
        let files = summary.output_files();
        if let Some(path) = taken.iter().find(|path| files.contains_key(*path)) {
            let name = record.name.unwrap_or_else(|| default_name(entry.id));
            owners.push(Owner { entry, name, path });
        }
    }
    Ok(owners)
}

/// Checks that the first directory of a path is not that of a dataset which it would disturb: a checkpoint, a dataset
/// that is not complete, or one with a file of the same name. Returns the directory if this output replaces what is
/// there.
fn check_directory(
    store: &dyn DatasetStore,
    index: &Index,
    own: Option<&DirectoryName>,
    id: CheckpointId,
    name: &str,
    output_path: &OutputPath,
) -> Result<Option<DirectoryName>, PrefixError> {
    let Some(first) = output_path.parents().next() else { return Ok(None) };
    let Ok(directory) = DirectoryName::new(first) else { return Ok(None) };
    let Some(entry) = index.entry(&directory).filter(|_| own != Some(&directory)) else { return Ok(None) };
    if let Some(record) = output_record(store, &directory)? {
        if entry.complete == Some(true) && !has_file(store, &directory, output_path)? {
            return Ok(None);
        }
        let is_attempt = entry.id >= id || record.name.unwrap_or_else(|| default_name(entry.id)) == name;
        if is_attempt && ownership::is_own(store, &directory)? {
            return Ok(Some(directory));
        }
    }
    Err(PrefixError::InDataset { path: output_path.clone(), directory })
}

/// True for a dataset whose files are removed one by one: other datasets may have files in its directory.
pub(super) fn is_output(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<bool, PrefixError> {
    Ok(output_record(store, directory)?.is_some()
        || known(summary::of(store, directory))?.is_some_and(|summary| !summary.output_files().is_empty()))
}

/// The record of an output; `None` if it is missing, damaged, or of another dataset.
fn output_record(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<Option<Dataset>, PrefixError> {
    Ok(known(dataset::read(store, directory))?.flatten().filter(|record| record.output))
}

/// True if the path leads to a file of this dataset's directory.
fn is_inside(directory: &DirectoryName, path: &OutputPath) -> bool {
    path.as_str() == format!("{directory}/{}", path.base_name())
}

/// True if a dataset has a file of its own at a path, in its directory; not one that was moved there.
fn has_file(store: &dyn DatasetStore, directory: &DirectoryName, path: &OutputPath) -> Result<bool, PrefixError> {
    if !is_inside(directory, path) {
        return Ok(false);
    }
    let Some(here) = known(store.open(directory, DatasetAccess::Read))? else { return Ok(false) };
    Ok(exists(&*here, &Meta::name_for(path.base_name()))?
        && !known(summary::read(&*here))?.is_some_and(|summary| summary.output_files().contains_key(path)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::publish::{self, Publication};
    use super::super::scan::{Scan, ScanOptions, scan};
    use super::super::summary::{RankFiles, Summary, SummaryFile};
    use super::super::tests::world::{self, PosixWorld, TestStore, name, some_time};
    use super::super::{delete, inspect, new_directory, unfinished};
    use super::*;
    use crate::control::meta::FileKind;
    use crate::store::dataset_files::{open_plain, write_meta};
    use crate::store::{Occupied, OpenDataset};
    use holdfast_model::{Dataset, Rank};

    struct World<'a>(&'a dyn TestStore);

    fn each_store(test: impl Fn(&World<'_>)) {
        world::each_store(|store| test(&World(store)));
    }

    impl World<'_> {
        fn store(&self) -> &dyn DatasetStore {
            self.0.store()
        }

        fn here(&self, directory: &DirectoryName) -> Arc<dyn OpenDataset> {
            self.0.dataset(directory.as_str())
        }

        fn scan(&self, directory: &DirectoryName) -> Scan {
            scan(&self.here(directory), ScanOptions::default()).unwrap()
        }

        /// A dataset of one rank that was copied to its directory.
        fn copy(&self, id: u64, name: &str, output: bool, paths: &[&str]) -> (DirectoryName, Summary) {
            let dataset = Dataset { name: Some(name.to_owned()), output, ..Dataset::default() };
            let id = CheckpointId(id);
            let directory = new_directory::create(self.store(), some_time(), "17", id, Some(name)).unwrap();
            publish::begin(self.store(), id, &directory, &dataset, "17", some_time()).unwrap();
            let mut files = RankFiles::default();
            for path in paths {
                let output_path = OutputPath::parse(path).unwrap();
                let file = output_path.base_name().to_owned();
                let content = format!("{name} {path}");
                self.0.put(&format!("{directory}/{file}"), content.as_bytes());
                let (size, crc) = (content.len() as u64, Some(crc32fast::hash(content.as_bytes())));
                let output_path = output.then_some(output_path);
                let (kind, rank) = (FileKind::Full, Rank(0));
                let meta = Meta { file, kind, size, checkpoint: id, rank, ranks: 1, complete: true, crc, output_path };
                write_meta(&*self.here(&directory), &meta).unwrap();
                let Meta { file: name, output_path, .. } = meta;
                files.files.push(SummaryFile { name, size: Some(size), crc, fetch: true, failed: false, output_path });
            }
            let by_rank = BTreeMap::from([(Rank(0), files)]);
            (directory, Summary { id, ranks: 1, complete: true, by_rank })
        }

        fn publish(&self, copied: &(DirectoryName, Summary)) -> Result<bool, PrefixError> {
            let (directory, summary) = copied.clone();
            let published = Publication::of_copy(directory, Some(summary), false, some_time()).publish(self.store())?;
            assert_eq!(published.unplaced, unplaced(self.store(), &copied.0).unwrap());
            Ok(published.complete)
        }

        fn output(&self, id: u64, name: &str, paths: &[&str]) -> DirectoryName {
            let copied = self.copy(id, name, true, paths);
            assert!(self.publish(&copied).unwrap());
            copied.0
        }

        fn read(&self, path: &str) -> Option<String> {
            self.0.get(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        }

        fn has_below(&self, directory: &str) -> bool {
            self.0.files().keys().any(|path| path.starts_with(&format!("{directory}/")))
        }

        fn complete(&self) -> Vec<String> {
            let entries = index::read(self.store()).unwrap().unwrap().entries().into_iter();
            entries.filter(|entry| entry.complete == Some(true)).map(|entry| entry.directory.to_string()).collect()
        }
    }

    #[test]
    fn files_are_at_their_paths_and_the_rest_in_a_directory_of_the_name() {
        each_store(|world| {
            let directory = world.output(3, "plot.3", &["out/3/a", "b", "plot.3/c"]);
            assert_eq!(directory.as_str(), "plot.3");
            for path in ["out/3/a", "b", "plot.3/c"] {
                assert_eq!(world.read(path), Some(format!("plot.3 {path}")));
            }
            assert!(world.read("plot.3/a").is_none() && world.read("plot.3/a.scr").is_some());
            // A scan finds them, and damage to them.
            let mut scanned = world.scan(&directory);
            scanned.verify(1, &|_| {});
            assert_eq!(scanned.damaged, []);
            world.0.put("out/3/a", b"PLOT.3 out/3/a");
            scanned.verify(1, &|_| {});
            assert_eq!(scanned.damaged.len(), 1, "another content");
            world.0.take_away("b");
            let scanned = world.scan(&directory);
            assert_eq!(scanned.damaged.len(), 1, "a missing file");
            assert_ne!(inspect::inspect(&scanned).completeness, inspect::Completeness::Complete);
        });
    }

    #[test]
    fn outputs_share_a_directory_and_each_is_deleted_alone() {
        each_store(|world| {
            let one = world.output(1, "plots", &["plots/one", "shared/1"]);
            let two = world.output(2, "two", &["plots/two", "shared/2"]);
            world.0.put("plots/of_the_user", b"kept");
            assert!(delete::delete(world.store(), &one).unwrap());
            assert_eq!((world.read("plots/one"), world.read("shared/1")), (None, None));
            assert!(world.read("plots/two").is_some() && world.read("plots/of_the_user").is_some());
            assert!(world.read("plots/one.scr").is_none());
            assert_eq!(world.complete(), ["two"]);
            assert!(delete::delete(world.store(), &two).unwrap());
            assert!(!world.has_below("shared") && !world.has_below("two"));
            assert!(world.read("plots/of_the_user").is_some());
            assert!(!delete::delete(world.store(), &two).unwrap());
        });
        let posix = PosixWorld::new();
        let one = World(&posix).output(1, "one", &["shared/1"]);
        assert!(delete::delete(posix.store(), &one).unwrap());
        assert!(!posix.scratch.path().join("shared").exists() && !posix.scratch.path().join("one").exists());
    }

    #[test]
    fn the_path_of_another_output_is_refused_and_that_one_stays() {
        each_store(|world| {
            world.output(1, "one", &["out/a"]);
            let path = OutputPath::parse("out/a").unwrap();
            let taken =
                |error: &PrefixError| matches!(error, PrefixError::OutputPathTaken { name, .. } if name == "one");
            assert!(taken(&check_path(world.store(), None, CheckpointId(2), Some("two"), &path).unwrap_err()));
            let second = world.copy(2, "two", true, &["out/a"]);
            let refused = world.publish(&second).unwrap_err();
            assert!(taken(&refused) && refused.to_string().contains("files of its own"), "{refused}");
            assert_eq!((world.read("out/a"), world.complete()), (Some("one out/a".to_owned()), vec!["one".to_owned()]));
            assert!(world.read("two/a").is_some(), "the copy is kept");
            // Where the index lists nothing, the file may be the user's.
            publish::withdraw(world.store(), &name("one")).unwrap();
            check_path(world.store(), None, CheckpointId(2), Some("two"), &path).unwrap();
            assert!(world.publish(&second).unwrap());
            assert_eq!(world.read("out/a"), Some("one out/a".to_owned()));
        });
    }

    #[test]
    fn a_later_attempt_of_an_output_replaces_the_earlier_one() {
        each_store(|world| {
            world.output(2, "plot", &["out/a", "out/only_in_the_first"]);
            let later = world.output(5, "plot", &["out/a"]);
            assert_eq!(later.as_str(), "plot.5", "the name was taken when the copy began");
            let expected = (Some("plot out/a".to_owned()), vec!["plot.5".to_owned()]);
            assert_eq!((world.read("out/a"), world.complete()), expected);
            assert!(world.read("out/only_in_the_first").is_none() && !world.has_below("plot"));
            // After a restart from an older checkpoint, the ids begin again.
            world.output(4, "other", &["out/a"]);
            assert_eq!(world.complete(), ["other"]);
        });
    }

    #[test]
    fn the_removal_of_an_unfinished_copy_leaves_the_files_of_the_earlier_attempt() {
        for has_summary in [false, true] {
            each_store(|world| {
                world.output(1, "plot", &["out/a", "out/b"]);
                // Killed before the file `b` was copied. The files of both attempts have equal sizes.
                let (later, mut summary) = world.copy(2, "plot", true, &["out/a", "out/b"]);
                world.0.take_away(&format!("{later}/b"));
                if has_summary {
                    summary.complete = false;
                    summary::write(&*world.here(&later), &summary).unwrap();
                }
                assert!(delete::delete(world.store(), &later).unwrap() && !world.store().contains(&later));
                assert_eq!(world.complete(), ["plot"]);
                for path in ["out/a", "out/b"] {
                    assert_eq!(world.read(path), Some(format!("plot {path}")), "with a summary: {has_summary}");
                }
            });
        }
    }

    #[test]
    fn the_removal_of_an_output_leaves_the_file_that_replaced_its_own() {
        each_store(|world| {
            let one = world.output(1, "one", &["out/a"]);
            publish::withdraw(world.store(), &one).unwrap();
            let two = world.output(2, "two", &["out/a"]);
            place::place(world.store(), &two, Occupied::Replace).unwrap();
            assert!(delete::delete(world.store(), &one).unwrap());
            assert_eq!((world.read("out/a"), world.complete()), (Some("two out/a".to_owned()), vec!["two".to_owned()]));
        });
    }

    #[test]
    fn the_removal_of_an_output_touches_no_file_inside_another_dataset() {
        each_store(|world| {
            let checkpoint = world.copy(1, "state", false, &["x"]);
            assert!(world.publish(&checkpoint).unwrap());
            world.output(2, "other", &["other/x"]);
            // As damage or another program can leave it: paths that a publication refuses.
            let (one, mut summary) = world.copy(3, "one", true, &["out/x"]);
            summary.complete = true;
            for path in ["state/x", "other/x"] {
                let there = world.read(path).unwrap();
                let file = &mut summary.by_rank.get_mut(&Rank(0)).unwrap().files[0];
                file.output_path = Some(OutputPath::parse(path).unwrap());
                file.size = Some(there.len() as u64);
                summary::write(&*world.here(&one), &summary).unwrap();
                if world.read("one/x").is_some() {
                    world.0.take_away("one/x");
                }
                remove::remove(world.store(), &one).unwrap();
                assert_eq!(world.read(path), Some(there), "{path}");
            }
        });
    }

    #[test]
    fn an_output_that_its_ranks_wrote_replaces_the_earlier_attempt() {
        each_store(|world| {
            world.output(2, "plot", &["out/a", "out/b"]);
            let (later, summary) = world.copy(5, "plot", true, &["out/a"]);
            let direct = Some(later.to_string());
            let dataset = Dataset { name: Some("plot".to_owned()), output: true, direct, ..Dataset::default() };
            publish::begin(world.store(), CheckpointId(5), &later, &dataset, "17", some_time()).unwrap();
            for (path, complete) in [("out/c", vec!["plot"]), ("out/a", vec![])] {
                // What the agent does when the application names a file.
                let path = OutputPath::parse(path).unwrap();
                let replaced = check_path(world.store(), Some(&later), CheckpointId(5), Some("plot"), &path).unwrap();
                place::give_up(world.store(), &replaced).unwrap();
                assert_eq!(world.complete(), complete, "{path}");
                // Nothing is written for the next file of the same output.
                let before = world.0.files();
                place::give_up(world.store(), &replaced).unwrap();
                assert_eq!(world.0.files(), before);
            }
            // A job that ends here leaves it at that.
            unfinished::abandon_all(world.store(), "17", open_plain).unwrap();
            assert_eq!((world.complete(), world.read("out/b")), (vec![], Some("plot out/b".to_owned())));
            let written = world.0.get(&format!("{later}/a")).unwrap();
            world.0.take_away(&format!("{later}/a.scr"));
            world.0.take_away(&format!("{later}/a"));
            world.0.put("out/a", &written);
            assert!(world.publish(&(later, summary)).unwrap());
            assert_eq!(world.complete(), ["plot.5"]);
            assert_eq!((world.read("out/a"), world.read("out/b")), (Some("plot out/a".to_owned()), None));
        });
    }

    #[test]
    fn an_output_that_is_half_deleted_is_not_marked_as_complete_again() {
        let posix = PosixWorld::new();
        let world = World(&posix);
        let earlier = world.output(2, "plot", &["out/a", "out/b"]);
        // A later attempt cannot remove the last of the files.
        let blocked = posix.scratch.path().join("plot/b.scr");
        std::fs::remove_file(&blocked).unwrap();
        std::fs::create_dir(&blocked).unwrap();
        let later = world.copy(5, "plot", true, &["out/a"]);
        assert!(world.publish(&later).is_err());
        assert!(world.read("out/a").is_none());
        unfinished::abandon_all(world.store(), "17", open_plain).unwrap();
        let _ = unfinished::abandon(world.store(), &earlier);
        assert_eq!(world.complete(), [""; 0]);
        std::fs::remove_dir(&blocked).unwrap();
        assert!(world.publish(&later).unwrap());
        assert_eq!(world.complete(), ["plot.5"]);
    }

    #[test]
    fn a_path_in_the_directory_of_another_dataset_is_refused() {
        each_store(|world| {
            let checkpoint = world.copy(1, "state", false, &["x"]);
            assert!(world.publish(&checkpoint).unwrap());
            world.copy(2, "incomplete", true, &["y"]);
            world.output(3, "complete", &["elsewhere/z"]);
            let check =
                |path| check_path(world.store(), None, CheckpointId(9), None, &OutputPath::parse(path).unwrap());
            for path in ["state/a", "incomplete/a", "complete/z"] {
                let refused = check(path).unwrap_err();
                assert!(matches!(refused, PrefixError::InDataset { .. }), "{path}: {refused}");
            }
            check("complete/other").unwrap();
            let copied = world.copy(9, "nine", true, &["state/a"]);
            assert!(matches!(world.publish(&copied), Err(PrefixError::InDataset { .. })));
            assert!(world.read("state/a").is_none());
        });
    }

    #[test]
    fn what_no_dataset_has_recorded_is_replaced_only_on_request() {
        each_store(|world| {
            let store = world.store();
            world.0.put("out/a", b"of the user");
            let directory = world.output(1, "plot", &["out/a", "out/b", "plot/c"]);
            assert_eq!(world.complete(), ["plot"]);
            assert_eq!(
                (world.read("out/a"), world.read("plot/a")),
                (Some("of the user".to_owned()), Some("plot out/a".to_owned()))
            );
            assert!(world.read("out/b").is_some());
            let expected =
                Unplaced { directory: "plot".to_owned(), path: OutputPath::parse("out/a").unwrap(), files: 1 };
            assert_eq!(unplaced_of_job(store, "17").unwrap(), std::slice::from_ref(&expected));
            assert_eq!(unplaced_of_job(store, "18").unwrap(), []);
            assert!(expected.to_string().contains("holdfast index place plot --replace"));
            // A restart reads the file where it is.
            assert_eq!(inspect::inspect(&world.scan(&directory)).completeness, inspect::Completeness::Complete);
            assert_eq!(place::place(store, &directory, Occupied::Keep).unwrap(), (0, Some(expected)));
            assert_eq!(place::place(store, &directory, Occupied::Replace).unwrap(), (1, None));
            assert_eq!((world.read("out/a"), world.read("plot/a")), (Some("plot out/a".to_owned()), None));
            assert_eq!(unplaced(store, &directory).unwrap(), None);
            let outside = remove::outside(store, &directory).unwrap();
            assert_eq!(outside.iter().map(OutputPath::as_str).collect::<Vec<_>>(), ["out/a", "out/b"]);
            assert!(place::place(store, &name("other"), Occupied::Keep).is_err(), "not in the index");
        });
    }
}
