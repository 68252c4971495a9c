//! `holdfast index` with indexes that SCR wrote.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use holdfast_testkit::{fixtures, scratch_copy};
use serde_json::json;
use tempfile::TempDir;

use crate::program::{holdfast, holdfast_in};

const STATES: [&str; 5] = [
    "1-three-flushed",
    "2-fetch-of-3-failed-restart-from-2",
    "3-fetched-then-killed",
    "4-incomplete-drain-indexed",
    "5-removed",
];

fn state(name: &str) -> PathBuf {
    fixtures("scr").join("h-index").join(name)
}

/// A prefix directory that may be changed. The archive has links as files that hold the target: makes them links again.
fn prefix_of(state: &Path) -> TempDir {
    let prefix = scratch_copy(&state.join("tree/pfs"));
    let link = prefix.path().join("scr.current");
    if let Ok(target) = fs::read_to_string(&link) {
        fs::remove_file(&link).unwrap();
        symlink(target.trim_end(), &link).unwrap();
    }
    prefix
}

#[test]
fn index_list_equals_output_of_scr() {
    for name in STATES {
        let prefix = prefix_of(&state(name));
        let ran = holdfast([Path::new("index"), Path::new("list"), Path::new("--prefix"), prefix.path()]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{name}");
        assert_eq!(ran.out, fs::read_to_string(state(name).join("scr_index_list.out")).unwrap(), "{name}");
    }
}

#[test]
fn json_lists_what_a_script_needs() {
    let document = holdfast_in(prefix_of(&state(STATES[1])).path(), ["index", "list", "--json"]).json();
    let checkpoints = document["checkpoints"].as_array().unwrap();
    assert_eq!((&document["version"], checkpoints.len()), (&json!(2), 4));
    assert_eq!(document["current"], checkpoints[0]["directory"]);
    let failed = &checkpoints[1];
    assert_eq!((&failed["id"], &failed["complete"]), (&json!(3), &json!(true)));
    assert_eq!(failed["failed"].as_array().unwrap().len(), 1);
}

#[test]
fn prefix_without_index_or_missing_prefix_ends_with_69() {
    let directory = tempfile::tempdir().unwrap();
    let ran = holdfast_in(directory.path(), ["index", "list"]);
    assert_eq!((ran.code, ran.out.as_str()), (69, ""));
    assert!(ran.err.contains("the prefix directory has no index") && ran.err.contains("help: "), "{}", ran.err);
    let ran = holdfast_in(directory.path(), ["index", "list", "--prefix", "nowhere"]);
    assert_eq!(ran.code, 69);
    assert!(ran.err.contains("nowhere does not exist"), "{}", ran.err);
}

#[test]
fn damaged_index_ends_with_65_and_is_not_changed() {
    let prefix = tempfile::tempdir().unwrap();
    fs::write(prefix.path().join("index.scr"), "not an index").unwrap();
    for arguments in [&["index", "list"][..], &["index", "remove", "x"]] {
        let ran = holdfast_in(prefix.path(), arguments);
        assert_eq!(ran.code, 65, "{}", ran.err);
    }
    assert_eq!(fs::read(prefix.path().join("index.scr")).unwrap(), b"not an index");
}

#[test]
fn remove_deletes_entry_once_and_dry_run_nothing() {
    let prefix = prefix_of(&state(STATES[0]));
    let name = "scr.2026-11-20_10:26:07.1145655.1";
    let before = fs::read(prefix.path().join("index.scr")).unwrap();
    let ran = holdfast_in(prefix.path(), ["index", "remove", "--dry-run", name]);
    assert_eq!(ran.out, format!("{name} would be removed from the index; its files stay\n"));
    assert_eq!(fs::read(prefix.path().join("index.scr")).unwrap(), before);
    assert_eq!(holdfast_in(prefix.path(), ["index", "remove", name]).code, 0);
    assert!(!holdfast_in(prefix.path(), ["index", "list"]).out.contains(name));
    assert!(prefix.path().join(name).is_dir());
    let ran = holdfast_in(prefix.path(), ["index", "remove", name]);
    assert_eq!(ran.code, 69);
    assert!(ran.err.contains("is not in the index"), "{}", ran.err);
    assert_eq!(holdfast_in(prefix.path(), ["index", "remove", "../x"]).code, 64);
}

#[test]
fn shows_sets_and_unsets_current_checkpoint() {
    let prefix = prefix_of(&state(STATES[0]));
    let (third, first) = ("scr.2026-11-20_10:26:07.1145655.3", "scr.2026-11-20_10:26:07.1145655.1");
    let current = |arguments: &[&str]| holdfast_in(prefix.path(), ["index", "current"].iter().chain(arguments));
    assert_eq!(current(&[]).out, format!("{third}\n"));
    assert_eq!(current(&["--dry-run", first]).code, 0);
    assert_eq!(current(&[]).out, format!("{third}\n"));
    assert_eq!(current(&[first]).code, 0);
    assert_eq!(fs::read_link(prefix.path().join("scr.current")).unwrap(), Path::new(first));
    assert_eq!(current(&["scr.nowhere"]).code, 69);
    assert_eq!(current(&["--unset"]).code, 0);
    let ran = current(&[]);
    assert_eq!((ran.code, ran.out.as_str()), (69, ""));
}

/// The prefix directory of a drain of SCR, before `scr_index --add`, and the checkpoint directory in
/// it.
fn drained(drain: &str) -> (TempDir, String) {
    let prefix = prefix_of(&fixtures("scr").join("f-drain-xor").join(drain).join("input"));
    let names = fs::read_dir(prefix.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let name = names.filter(|name| name.starts_with("scr.2011")).max().unwrap();
    (prefix, name)
}

#[test]
fn index_add_rebuilds_missing_files() {
    let (prefix, name) = drained("one-node-lost");
    let document = holdfast_in(prefix.path(), ["index", "add", "--dry-run", "--json", &name]).json();
    assert_eq!((&document["outcome"], &document["rebuilt"]), (&json!("rebuildable"), &json!([2])));
    assert!(!holdfast_in(prefix.path(), ["index", "list"]).out.contains(&name));

    let ran = holdfast_in(prefix.path(), ["index", "add", "--current", &name]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("is complete and indexed\n  rebuilt rank 2"), "{}", ran.out);
    assert_eq!(holdfast_in(prefix.path(), ["index", "current"]).out, format!("{name}\n"));
    assert_eq!(holdfast_in(prefix.path(), ["index", "add", "--json", &name]).json()["outcome"], "already complete");
}

#[test]
fn index_add_records_unrecoverable_checkpoint_as_incomplete_with_65() {
    let (prefix, name) = drained("two-nodes-lost");
    let ran = holdfast_in(prefix.path(), ["index", "add", &name]);
    assert_eq!(ran.code, 65, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("is not complete; indexed as such"), "{}", ran.out);
    let list = holdfast_in(prefix.path(), ["index", "list"]).out;
    assert!(list.lines().any(|line| line.starts_with("x-") && line.ends_with(&name)), "{list}");
}

#[test]
fn current_reports_that_there_is_none_and_unset_what_it_removed() {
    let prefix = prefix_of(&state(STATES[0]));
    let current = |words: &[&str]| holdfast_in(prefix.path(), [&["index", "current"], words].concat());
    let name = current(&[]).out.trim().to_owned();
    assert!(!name.is_empty());
    let expected = format!("scr.current would be removed; it named {name}\n");
    assert_eq!(current(&["--unset", "--dry-run"]).out, expected);
    let unset = current(&["--unset"]);
    assert_eq!((unset.code, unset.out), (0, format!("scr.current removed; it named {name}\n")));
    assert_eq!(current(&["--unset"]).out, "there is no scr.current; nothing to remove\n");
    let none = current(&[]);
    assert_eq!((none.code, none.out.as_str()), (69, ""));
    assert!(none.err.contains("no checkpoint is current; the next run restarts from"), "{}", none.err);
    let document = current(&["--json"]);
    assert_eq!((document.code, &document.json()["current"]), (69, &json!(null)));
}
