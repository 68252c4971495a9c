//! The content of a prefix directory: its index, the current checkpoint, and the content of its files.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use holdfast_core::kvtree::{Tree, file, json};
use holdfast_core::prefix::index;
use holdfast_core::store::{self, PosixDataset};
use holdfast_formats::sion::dataset;
use holdfast_testkit::files_below;
use serde_json::Value;

/// Every checkpoint in the index, and whether it is complete.
pub fn indexed(prefix: &Path) -> BTreeMap<u64, Option<bool>> {
    let index = index::read(&*store::open(prefix).unwrap()).unwrap().unwrap_or_default();
    index.entries().into_iter().map(|entry| (entry.id.0, entry.complete)).collect()
}

/// The target of `scr.current`.
pub fn current(prefix: &Path) -> Option<PathBuf> {
    let store = store::open(prefix).unwrap();
    Some(store.path_of(&store.current().unwrap()?))
}

/// The directory of a checkpoint in the index.
pub fn directory_of(prefix: &Path, id: u64) -> Option<PathBuf> {
    let store = store::open(prefix).unwrap();
    let entries = index::read(&*store).unwrap()?.entries();
    let entry = entries.into_iter().find(|entry| entry.id.0 == id)?;
    Some(store.path_of(&entry.directory))
}

/// The id of the checkpoint of `scr.current`.
pub fn current_id(prefix: &Path) -> Option<u64> {
    let store = store::open(prefix).unwrap();
    Some(store.current().unwrap()?.parts().unwrap().id.0)
}

/// Checks that this checkpoint is complete and current by index and summary, and that every file has the size and
/// checksum in the summary.
#[track_caller]
pub fn assert_current(prefix: &Path, id: u64) {
    assert_eq!(current_id(prefix), Some(id));
    assert_eq!(indexed(prefix)[&id], Some(true));
    let directory = current(prefix).unwrap();
    let summary = parsed(&directory.join("summary.scr"));
    let dataset = &summary["CKPT"][id.to_string()];
    assert_eq!(dataset["COMPLETE"], serde_json::json!({"1": {}}));
    let files = dataset::open(std::sync::Arc::new(PosixDataset::at(&directory).unwrap())).unwrap();
    let ranks: usize = only_key(&dataset["RANKS"]).parse().unwrap();
    let listed = dataset["RANK"].as_object().unwrap();
    assert_eq!(listed.len(), ranks, "ranks in the summary");
    for (rank, of_rank) in listed {
        for (name, facts) in of_rank["FILE"].as_object().into_iter().flatten() {
            let mut bytes = Vec::new();
            let read = files.open(name, None).and_then(|file| file.reader().read_to_end(&mut bytes));
            read.unwrap_or_else(|error| panic!("rank {rank}, {name}: {error}"));
            assert_eq!(only_key(&facts["SIZE"]), bytes.len().to_string(), "size of {name}");
            if let Some(crc) = facts.get("CRC") {
                let crc = only_key(crc);
                let crc = u32::from_str_radix(crc.trim_start_matches("0x"), 16).unwrap();
                assert_eq!(crc, crc32fast::hash(&bytes), "checksum of {name}");
            }
        }
    }
}

/// A hash file as JSON; comparisons ignore the order of keys.
#[track_caller]
pub fn parsed(path: &Path) -> Value {
    json::value(&tree(path))
}

#[track_caller]
pub fn tree(path: &Path) -> Tree {
    file::read(path).unwrap_or_else(|error| panic!("{error}"))
}

/// The one key of an object.
#[track_caller]
pub fn only_key(value: &Value) -> &str {
    let map = value.as_object().unwrap();
    assert_eq!(map.len(), 1, "{value}");
    map.keys().next().unwrap()
}

/// The names of all files of a directory.
pub fn names(directory: &Path) -> Vec<String> {
    let name = |path: &PathBuf| path.strip_prefix(directory).unwrap().to_string_lossy().into_owned();
    files_below(directory).iter().map(name).collect()
}
