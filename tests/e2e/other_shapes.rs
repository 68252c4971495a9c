//! A run continues a job with as many ranks in another shape: each row of the first table of shapes in
//! `docs/restarts.md`.

use serde_json::{Value, json};

use crate::job::Job;
use crate::kept_cache::halted;
use crate::world::World;

const XOR: &str = "[{scheme: xor, set_size: 4}]";
const RS: &str = "[{scheme: rs, set_size: 4, failures: 2}]";
const PARTNER: &str = "[{scheme: partner}]";
const LOCAL: &str = "[{scheme: local}]";

/// A job that runs on so many nodes with so many ranks on each. Because it flushes at all, it flushes what it halts at.
fn job<'a>(world: &'a World, redundancy: &str, shape: (u32, u32)) -> Job<'a> {
    let job = Job::new(world, 0).redundancy(redundancy).flush("{every: 3}");
    shaped(&job, shape)
}

fn shaped<'a>(job: &Job<'a>, (on, per_node): (u32, u32)) -> Job<'a> {
    let mut job = job.clone();
    (job.on, job.per_node) = (on, per_node);
    job
}

/// Halts the first run after checkpoint 4, and has the second one continue on these nodes: returns its event
/// `restarted`.
#[track_caller]
fn continued(world: &World, first: Job<'_>, second: &Job<'_>, nodes: &[&str]) -> Value {
    halted(world, first);
    second.run(0);
    let last = world.all("restarted").pop().unwrap();
    assert_eq!(world.all("generation_placed").pop().unwrap()["nodes"], json!(nodes), "{last}");
    second.assert_result();
    world.assert_nothing_is_left();
    last
}

/// It restarted from checkpoint 4 in the caches: these ranks were moved, and these rebuilt.
#[track_caller]
fn is_from_cache(last: &Value, moved: &[u32], rebuilt: &[u32]) {
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(4), &json!("rebuilt")), "{last}");
    assert_eq!((&last["moved"], &last["rebuilt"]), (&json!(moved), &json!(rebuilt)), "{last}");
}

#[track_caller]
fn is_from_prefix(last: &Value) {
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(4), &json!("fetched")), "{last}");
}

#[test]
fn fewer_nodes_with_more_ranks_on_each_restart_from_cache() {
    // What is not copied again has two members of a set on each node.
    for (redundancy, protected) in [(XOR, false), (RS, true), (PARTNER, true), (LOCAL, false)] {
        let world = World::unchecked();
        let first = job(&world, redundancy, (4, 1));
        let second = shaped(&first, (2, 2));
        let last = continued(&world, first, &second, &["node0", "node1"]);
        is_from_cache(&last, &[1, 2, 3], &[]);
        assert_eq!(last["protected"], protected, "{redundancy}");
    }
}

#[test]
fn more_nodes_with_fewer_ranks_on_each_restart_from_cache() {
    // With copies, node1 has files of all ranks.
    for (redundancy, moved) in [(XOR, &[1, 2, 3][..]), (RS, &[1, 2, 3]), (PARTNER, &[2, 3]), (LOCAL, &[1, 2, 3])] {
        let world = World::unchecked();
        let first = job(&world, redundancy, (2, 2));
        let second = shaped(&first, (4, 1));
        let last = continued(&world, first, &second, &["node0", "node1", "node2", "node3"]);
        is_from_cache(&last, moved, &[]);
        assert_eq!(last["protected"], redundancy != LOCAL, "{redundancy}");
    }
}

#[test]
fn all_ranks_on_one_node_restart_from_cache() {
    // The copy of rank 3 is there.
    for (redundancy, moved) in [(XOR, &[1, 2, 3][..]), (PARTNER, &[1, 2])] {
        let world = World::unchecked();
        let first = job(&world, redundancy, (4, 1));
        let second = shaped(&first, (1, 4));
        let last = continued(&world, first, &second, &["node0"]);
        is_from_cache(&last, moved, &[]);
        assert_eq!(last["protected"], false, "{redundancy}");
    }
}

#[test]
fn fewer_nodes_restart_from_cache_if_redundancy_restores_the_files_of_a_lost_one() {
    for (redundancy, moved, rebuilt) in [(XOR, &[3][..], &[1][..]), (RS, &[3], &[1]), (PARTNER, &[1, 3], &[])] {
        let world = World::unchecked();
        let first = job(&world, redundancy, (4, 1));
        let second = shaped(&first, (2, 2)).allocation("exclude: node1");
        is_from_cache(&continued(&world, first, &second, &["node0", "node2"]), moved, rebuilt);
    }
}

#[test(unchecked)]
fn several_ranks_on_each_node_restart_from_cache_after_the_loss_of_one(world: &World) {
    let first = job(world, XOR, (4, 2));
    let second = shaped(&first, (2, 4)).allocation("exclude: node1");
    let last = continued(world, first, &second, &["node0", "node2"]);
    is_from_cache(&last, &[6, 7], &[2, 3]);
}

#[test]
fn two_lost_nodes_restart_from_cache_with_reed_solomon_and_from_the_prefix_with_xor() {
    for redundancy in [RS, XOR] {
        let world = World::unchecked();
        let first = job(&world, redundancy, (4, 1));
        let second = shaped(&first, (2, 2)).allocation("exclude: \"node[1-2]\"");
        let last = continued(&world, first, &second, &["node0", "node3"]);
        match redundancy {
            RS => is_from_cache(&last, &[], &[1, 2]),
            _ => is_from_prefix(&last),
        }
    }
}

#[test(unchecked)]
fn lost_node_without_redundancy_restarts_from_the_prefix_in_another_shape(world: &World) {
    let first = job(world, LOCAL, (4, 1));
    let second = shaped(&first, (2, 2)).allocation("exclude: node1");
    is_from_prefix(&continued(world, first, &second, &["node0", "node2"]));
}

#[test(unchecked)]
fn unevenly_spread_ranks_restart_from_cache(world: &World) {
    let first = job(world, XOR, (4, 1)).top("relaunch: {min_nodes: 3}");
    let second = first.clone().allocation("exclude: node3");
    is_from_cache(&continued(world, first, &second, &["node0", "node1", "node2"]), &[], &[3]);
}

#[test(unchecked)]
fn another_order_of_nodes_restarts_from_cache(world: &World) {
    let mut first = job(world, XOR, (4, 1)).faults("{node: 0, after_checkpoint: 2}");
    // Rank 0 is then on the last node.
    first.nodes = 5;
    let mut second = shaped(&first, (2, 2));
    second.faults.clear();
    is_from_cache(&continued(world, first, &second, &["node1", "node2"]), &[0, 3], &[]);
}

#[test(unchecked)]
fn another_allocation_restarts_from_the_prefix_in_any_shape(world: &World) {
    let first = job(world, XOR, (4, 1)).top("keep_cache: none");
    let second = shaped(&first, (2, 2));
    is_from_prefix(&continued(world, first, &second, &["node0", "node1"]));
}

#[test(unchecked)]
fn more_nodes_than_the_allocation_had_restart_from_the_prefix(world: &World) {
    let mut first = job(world, XOR, (2, 2));
    first.nodes = 2;
    let mut second = shaped(&first, (4, 1));
    second.nodes = 4;
    is_from_prefix(&continued(world, first, &second, &["node0", "node1", "node2", "node3"]));
}
