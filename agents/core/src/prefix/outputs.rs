//! The files of outputs below the prefix directory: at the paths that the application named, as in SCR 3.
//!
//! A copy, a rebuild and a scan work in the directory of the dataset. When the dataset is complete, its publication
//! moves each file to its path, after the summary, which lists the paths, and before the entry with COMPLETE 1. Each
//! move is a rename: a kill leaves every file in the dataset's directory or at its path, where readers find it
//! ([`crate::output_files`]), and the next publication moves the rest.
//!
//! A path belongs to one dataset of the index. The same path in a later attempt of the same output (it has the same
//! name, or an id that the run has gone back behind) replaces the earlier dataset, which is deleted first. Any other
//! dataset with that path keeps it, and the publication fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use holdfast_model::dataset::default_name;
use holdfast_model::{CheckpointId, OutputPath};

use super::directory::{DirectoryName, Prefix};
use super::error::PrefixError;
use super::index::{IndexEntry, LockedIndex};
use super::summary::{OLD_SUMMARY_FILE, SUMMARY_FILE, Summary, SummaryFile};
use super::{dataset, index, rank_filemap, summary};
use crate::control::meta::{self, Meta};
use crate::output_files::{Occupant, OutputDirectory, remove_empty_directories};
use crate::redundancy::registry;
use crate::{durable, kill_point, temporary};

const PLACE_REMEDY: &str = "the file stays in the directory of its dataset; make its place free, then repeat";
const REMOVE_REMEDY: &str = "check that you may write to the directory, then repeat the command";

/// Checks that an output may have a file at this path, when the application names it: in time for another name. A path
/// where there is no file is not looked up. `own` is the directory of the output, if it has one already.
///
/// # Errors
/// [`PrefixError::OutputPathTaken`], [`PrefixError::InDataset`], and those of reading the prefix directory.
pub fn check_path(
    prefix: &Prefix,
    own: Option<&DirectoryName>,
    id: CheckpointId,
    name: Option<&str>,
    output_path: &OutputPath,
) -> Result<(), PrefixError> {
    let examined = OutputDirectory::open(prefix.path(), output_path)
        .and_then(|parent| parent.map_or(Ok(Occupant::Nothing), |parent| parent.occupant(output_path.base_name())))
        .map_err(PrefixError::io("examine", prefix.path().join(output_path.as_str()), PLACE_REMEDY))?;
    let parent = output_path.parents().next().map(|parent| prefix.path().join(parent));
    if examined == Occupant::Nothing && !parent.is_some_and(|parent| parent.exists()) {
        return Ok(());
    }
    let name = name.map_or_else(|| default_name(id), str::to_owned);
    let index = index::read(prefix)?.unwrap_or_default();
    check_directory(prefix, &index, own, id, &name, output_path)?;
    if examined != Occupant::Nothing {
        let taken = BTreeSet::from([output_path]);
        owners(prefix, &index, own, &taken)?.iter().try_for_each(|owner| owner.check_replaceable(id, &name))?;
    }
    Ok(())
}

/// Moves the files of a complete dataset to their paths. Can be repeated.
pub(super) fn place(
    prefix: &Prefix,
    locked: &LockedIndex<'_>,
    directory: &DirectoryName,
    summary: &Summary,
) -> Result<(), PrefixError> {
    let here = prefix.checkpoint_path(directory);
    let mut files: BTreeMap<&OutputPath, &SummaryFile> = summary.output_files();
    files.retain(|path, _| !is_inside(directory, path));
    if files.is_empty() {
        return Ok(());
    }
    let record = dataset::read(prefix, directory)?;
    let mut waiting = files.clone();
    // Those that are at their paths already: moved before, or written there by the ranks.
    waiting.retain(|_, file| is_present(&here.join(&file.name)));
    let bypasses_the_cache = record.as_ref().is_some_and(|record| record.direct.is_some());
    let claimed = if bypasses_the_cache { &files } else { &waiting };
    if claimed.is_empty() {
        return Ok(());
    }
    let name = record.and_then(|record| record.name).unwrap_or_else(|| default_name(summary.id));
    make_room(prefix, locked, directory, summary.id, &name, claimed)?;
    let failed = |path: &OutputPath| {
        let path = prefix.path().join(path.as_str());
        PrefixError::io("move a file of the output to", path, PLACE_REMEDY)
    };
    for paths in by_directory(waiting.into_keys()) {
        let Some(first) = paths.first() else { continue };
        let target = OutputDirectory::create(prefix.path(), first).map_err(failed(first))?;
        for path in &paths {
            kill_point::reach();
            target.take(&here.join(path.base_name()), path.base_name()).map_err(failed(path))?;
        }
        target.sync().map_err(failed(first))?;
    }
    durable::sync_directory(&here)?;
    Ok(())
}

