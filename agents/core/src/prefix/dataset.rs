//! What an application declared about a dataset when it began to write it: its name, its purpose, where its files are
//! (`SCR_Start_output` of SCR 3), and the level of a checkpoint of variables.
//!
//! The directory of a dataset below the prefix carries its name, as far as that can be the name of a directory
//! ([`new_directory`](super::new_directory)). The name as given is recorded in the directory, in the hash file
//! [`DATASET_FILE`]. A plain checkpoint, without a name, has no record, and its directory is SCR 1's to the last byte.

use holdfast_model::dataset::{check_name, default_name};
use holdfast_model::{CheckpointId, Dataset, Level};

use super::index;
use crate::kvtree::Tree;
use crate::store::dataset_files::{read_tree_if_there, write_tree};
use crate::store::{DatasetAccess, DatasetStore, DirectoryName, OpenDataset, PrefixError};

/// The file's name, in a checkpoint directory.
pub const DATASET_FILE: &str = "dataset.holdfast";
/// The version of its contents.
const VERSION: &str = "1";
const REMEDY: &str = "remove the file: the dataset is then a checkpoint without a name";

/// As it is written. The directory is the one that the record lies in.
pub fn to_tree(dataset: &Dataset, job: &str) -> Tree {
    let flag = |set: bool| if set { "1" } else { "0" };
    let mut tree = Tree::new();
    if let Some(name) = &dataset.name {
        tree.put("NAME", name);
    }
    tree.put("CKPT", flag(dataset.checkpoint));
    tree.put("OUTPUT", flag(dataset.output));
    tree.put("BYPASS", flag(dataset.direct.is_some()));
    if let Some(level) = dataset.level {
        tree.put("LEVEL", level.to_string());
    }
    tree.put("JOB", job);
    tree.put("VERSION", VERSION);
    tree
}

/// The job id of the run that wrote a directory: from a name in SCR's form, or from the record. `None` if neither has
/// it.
pub fn job_of(store: &dyn DatasetStore, directory: &DirectoryName) -> Option<String> {
    if let Some(parts) = directory.parts() {
        return Some(parts.job);
    }
    let tree = record(store, directory).ok()??;
    tree.value("JOB").map(str::to_owned)
}

