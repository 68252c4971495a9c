//! The files of the original.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_testkit::fixtures;

/// Where a job's files are below a base directory.
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
