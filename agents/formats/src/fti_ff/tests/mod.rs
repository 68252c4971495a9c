//! Tests over all real files of FTI in the fixtures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_testkit::{files_below, fixtures};
use serde_json::Value;

use super::checkpoint::{Checkpoint, Variable};

mod damaged;
mod differential;
mod intact;
mod mutated;
mod restored;
mod written;

/// The value of a variable as the fixtures' program filled it (see the fixtures' README).
pub(super) fn content(id: i32, rank: u32, layers: &[(u32, usize, usize)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(epoch, from, to) in layers {
        bytes.resize(bytes.len().max(to), 0);
        for (at, byte) in bytes[..to].iter_mut().enumerate().skip(from) {
            let mut bits = ((at / 4) as u32)
                .wrapping_mul(2_654_435_761)
                .wrapping_add((id as u32).wrapping_mul(40_503))
                .wrapping_add(rank.wrapping_mul(97))
                .wrapping_add(epoch.wrapping_mul(1_000_003));
            bits ^= bits >> 15;
            bits = bits.wrapping_mul(2_246_822_519);
            bits ^= bits >> 13;
            *byte = bits.to_le_bytes()[at % 4];
        }
    }
    bytes
}

/// The bytes of a variable.
pub(super) fn value(checkpoint: &Checkpoint, variable: &Variable) -> Vec<u8> {
    let mut value = vec![0; usize::try_from(variable.size()).unwrap()];
    checkpoint.read(variable, 0, &mut value).unwrap();
    value
}

/// One file of the fixtures with its expected description.
pub(super) struct Expected {
    pub path: PathBuf,
    pub json: Value,
}

impl Expected {
    pub fn role(&self) -> &str {
        self.json["role"].as_str().unwrap_or_default()
    }

    /// The expected values of the variables by id.
    pub fn variables(&self) -> BTreeMap<i32, Vec<u8>> {
        let rank = self.json["owner_rank"].as_u64().unwrap() as u32;
        let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
        let variables = self.json["variables"].as_object().unwrap();
        let value = |(id, variable): (&String, &Value)| {
            let id: i32 = id.parse().unwrap();
            let layers: Vec<_> = variable["layers"]
                .as_array()
                .unwrap()
                .iter()
                .map(|layer| (layer[0].as_u64().unwrap() as u32, number(&layer[1]), number(&layer[2])))
                .collect();
            let mut bytes = content(id, rank, &layers);
            bytes.truncate(number(&variable["size"]));
            (id, bytes)
        };
        variables.iter().map(value).collect()
    }
}

/// All trees: the directory of each `expected.json`, and its content.
pub(super) fn trees() -> Vec<(PathBuf, Value)> {
    files_below(&fixtures("fti"))
        .into_iter()
        .filter(|path| path.ends_with("expected.json"))
        .map(|path| {
            let json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            (path.parent().unwrap().to_owned(), json)
        })
        .collect()
}

/// All files of a tree with their expected descriptions.
pub(super) fn files_of(tree: &Path, json: &Value) -> Vec<Expected> {
    let snapshots = json["snapshots"].as_object().unwrap();
    let files = |(snapshot, content): (&String, &Value)| -> Vec<Expected> {
        let files = content["files"].as_object().unwrap();
        files.iter().map(|(name, json)| Expected { path: tree.join(snapshot).join(name), json: json.clone() }).collect()
    };
    snapshots.iter().flat_map(files).collect()
}

pub(super) fn all_files() -> Vec<Expected> {
    trees().iter().flat_map(|(tree, json)| files_of(tree, json)).collect()
}
