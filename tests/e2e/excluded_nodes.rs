//! The user excludes nodes, in the spec and while the job runs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use holdfast_core::state_directory::StateDirectory;
use serde_json::{Value, json};

use crate::job::Job;
use crate::pfs;
use crate::world::World;

/// The node's entry in the result of `status` or `nodes list`.
fn node(document: &Value, name: &str) -> Value {
    let nodes = document["nodes"].as_array().unwrap();
    nodes.iter().find(|node| node["name"] == name).unwrap().clone()
}

#[test]
fn node_excluded_in_spec_gets_no_agent_and_no_ranks(world: &World) {
    let job = Job::new(world, 1).holding_after(2).allocation("exclude: node[1,77]");
    let running = job.reaches(2);
    assert!(world.state()["running"]["node1"].is_null(), "no agent is started there");
    let status = job.command(&["status", "--json"], 0).json();
    let excluded = node(&status, "node1");
    assert_eq!((&excluded["state"], &excluded["ranks"]), (&json!("excluded"), &json!([])));
    assert_eq!(excluded["excluded"], "listed in allocation.exclude");
    job.command(&["status"], 0).prints(&["node1        excluded  listed in allocation.exclude"]);
    let ran = job.goes_on_to_its_end(running);
    ran.prints(&["node1 is excluded", "node1 excluded: listed in allocation.exclude", "not in the allocation: node77"]);
    assert_eq!(world.the("node_excluded")["node"], "node1");
    assert_eq!(world.the("unknown_nodes_excluded")["nodes"], json!(["node77"]));
    assert_eq!(world.the("generation_placed")["nodes"], json!(["node0", "node2", "node3", "node4"]));
    job.assert_result();
}

#[test]
fn node_excluded_by_scr_parameter_is_not_used(world: &World) {
    let job = Job::new(world, 1);
    let mut command = job.command_line();
    command.env("SCR_EXCLUDE_NODES", "node0");
    world.start(command).ends_with(0).prints(&["node0 excluded: listed in SCR_EXCLUDE_NODES"]);
    assert_eq!(world.the("generation_placed")["nodes"], json!(["node1", "node2", "node3", "node4"]));
    job.assert_result();
}

#[test]
fn nodes_outside_of_scr_nodelist_are_not_used(world: &World) {
    let job = Job::new(world, 1);
    let with = |words: &[&str], nodes: &str| {
        let mut command = world.holdfast(words);
        command.arg(job.spec()).env("SCR_NODELIST", nodes);
        command
    };
    let ran = world.run(with(&["run"], "node[0-2]")).with_code(78);
    ran.prints(&["the run needs 4 nodes, the allocation has 5, 2 of them excluded", "list more in `allocation.only`"]);
    world.run(with(&["run", "--dry-run"], "node[1-4]")).with_code(0).prints(&["node0: excluded"]);
    world.run(with(&["run"], "node[1-4]")).with_code(0).prints(&["node0 excluded: not listed in SCR_NODELIST"]);
    assert_eq!(world.the("generation_placed")["nodes"], json!(["node1", "node2", "node3", "node4"]));
    job.assert_result();
}

