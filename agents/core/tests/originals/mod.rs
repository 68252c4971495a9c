//! The files that SCR wrote.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_testkit::fixtures;

/// The directory of a job's files below a base directory.
pub const JOB: &str = "user1/scr.1145655";

pub fn scr(path: &str) -> PathBuf {
    fixtures("scr").join(path)
}

/// The control directory of a node in a state of the fixtures.
pub fn node(state: &str, node: u32) -> PathBuf {
    scr(state).join("tree").join(format!("node{node}")).join(JOB)
}

pub fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}
