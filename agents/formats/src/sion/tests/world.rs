//! The fixtures and their manifest.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_testkit::fixtures;
use serde_json::Value;

use super::super::*;

const SEED: u64 = 17;

pub fn root() -> PathBuf {
    fixtures("sion")
}

pub fn manifest() -> Value {
    serde_json::from_slice(&fs::read(root().join("MANIFEST.json")).unwrap()).unwrap()
}

/// The intact containers made by the original.
pub fn intact() -> Vec<Value> {
    manifest()["fixtures"].as_array().unwrap().clone()
}

pub fn named(name: &str) -> Value {
    intact().into_iter().find(|fixture| fixture["name"] == name).unwrap()
}

/// The container of a fixture: its first file.
pub fn first_file(fixture: &Value) -> PathBuf {
    root().join(fixture["files"][0]["path"].as_str().unwrap())
}

/// The bytes of a rank's stream, by the formula of the fixtures' writer.
pub fn content(rank: i64, key: u64, range: std::ops::Range<u64>) -> Vec<u8> {
    let start = SEED.wrapping_add(131_u64.wrapping_mul(rank as u64)).wrapping_add(37_u64.wrapping_mul(key));
    range.map(|o| (start.wrapping_add(7 * o + 13 * (o / 256) + 29 * (o / 65536)) % 256) as u8).collect()
}

pub fn integers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|number| number.as_i64().unwrap()).collect()
}

/// All bytes of a task's stream.
pub fn stream(container: &Container, task: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut container.stream(task).unwrap(), &mut bytes).unwrap();
    bytes
}

/// The records of a task, from the manifest.
pub fn records(fixture: &Value, task: usize) -> Vec<(u64, u64)> {
    let records = fixture["records"][task]["records"].as_array().unwrap();
    records.iter().map(|record| (record["key"].as_u64().unwrap(), record["bytes"].as_u64().unwrap())).collect()
}

/// The bytes of a task's stream by the formula; `None` if the formula does not apply.
pub fn expected_stream(fixture: &Value, task: usize) -> Option<Vec<u8>> {
    let logical = &fixture["logical_tasks"][task];
    let (rank, bytes) = (logical["globalrank"].as_i64()?, logical["bytes"].as_u64()?);
    if fixture["name"] == "cmerge8" {
        return None;
    }
    if fixture["records"].is_null() {
        return Some(content(rank, 0, 0..bytes));
    }
    let big = fixture["files"][0]["endianness_bytes"].as_str()?.starts_with("01");
    let encode = |value: u64| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut stream = Vec::new();
    for (key, length) in records(fixture, task) {
        stream.extend_from_slice(&encode(key));
        stream.extend_from_slice(&encode(length));
        stream.extend(content(rank, key, 0..length));
    }
    Some(stream)
}

pub fn text(container: &Container, options: &DumpOptions) -> String {
    let mut out = Vec::new();
    describe(container, options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

pub fn nothing() -> impl FnMut(u64, u64) {
    |_, _| {}
}

pub fn same_files(ours: &Path, theirs: &Path) {
    assert!(
        fs::read(ours).unwrap() == fs::read(theirs).unwrap(),
        "{} differs from {}",
        ours.display(),
        theirs.display()
    );
}
