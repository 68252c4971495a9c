//! Nothing is removed but trees with the marker, and nothing outside of them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use holdfast_core::durable::Durability;
use holdfast_core::owned::{Access, Base, Found, MARKER_FILE, Marker};

use crate::{give_away, other_owner, refused, set_mode, shared_base};

const OURS: Marker<'_> = Marker { kind: "workspace", job: "17", prefix: None, allocation: None };

fn tree(base: &Path, marker: Option<&Marker<'_>>) {
    let made = Base::shared(base).unwrap().create_directory("tree", Access::Private).unwrap();
    if let Some(marker) = marker {
        made.mark(marker, Durability::Process).unwrap();
    }
    fs::create_dir_all(base.join("tree/a/b")).unwrap();
    fs::write(base.join("tree/a/b/file"), "x").unwrap();
}

/// A base with a tree in it.
fn with_tree(marker: Option<&Marker<'_>>) -> (tempfile::TempDir, Base) {
    let (base, shared) = shared_base();
    tree(base.path(), marker);
    (base, shared)
}

#[test]
fn a_marked_tree_is_removed_and_links_in_it_are_not_followed() {
    let (base, shared) = with_tree(Some(&OURS));
    let victim = base.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("file"), "x").unwrap();
    symlink(&victim, base.path().join("tree/directory")).unwrap();
    symlink(victim.join("file"), base.path().join("tree/a/file")).unwrap();
    assert!(shared.remove_tree("tree", Access::Private, &OURS).unwrap());
    assert!(!base.path().join("tree").exists());
    assert!(victim.join("file").exists());
    assert!(!shared.remove_tree("tree", Access::Private, &OURS).unwrap());
}

#[test]
fn a_tree_without_the_marker_of_this_job_is_not_touched() {
    let other_job = Marker { kind: "workspace", job: "18", prefix: None, allocation: None };
    let other_kind = Marker { kind: "cache", job: "17", prefix: None, allocation: None };
    for marker in [None, Some(&other_job), Some(&other_kind)] {
        let (base, shared) = with_tree(marker);
        let found = refused(shared.remove_tree("tree", Access::Private, &OURS), &base.path().join("tree"));
        match marker {
            None => assert_eq!(found, Found::NoMarker),
            Some(_) => assert!(matches!(found, Found::OtherMarker { .. })),
        }
        assert!(base.path().join("tree/a/b/file").exists());
    }
}

#[test]
fn a_marker_that_another_user_wrote_is_none() {
    let (base, shared) = with_tree(Some(&OURS));
    let marker = base.path().join("tree").join(MARKER_FILE);
    give_away(&marker);
    assert_eq!(refused(shared.remove_tree("tree", Access::Private, &OURS), &marker), other_owner());
    assert!(base.path().join("tree/a/b/file").exists());
}

#[test]
fn a_link_with_the_name_of_the_tree_is_refused() {
    let (base, shared) = with_tree(Some(&OURS));
    fs::rename(base.path().join("tree"), base.path().join("victim")).unwrap();
    symlink(base.path().join("victim"), base.path().join("tree")).unwrap();
    let found = refused(shared.remove_tree("tree", Access::Private, &OURS), &base.path().join("tree"));
    assert!(matches!(found, Found::Link { .. }));
    assert!(base.path().join("victim/a/b/file").exists());
}

#[test]
fn a_directory_of_another_user_in_the_tree_is_not_entered() {
    let (base, shared) = with_tree(Some(&OURS));
    let theirs = base.path().join("tree/a/b");
    give_away(&theirs);
    assert_eq!(refused(shared.remove_tree("tree", Access::Private, &OURS), &theirs), other_owner());
    assert!(theirs.join("file").exists());
    // The marker is removed last, so that the removal can be repeated.
    fs::remove_file(theirs.join("file")).unwrap();
    assert!(shared.remove_tree("tree", Access::Private, &OURS).unwrap());
}

#[test]
fn what_is_written_into_the_tree_meanwhile_is_removed_too() {
    let (base, shared) = with_tree(Some(&OURS));
    let name = |number: u32| base.path().join(format!("tree/a/file.{number}"));
    (0..10_000).for_each(|number| fs::write(name(number), "").unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut written = 10_000..;
            while fs::write(name(written.next().unwrap()), "").is_ok() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        assert!(shared.remove_tree("tree", Access::Private, &OURS).unwrap());
    });
    assert!(!base.path().join("tree").exists());
}

#[test]
fn a_tree_that_is_too_deep_is_refused_without_using_up_descriptors() {
    let (base, shared) = with_tree(Some(&OURS));
    let deep: std::path::PathBuf = std::iter::repeat_n("d", 200).collect();
    fs::create_dir_all(base.path().join("tree").join(deep)).unwrap();
    let found = refused(shared.remove_tree("tree", Access::Private, &OURS), &base.path().join("tree"));
    assert!(matches!(found, Found::TooDeep { .. }));
}

#[test]
fn a_second_marker_must_be_the_same() {
    let (_base, shared) = with_tree(Some(&OURS));
    let made = shared.create_directory("tree", Access::Private).unwrap();
    made.mark(&OURS, Durability::Machine).unwrap();
    let other = Marker { kind: "workspace", job: "18", prefix: None, allocation: None };
    assert!(matches!(refused(made.mark(&other, Durability::Machine), made.path()), Found::OtherMarker { .. }));
    made.check_marker(&OURS).unwrap();
}

#[test]
fn directory_of_a_job_with_the_same_id_and_another_prefix_is_neither_used_nor_removed() {
    let of = |prefix: &'static str| Marker { prefix: Some(Path::new(prefix)), ..OURS };
    let (base, shared) = with_tree(Some(&of("/pfs/a")));
    let made = shared.create_directory("tree", Access::Private).unwrap();
    made.mark(&of("/pfs/a"), Durability::Machine).unwrap();
    let expected = Found::OtherPrefix { prefix: "/pfs/a".into(), allocation: None };
    assert_eq!(refused(made.mark(&of("/pfs/b"), Durability::Machine), made.path()), expected);
    assert_eq!(refused(shared.remove_tree("tree", Access::Private, &of("/pfs/b")), made.path()), expected);
    // Without a prefix on one of the sides there is nothing to compare, as with markers of earlier releases.
    made.check_marker(&OURS).unwrap();
    assert!(shared.remove_tree("tree", Access::Private, &of("/pfs/a")).unwrap());
    tree(base.path(), Some(&OURS));
    assert!(shared.remove_tree("tree", Access::Private, &of("/pfs/b")).unwrap());
}

#[test]
fn only_an_empty_directory_of_ours_is_removed_without_a_marker() {
    let (base, shared) = with_tree(None);
    assert!(!shared.remove_empty_directory("tree", Access::Private).unwrap());
    shared.create_directory("empty", Access::Private).unwrap();
    assert!(shared.remove_empty_directory("empty", Access::Private).unwrap());
    assert!(!shared.remove_empty_directory("empty", Access::Private).unwrap());
    let theirs = base.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    set_mode(&theirs, 0o700);
    give_away(&theirs);
    assert_eq!(refused(shared.remove_empty_directory("theirs", Access::Private), &theirs), other_owner());
}
