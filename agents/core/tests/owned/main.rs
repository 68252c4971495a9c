//! What another user can put in the place of our files and directories, and that none of it is used: by tests that run
//! as root and give files to another user.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate holdfast_test_attribute;

mod bases;
mod directories;
mod files;
mod removal;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown};
use std::path::Path;
use std::process::ExitCode;

use holdfast_core::owned::{Base, Found, OwnedError};
use rustix::process::geteuid;

/// The uid of the other user: `nobody`.
const OTHER: u32 = 65534;

fn main() -> ExitCode {
    holdfast_testkit::harness::run()
}

/// Gives a file, or the link itself, to the other user.
fn give_away(path: &Path) {
    if !geteuid().is_root() {
        holdfast_testkit::harness::ignore("giving a file to another user needs root");
    }
    match path.is_symlink() {
        true => lchown(path, Some(OTHER), Some(OTHER)).unwrap(),
        false => chown(path, Some(OTHER), Some(OTHER)).unwrap(),
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

/// What was found, and the path that was refused.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, OwnedError>, path: &Path) -> Found {
    let error = result.unwrap_err();
    assert_eq!(error.path(), path, "{error}");
    assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    error.found().unwrap_or_else(|| panic!("{error}")).clone()
}

fn other_owner() -> Found {
    Found::OtherOwner { owner: OTHER, ours: geteuid().as_raw() }
}

/// A directory that other users may enter, so that modes in it count.
fn open_base() -> tempfile::TempDir {
    let base = tempfile::tempdir().unwrap();
    set_mode(base.path(), 0o755);
    base
}

fn shared_base() -> (tempfile::TempDir, Base) {
    let base = open_base();
    let shared = Base::shared(base.path()).unwrap();
    (base, shared)
}
