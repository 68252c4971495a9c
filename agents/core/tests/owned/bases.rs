//! The walk to a trusted base.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use holdfast_core::owned::{Access, Base, Found};

use crate::{give_away, mode, open_base, other_owner, refused, set_mode};

#[test]
fn accepts_the_temporary_directory_and_directories_of_ours_in_it() {
    Base::trusted(Path::new("/tmp")).unwrap();
    let base = open_base();
    Base::trusted(base.path()).unwrap();
    let relative = Base::trusted(Path::new(".")).unwrap();
    assert!(relative.open_directory("src", Access::Readable).unwrap().is_some());
}

#[test]
fn a_component_that_belongs_to_another_user_is_refused() {
    let base = open_base();
    let theirs = base.path().join("theirs");
    fs::create_dir_all(theirs.join("ours")).unwrap();
    give_away(&theirs);
    assert_eq!(refused(Base::trusted(&theirs), &theirs), other_owner());
    assert_eq!(refused(Base::trusted(&theirs.join("ours")), &theirs), other_owner());
    assert_eq!(refused(Base::create_trusted(&theirs.join("new/deep"), 0o700), &theirs), other_owner());
    assert!(!theirs.join("new").exists());
}

#[test]
fn a_component_that_others_may_write_to_is_refused_unless_it_is_sticky_or_they_cannot_get_there() {
    let base = open_base();
    let writable = base.path().join("writable");
    fs::create_dir_all(writable.join("ours")).unwrap();
    for bad in [0o777, 0o775, 0o757, 0o720] {
        set_mode(&writable, bad);
        assert_eq!(refused(Base::trusted(&writable.join("ours")), &writable), Found::WritableAncestor { mode: bad });
    }
    set_mode(&writable, 0o1777);
    Base::trusted(&writable.join("ours")).unwrap();
    set_mode(&writable, 0o777);
    set_mode(base.path(), 0o700);
    Base::trusted(&writable.join("ours")).unwrap();
    // The way back leads out of the closed directory.
    let around = base.path().join("..").join(base.path().file_name().unwrap()).join("writable");
    Base::trusted(&around).unwrap();
    set_mode(base.path(), 0o755);
    assert!(Base::trusted(&around).is_err());
}

#[test]
fn links_of_ours_are_followed_and_links_of_another_user_are_not() {
    let base = open_base();
    let real = base.path().join("real");
    fs::create_dir_all(real.join("deep")).unwrap();
    let (absolute, relative) = (base.path().join("absolute"), base.path().join("relative"));
    symlink(&real, &absolute).unwrap();
    symlink("real/../real/deep", &relative).unwrap();
    fs::create_dir(real.join("deep/below")).unwrap();
    Base::trusted(&absolute.join("deep/below")).unwrap();
    Base::trusted(&relative.join("below")).unwrap();
    give_away(&absolute);
    assert_eq!(refused(Base::trusted(&absolute.join("deep")), &absolute), other_owner());
}

#[test]
fn a_link_of_ours_to_a_directory_of_another_user_is_refused() {
    let base = open_base();
    let (theirs, link) = (base.path().join("theirs"), base.path().join("link"));
    fs::create_dir(&theirs).unwrap();
    symlink(&theirs, &link).unwrap();
    give_away(&theirs);
    assert_eq!(refused(Base::trusted(&link), &theirs), other_owner());
}

#[test]
fn links_in_a_circle_and_files_are_refused() {
    let base = open_base();
    let (first, second, file) = (base.path().join("1"), base.path().join("2"), base.path().join("file"));
    symlink(&first, &second).unwrap();
    symlink(&second, &first).unwrap();
    assert_eq!(refused(Base::trusted(&first), &first), Found::TooManyLinks);
    fs::write(&file, "").unwrap();
    assert_eq!(refused(Base::trusted(&file.join("below")), &file), Found::NotADirectory);
}

#[test]
fn missing_components_are_made_if_asked() {
    let base = open_base();
    let deep = base.path().join("a/b");
    assert!(Base::trusted(&deep).unwrap_err().is_missing());
    Base::create_trusted(&deep, 0o700).unwrap();
    assert_eq!(mode(&deep), 0o700);
    Base::create_trusted(&deep, 0o700).unwrap();
}

#[test]
fn a_shared_base_may_belong_to_another_user_and_what_is_ours_in_it_may_not() {
    let base = open_base();
    let project = base.path().join("project");
    fs::create_dir_all(project.join(".holdfast")).unwrap();
    set_mode(&project.join(".holdfast"), 0o700);
    give_away(&project);
    set_mode(&project, 0o777);
    let shared = Base::shared(&project).unwrap();
    assert!(shared.open_directory(".holdfast", Access::Private).unwrap().is_some());
    give_away(&project.join(".holdfast"));
    assert_eq!(refused(shared.open_directory(".holdfast", Access::Private), &project.join(".holdfast")), other_owner());
}
