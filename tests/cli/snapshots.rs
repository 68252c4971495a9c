//! The output for users, compared with the files in `snapshots/`; see [`redaction`](crate::redaction).

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::program::{Ran, command, run};
use crate::redaction::assert_matches;

/// One rank on one virtual node, three checkpoints.
const JOB: &str = "\
job: heat
prefix: ./heat-run
allocation: {manager: local, nodes: 1}
run: {nodes: 1, ranks_per_node: 1, command: [holdfast, example, heat, --steps, '30', --checkpoint-every, '10']}
checkpoint: {redundancy: [{scheme: local}]}
before: [{command: ['true']}]
";

/// A directory with this file.
fn directory(name: &str, text: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(name), text).unwrap();
    directory
}

fn holdfast(directory: &Path, words: &[&str]) -> Ran {
    run(command(words).current_dir(directory).env("COLUMNS", "100").env("TZ", "UTC"))
}

#[test]
fn help() {
    let here = tempfile::tempdir().unwrap();
    let commands: [&[&str]; 11] = [
        &[],
        &["run"],
        &["check"],
        &["drain"],
        &["status"],
        &["halt"],
        &["halt", "set"],
        &["index"],
        &["index", "list"],
        &["inspect"],
        &["verify"],
    ];
    for words in commands {
        let name = format!("help {}", words.join(" ")).trim().replace(' ', "-");
        let ran = holdfast(here.path(), &[words, &["--help"]].concat()).with_code(0);
        assert_matches(here.path(), &name, &ran.out);
    }
}

#[test]
fn check_shows_all_mistakes_of_a_spec_at_once() {
    let spec = "\
job: heat
prefix: relative/../run
allocation: {manager: slrum, nodes: none}
run:
  nodes: 0
  comand: [./app]
checkpoint:
  redundancy: [{scheme: xor, set_size: 1}]
relaunch: {attempts: -1}
";
    let here = directory("job.yaml", spec);
    let ran = holdfast(here.path(), &["check", "job.yaml"]);
    assert_ne!(ran.code, 0);
    assert_matches(here.path(), "check-mistakes", &ran.err);
}

#[test]
fn a_job_from_its_first_line_to_its_index() {
    let here = directory("job.yaml", JOB);
    let ran = holdfast(here.path(), &["run", "job.yaml"]).with_code(0);
    // Agents and the launcher report concurrently: the order of lines may differ.
    let mut events: Vec<_> = ran.err.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap_or(line)).collect();
    events.sort_unstable();
    assert_matches(here.path(), "run-events", &(events.join("\n") + "\n"));
    assert_matches(here.path(), "run-report", &ran.out);
    let later: [(&str, &[&str]); 3] = [
        ("status-of-finished-job", &["status", "job.yaml"]),
        ("index-list", &["index", "list", "--prefix", "heat-run"]),
        ("halt-set-of-finished-job", &["halt", "set", "--checkpoints", "3", "job.yaml"]),
    ];
    for (name, words) in later {
        let Ran { code, out, err, .. } = holdfast(here.path(), words);
        assert_matches(here.path(), name, &format!("{out}{err}exit code {code}\n"));
    }
}
