//! `holdfast index` with indexes that SCR wrote.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_core::kvtree;
use holdfast_testkit::harness::ignore;
use holdfast_testkit::{fixtures, scratch_copy};
use serde_json::json;
use tempfile::TempDir;

use crate::program::{holdfast, holdfast_in, run};

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
fn adding_a_large_checkpoint_shows_progress_on_a_terminal() {
    if Command::new("script").arg("--version").output().is_err() {
        ignore("script (util-linux), which provides a terminal");
    }
    let prefix = prefix_of(&state(STATES[0]));
    let directory = "scr.2026-11-20_10:26:07.1145655.3";
    // One file of half a GiB, most of it a hole: its checksum is wrong, which takes some time to find.
    let (file, bytes) = (prefix.path().join(directory).join("rank_0.ckpt"), 512 << 20);
    fs::File::options().write(true).open(&file).unwrap().set_len(bytes).unwrap();
    let meta = file.with_extension("ckpt.scr");
    let mut tree = kvtree::file::read(&meta).unwrap();
    tree.put("SIZE", bytes);
    kvtree::file::write(&meta, &tree).unwrap();
    let arguments = ["index", "add", "--rescan", "--prefix", prefix.path().to_str().unwrap(), directory];
    let words = format!("'{}' {}", env!("CARGO_BIN_EXE_holdfast"), arguments.join(" "));
    let mut command = Command::new("script");
    run(command.args(["-qefc", &words, "/dev/null"]).env("TERM", "xterm"))
        .with_code(65)
        .prints(&[&format!("{directory} "), "/512.0"]);
    // Elsewhere there is none for what takes no ten seconds.
    holdfast(arguments).with_code(65).err_is("");
}

#[test]
fn prefix_without_index_or_missing_prefix_ends_with_69() {
    let directory = tempfile::tempdir().unwrap();
    holdfast_in(directory.path(), ["index", "list"])
        .with_code(69)
        .out_is("")
        .complains(&["the prefix directory has no index", "help: "]);
    holdfast_in(directory.path(), ["index", "list", "--prefix", "nowhere"])
        .with_code(69)
        .complains(&["nowhere does not exist"]);
}

#[test]
fn damaged_index_ends_with_65_and_is_not_changed() {
    let prefix = tempfile::tempdir().unwrap();
    fs::write(prefix.path().join("index.scr"), "not an index").unwrap();
    for arguments in [&["index", "list"][..], &["index", "drop", "x"], &["index", "prune", "--failed"]] {
        holdfast_in(prefix.path(), arguments).with_code(65);
    }
    assert_eq!(fs::read(prefix.path().join("index.scr")).unwrap(), b"not an index");
}

#[test]
fn drop_removes_entry_once_and_dry_run_nothing() {
    let prefix = prefix_of(&state(STATES[0]));
    let name = "scr.2026-11-20_10:26:07.1145655.1";
    let before = fs::read(prefix.path().join("index.scr")).unwrap();
    let ran = holdfast_in(prefix.path(), ["index", "drop", "--dry-run", name]);
    assert_eq!(ran.out, format!("{name} would be removed from the index; its files stay\n"));
    assert_eq!(fs::read(prefix.path().join("index.scr")).unwrap(), before);
    assert_eq!(holdfast_in(prefix.path(), ["index", "drop", name]).code, 0);
    assert!(!holdfast_in(prefix.path(), ["index", "list"]).out.contains(name));
    assert!(prefix.path().join(name).is_dir());
    holdfast_in(prefix.path(), ["index", "drop", name]).with_code(69).complains(&["is not in the index"]);
    assert_eq!(holdfast_in(prefix.path(), ["index", "drop", "../x"]).code, 64);
}

#[test]
fn drop_of_current_checkpoint_removes_link() {
    let prefix = prefix_of(&state(STATES[0]));
    let document = holdfast_in(prefix.path(), ["index", "drop", "--json", "scr.2026-11-20_10:26:07.1145655.3"]).json();
    assert_eq!(document["unset_current"], true);
    assert!(fs::symlink_metadata(prefix.path().join("scr.current")).is_err());
    assert!(prefix.path().join("scr.2026-11-20_10:26:07.1145655.3").is_dir());
}

