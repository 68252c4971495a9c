//! The lines of logs: date and time, and plain fields (docs/logs.md).

use std::fs;

use crate::job::Job;
use crate::world::World;

/// True if a line begins with date and time: `2026-11-26 07:41:22.123 `.
fn is_dated(line: &str) -> bool {
    let shape: String = line.chars().take(24).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00 00:00:00.000 "
}

#[test]
fn lines_on_the_screen_and_of_agents_have_a_date_and_no_debug_format(world: &World) {
    let job = Job::new(world, 1).faults("{node: 1, during: write, checkpoint: 3}");
    let ran = job.start().ends_with(0);
    let of_holdfast: Vec<&str> = ran.err.lines().filter(|line| line.contains("node1 is down")).collect();
    assert!(!of_holdfast.is_empty() && of_holdfast.iter().all(|line| is_dated(line)), "{}", ran.err);
    let mut events = 0;
    for node in ["node0", "node2"] {
        let log = fs::read_to_string(world.prefix().join(format!(".holdfast/agents/{node}.log"))).unwrap();
        for line in log.lines() {
            assert!(is_dated(line), "{line}");
            let debug = ["Some(", "CheckpointId", "Rank(", " { ", "None"].iter().find(|part| line.contains(**part));
            assert_eq!(debug, None, "{line}");
            events += usize::from(line.contains(" INFO holdfast_agent::report::events: checkpoint_complete "));
        }
    }
    assert!(events > 0, "no agent has logged a checkpoint");
}

#[test]
fn holdfast_log_selects_lines_by_module_and_reports_what_it_does_not_understand(world: &World) {
    let job = Job::new(world, 0);
    let ran = world.start(job.command_line().env("HOLDFAST_LOG", "off,holdfast::job::actions=debug")).ends_with(0);
    assert!(ran.err.lines().any(|line| is_dated(line) && line.contains(" DEBUG holdfast::job::actions: action ")));
    assert!(!ran.err.contains(" holdfast::fleet"), "{}", ran.err);
    let agent = fs::read_to_string(world.prefix().join(".holdfast/agents/node0.log")).unwrap();
    assert_eq!(agent, "", "the agents obey it, too");
    let ran = world.run(world.holdfast(["status"]).arg(job.spec()).env("HOLDFAST_LOG", "verbose")).with_code(0);
    let parts =
        ["WARN holdfast::cli::runtime: HOLDFAST_LOG has no effect: `verbose` is neither a level", "module=level"];
    assert!(parts.iter().all(|part| ran.err.contains(part)), "{}", ran.err);
}
