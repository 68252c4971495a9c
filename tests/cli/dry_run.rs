//! `holdfast run --dry-run` ends with the code of the run, and shows why that would begin nothing.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::program::{Ran, holdfast_in};

const LOCAL: &str = "allocation: {manager: local, nodes: 2}\nrun: {nodes: 2, command: ['true']}\n";

fn with_spec(text: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("job.yaml"), text).unwrap();
    directory
}

fn dry_run(directory: &Path, more: &[&str]) -> Ran {
    holdfast_in(directory, [&["run", "--dry-run", "job.yaml"], more].concat())
}

#[test]
fn prefix_is_shown_without_redundant_components() {
    for prefix in [".", "./out", "./a/./out"] {
        let directory = with_spec(&format!("prefix: {prefix}\n{LOCAL}"));
        let ran = dry_run(directory.path(), &[]);
        let expected = directory.path().canonicalize().unwrap().join(prefix.trim_start_matches("./"));
        let expected: std::path::PathBuf = expected.components().collect();
        let line = ran.out.lines().find(|line| line.contains("prefix")).unwrap_or_default();
        assert_eq!(line.rsplit(' ').next(), expected.to_str(), "{}{}", ran.out, ran.err);
        assert_eq!(ran.code, 0);
        assert!(!directory.path().join("out").exists() && !directory.path().join(".holdfast").exists());
    }
}

#[test]
fn too_few_usable_hosts_end_dry_run_as_they_end_run() {
    // Port 1 refuses connections.
    let spec = "allocation: {manager: ssh, hosts: [\"127.0.0.1:1\", \"localhost:1\"], ssh: {connect_timeout: 5s}}\n\
                run: {nodes: 2, command: ['true']}\n";
    let directory = with_spec(spec);
    dry_run(directory.path(), &[])
        .with_code(69)
        .prints(&["cannot be used"])
        .complains(&["0 of 2 hosts can be used, and 2 must be"]);
    let document = dry_run(directory.path(), &["--json"]);
    let parsed = document.json();
    assert_eq!((document.code, &parsed["error"]["exit_code"]), (69, &serde_json::json!(69)));
    assert!(parsed["plan"].as_array().is_some_and(|plan| !plan.is_empty()));
    dry_run(directory.path(), &["--quiet"]).with_code(69).out_is("").complains(&["0 of 2 hosts can be used"]);
    holdfast_in(directory.path(), ["run", "job.yaml"]).with_code(69);
}

#[test]
fn prefix_that_cannot_be_made_ends_dry_run_as_it_ends_run() {
    let directory = with_spec(&format!("prefix: file/out\n{LOCAL}"));
    fs::write(directory.path().join("file"), "").unwrap();
    for words in [&["run", "--dry-run", "job.yaml"][..], &["run", "job.yaml"]] {
        holdfast_in(directory.path(), words).with_code(69).complains(&["move away what is in the file's place"]);
    }
}

#[test]
fn quiet_run_still_prints_why_it_failed() {
    let directory = with_spec(
        "prefix: ./out\nallocation: {manager: local, nodes: 1}\nrun: {nodes: 1, command: ['false']}\n\
         relaunch: {attempts: 0}\n",
    );
    holdfast_in(directory.path(), ["run", "--quiet", "job.yaml"])
        .with_code(90)
        .out_is("")
        .complains(&["error: job job: ", "rank 0 failed with exit code 1"]);
}

/// With both options there is one document, and on standard error nothing but warnings and errors.
#[test]
fn quiet_run_with_a_document_prints_nothing_else() {
    let directory = with_spec(
        "prefix: ./out\nallocation: {manager: local, nodes: 1}\ncheckpoint: {source: none}\n\
         run: {nodes: 1, command: [sh, -c, 'echo to stdout; echo to stderr >&2']}\n",
    );
    let ran = holdfast_in(directory.path(), ["-q", "--json", "run", "job.yaml"]).with_code(0).err_is("");
    assert_eq!(ran.json()["outcome"], "the job is finished; nothing to drain");
    let failed = holdfast_in(directory.path(), ["-q", "--json", "run", "nowhere.yaml"]).with_code(78);
    assert!(failed.err.starts_with("error: ") && failed.err.contains("nowhere.yaml"), "{}", failed.err);
}
