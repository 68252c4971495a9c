//! The commands over checkpoint files of every format: the real binary over the files of the original programs.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod datasets;
mod fti;
mod jubatus;
#[path = "../cli/program.rs"]
mod program;
mod sion;
mod untrusted;
mod walk;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use program::{Ran, holdfast};

/// Runs the program with words and then paths as its arguments.
fn run(words: &str, paths: &[&Path]) -> Ran {
    let words = words.split_whitespace().map(OsString::from);
    holdfast(words.chain(paths.iter().map(|path| path.as_os_str().to_owned())))
}

fn json_file(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The only file of a document.
fn only_file(document: &Value) -> &Value {
    let files = document["files"].as_array().unwrap();
    assert_eq!(files.len(), 1, "{document}");
    &files[0]
}

fn path_of(file: &Value) -> PathBuf {
    PathBuf::from(file["path"].as_str().unwrap())
}
