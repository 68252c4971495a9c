//! Reed-Solomon redundancy: several nodes of a set are lost at once, and all files are there again.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::job::Job;
use crate::losses::{losing, run_with_losses};
use crate::world::World;
use crate::{pages, pfs};

const REDUNDANCY: &str = "[{scheme: rs, set_size: 4, failures: 2}]";

/// A job whose sets of four survive the loss of two.
fn job(world: &World, spares: u32) -> Job<'_> {
    Job::new(world, spares).redundancy(REDUNDANCY)
}

#[test]
fn two_nodes_of_a_set_that_are_lost_at_once_are_rebuilt_for_a_relaunch() {
    for lost in [[1, 3], [0, 1]] {
        let world = World::unchecked();
        let job = losing(job(&world, 2).heat("--files-per-rank 3").holding_after(5), &lost, 5);
        let last = run_with_losses(&job, &world, &lost);
        let restarted = (&last["checkpoint"], &last["source"], &last["rebuilt"]);
        assert_eq!(restarted, (&json!(5), &json!("rebuilt"), &json!(lost)), "{last}");
    }
}

#[test]
fn what_was_rebuilt_protects_from_the_next_losses(world: &World) {
    let mut job = job(world, 4).holding_after(8);
    job.steps = 60;
    let job = losing(losing(job, &[0, 3], 3), &[1, 2], 8);
    let mut running = job.start();
    for node in ["node0", "node3", "node1", "node2"] {
        running.sees_where("node_down", "node", node);
    }
    job.finishes(running);
    let rebuilt: Vec<Value> = world.all("restarted").into_iter().map(|event| event["rebuilt"].clone()).collect();
    assert_eq!(rebuilt, [json!([]), json!([0, 3]), json!([1, 2])]);
    pfs::assert_current(&world.prefix(), 12);
}

#[test(unchecked)]
fn three_lost_nodes_of_a_set_that_survives_two_are_named_as_the_reason_for_the_beginning(world: &World) {
    let job = losing(job(world, 3).holding_after(5), &[1, 2, 3], 5);
    let last = run_with_losses(&job, world, &[1, 2, 3]);
    assert_eq!((&last["checkpoint"], &last["source"]), (&Value::Null, &json!("fresh")));
    let reason = world.the("from_beginning")["reason"].as_str().unwrap().to_owned();
    let named = "three members of the RS set";
    assert!(reason.contains(named) && reason.ends_with("and it survives two; see `failures`"), "{reason}");
}

#[test(unchecked)]
fn two_nodes_that_are_lost_during_the_drain_are_rebuilt_in_the_prefix_directory(world: &World) {
    let halting = job(world, 0).heat("--files-per-rank 6").top("halt: {checkpoints_left: 4}");
    halting.clone().faults("{node: 1, during: copy}").faults("{node: 2, during: copy}").run(75);
    let mut rebuilt: Vec<Value> = world.all("rebuilt_in_prefix").iter().map(|event| event["rank"].clone()).collect();
    rebuilt.sort_by_key(Value::as_u64);
    assert_eq!(rebuilt, [1, 2]);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
    let mut next = job(world, 0);
    next.heat.clone_from(&halting.heat);
    next.run(0);
    halting.assert_result();
    assert_eq!(world.all("restarted").pop().unwrap()["checkpoint"], 4);
}

#[test(unchecked)]
fn two_nodes_that_are_lost_during_the_drain_are_rebuilt_in_containers(world: &World) {
    let container = |world| job(world, 0).checkpoint("drain: {container: {kind: sion, files: 2}}");
    let halting = container(world).heat("--files-per-rank 6").top("halt: {checkpoints_left: 4}");
    halting.clone().faults("{node: 0, during: copy}").faults("{node: 2, during: copy}").run(75);
    assert_eq!(world.all("rebuilt_in_prefix").len(), 2);
    pfs::assert_current(&world.prefix(), 4);
    let directory = pfs::current(&world.prefix()).unwrap();
    assert!(pfs::names(&directory).iter().any(|name| name == "holdfast-1.sion"));
    world.run(world.holdfast(["verify", directory.to_str().unwrap()])).with_code(0);
    let mut next = container(world);
    next.heat.clone_from(&halting.heat);
    next.run(0);
    halting.assert_result();
    world.assert_restarted(4, "fetched");
}

/// Removes the files of a rank from a drained directory.
fn remove_rank(directory: &Path, rank: u32) {
    let (own, redundancy) = (format!("rank_{rank}."), format!("{}_of_4_in_0.rs", rank + 1));
    for name in pfs::names(directory) {
        if name.starts_with(&own) || name.starts_with(&redundancy) || name == format!("{rank}.scrfilemap") {
            fs::remove_file(directory.join(name)).unwrap();
        }
    }
}

#[test(unchecked)]
fn index_add_rebuilds_two_ranks_and_refuses_three(world: &World) {
    job(world, 0).heat("--files-per-rank 2").top("halt: {checkpoints_left: 4}").run(75);
    let directory = pfs::current(&world.prefix()).unwrap();
    let name = directory.file_name().unwrap().to_str().unwrap();
    let file = directory.join("1_of_4_in_0.rs");
    let header = world.run(world.holdfast(["inspect", "--json", file.to_str().unwrap()])).with_code(0).json();
    assert_eq!(header["header"]["FAILURES"], json!({"2": {}}), "{header:#}");
    let ran = world.run(world.holdfast(["verify", file.to_str().unwrap()])).with_code(0);
    ran.prints(&["1_of_4_in_0.rs: Reed-Solomon file: intact"]);
    let before = world.path("before");
    fs::create_dir(&before).unwrap();
    holdfast_testkit::copy_tree(&directory, &before).unwrap();
    let prefix = world.prefix();
    let add = ["index", "add", name, "--rescan", "--json", "--prefix", prefix.to_str().unwrap()];
    for rank in [0, 3] {
        remove_rank(&directory, rank);
    }
    let added = world.run(world.holdfast(add)).with_code(0).json();
    assert_eq!(added["rebuilt"], json!([0, 3]), "{added:#}");
    for name in pfs::names(&before).iter().filter(|name| name.starts_with("rank_") || name.ends_with(".rs")) {
        assert!(fs::read(before.join(name)).unwrap() == fs::read(directory.join(name)).unwrap(), "{name}");
    }
    for rank in [0, 1, 3] {
        remove_rank(&directory, rank);
    }
    world.run(world.holdfast(add)).with_code(65);
}

#[test(unchecked)]
fn fewer_nodes_than_the_failures_need_are_reported_and_protect_as_far_as_they_can(world: &World) {
    let mut job = losing(job(world, 1).holding_after(5), &[1], 5);
    (job.on, job.nodes, job.per_node) = (2, 3, 2);
    let last = run_with_losses(&job, world, &[1]);
    assert_eq!((&last["checkpoint"], &last["rebuilt"]), (&json!(5), &json!([2, 3])), "{last}");
    let warned = world.events().iter().any(|event| {
        event.to_string().contains("RS was requested to survive 2 lost nodes of a set, but 2 sets have fewer members")
    });
    assert!(warned, "{:#?}", world.events());
}

#[test]
fn example_of_the_page_loses_two_nodes_and_continues(world: &World) {
    let events = pages::run_example(world, "reed-solomon.md");
    let last = events.iter().rfind(|event| event["event"] == "restarted").unwrap();
    assert_eq!((&last["checkpoint"], &last["rebuilt"]), (&json!(2), &json!([1, 3])), "{last}");
}
