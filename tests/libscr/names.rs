//! Files that no checkpoint can contain: names that SCR or Holdfast use for their own files, names without room for a
//! suffix, and objects that are no regular files. Each costs one checkpoint of the program at most.

use crate::world::{Link, World, exits_with, holdfast};

/// With what the message about each must contain.
const NAMES: [(&str, &str); 14] = [
    ("out/summary.scr", "names that end in `.scr`"),
    ("rank2file.scr", "names that end in `.scr`"),
    ("rank_0.txt.scr", "names that end in `.scr`"),
    (".scr", "names that end in `.scr`"),
    ("3.scrfilemap", "names that end in `.scrfilemap`"),
    ("dataset.holdfast", "the record that Holdfast keeps about a dataset"),
    ("scr_summary.txt", "a summary of an older version of SCR"),
    (".hf-1-1.tmp", "a temporary file of Holdfast"),
    ("1_of_3_in_0.xor", "a redundancy file of scheme XOR"),
    ("01_of_3_in_0.xor", "a redundancy file of scheme XOR"),
    ("two\nlines", "control character"),
    ("a/..", "does not end in the name of a file"),
    ("", "does not end in the name of a file"),
    ("out/", "does not end in the name of a file"),
];

/// What a program may put at a routed path, with the message about it.
const OBJECTS: [(&str, &str); 9] = [
    ("directory", "is a directory, not a regular file"),
    ("closed-directory", "is a directory, not a regular file"),
    ("pipe", "is a pipe, not a regular file"),
    ("socket", "is a socket, not a regular file"),
    ("device", "is a device, not a regular file"),
    ("link", "is a symbolic link, not a regular file"),
    ("dangling-link", "is a symbolic link, not a regular file"),
    ("meta-directory", "object.scr"),
    ("nothing", "routed but did not write"),
];

struct Case<'a> {
    /// `cache` or `bypass`.
    place: &'a str,
    what: &'a str,
    arguments: Vec<&'a str>,
    completed: usize,
}

impl Case<'_> {
    /// Runs the program, in which every checkpoint after a refused file must complete; returns what was printed, and
    /// the event log.
    fn run(&self) -> String {
        let world = World::new();
        let program = world.compile("cc", "names.c", Link::Shared);
        let results = world.results();
        let mut command = vec![program.to_str().unwrap(), self.place, self.what, &results];
        command.extend(&self.arguments);
        let output = exits_with(&world.run(&command, ", flush: {every: 1}", ""), 0);
        for rank in 0..6 {
            assert_eq!(world.result(rank), self.completed.to_string(), "rank {rank}");
        }
        let checkpoints = world.indexed();
        let complete = checkpoints.iter().filter(|entry| entry["complete"] == true).count();
        assert_eq!(complete, self.completed, "{checkpoints:#?}");
        if self.place == "cache" || self.what == "names" {
            assert_eq!(checkpoints.len(), complete, "a damaged entry: {checkpoints:#?}");
        }
        // All that is on the prefix is as it was written.
        exits_with(&holdfast(&["verify", "prefix"], world.path()), 0);
        let events = std::fs::read_to_string(world.path().join("prefix/.holdfast/events.jsonl")).unwrap();
        format!("{output}{events}")
    }
}

fn assert_refuses_names(place: &str, completed_each: usize) {
    let lengths = ["n".repeat(252), "n".repeat(255), "n".repeat(256), "é".repeat(126)];
    let long = lengths.iter().map(|name| (name.as_str(), "251 are allowed"));
    let cases: Vec<(&str, &str)> = NAMES.into_iter().chain(long).collect();
    let arguments: Vec<&str> = cases.iter().map(|(name, _)| *name).collect();
    let completed = completed_each * arguments.len();
    let printed = Case { place, what: "names", arguments, completed }.run();
    for (name, message) in cases {
        assert!(printed.contains(message), "{name:?}: {message:?} is not in {printed}");
    }
    assert!(printed.contains("route the file under another name"), "{printed}");
}

fn assert_drops_checkpoints_with(place: &str, objects: &[(&str, &str)]) {
    let arguments: Vec<&str> = objects.iter().map(|(kind, _)| *kind).collect();
    let completed = arguments.len();
    let printed = Case { place, what: "objects", arguments, completed }.run();
    for (kind, message) in objects {
        assert!(printed.contains(message), "{kind}: {message:?} is not in {printed}");
    }
    assert!(printed.contains("rank 1: "), "the rank is named: {printed}");
}

#[test]
fn name_that_no_checkpoint_can_contain_is_refused_when_it_is_routed() {
    assert_refuses_names("cache", 1);
}

#[test]
fn name_that_no_checkpoint_can_contain_is_refused_below_the_prefix_and_another_name_completes() {
    assert_refuses_names("bypass", 2);
}

#[test]
fn object_at_routed_path_costs_one_checkpoint_only() {
    // Only root can make a device.
    let root = rustix::process::geteuid().is_root();
    let objects: Vec<(&str, &str)> = OBJECTS.into_iter().filter(|(kind, _)| root || *kind != "device").collect();
    assert_drops_checkpoints_with("cache", &objects);
}

#[test]
fn object_at_routed_path_below_the_prefix_costs_one_checkpoint_only() {
    // Files below the prefix have no meta files.
    let objects: Vec<(&str, &str)> =
        OBJECTS.into_iter().filter(|(kind, _)| !["meta-directory", "device"].contains(kind)).collect();
    assert_drops_checkpoints_with("bypass", &objects);
}

#[test]
fn two_files_of_a_rank_with_the_same_base_name_are_refused() {
    let printed = Case { place: "cache", what: "same", arguments: Vec::new(), completed: 1 }.run();
    assert!(printed.contains("the directories of a name do not count"), "{printed}");
}