/// The directories below the prefix, and those in the index.
fn datasets(prefix: &Path) -> (Vec<String>, Vec<String>) {
    let names = fs::read_dir(prefix).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut there: Vec<String> = names.filter(|name| name.starts_with("scr.2")).collect();
    there.sort();
    let document = holdfast_in(prefix, ["index", "list", "--json"]).json();
    let listed = document["checkpoints"].as_array().unwrap().iter();
    let mut listed: Vec<String> = listed.map(|entry| entry["directory"].as_str().unwrap().to_owned()).collect();
    listed.sort();
    (there, listed)
}

#[test]
fn delete_needs_confirmation_and_removes_files_and_entry_but_not_current_checkpoint() {
    let prefix = prefix_of(&state(STATES[0]));
    let before = datasets(prefix.path());
    let [first, second, third] =
        [1, 2, 3].map(|id| before.0.iter().find(|name| name.ends_with(&format!(".{id}"))).unwrap().as_str());
    let delete = |arguments: &[&str]| holdfast_in(prefix.path(), ["index", "delete"].iter().chain(arguments));
    delete(&[first]).with_code(64).complains(&["give --yes"]);
    assert_eq!(delete(&["--dry-run", first]).out, format!("{first} (checkpoint 1) would be deleted\n"));
    delete(&["--yes", first, third]).with_code(64).complains(&["is the current checkpoint"]);
    assert_eq!(datasets(prefix.path()), before, "nothing was deleted");
    let document = delete(&["--yes", "--json", first]).json();
    assert_eq!(document["deleted"], json!([{"directory": first, "id": 1, "outside": []}]));
    let left = vec![second.to_owned(), third.to_owned()];
    assert_eq!(datasets(prefix.path()), (left.clone(), left));
    assert_eq!(delete(&["--yes", first]).code, 69);
    assert_eq!(delete(&["--yes", ".holdfast"]).code, 69);
}

#[test]
fn prune_keeps_newest_and_current_checkpoints() {
    let prefix = prefix_of(&state(STATES[0]));
    let prune = |arguments: &[&str]| holdfast_in(prefix.path(), ["index", "prune"].iter().chain(arguments));
    let (before, _) = datasets(prefix.path());
    assert_eq!(prune(&[]).code, 64);
    assert_eq!(prune(&["--keep", "1"]).code, 64, "not confirmed");
    let document = prune(&["--keep", "1", "--dry-run", "--json"]).json();
    let ids: Vec<_> = document["deleted"].as_array().unwrap().iter().map(|it| (&it["id"], &it["reason"])).collect();
    assert_eq!(ids, [(&json!(2), &json!("old")), (&json!(1), &json!("old"))]);
    assert_eq!(datasets(prefix.path()).0, before);
    // Checkpoint 1 is current: it stays although it is old.
    let first = before.iter().find(|name| name.ends_with(".1")).unwrap();
    assert_eq!(holdfast_in(prefix.path(), ["index", "current", first]).code, 0);
    prune(&["--keep", "1", "--yes"]).with_code(0).prints(&["(checkpoint 2, old) deleted"]);
    let left: Vec<String> = before.iter().filter(|name| !name.ends_with(".2")).cloned().collect();
    assert_eq!(datasets(prefix.path()), (left.clone(), left));
    assert_eq!(prune(&["--keep", "1", "--yes"]).out, "nothing to delete\n");
}

