//! Nodes that must not get ranks, because of a health test or of the user, are drained as long as an agent answers.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::job::Job;
use crate::pfs;
use crate::world::World;

/// Every rank was copied by its own node.
#[track_caller]
fn assert_copied_by_own_nodes(world: &World) {
    let copied = world.all("copied");
    let by: Vec<(&Value, &Value)> = copied.iter().map(|event| (&event["node"], &event["ranks"])).collect();
    let expected = [0, 1, 2, 3].map(|rank| (json!(format!("node{rank}")), json!([rank])));
    assert_eq!(by, expected.iter().map(|(node, ranks)| (node, ranks)).collect::<Vec<_>>());
    pfs::assert_current(&world.prefix(), 4);
}

/// A job without redundancy that ends after checkpoint 4, whose health test fails on some nodes from then on.
fn with_faulty_nodes<'a>(world: &'a World, gate: &Path, nodes: &str) -> Job<'a> {
    let test = format!("case $HOLDFAST_NODE in {nodes}) test ! -e {} || exit 3;; esac", gate.display());
    Job::new(world, 0)
        .redundancy("[{scheme: local}]")
        .holding_after(4)
        .heat("--exit-at 22")
        .health(&format!("command: [sh, -c, {test:?}]"))
}

#[test]
fn node_that_failed_its_health_test_is_drained_if_its_agent_can_be_started() {
    for nodes in ["node1", "node*"] {
        let world = World::new();
        let gate = world.path("faulty");
        let job = with_faulty_nodes(&world, &gate, nodes);
        let running = job.reaches(4);
        fs::write(&gate, "").unwrap();
        job.go_on();
        let ran = running.ends_with(75);
        ran.prints(&["node1 is down: a health test failed: health.command", "checkpoint 4 is complete"]);
        assert_copied_by_own_nodes(&world);
    }
}

#[test(unchecked)]
fn node_that_failed_its_health_test_and_cannot_be_used_is_left_out(world: &World) {
    let gate = world.path("faulty");
    let job = with_faulty_nodes(world, &gate, "node1").redundancy("[{scheme: xor, set_size: 4}]");
    let running = job.reaches(4);
    // No agent can use a control directory that is a file.
    let control = world.node_root("node1").join("tmp");
    fs::rename(&control, world.path("aside")).unwrap();
    fs::write(&control, "").unwrap();
    fs::write(&gate, "").unwrap();
    job.go_on();
    running.ends_with(75).prints(&["checkpoint 4 is complete"]);
    assert_eq!(world.the("rebuilt_in_prefix")["rank"], 1);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn nodes_in_scr_exclude_nodes_get_no_ranks_and_are_drained(world: &World) {
    let job = Job::new(world, 0).redundancy("[{scheme: local}]").holding_after(4);
    job.abandon_after(4);
    let mut drain = world.holdfast(["drain"]);
    drain.arg(job.spec()).env("SCR_EXCLUDE_NODES", "node[1-2]");
    world.run(drain).with_code(0).prints(&["checkpoint 4 is complete"]);
    assert_copied_by_own_nodes(world);
}