fn record(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<Option<Tree>, PrefixError> {
    match store.open(directory, DatasetAccess::Read) {
        Ok(dataset) => Ok(read_tree_if_there(&*dataset, DATASET_FILE)?),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the record of a checkpoint directory; `None` if there is none.
///
/// # Errors
/// The file cannot be read, or its content is invalid.
pub fn read(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<Option<Dataset>, PrefixError> {
    let Some(tree) = record(store, directory)? else { return Ok(None) };
    let path = store.path_of(directory).join(DATASET_FILE);
    let content = |place: &str, problem: String| PrefixError::Content {
        path: path.clone(),
        place: place.to_owned(),
        problem,
        remedy: REMEDY,
    };
    if tree.value("VERSION") != Some(VERSION) {
        let found = tree.value("VERSION").unwrap_or("none");
        return Err(content("VERSION", format!("version {found}, and only {VERSION} is known")));
    }
    let name = tree.value("NAME").map(str::to_owned);
    if let Some(problem) = name.as_deref().and_then(|name| check_name(name).err()) {
        return Err(content("NAME", problem.to_string()));
    }
    let level = tree.value("LEVEL").map(|text| text.parse().ok().and_then(Level::from_number));
    let level = match level {
        Some(None) => return Err(content("LEVEL", "it is no level from 1 to 4".to_owned())),
        known => known.flatten(),
    };
    let flag = |key: &str| tree.value(key) == Some("1");
    Ok(Some(Dataset {
        name,
        checkpoint: flag("CKPT"),
        output: flag("OUTPUT"),
        direct: flag("BYPASS").then(|| directory.to_string()),
        level,
    }))
}

/// Writes the record into a checkpoint directory; for a plain checkpoint there is nothing to write.
pub fn write(dataset: &Dataset, job: &str, to: &dyn OpenDataset) -> Result<(), PrefixError> {
    if dataset.is_plain() {
        return Ok(());
    }
    Ok(write_tree(to, DATASET_FILE, &to_tree(dataset, job))?)
}

/// The newest indexed dataset with this name: the application's name, the one that SCR gives to a dataset without a
/// name, or that of the directory.
///
/// # Errors
/// The index cannot be read. A record that cannot be read matches no name.
pub fn find(store: &dyn DatasetStore, name: &str) -> Result<Option<(CheckpointId, DirectoryName)>, PrefixError> {
    let index = index::read(store)?.unwrap_or_default();
    Ok(index
        .entries()
        .into_iter()
        .find(|entry| {
            let record = read(store, &entry.directory).ok().flatten();
            match record.and_then(|record| record.name) {
                Some(given) => given == name || entry.directory.as_str() == name,
                None => default_name(entry.id) == name || entry.directory.as_str() == name,
            }
        })
        .map(|entry| (entry.id, entry.directory)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::world::{TestStore, each_store, name, some_time};
    use super::*;
    use crate::kvtree::file;

    fn add(world: &dyn TestStore, id: u64, directory: &str, dataset: &Dataset) -> DirectoryName {
        write(dataset, "17", &*world.dataset(directory)).unwrap();
        index::update(world.store(), |index| index.add(CheckpointId(id), &name(directory), some_time())).unwrap();
        name(directory)
    }

    fn named(name: &str) -> Dataset {
        Dataset { name: Some(name.to_owned()), ..Dataset::default() }
    }

    #[test]
    fn what_is_written_into_a_directory_is_read_from_it() {
        each_store(|world| {
            let output = Dataset { checkpoint: false, output: true, ..named("plot/step 7") };
            let direct = Dataset { direct: Some("eight".to_owned()), ..named("shared") };
            let of_variables = Dataset { level: Some(Level::Prefix), ..Dataset::default() };
            for (id, directory, dataset) in [(7, "seven", output), (8, "eight", direct), (9, "nine", of_variables)] {
                let directory = add(world, id, directory, &dataset);
                assert_eq!(read(world.store(), &directory).unwrap(), Some(dataset));
            }
        });
    }

    #[test]
    fn a_plain_checkpoint_leaves_no_record() {
        each_store(|world| {
            let directory = add(world, 1, "one", &Dataset::default());
            assert!(world.get(&format!("one/{DATASET_FILE}")).is_none());
            assert_eq!(read(world.store(), &directory).unwrap(), None);
        });
    }

    #[test]
    fn a_dataset_is_found_by_name_default_name_and_directory_and_the_newest_is_preferred() {
        each_store(|world| {
            let find = |name| find(world.store(), name).unwrap();
            add(world, 1, "a", &named("same"));
            let newest = add(world, 2, "b", &named("same"));
            let plain = add(world, 3, "c", &Dataset::default());
            assert_eq!(find("same"), Some((CheckpointId(2), newest)));
            assert_eq!(find("scr.dataset.3"), Some((CheckpointId(3), plain)));
            assert_eq!(find("a").map(|(id, _)| id), Some(CheckpointId(1)));
            assert_eq!(find("scr.dataset.2"), None, "it has a name of its own");
        });
    }

    #[test]
    fn a_record_of_another_version_or_with_an_impossible_name_is_refused() {
        each_store(|world| {
            let directory = add(world, 1, "one", &named("x"));
            for (key, value) in [("VERSION", "2"), ("NAME", "a\nb"), ("LEVEL", "5")] {
                let mut tree = to_tree(&named("x"), "17");
                tree.unset(key);
                tree.put(key, value);
                world.put(&format!("one/{DATASET_FILE}"), &file::encode(&tree));
                assert!(read(world.store(), &directory).unwrap_err().to_string().contains(key));
            }
        });
    }
}
