//! The commands over checkpoint files of every format: the real binary over the files of the original programs.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod datasets;
mod fti;
mod hash_files;
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

/// Runs the program with this much address space and processor time, and returns its exit code and what it printed,
/// up to a limit.
fn run_bounded(words: &str, paths: &[&Path], mib: u64) -> (Option<i32>, Vec<u8>) {
    let limited = format!("ulimit -v {} && ulimit -t 60 && exec \"$0\" \"$@\"", mib << 10);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_holdfast")]).args(words.split_whitespace()).args(paths);
    // Otherwise the allocator may reserve 64 MiB for a thread that needs a few KiB: as much as is left of the limit.
    command.env("MALLOC_ARENA_MAX", "1");
    let output = command.output().unwrap();
    (output.status.code(), [output.stdout, output.stderr].concat())
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