#[test]
fn kept_checkpoint_is_neither_pruned_nor_deleted_until_it_is_released() {
    let prefix = prefix_of(&state(STATES[0]));
    let index = |words: &[&str]| holdfast_in(prefix.path(), ["index"].iter().chain(words));
    let (before, _) = datasets(prefix.path());
    let first = before.iter().find(|name| name.ends_with(".1")).unwrap();
    index(&["keep", "--dry-run", first]).with_code(0).prints(&["would be kept"]);
    let document = index(&["keep", first, "--json"]).json();
    assert_eq!((&document["kept"], &document["changed"]), (&json!(true), &json!(true)));
    assert!(index(&["keep", first]).out.contains("was already kept"));
    let list = index(&["list"]).out;
    assert!(list.lines().any(|line| line.ends_with(&format!("{first}  kept"))), "{list}");
    index(&["delete", "--yes", first]).with_code(64).complains(&["holdfast index release"]);
    assert_eq!(index(&["prune", "--keep", "1", "--yes"]).code, 0);
    let left: Vec<String> = before.iter().filter(|name| !name.ends_with(".2")).cloned().collect();
    assert_eq!(datasets(prefix.path()).0, left);
    assert_eq!(index(&["release", first]).code, 0);
    assert!(index(&["prune", "--keep", "1", "--yes"]).out.contains("(checkpoint 1, old) deleted"));
    assert_eq!(index(&["keep", first]).code, 69, "it is not in the index any more");
}

#[test]
fn lost_index_is_made_again_from_the_directories() {
    let prefix = prefix_of(&state(STATES[0]));
    let before = holdfast_in(prefix.path(), ["index", "list"]).out;
    fs::remove_file(prefix.path().join("index.scr")).unwrap();
    let ran = holdfast_in(prefix.path(), ["index", "list"]);
    let ids =
        |out: &str| out.lines().map(|line| line.split_whitespace().last().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(ids(&ran.out), ids(&before), "{}", ran.err);
    assert!(ran.err.contains("it was made again with 3 checkpoints"), "{}", ran.err);
    assert_eq!(holdfast_in(prefix.path(), ["index", "list"]).err, "");
}

#[test]
fn whole_prefix_is_verified() {
    let prefix = prefix_of(&state(STATES[0]));
    let verify = |words: &[&str]| holdfast_in(prefix.path(), ["verify", "--prefix", "."].iter().chain(words));
    let ran = verify(&[]).with_code(0);
    assert!(ran.out.ends_with("3 checkpoints, none is damaged\n"), "{}", ran.out);
    let (_, directories) = datasets(prefix.path());
    let second = directories.iter().find(|name| name.ends_with(".2")).unwrap();
    let file = fs::read_dir(prefix.path().join(second)).unwrap().map(|entry| entry.unwrap().path());
    let file = file.filter(|path| path.extension().is_some_and(|ending| ending == "ckpt")).min().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    bytes[0] ^= 1;
    fs::write(&file, bytes).unwrap();
    let ran = verify(&["--damaged"]).with_code(65);
    assert!(ran.out.starts_with(&format!("{second}: checkpoint 2: damaged")), "{}", ran.out);
    assert_eq!(ran.out.lines().count(), 2, "{}", ran.out);
    fs::remove_file(prefix.path().join("index.scr")).unwrap();
    let ran = verify(&["--json"]);
    let states: Vec<_> = ran.json()["datasets"].as_array().unwrap().iter().map(|it| it["state"].clone()).collect();
    assert_eq!(states, [json!("intact"), json!("damaged"), json!("intact")]);
    assert!(!prefix.path().join("index.scr").exists(), "nothing is changed");
    assert_eq!(holdfast_in(prefix.path(), ["verify", "--prefix", "missing"]).code, 69);
}

#[test]
fn prune_deletes_failed_and_incomplete_checkpoints_and_temporary_files() {
    let prefix = prefix_of(&state(STATES[1]));
    let failed = holdfast_in(prefix.path(), ["index", "prune", "--failed", "--yes", "--json"]).json();
    assert_eq!(failed["deleted"].as_array().unwrap().len(), 1, "{failed}");
    assert_eq!((&failed["deleted"][0]["id"], &failed["deleted"][0]["reason"]), (&json!(3), &json!("failed")));

    let prefix = prefix_of(&state(STATES[3]));
    let (there, _) = datasets(prefix.path());
    // Of another release, and old enough to belong to no process.
    let leftover = prefix.path().join(&there[0]).join(".hf-1-1.tmp");
    fs::write(&leftover, "").unwrap();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3 * 24 * 3600);
    fs::File::options().write(true).open(&leftover).unwrap().set_modified(long_ago).unwrap();
    let incomplete = holdfast_in(prefix.path(), ["index", "prune", "--incomplete", "--yes", "--json"]).json();
    let deleted = incomplete["deleted"].as_array().unwrap();
    assert!(!deleted.is_empty() && deleted.iter().all(|it| it["reason"] == "incomplete"), "{incomplete}");
    assert!(deleted.iter().all(|it| !prefix.path().join(it["directory"].as_str().unwrap()).exists()));
    assert!(!leftover.exists());
    let listed = holdfast_in(prefix.path(), ["index", "list"]).out;
    assert!(!listed.lines().skip(1).any(|line| line.starts_with('x')), "{listed}");
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
    current(&["--unset", first]).with_code(64).complains(&["`--unset` removes the link, whatever it names"]);
    fs::write(prefix.path().join("job.yaml"), "prefix: .\nrun: {command: [./app]}\n").unwrap();
    current(&["--unset", "job.yaml"]).with_code(0).prints(&["scr.current removed"]);
    current(&[]).with_code(69).out_is("");
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

    holdfast_in(prefix.path(), ["index", "add", "--current", &name])
        .with_code(0)
        .prints(&["is complete and indexed\n  rebuilt rank 2"]);
    assert_eq!(holdfast_in(prefix.path(), ["index", "current"]).out, format!("{name}\n"));
    assert_eq!(holdfast_in(prefix.path(), ["index", "add", "--json", &name]).json()["outcome"], "already complete");
}

