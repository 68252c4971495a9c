//! What users see, compared with the files in `snapshots/`.
//!
//! After a change on purpose, `INSTA_UPDATE=always cargo test -p holdfast --test cli snapshots` accepts what is shown
//! now.

use std::fs;
use std::path::Path;

use insta::{Settings, assert_snapshot};
use tempfile::TempDir;

use crate::program::{Ran, command, run};

/// What differs from one run to the next, and what is shown in its place.
const CHANGING: [(&str, &str); 7] = [
    (r"\b\d{14}-\d+", "[job]"),
    (r"\d{4}-\d\d-\d\d[T_ ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", "[timestamp]"),
    (r"\b\d\d:\d\d:\d\d(\.\d+)?", "[time]"),
    (r"\b\d+(\.\d+)? (ms|s|min|h)\b", "[duration]"),
    (r"\b\d+(\.\d+)? [KMG]?i?B/s", "[speed]"),
    (r#""(seconds|pid|at|ms)": ?\d+(\.\d+)?"#, r#""$1": [number]"#),
    (r"pid \d+", "pid [number]"),
];

/// One rank on one virtual node, three checkpoints.
const JOB: &str = "\
job: heat
prefix: ./heat-run
allocation: {manager: local, nodes: 1}
run: {nodes: 1, ranks_per_node: 1, command: [holdfast, example, heat, --steps, '30', --checkpoint-every, '10']}
checkpoint: {redundancy: [{scheme: local}]}
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

/// Compares with the snapshot of this name.
fn matches(directory: &Path, name: &str, shown: &str) {
    let mut settings = Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    // The longer form first: temporary directories may be reached through a link.
    settings.add_filter(&regex_of(&fs::canonicalize(directory).unwrap()), "[dir]");
    settings.add_filter(&regex_of(directory), "[dir]");
    for (pattern, replacement) in CHANGING {
        settings.add_filter(pattern, replacement);
    }
    settings.bind(|| assert_snapshot!(name, shown));
}

fn regex_of(path: &Path) -> String {
    path.to_str().unwrap().replace('.', r"\.")
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
        let ran = holdfast(here.path(), &[words, &["--help"]].concat());
        assert_eq!(ran.code, 0, "{words:?}");
        matches(here.path(), &name, &ran.out);
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
    matches(here.path(), "check-mistakes", &ran.err);
}

#[test]
fn a_job_from_its_first_line_to_its_index() {
    let here = directory("job.yaml", JOB);
    let ran = holdfast(here.path(), &["run", "job.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    // Agents and the launcher report side by side: the order of two lines that follow each other closely may differ.
    let mut events: Vec<_> =
        ran.err.lines().map(|line| line.split_once(' ').map_or(line, |(_, event)| event)).collect();
    events.sort_unstable();
    matches(here.path(), "run-events", &(events.join("\n") + "\n"));
    matches(here.path(), "run-report", &ran.out);
    let later: [(&str, &[&str]); 4] = [
        ("status-of-finished-job", &["status", "job.yaml"]),
        ("index-list", &["index", "list", "--prefix", "heat-run"]),
        ("halt-set", &["halt", "set", "--checkpoints", "3", "job.yaml"]),
        ("halt-list", &["halt", "list", "job.yaml"]),
    ];
    for (name, words) in later {
        let Ran { code, out, err } = holdfast(here.path(), words);
        matches(here.path(), name, &format!("{out}{err}exit code {code}\n"));
    }
}