/// The paths with the same directory, of each directory.
fn by_directory<'a>(paths: impl Iterator<Item = &'a OutputPath>) -> Vec<Vec<&'a OutputPath>> {
    let mut directories: BTreeMap<Vec<&str>, Vec<&OutputPath>> = BTreeMap::new();
    for path in paths {
        directories.entry(path.parents().collect()).or_default().push(path);
    }
    directories.into_values().collect()
}

/// True if there is anything at this path. What cannot be examined is taken to be there.
fn is_present(path: &Path) -> bool {
    !matches!(fs::symlink_metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// True if a link has taken the place of a dataset's directory. What it leads to is left alone.
fn is_elsewhere(here: &Path) -> bool {
    fs::symlink_metadata(here).is_ok_and(|found| !found.is_dir())
}

/// Deletes the datasets whose paths this one replaces.
fn make_room(
    prefix: &Prefix,
    locked: &LockedIndex<'_>,
    directory: &DirectoryName,
    id: CheckpointId,
    name: &str,
    files: &BTreeMap<&OutputPath, &SummaryFile>,
) -> Result<(), PrefixError> {
    let index = index::read(prefix)?.unwrap_or_default();
    let mut replaced = half_deleted(prefix, &index, directory, name);
    let mut taken = BTreeSet::new();
    for path in files.keys() {
        replaced.extend(check_directory(prefix, &index, Some(directory), id, name, path)?);
        let examined = OutputDirectory::open(prefix.path(), path)
            .and_then(|parent| parent.map_or(Ok(Occupant::Nothing), |parent| parent.occupant(path.base_name())));
        let failed = PrefixError::io("examine", prefix.path().join(path.as_str()), PLACE_REMEDY);
        if examined.map_err(failed)? != Occupant::Nothing {
            taken.insert(*path);
        }
    }
    if !taken.is_empty() {
        let owners = owners(prefix, &index, Some(directory), &taken)?;
        owners.iter().try_for_each(|owner| owner.check_replaceable(id, name))?;
        replaced.extend(owners.into_iter().map(|owner| owner.entry.directory));
    }
    for earlier in &replaced {
        // Killed in between, the next publication finds an entry that is not complete, and repeats it.
        if prefix.current()?.as_ref() == Some(earlier) {
            prefix.remove_current()?;
        }
        locked.change(|index| index.set_complete(earlier, false))?;
        // Otherwise it would be marked as complete again: `unfinished::abandon`.
        let here = prefix.checkpoint_path(earlier);
        if !is_elsewhere(&here)
            && let Ok(summary) = summary::read(&here)
        {
            summary::write(&here, &Summary { complete: false, ..summary })?;
        }
        remove(prefix, earlier)?;
        locked.change(|index| index.remove(earlier))?;
    }
    Ok(())
}

/// The earlier attempts of an output that are not complete: the deletion of one was interrupted, or it was never
/// complete. Of an entry without any file of a dataset, only the entry is left.
fn half_deleted(prefix: &Prefix, index: &index::Index, own: &DirectoryName, name: &str) -> BTreeSet<DirectoryName> {
    let incomplete = index.entries().into_iter().filter(|entry| entry.complete == Some(false));
    let earlier = incomplete.filter(|entry| {
        entry.directory != *own
            && match dataset::read(prefix, &entry.directory) {
                Ok(Some(record)) => record.output && record.name.unwrap_or_else(|| default_name(entry.id)) == name,
                Ok(None) => holds_nothing(&prefix.checkpoint_path(&entry.directory)),
                Err(_) => false,
            }
    });
    earlier.map(|entry| entry.directory).collect()
}

/// True if a directory is missing, or contains no file of a dataset.
fn holds_nothing(here: &Path) -> bool {
    let entries = match fs::read_dir(here) {
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
        Ok(entries) => entries,
    };
    let mut names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    !names.any(|name| is_of_a_dataset(&name))
}

/// True for the names of the files that SCR and Holdfast write beside those of the application.
fn is_of_a_dataset(name: &str) -> bool {
    name.ends_with(meta::EXTENSION)
        || name.ends_with(rank_filemap::SUFFIX)
        || [OLD_SUMMARY_FILE, dataset::DATASET_FILE].contains(&name)
        || temporary::is_temporary(name)
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

/// The other datasets of the index that have files at these paths.
fn owners<'a>(
    prefix: &Prefix,
    index: &index::Index,
    own: Option<&DirectoryName>,
    taken: &BTreeSet<&'a OutputPath>,
) -> Result<Vec<Owner<'a>>, PrefixError> {
    let mut owners = Vec::new();
    for entry in index.entries() {
        if own == Some(&entry.directory) {
            continue;
        }
        // A dataset whose record or summary cannot be read claims nothing.
        let Some(record) = dataset::read(prefix, &entry.directory).ok().flatten().filter(|record| record.output) else {
            continue;
        };
        let Ok(summary) = summary::read(&prefix.checkpoint_path(&entry.directory)) else { continue };
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
    prefix: &Prefix,
    index: &index::Index,
    own: Option<&DirectoryName>,
    id: CheckpointId,
    name: &str,
    output_path: &OutputPath,
) -> Result<Option<DirectoryName>, PrefixError> {
    let Some(first) = output_path.parents().next() else { return Ok(None) };
    let Ok(directory) = DirectoryName::new(first) else { return Ok(None) };
    let Some(entry) = index.entry(&directory).filter(|_| own != Some(&directory)) else { return Ok(None) };
    let record = dataset::read(prefix, &directory).ok().flatten();
    let output = record.as_ref().is_some_and(|record| record.output);
    let known = record.and_then(|record| record.name).unwrap_or_else(|| default_name(entry.id));
    if output && entry.complete == Some(true) && !has_file(prefix, &directory, output_path) {
        return Ok(None);
    }
    if output && (known == name || entry.id >= id) {
        return Ok(Some(directory));
    }
    Err(PrefixError::InDataset { path: output_path.clone(), directory })
}

/// True for a dataset whose files are removed one by one: other datasets may have files in its directory.
pub(super) fn is_output(prefix: &Prefix, directory: &DirectoryName) -> bool {
    dataset::read(prefix, directory).is_ok_and(|record| record.is_some_and(|record| record.output))
        || summary::read(&prefix.checkpoint_path(directory)).is_ok_and(|summary| !summary.output_files().is_empty())
}

/// Removes the files of an output, those at their paths and those in its directory, and the directories that are then
/// empty. What other datasets or the user have put there stays. The summary and the record are removed last, so that
/// the call can be repeated.
pub(super) fn remove(prefix: &Prefix, directory: &DirectoryName) -> Result<(), PrefixError> {
    let here = prefix.checkpoint_path(directory);
    let files = files_of(&here);
    let mut placed: BTreeSet<&OutputPath> = files.keys().collect();
    // A file that is still in the dataset's directory was not moved: what is at its path belongs to another dataset.
    placed.retain(|path| !is_present(&here.join(path.base_name())));
    leave_to_others(prefix, directory, &mut placed)?;
    for paths in by_directory(placed.into_iter()) {
        let Some(first) = paths.first() else { continue };
        let failed = |path: &OutputPath| {
            let path = prefix.path().join(path.as_str());
            PrefixError::io("remove", path, REMOVE_REMEDY)
        };
        let Some(parent) = OutputDirectory::open(prefix.path(), first).map_err(failed(first))? else { continue };
        for path in &paths {
            let occupant = parent.occupant(path.base_name()).map_err(failed(path))?;
            let recorded = files.get(*path).and_then(|file| file.size);
            // A file of another size was written by another program since.
            if matches!(occupant, Occupant::File(size) if recorded.is_none_or(|recorded| recorded == size)) {
                kill_point::reach();
                parent.remove(path.base_name()).map_err(failed(path))?;
            }
        }
        parent.sync().map_err(failed(first))?;
    }
    if !is_elsewhere(&here) {
        remove_own_files(&here, &files)?;
    }
    for paths in by_directory(files.keys()) {
        if let Some(first) = paths.first() {
            remove_empty_directories(prefix.path(), first);
        }
    }
    durable::sync_directory(prefix.path())?;
    Ok(())
}

/// Takes out the paths at which other datasets of the index have files.
fn leave_to_others(prefix: &Prefix, own: &DirectoryName, paths: &mut BTreeSet<&OutputPath>) -> Result<(), PrefixError> {
    if paths.is_empty() {
        return Ok(());
    }
    for entry in index::read(prefix)?.unwrap_or_default().entries() {
        let directory = &entry.directory;
        if directory == own {
            continue;
        }
        let here = prefix.checkpoint_path(directory);
        let theirs = summary::read(&here).ok();
        let theirs = theirs.as_ref().map(Summary::output_files).unwrap_or_default();
        let mut output = None;
        paths.retain(|path| {
            // A file in the dataset's directory was not moved, unless that is where its path leads.
            let is_at_path = is_inside(directory, path) || !is_present(&here.join(path.base_name()));
            let has_it = theirs.contains_key(path) && is_at_path;
            let mut may_be_inside =
                || *output.get_or_insert_with(|| is_output(prefix, directory)) && !has_file(prefix, directory, path);
            !has_it && (path.parents().next() != Some(directory.as_str()) || may_be_inside())
        });
    }
    Ok(())
}

/// True if the path leads to a file of this dataset's directory.
fn is_inside(directory: &DirectoryName, path: &OutputPath) -> bool {
    path.as_str() == format!("{directory}/{}", path.base_name())
}

/// True if a dataset has a file of its own at a path, in its directory; not one that was moved there.
fn has_file(prefix: &Prefix, directory: &DirectoryName, path: &OutputPath) -> bool {
    let here = prefix.checkpoint_path(directory);
    is_inside(directory, path)
        && Meta::path_for(&here.join(path.base_name())).exists()
        && !summary::read(&here).is_ok_and(|summary| summary.output_files().contains_key(path))
}

/// The output files of a dataset, from its summary or, if that is damaged, from the meta files that are there. A
/// dataset without a summary has none: files are moved after it is written.
fn files_of(here: &Path) -> BTreeMap<OutputPath, SummaryFile> {
    match summary::read(here) {
        Ok(summary) => {
            return summary.output_files().into_iter().map(|(path, file)| (path.clone(), file.clone())).collect();
        }
        Err(PrefixError::NoSummary { .. } | PrefixError::OldSummary { .. }) => return BTreeMap::new(),
        Err(_) => {}
    }
    let entries = fs::read_dir(here).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let metas = names.filter_map(|name| Meta::read(&here.join(name.strip_suffix(meta::EXTENSION)?)).ok());
    metas
        .filter_map(|meta| {
            let path = meta.output_path.clone()?;
            let Meta { file: name, size, crc, .. } = meta;
            let output_path = Some(path.clone());
            Some((path, SummaryFile { name, size: Some(size), crc, fetch: true, failed: false, output_path }))
        })
        .collect()
}

fn remove_own_files(here: &Path, files: &BTreeMap<OutputPath, SummaryFile>) -> Result<(), PrefixError> {
    let entries = match fs::read_dir(here) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(PrefixError::io("list", here, REMOVE_REMEDY))?,
    };
    let own: BTreeSet<&str> = files.values().map(|file| file.name.as_str()).collect();
    let names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let listed: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let belongs = |name: &str| {
        let with_meta = || listed.contains(format!("{name}{}", meta::EXTENSION).as_str());
        is_of_a_dataset(name) || own.contains(name) || with_meta()
    };
    let mut removed: Vec<&String> = names.iter().filter(|name| belongs(name)).collect();
    removed.sort_by_key(|name| (*name == dataset::DATASET_FILE, *name == SUMMARY_FILE));
    for name in removed {
        let path = here.join(name);
        kill_point::reach();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(PrefixError::io("remove", path, REMOVE_REMEDY)(error));
            }
            _ => {}
        }
    }
    // Not empty if it contains files of others.
    let _ = fs::remove_dir(here);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::publish::{self, Publication};
    use super::super::scan::{ScanOptions, scan};
    use super::super::summary::RankFiles;
    use super::super::{delete, inspect};
    use super::*;
    use crate::control::meta::FileKind;
    use chrono::NaiveDateTime;
    use holdfast_model::{Dataset, Rank};

    fn time() -> NaiveDateTime {
        NaiveDateTime::parse_from_str("2026-01-02T03:04:05", "%Y-%m-%dT%H:%M:%S").unwrap()
    }

    struct World {
        scratch: tempfile::TempDir,
        prefix: Prefix,
    }

    impl World {
        fn new() -> World {
            let scratch = tempfile::tempdir().unwrap();
            let prefix = Prefix::open(scratch.path()).unwrap();
            World { scratch, prefix }
        }

        /// A dataset of one rank that was copied to its directory.
        fn copy(&self, id: u64, name: &str, output: bool, paths: &[&str]) -> (DirectoryName, Summary) {
            let dataset = Dataset { name: Some(name.to_owned()), output, ..Dataset::default() };
            let id = CheckpointId(id);
            let directory = self.prefix.create_dataset_directory(time(), "17", id, Some(name)).unwrap();
            publish::begin(&self.prefix, id, &directory, &dataset, "17", time()).unwrap();
            let mut files = RankFiles::default();
            for path in paths {
                let output_path = OutputPath::parse(path).unwrap();
                let file = output_path.base_name().to_owned();
                let content = format!("{name} {path}");
                let here = self.prefix.checkpoint_path(&directory).join(&file);
                fs::write(&here, &content).unwrap();
                let (size, crc) = (content.len() as u64, Some(crc32fast::hash(content.as_bytes())));
                let output_path = output.then_some(output_path);
                let (kind, rank) = (FileKind::Full, Rank(0));
                let meta = Meta { file, kind, size, checkpoint: id, rank, ranks: 1, complete: true, crc, output_path };
                meta.write(&here).unwrap();
                let Meta { file: name, output_path, .. } = meta;
                files.files.push(SummaryFile { name, size: Some(size), crc, fetch: true, failed: false, output_path });
            }
            let by_rank = BTreeMap::from([(Rank(0), files)]);
            (directory, Summary { id, ranks: 1, complete: true, by_rank })
        }

        fn publish(&self, copied: &(DirectoryName, Summary)) -> Result<bool, PrefixError> {
            Publication::of_copy(copied.0.clone(), Some(copied.1.clone()), false, time()).publish(&self.prefix)
        }

        fn output(&self, id: u64, name: &str, paths: &[&str]) -> DirectoryName {
            let copied = self.copy(id, name, true, paths);
            assert!(self.publish(&copied).unwrap());
            copied.0
        }

        fn read(&self, path: &str) -> Option<String> {
            fs::read_to_string(self.scratch.path().join(path)).ok()
        }

        fn complete(&self) -> Vec<String> {
            let entries = index::read(&self.prefix).unwrap().unwrap().entries().into_iter();
            entries.filter(|entry| entry.complete == Some(true)).map(|entry| entry.directory.to_string()).collect()
        }
    }

    #[test]
    fn files_are_at_their_paths_and_the_rest_in_a_directory_of_the_name() {
        let world = World::new();
        let directory = world.output(3, "plot.3", &["out/3/a", "b", "plot.3/c"]);
        assert_eq!(directory.as_str(), "plot.3");
        for path in ["out/3/a", "b", "plot.3/c"] {
            assert_eq!(world.read(path), Some(format!("plot.3 {path}")));
        }
        assert!(world.read("plot.3/a").is_none() && world.scratch.path().join("plot.3/a.scr").exists());
        // A scan finds them, and damage to them.
        let here = world.prefix.checkpoint_path(&directory);
        let mut scanned = scan(&here, ScanOptions::default()).unwrap();
        scanned.verify(1, &|_| {});
        assert_eq!(scanned.damaged, []);
        fs::write(world.scratch.path().join("out/3/a"), "PLOT.3 out/3/a").unwrap();
        scanned.verify(1, &|_| {});
        assert_eq!(scanned.damaged.len(), 1, "another content");
        fs::remove_file(world.scratch.path().join("b")).unwrap();
        let scanned = scan(&here, ScanOptions::default()).unwrap();
        assert_eq!(scanned.damaged.len(), 1, "a missing file");
        assert_ne!(inspect::inspect(&scanned).completeness, inspect::Completeness::Complete);
    }

    #[test]
    fn outputs_share_a_directory_and_each_is_deleted_alone() {
        let world = World::new();
        let one = world.output(1, "plots", &["plots/one", "shared/1"]);
        let two = world.output(2, "two", &["plots/two", "shared/2"]);
        fs::write(world.scratch.path().join("plots/of_the_user"), "kept").unwrap();
        assert!(delete::delete(&world.prefix, &one).unwrap());
        assert_eq!((world.read("plots/one"), world.read("shared/1")), (None, None));
        assert!(world.read("plots/two").is_some() && world.read("plots/of_the_user").is_some());
        assert!(!world.scratch.path().join("plots/one.scr").exists());
        assert_eq!(world.complete(), ["two"]);
        assert!(delete::delete(&world.prefix, &two).unwrap());
        assert!(!world.scratch.path().join("shared").exists() && !world.scratch.path().join("two").exists());
        assert!(world.read("plots/of_the_user").is_some());
        assert!(!delete::delete(&world.prefix, &two).unwrap());
    }

    #[test]
    fn the_path_of_another_output_is_refused_and_that_one_stays() {
        let world = World::new();
        world.output(1, "one", &["out/a"]);
        let path = OutputPath::parse("out/a").unwrap();
        let taken = |error: &PrefixError| matches!(error, PrefixError::OutputPathTaken { name, .. } if name == "one");
        assert!(taken(&check_path(&world.prefix, None, CheckpointId(2), Some("two"), &path).unwrap_err()));
        let second = world.copy(2, "two", true, &["out/a"]);
        let refused = world.publish(&second).unwrap_err();
        assert!(taken(&refused) && refused.to_string().contains("files of its own"), "{refused}");
        assert_eq!((world.read("out/a"), world.complete()), (Some("one out/a".to_owned()), vec!["one".to_owned()]));
        assert!(world.read("two/a").is_some(), "the copy is kept");
        // Where the index lists nothing, the file is replaced, as the application would do.
        publish::withdraw(&world.prefix, &DirectoryName::new("one").unwrap()).unwrap();
        check_path(&world.prefix, None, CheckpointId(2), Some("two"), &path).unwrap();
        assert!(world.publish(&second).unwrap());
        assert_eq!(world.read("out/a"), Some("two out/a".to_owned()));
    }

    #[test]
    fn a_later_attempt_of_an_output_replaces_the_earlier_one() {
        let world = World::new();
        world.output(2, "plot", &["out/a", "out/only_in_the_first"]);
        let later = world.output(5, "plot", &["out/a"]);
        assert_eq!(later.as_str(), "plot.5", "the name was taken when the copy began");
        assert_eq!((world.read("out/a"), world.complete()), (Some("plot out/a".to_owned()), vec!["plot.5".to_owned()]));
        assert!(world.read("out/only_in_the_first").is_none() && !world.scratch.path().join("plot").exists());
        // After a restart from an older checkpoint, the ids begin again.
        world.output(4, "other", &["out/a"]);
        assert_eq!(world.complete(), ["other"]);
    }

    #[test]
    fn the_removal_of_an_unfinished_copy_leaves_the_files_of_the_earlier_attempt() {
        for has_summary in [false, true] {
            let world = World::new();
            world.output(1, "plot", &["out/a", "out/b"]);
            // Killed before the file `b` was copied. The files of both attempts have equal sizes.
            let (later, mut summary) = world.copy(2, "plot", true, &["out/a", "out/b"]);
            let here = world.prefix.checkpoint_path(&later);
            fs::remove_file(here.join("b")).unwrap();
            if has_summary {
                summary.complete = false;
                summary::write(&here, &summary).unwrap();
            }
            assert!(delete::delete(&world.prefix, &later).unwrap() && !here.exists());
            assert_eq!(world.complete(), ["plot"]);
            for path in ["out/a", "out/b"] {
                assert_eq!(world.read(path), Some(format!("plot {path}")), "with a summary: {has_summary}");
            }
        }
    }

    #[test]
    fn the_removal_of_an_output_leaves_the_file_that_replaced_its_own() {
        let world = World::new();
        let one = world.output(1, "one", &["out/a"]);
        publish::withdraw(&world.prefix, &one).unwrap();
        world.output(2, "two", &["out/a"]);
        assert!(delete::delete(&world.prefix, &one).unwrap());
        assert_eq!((world.read("out/a"), world.complete()), (Some("two out/a".to_owned()), vec!["two".to_owned()]));
    }

    #[test]
    fn the_removal_of_an_output_touches_no_file_inside_another_dataset() {
        let world = World::new();
        let checkpoint = world.copy(1, "state", false, &["x"]);
        assert!(world.publish(&checkpoint).unwrap());
        let other = world.output(2, "other", &["other/x"]);
        // As damage or another program can leave it: paths that a publication refuses.
        let (one, mut summary) = world.copy(3, "one", true, &["out/x"]);
        summary.complete = true;
        for (path, directory) in [("state/x", &checkpoint.0), ("other/x", &other)] {
            let there = world.prefix.checkpoint_path(directory).join("x");
            let file = &mut summary.by_rank.get_mut(&Rank(0)).unwrap().files[0];
            file.output_path = Some(OutputPath::parse(path).unwrap());
            file.size = Some(fs::metadata(&there).unwrap().len());
            fs::create_dir_all(world.prefix.checkpoint_path(&one)).unwrap();
            summary::write(&world.prefix.checkpoint_path(&one), &summary).unwrap();
            let _ = fs::remove_file(world.prefix.checkpoint_path(&one).join("x"));
            remove(&world.prefix, &one).unwrap();
            assert!(there.exists(), "{path}");
        }
    }

    #[test]
    fn an_output_that_its_ranks_wrote_replaces_the_earlier_attempt() {
        let world = World::new();
        world.output(2, "plot", &["out/a", "out/b"]);
        let (later, summary) = world.copy(5, "plot", true, &["out/a"]);
        let here = world.prefix.checkpoint_path(&later);
        let direct = Some(later.to_string());
        let dataset = Dataset { name: Some("plot".to_owned()), output: true, direct, ..Dataset::default() };
        publish::begin(&world.prefix, CheckpointId(5), &later, &dataset, "17", time()).unwrap();
        fs::remove_file(Meta::path_for(&here.join("a"))).unwrap();
        fs::rename(here.join("a"), world.scratch.path().join("out/a")).unwrap();
        assert!(world.publish(&(later, summary)).unwrap());
        assert_eq!(world.complete(), ["plot.5"]);
        assert_eq!((world.read("out/a"), world.read("out/b")), (Some("plot out/a".to_owned()), None));
    }

    #[test]
    fn an_output_that_is_half_deleted_is_not_marked_as_complete_again() {
        let world = World::new();
        let earlier = world.output(2, "plot", &["out/a", "out/b"]);
        // A later attempt cannot remove the last of the files.
        let blocked = world.scratch.path().join("plot/b.scr");
        fs::remove_file(&blocked).unwrap();
        fs::create_dir(&blocked).unwrap();
        let later = world.copy(5, "plot", true, &["out/a"]);
        assert!(world.publish(&later).is_err());
        assert!(world.read("out/a").is_none());
        super::super::unfinished::abandon_all(&world.prefix, "17", crate::dataset_files::PlainFiles::open_directory)
            .unwrap();
        let _ = super::super::unfinished::abandon(&world.prefix, &earlier);
        assert_eq!(world.complete(), [""; 0]);
        fs::remove_dir(&blocked).unwrap();
        assert!(world.publish(&later).unwrap());
        assert_eq!(world.complete(), ["plot.5"]);
    }

    #[test]
    fn a_path_in_the_directory_of_another_dataset_is_refused() {
        let world = World::new();
        let checkpoint = world.copy(1, "state", false, &["x"]);
        assert!(world.publish(&checkpoint).unwrap());
        world.copy(2, "incomplete", true, &["y"]);
        world.output(3, "complete", &["elsewhere/z"]);
        for path in ["state/a", "incomplete/a", "complete/z"] {
            let path = OutputPath::parse(path).unwrap();
            let refused = check_path(&world.prefix, None, CheckpointId(9), None, &path).unwrap_err();
            assert!(matches!(refused, PrefixError::InDataset { .. }), "{path}: {refused}");
        }
        check_path(&world.prefix, None, CheckpointId(9), None, &OutputPath::parse("complete/other").unwrap()).unwrap();
        let copied = world.copy(9, "nine", true, &["state/a"]);
        assert!(matches!(world.publish(&copied), Err(PrefixError::InDataset { .. })));
        assert!(world.read("state/a").is_none());
    }
}
