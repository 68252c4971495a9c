//! The sizes of copies and of pieces of redundancy, seen in the number of system calls of the agents.

use std::fs;

use crate::job::Job;
use crate::world::World;

/// Reads and writes of all agents after one checkpoint of 2 MiB a rank, and its flush.
fn system_calls(settings: &str, flush: &str) -> u64 {
    let world = World::unchecked();
    let mut job = Job::new(&world, 0).flush(flush).checkpoint(settings).holding_after(1);
    (job.size, job.steps, job.every) = ("1024x1024", 2, 1);
    let mut running = job.start();
    match flush.contains("every: 1") {
        true => running.sees_event("flushed"),
        false => running.sees_first_checkpoint(),
    };
    let calls = |node: &str| {
        let text = fs::read_to_string(format!("/proc/{}/io", world.agent_pid(node))).unwrap();
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        field("syscr:") + field("syscw:")
    };
    let calls = ["node0", "node1", "node2", "node3"].map(calls).iter().sum();
    job.goes_on_to_its_end(running);
    calls
}

/// Pieces of 4 KiB in the checkpoint of one rank.
const PIECES: u64 = (2 << 20) / (4 << 10);

#[test]
fn copies_to_prefix_use_the_buffer_of_the_spec() {
    let flush = "{every: 1}";
    let (small, large) = (system_calls("copy_buffer: 4KiB", flush), system_calls("copy_buffer: 4MiB", flush));
    // Each rank's file is read and written in pieces.
    assert!(small > large + 4 * PIECES, "{small} with 4 KiB, {large} with 4 MiB");
}

#[test]
fn redundancy_is_computed_in_pieces_of_the_spec() {
    let flush = "{every: 0}";
    let (small, large) = (system_calls("piece_size: 4KiB", flush), system_calls("piece_size: 4MiB", flush));
    // Each rank's file is read in pieces.
    assert!(small > large + 2 * PIECES, "{small} with 4 KiB, {large} with 4 MiB");
}
