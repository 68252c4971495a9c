//! Jubatus model files: written by real servers, damaged, and randomly changed.

// Test helpers may panic, as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod damage;
mod models;
mod untrusted;

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_testkit::{files_below, fixtures};
use serde_json::Value;

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Every intact model with its expected description.
fn models() -> Vec<(PathBuf, Value)> {
    let home = fixtures("jubatus");
    let expected = |path: &Path| {
        let name = format!("{}.json", path.strip_prefix(home.join("models")).unwrap().display());
        read_json(&home.join("expected").join(name))
    };
    let models: Vec<_> =
        files_below(&home.join("models")).into_iter().map(|path| (path.clone(), expected(&path))).collect();
    assert_eq!(models.len(), 22);
    models
}
