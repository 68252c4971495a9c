//! Directories of ours in a base.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use holdfast_core::owned::{Access, Found, MARKER_FILE, Marker, OwnedDirectory, OwnedError};
use rustix::process::geteuid;

use crate::{give_away, mode, other_owner, refused, set_mode, shared_base};

#[test]
fn directories_are_made_with_the_mode_that_their_access_permits() {
    let (base, shared) = shared_base();
    shared.create_directory("private", Access::Private).unwrap();
    let group = shared.create_directory("group", Access::GroupRead).unwrap();
    group.create_directory("deep", Access::GroupRead).unwrap();
    assert_eq!(mode(&base.path().join("private")), 0o700);
    assert_eq!(mode(&base.path().join("group/deep")) & 0o027, 0);
    assert!(shared.open_directories(Path::new("group/none"), Access::GroupRead).unwrap().is_none());
}

#[test]
fn a_planted_directory_is_neither_opened_nor_taken_for_made() {
    let (base, shared) = shared_base();
    let planted = base.path().join("planted");
    fs::create_dir(&planted).unwrap();
    set_mode(&planted, 0o700);
    give_away(&planted);
    assert_eq!(refused(shared.open_directory("planted", Access::Private), &planted), other_owner());
    assert_eq!(refused(shared.create_directory("planted", Access::Private), &planted), other_owner());
    assert!(shared.new_directory("planted", Access::Private).unwrap().is_none());
    // As a user who may not open it, the owner is found out too.
    assert_eq!(refused(OwnedDirectory::open(&planted, Access::Private), &planted), other_owner());
}

#[test]
fn links_and_files_in_the_place_of_a_directory_are_refused() {
    let (base, shared) = shared_base();
    let (link, file) = (base.path().join("link"), base.path().join("file"));
    symlink("/tmp", &link).unwrap();
    fs::write(&file, "").unwrap();
    let owner = geteuid().as_raw();
    assert_eq!(refused(shared.open_directory("link", Access::Readable), &link), Found::Link { owner });
    assert_eq!(refused(shared.create_directory("link", Access::Readable), &link), Found::Link { owner });
    assert_eq!(refused(shared.open_directory("file", Access::Readable), &file), Found::NotADirectory);
    symlink("/nowhere", base.path().join("dangling")).unwrap();
    assert!(shared.create_directory("dangling", Access::Readable).is_err());
}

#[test]
fn modes_that_permit_more_than_the_access_are_refused() {
    let (base, shared) = shared_base();
    let path = base.path().join("ours");
    fs::create_dir(&path).unwrap();
    for (access, good, bad) in [
        (Access::Private, 0o700, [0o750, 0o701, 0o770]),
        (Access::GroupRead, 0o750, [0o755, 0o770, 0o751]),
        (Access::Readable, 0o755, [0o775, 0o777, 0o1777]),
    ] {
        set_mode(&path, good);
        assert!(shared.open_directory("ours", access).unwrap().is_some());
        for mode in bad {
            set_mode(&path, mode);
            let found = refused(shared.open_directory("ours", access), &path);
            assert!(matches!(found, Found::Mode { mode: found, .. } if found == mode), "{access:?} {mode:o}");
        }
    }
}

#[test]
fn names_are_one_component() {
    let (base, shared) = shared_base();
    for name in ["", ".", "..", "a/b", "/", "a/", "a\0b"] {
        let opened = shared.create_directory(name, Access::Private);
        assert!(matches!(opened, Err(OwnedError::Name { .. } | OwnedError::Io { .. })), "{name:?}");
    }
    assert!(fs::read_dir(base.path()).unwrap().next().is_none());
}

#[test]
fn a_random_name_is_new_each_time_and_marked() {
    let (_base, shared) = shared_base();
    let marker = Marker { kind: "workspace", job: "17", prefix: None, allocation: None };
    let first = shared.new_random_directory("holdfast-", Access::Private, &marker).unwrap();
    let second = shared.new_random_directory("holdfast-", Access::Private, &marker).unwrap();
    assert_ne!(first.path(), second.path());
    first.check_marker(&marker).unwrap();
    assert_eq!(mode(first.path()), 0o700);
    assert_eq!(mode(&first.path().join(MARKER_FILE)), 0o600);
    let name = first.path().file_name().unwrap().to_str().unwrap();
    assert!(name.len() >= "holdfast-".len() + 16, "{name}");
}

#[test]
fn a_directory_is_the_one_that_was_opened_whatever_its_path_leads_to_later() {
    let (base, shared) = shared_base();
    let ours = shared.create_directory("ours", Access::Private).unwrap();
    fs::rename(base.path().join("ours"), base.path().join("aside")).unwrap();
    fs::create_dir(base.path().join("ours")).unwrap();
    ours.replace("file", b"1", Access::Private, holdfast_core::durable::Durability::Process).unwrap();
    assert!(base.path().join("aside/file").exists() && !base.path().join("ours/file").exists());
}