#[test]
fn index_add_records_unrecoverable_checkpoint_as_incomplete_with_65() {
    let (prefix, name) = drained("two-nodes-lost");
    holdfast_in(prefix.path(), ["index", "add", &name]).with_code(65).prints(&["is not complete; indexed as such"]);
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
    current(&[]).with_code(69).out_is("").complains(&["no checkpoint is current; the next run restarts from"]);
    let document = current(&["--json"]);
    assert_eq!((document.code, &document.json()["current"]), (69, &json!(null)));
}

#[test]
fn add_of_a_directory_without_a_usable_file_says_so_in_a_sentence() {
    let prefix = prefix_of(&state(STATES[0]));
    fs::create_dir(prefix.path().join("nothing")).unwrap();
    let ran = holdfast_in(prefix.path(), ["index", "add", "nothing"]).with_code(65);
    assert!(ran.out.starts_with("nothing has no usable file; no restart uses it\n"), "{}", ran.out);
}

#[test]
fn a_spec_names_the_prefix_directory_of_every_index_command() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = prefix_of(&state(STATES[0]));
    let spec = format!("prefix: {}\nrun: {{nodes: 4, command: [./pi]}}\n", prefix.path().display());
    fs::write(directory.path().join("job.yaml"), spec).unwrap();
    let index = |words: &[&str]| holdfast_in(directory.path(), [&["index"], words].concat());
    let listed = index(&["list", "job.yaml"]);
    assert_eq!(
        (listed.code, listed.out),
        (0, fs::read_to_string(state(STATES[0]).join("scr_index_list.out")).unwrap())
    );
    let document = index(&["list", "--json", "job.yaml"]).json();
    let names: Vec<&str> =
        document["checkpoints"].as_array().unwrap().iter().map(|entry| entry["directory"].as_str().unwrap()).collect();
    let (newest, old) = (names[0], names[2]);
    assert_eq!(index(&["current", newest, "job.yaml"]).code, 0);
    assert_eq!(index(&["current", "job.yaml"]).out, format!("{newest}\n"));
    let deleted = index(&["delete", "--dry-run", "--json", old, "job.yaml"]).json();
    assert_eq!(deleted["deleted"][0]["directory"], old);
    assert_eq!(index(&["prune", "--keep", "1", "--dry-run", "job.yaml"]).code, 0);
    assert_eq!(index(&["drop", "--dry-run", old, "job.yaml"]).code, 0);
    index(&["delete", "job.yaml"]).with_code(64).complains(&["no checkpoint directory is given"]);
    index(&["list", "job.yaml", "--prefix", "."]).with_code(64).complains(&["cannot be used with"]);
}