#[test]
fn node_excluded_now_is_replaced_from_newest_checkpoint_and_can_be_included_again(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    let mut running = job.reaches(4);
    job.command(&["nodes", "exclude", "node9"], 64).prints(&["the job has no node node9", "node[0-4]"]);
    job.command(&["nodes", "exclude", "--dry-run", "node2"], 0).prints(&["node2 would be excluded"]);
    assert_eq!(world.all("node_excluded").len(), 0);
    let words = ["nodes", "exclude", "node2", "--now", "--reason", "GPU errors"];
    job.command(&words, 0).prints(&["node2 excluded: GPU errors"]);
    running.sees_where("restarted", "generation", 2);
    let listed = node(&job.command(&["nodes", "list", "--json"], 0).json(), "node2");
    assert_eq!((&listed["state"], &listed["excluded"]), (&json!("excluded"), &json!("GPU errors")));
    job.command(&["nodes", "include", "node2"], 0).prints(&["node2 included"]);
    let listed = node(&job.command(&["nodes", "list", "--json"], 0).json(), "node2");
    assert_eq!((&listed["state"], &listed["excluded"]), (&json!("spare"), &Value::Null));
    job.go_on();
    let moved = "node2 is excluded: GPU errors; relaunched on other nodes: rank 2";
    running.ends_with(0).prints(&[moved, "excluded by the user: node2", "node2 is no longer excluded"]);
    let again = &world.all("restarted")[1];
    assert_eq!(again["checkpoint"], 4, "{again}");
    assert_eq!(world.all("generation_placed")[1]["nodes"], json!(["node0", "node1", "node3", "node4"]));
    job.assert_result();
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn node_excluded_while_it_has_ranks_is_left_in_next_generation(world: &World) {
    let job = Job::new(world, 2).holding_after(4).faults("{node: 0, after_checkpoint: 6}");
    let mut running = job.reaches(4);
    job.command(&["nodes", "exclude", "node2"], 0);
    let excluded = running.sees_event("node_excluded");
    assert_eq!((&excluded["ranks"], &excluded["now"]), (&json!([2]), &json!(false)));
    assert_eq!(node(&job.command(&["status", "--json"], 0).json(), "node2")["ranks"], json!([2]));
    job.finishes(running);
    let placed = world.all("generation_placed");
    assert_eq!(placed.len(), 2);
    assert_eq!(placed[1]["nodes"], json!(["node1", "node3", "node4", "node5"]));
}

#[test]
fn ranks_that_cannot_be_moved_now_are_named_by_the_command_and_the_log(world: &World) {
    let job = Job::new(world, 0).holding_after(2);
    let mut running = job.reaches(2);
    let words = ["nodes", "exclude", "node[1-2]", "--now", "--reason", "GPU errors", "--json"];
    let ran = job.command(&words, 69);
    assert_eq!(ran.json()["delayed"], json!(["node1", "node2"]));
    ran.prints(&["the ranks of node[1-2] are not moved now", "until the generation ends or other nodes can be used"]);
    assert_eq!(running.sees_event("exclusion_delayed")["needed"], 4);
    let ran = job.goes_on_to_its_end(running);
    ran.prints(&["node1 is excluded: GPU errors; it keeps rank 1 until the generation ends"]);
    assert!(!ran.err.contains("relaunched on other nodes"), "{}", ran.err);
    assert_eq!(world.all("generation_launched").len(), 1);
}

#[test]
fn ranks_that_could_not_be_moved_are_moved_when_another_node_is_included(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    let mut running = job.reaches(4);
    job.command(&["nodes", "exclude", "node4"], 0);
    job.command(&["nodes", "exclude", "node2", "--now", "--reason", "GPU errors"], 69);
    job.command(&["nodes", "include", "node4"], 0);
    running.sees_where("restarted", "generation", 2);
    job.go_on();
    running.ends_with(0).prints(&["generation 1 ended: excluded by the user: node2; newest checkpoint 4"]);
    assert_eq!(world.all("generation_placed")[1]["nodes"], json!(["node0", "node1", "node3", "node4"]));
    job.assert_result();
}

#[test]
fn exclusion_requested_without_orchestrator_is_taken_up_by_next_run(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    let running = job.reaches(4);
    job.command(&["nodes", "exclude", "node4", "--reason", "slow"], 0).prints(&["node4 excluded: slow"]);
    running.killed();
    let words = ["nodes", "exclude", "node1", "--reason", "noisy", "--json"];
    assert_eq!(job.command(&words, 0).json()["taken_up"], false);
    job.command(&["nodes", "include", "node4"], 0).prints(&["not taken up by the orchestrator yet"]);
    let mut second = job.start();
    let excluded = second.sees_where("node_excluded", "node", "node1");
    assert_eq!(excluded["reason"], "noisy");
    assert_eq!(second.sees_event("node_included")["node"], "node4");
    // Its ranks go on, and are moved now at the user's request.
    job.command(&["nodes", "exclude", "node1", "--now", "--reason", "noisy"], 0);
    second.sees_where("restarted", "generation", 2);
    job.go_on();
    second.ends_with(0);
    assert_eq!(world.all("generation_placed")[1]["nodes"], json!(["node0", "node2", "node3", "node4"]));
    job.assert_result();
}

#[test]
fn requests_in_a_file_that_others_may_write_are_refused_before_there_are_nodes(world: &World) {
    let job = Job::new(world, 0);
    job.run_to_result();
    let file = StateDirectory::below(&world.prefix()).join("excluded.json");
    fs::write(&file, "{}").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    for words in [&["run", "--again", "--dry-run"][..], &["run", "--again"]] {
        job.command(words, 78).prints(&["excluded.json"]);
    }
    assert_eq!(fs::read_dir(world.temporary()).unwrap().count(), 0, "no node was made");
}

#[test]
fn a_dry_run_shows_the_nodes_that_were_excluded_in_a_kept_allocation(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    let running = job.reaches(4);
    job.command(&["nodes", "exclude", "node1", "--reason", "slow"], 0);
    job.command(&["halt", "set", "--now"], 0);
    running.ends_with(75);
    job.go_on();
    job.command(&["run", "--dry-run"], 0).prints(&["node0: rank 0", "node1: excluded: slow", "node2: rank 1"]);
    job.run(0);
    assert_eq!(world.all("generation_placed").pop().unwrap()["nodes"], json!(["node0", "node2", "node3", "node4"]));
}
