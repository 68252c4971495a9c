//! Each command ends with the codes that docs/exit-codes.md lists for it. Codes that need a running job are tested with
//! jobs: 65, 73 and 75 of `drain` and `run`, 90 and 91.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use crate::program::{command, run};

const PAGE: &str = include_str!("../../docs/exit-codes.md");

/// Commands in a directory with a faulty spec `bad.yaml`, a valid one `good.yaml`, a damaged index in `damaged/`, and a
/// file `text` of unknown format, with their exit codes.
const CASES: [(&[&str], i32); 36] = [
    (&["run"], 64),
    (&["run", "--dry-run", "good.yaml"], 0),
    (&["run", "bad.yaml"], 78),
    (&["run", "missing.yaml"], 78),
    (&["check", "good.yaml"], 0),
    (&["check", "bad.yaml"], 78),
    (&["check", "missing.yaml"], 78),
    (&["drain", "bad.yaml"], 78),
    (&["drain", "--prefix", "missing"], 69),
    (&["status", "--prefix", "missing"], 69),
    (&["status", "bad.yaml"], 78),
    (&["top"], 64),
    (&["halt", "list", "--prefix", "missing"], 69),
    (&["halt", "list", "bad.yaml"], 78),
    (&["halt", "set", "--now=", "--prefix", "missing"], 64),
    (&["halt", "set", "--immediate=", "--prefix", "missing"], 64),
    (&["index", "list", "--prefix", "missing"], 69),
    (&["index", "list", "--prefix", "damaged"], 65),
    (&["index", "current"], 69),
    (&["index", "current", "../x", "--prefix", "damaged"], 64),
    (&["inspect", "text"], 65),
    (&["inspect", "missing"], 69),
    (&["verify", "."], 65),
    (&["verify", "text"], 65),
    (&["verify", "missing"], 69),
    (&["extract", "text", "--to", "out"], 65),
    (&["extract", "missing", "--to", "out"], 69),
    (&["sion", "dump", "text"], 65),
    (&["sion", "dump", "missing"], 69),
    (&["fti", "verify", "missing"], 69),
    (&["hosts", "expand", "node[1-3]"], 0),
    (&["hosts", "expand", "node["], 64),
    (&["compat", "list"], 0),
    (&["compat", "install", "text"], 69),
    (&["example", "heat", "--steps", "x"], 64),
    (&["example", "heat", "--steps", "5"], 1),
];

#[test]
fn commands_end_with_the_codes_that_are_documented_for_them() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("good.yaml", "run: {command: ['true']}\nallocation: {manager: local}\n");
    write("bad.yaml", "run: {comand: ['true']}\n");
    write("text", "of no known format");
    fs::create_dir(directory.path().join("damaged")).unwrap();
    write("damaged/index.scr", "not an index");
    for (words, code) in CASES {
        let ran = command(words.iter().copied()).current_dir(directory.path()).output().unwrap();
        let printed = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert_eq!(ran.status.code(), Some(code), "{words:?}: {printed}");
        let row = format!("| `{}` |", words[0]);
        let codes = PAGE.lines().find_map(|line| line.strip_prefix(&row)).unwrap_or_else(|| panic!("no row {row}"));
        let listed = codes.split(|char: char| !char.is_ascii_digit()).any(|word| word == code.to_string());
        // The codes of every command.
        assert!(listed || [64, 70].contains(&code), "{code} is not in the row of {}", words[0]);
    }
}

#[test]
fn usage_errors_are_documents_too() {
    let disabled = run(command(["run", "--json", "--", "true"]).env("SCR_ENABLE", "0"));
    assert_eq!((disabled.code, &disabled.json()["error"]["remedy"]), (64, &"leave out `--json`".into()));
    for words in [&["status", "--json", "--colour"][..], &["--json", "index", "lists"], &["run", "--json", "--quit"]] {
        let ran = crate::program::holdfast(words);
        let document = ran.json();
        assert_eq!((ran.code, &document["error"]["exit_code"]), (64, &64.into()), "{document}");
        let message = document["error"]["message"].as_str().unwrap();
        assert!(message.contains(words.last().unwrap()) && ran.err.contains(message), "{message}");
    }
}

#[test]
fn paths_that_are_not_utf_8_are_shown_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let odd = directory.path().join(OsStr::from_bytes(b"a\xffb"));
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("job.yaml"), "run: {command: ['true']}\nallocation: {manager: local}\n").unwrap();
    let ran = |words: &[&OsStr]| run(command(words).current_dir(&odd));
    let document = ran(&["compat".as_ref(), "install".as_ref(), "--json".as_ref(), odd.as_ref()]).json();
    assert!(document["directory"].as_str().unwrap().contains('\u{fffd}'), "{document}");
    let init = &["init".as_ref(), "--json".as_ref(), "/bin/true".as_ref()];
    let of_spec = |command: &'static str| [command.as_ref(), "--json".as_ref(), "job.yaml".as_ref()];
    for words in [init, &of_spec("check"), &of_spec("run")] {
        ran(words).with_code(78).complains(&["prefix: the path is not UTF-8"]);
    }
}
