//! What an application declared about a dataset when it began to write it: its name, its purpose, where its files are
//! (`SCR_Start_output` of SCR 3), and the level of a checkpoint of variables.
//!
//! The directory of a dataset below the prefix carries its name, as far as that can be the name of a directory
//! ([`Prefix::create_dataset_directory`]). The name as given is recorded in the directory, in the hash file
//! [`DATASET_FILE`]. A plain checkpoint, without a name, has no record, and its directory is SCR 1's to the last byte.

use std::path::Path;

use holdfast_model::dataset::{check_name, default_name};
use holdfast_model::{CheckpointId, Dataset, Level};

use super::directory::{DirectoryName, Prefix};
use super::error::PrefixError;
use super::{index, reading};
use crate::kvtree::{Tree, file};

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
pub fn job_of(prefix: &Prefix, directory: &DirectoryName) -> Option<String> {
    if let Some(parts) = directory.parts() {
        return Some(parts.job);
    }
    let tree = reading::hash_file(&prefix.checkpoint_path(directory).join(DATASET_FILE)).ok()??;
    tree.value("JOB").map(str::to_owned)
}

/// Reads the record of a checkpoint directory; `None` if there is none.
///
/// # Errors
/// The file cannot be read, or its content is invalid.
pub fn read(prefix: &Prefix, directory: &DirectoryName) -> Result<Option<Dataset>, PrefixError> {
    let path = prefix.checkpoint_path(directory).join(DATASET_FILE);
    let Some(tree) = reading::hash_file(&path)? else { return Ok(None) };
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
///
/// # Errors
/// The file cannot be written.
pub fn write(dataset: &Dataset, job: &str, directory: &Path) -> Result<(), PrefixError> {
    if dataset.is_plain() {
        return Ok(());
    }
    Ok(file::write(&directory.join(DATASET_FILE), &to_tree(dataset, job))?)
}

/// The newest indexed dataset with this name: the application's name, the one that SCR gives to a dataset without a
/// name, or that of the directory.
///
/// # Errors
/// The index cannot be read. A record that cannot be read matches no name.
pub fn find(prefix: &Prefix, name: &str) -> Result<Option<(CheckpointId, DirectoryName)>, PrefixError> {
    let index = index::read(prefix)?.unwrap_or_default();
    Ok(index
        .entries()
        .into_iter()
        .find(|entry| {
            let record = read(prefix, &entry.directory).ok().flatten();
            match record.and_then(|record| record.name) {
                Some(given) => given == name || entry.directory.as_str() == name,
                None => default_name(entry.id) == name || entry.directory.as_str() == name,
            }
        })
        .map(|entry| (entry.id, entry.directory)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::NaiveDateTime;
    use std::fs;

    fn prefix() -> (tempfile::TempDir, Prefix) {
        let directory = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(directory.path()).unwrap();
        (directory, prefix)
    }

    fn add(prefix: &Prefix, id: u64, directory: &str, dataset: &Dataset) -> DirectoryName {
        let directory = DirectoryName::new(directory).unwrap();
        fs::create_dir(prefix.checkpoint_path(&directory)).unwrap();
        write(dataset, "17", &prefix.checkpoint_path(&directory)).unwrap();
        let time = NaiveDateTime::parse_from_str("2026-01-02T03:04:05", "%Y-%m-%dT%H:%M:%S").unwrap();
        index::update(prefix, |index| index.add(CheckpointId(id), &directory, time)).unwrap();
        directory
    }

    fn named(name: &str) -> Dataset {
        Dataset { name: Some(name.to_owned()), ..Dataset::default() }
    }

    #[test]
    fn what_is_written_into_a_directory_is_read_from_it() {
        let (_held, prefix) = prefix();
        let output = Dataset { checkpoint: false, output: true, ..named("plot/step 7") };
        let directory = add(&prefix, 7, "seven", &output);
        assert_eq!(read(&prefix, &directory).unwrap(), Some(output));
        let direct = Dataset { direct: Some("eight".to_owned()), ..named("shared") };
        let directory = add(&prefix, 8, "eight", &direct);
        assert_eq!(read(&prefix, &directory).unwrap(), Some(direct));
        let of_variables = Dataset { level: Some(Level::Prefix), ..Dataset::default() };
        let directory = add(&prefix, 9, "nine", &of_variables);
        assert_eq!(read(&prefix, &directory).unwrap(), Some(of_variables));
    }

    #[test]
    fn a_plain_checkpoint_leaves_no_record() {
        let (_held, prefix) = prefix();
        let directory = add(&prefix, 1, "one", &Dataset::default());
        assert!(!prefix.checkpoint_path(&directory).join(DATASET_FILE).exists());
        assert_eq!(read(&prefix, &directory).unwrap(), None);
    }

    #[test]
    fn a_dataset_is_found_by_name_default_name_and_directory_and_the_newest_is_preferred() {
        let (_held, prefix) = prefix();
        add(&prefix, 1, "a", &named("same"));
        let newest = add(&prefix, 2, "b", &named("same"));
        let plain = add(&prefix, 3, "c", &Dataset::default());
        assert_eq!(find(&prefix, "same").unwrap(), Some((CheckpointId(2), newest)));
        assert_eq!(find(&prefix, "scr.dataset.3").unwrap(), Some((CheckpointId(3), plain)));
        assert_eq!(find(&prefix, "a").unwrap().map(|(id, _)| id), Some(CheckpointId(1)));
        assert_eq!(find(&prefix, "scr.dataset.2").unwrap(), None, "it has a name of its own");
    }

    #[test]
    fn a_record_of_another_version_or_with_an_impossible_name_is_refused() {
        let (_held, prefix) = prefix();
        let directory = add(&prefix, 1, "one", &named("x"));
        let path = prefix.checkpoint_path(&directory).join(DATASET_FILE);
        for (key, value) in [("VERSION", "2"), ("NAME", "a\nb"), ("LEVEL", "5")] {
            let mut tree = to_tree(&named("x"), "17");
            tree.unset(key);
            tree.put(key, value);
            file::write(&path, &tree).unwrap();
            assert!(read(&prefix, &directory).unwrap_err().to_string().contains(key));
        }
    }
}
