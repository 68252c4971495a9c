//! Files in a directory of ours.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use holdfast_core::durable::Durability;
use holdfast_core::owned::{Access, Base, Found, OwnedDirectory};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::geteuid;

use crate::{give_away, mode, open_base, other_owner, refused, set_mode};

fn ours() -> (tempfile::TempDir, OwnedDirectory) {
    let base = open_base();
    let ours = Base::shared(base.path()).unwrap().create_directory("ours", Access::Private).unwrap();
    (base, ours)
}

#[test]
fn a_file_is_replaced_read_and_removed() {
    let (_base, ours) = ours();
    assert_eq!(ours.read("file", Access::Private, 9).unwrap(), None);
    for (bytes, durability) in [("one", Durability::Machine), ("two", Durability::Process)] {
        ours.replace("file", bytes.as_bytes(), Access::Private, durability).unwrap();
        assert_eq!(ours.read("file", Access::Private, 3).unwrap().unwrap(), bytes.as_bytes());
        assert_eq!(mode(&ours.path().join("file")), 0o600);
    }
    assert_eq!(refused(ours.read("file", Access::Private, 2), &ours.path().join("file")), Found::TooLarge { limit: 2 });
    assert!(ours.remove_file("file", Durability::Machine).unwrap());
    assert!(!ours.remove_file("file", Durability::Machine).unwrap());
    assert!(ours.names().unwrap().is_empty());
}

#[test]
fn a_file_of_another_user_is_not_read_appended_to_or_emptied() {
    let (_base, ours) = ours();
    let path = ours.path().join("file");
    fs::write(&path, "theirs").unwrap();
    set_mode(&path, 0o600);
    give_away(&path);
    assert_eq!(refused(ours.read("file", Access::Private, 99), &path), other_owner());
    assert_eq!(refused(ours.append("file", Access::Private), &path), other_owner());
    assert_eq!(refused(ours.open_or_create("file", Access::Private), &path), other_owner());
    assert_eq!(refused(ours.truncate("file", Access::Private), &path), other_owner());
    assert!(ours.create_new("file", Access::Private).unwrap().is_none());
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    // It is replaced without having been opened.
    ours.replace("file", b"ours", Access::Private, Durability::Process).unwrap();
    assert_eq!(ours.read("file", Access::Private, 99).unwrap().unwrap(), b"ours");
}

#[test]
fn a_link_is_not_followed_and_not_written_through() {
    let (base, ours) = ours();
    let (target, link) = (base.path().join("target"), ours.path().join("link"));
    fs::write(&target, "victim").unwrap();
    symlink(&target, &link).unwrap();
    let owner = geteuid().as_raw();
    assert_eq!(refused(ours.read("link", Access::Private, 99), &link), Found::Link { owner });
    assert_eq!(refused(ours.append("link", Access::Private), &link), Found::Link { owner });
    assert_eq!(refused(ours.truncate("link", Access::Private), &link), Found::Link { owner });
    ours.replace("link", b"ours", Access::Private, Durability::Process).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"victim");
    assert!(!link.is_symlink());
    symlink(base.path().join("made"), ours.path().join("dangling")).unwrap();
    assert!(ours.append("dangling", Access::Private).is_err());
    assert!(!base.path().join("made").exists());
}

#[test]
fn pipes_sockets_and_directories_are_refused_without_waiting() {
    let (_base, ours) = ours();
    let path = |name: &str| ours.path().join(name);
    mknodat(CWD, path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    fs::create_dir(path("directory")).unwrap();
    let _socket = UnixListener::bind(path("socket")).unwrap();
    for name in ["pipe", "socket", "directory"] {
        assert_eq!(refused(ours.read(name, Access::Readable, 9), &path(name)), Found::NotARegularFile, "{name}");
    }
    assert_eq!(refused(ours.append("pipe", Access::Private), &path("pipe")), Found::NotARegularFile);
}

#[test]
fn a_file_that_others_may_write_to_or_read_is_refused_as_its_access_demands() {
    let (_base, ours) = ours();
    let path = ours.path().join("file");
    fs::write(&path, "").unwrap();
    for (access, good, bad) in [
        (Access::Private, 0o600, 0o640),
        (Access::Private, 0o400, 0o604),
        (Access::GroupRead, 0o640, 0o644),
        (Access::Readable, 0o644, 0o664),
    ] {
        set_mode(&path, good);
        ours.read("file", access, 0).unwrap();
        set_mode(&path, bad);
        assert!(matches!(refused(ours.read("file", access, 0), &path), Found::Mode { mode, .. } if mode == bad));
    }
}

#[test]
fn appending_keeps_the_content_and_truncating_does_not() {
    let (_base, ours) = ours();
    for part in ["one", "two"] {
        ours.append("log", Access::Private).unwrap().write_all(part.as_bytes()).unwrap();
    }
    let mut text = String::new();
    ours.open_file("log", Access::Private).unwrap().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "onetwo");
    drop(ours.truncate("log", Access::Private).unwrap());
    assert_eq!(ours.read("log", Access::Private, 9).unwrap().unwrap(), b"");
}
