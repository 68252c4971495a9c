//! Nodes are lost while the job runs; it restarts from rebuilt files, and ends with the same result.

use serde_json::json;

use crate::job::Job;
use crate::pfs;
use crate::world::World;

#[test]
fn failure_free_run_has_result_of_one_process_and_indexes_last_checkpoint(world: &World) {
    let job = Job::new(world, 1);
    let ran = job.run_to_result();
    assert_eq!(world.all("checkpoint_complete").len(), 8);
    assert_eq!(world.all("generation_launched").len(), 1);
    assert_eq!(world.the("restarted")["source"], "fresh");
    pfs::assert_current(&world.prefix(), 8);
    let prefix = world.prefix();
    ran.prints(&["the job is finished", "checkpoint    8", &prefix.display().to_string(), "events.jsonl"]);
}

#[test]
fn spare_replaces_lost_node_with_rebuilt_checkpoint(world: &World) {
    let job = Job::new(world, 1).holding_after(4).faults("{node: 1, after_checkpoint: 4}");
    let mut running = job.start();
    let lost = running.sees_event("node_down");
    assert_eq!((&lost["node"], &lost["ranks"]), (&json!("node1"), &json!([1])));
    job.finishes(running);
    let again = &world.all("restarted")[1];
    assert_eq!(
        (&again["checkpoint"], &again["source"], &again["rebuilt"]),
        (&json!(4), &json!("rebuilt"), &json!([1]))
    );
    let placed = &world.all("generation_placed")[1];
    assert_eq!(placed["nodes"], json!(["node0", "node2", "node3", "node4"]));
    assert_eq!(placed["moved"], json!([1]));
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn two_consecutive_node_losses_need_only_two_rebuilds(world: &World) {
    let mut job = Job::new(world, 2)
        .holding_after(8)
        .faults("{node: 1, after_checkpoint: 3}")
        .faults("{node: 3, after_checkpoint: 8}")
        // The first loss is dealt with before checkpoint 8, also on a busy machine.
        .heat("--step-delay 100ms");
    job.steps = 60;
    job.finishes(job.start_to("node_down", "node", "node3"));
    let rebuilt: Vec<_> = world.all("restarted").into_iter().map(|event| event["rebuilt"].clone()).collect();
    assert_eq!(rebuilt, [json!([]), json!([1]), json!([3])]);
    assert_eq!(world.all("restarted")[2]["checkpoint"], 8);
    pfs::assert_current(&world.prefix(), 12);
}

#[test]
fn restarts_after_loss_of_leader_node(world: &World) {
    let job = Job::new(world, 1).holding_after(4).faults("{node: 0, after_checkpoint: 4}");
    job.finishes(job.start_to_event("node_down"));
    assert_eq!(world.all("restarted")[1]["rebuilt"], json!([0]));
}

#[test]
fn node_loss_during_write_drops_only_that_checkpoint(world: &World) {
    let job = Job::new(world, 1).faults("{node: 1, during: write, checkpoint: 4}");
    job.run_to_result();
    let again = &world.all("restarted")[1];
    assert_eq!((&again["checkpoint"], &again["rebuilt"]), (&json!(3), &json!([1])));
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn node_loss_during_encode_drops_only_that_checkpoint(world: &World) {
    let job = Job::new(world, 1).faults("{node: 2, during: encode, checkpoint: 4}");
    job.run_to_result();
    let again = &world.all("restarted")[1];
    assert_eq!((&again["checkpoint"], &again["rebuilt"]), (&json!(3), &json!([2])));
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn node_lost_during_rebuild_is_replaced_and_rebuild_restarts(world: &World) {
    let job = Job::new(world, 2)
        .holding_after(4)
        .faults("{node: 1, after_checkpoint: 4}")
        .faults("{node: 4, during: rebuild}");
    job.finishes(job.start_to("node_down", "node", "node4"));
    let last = world.all("restarted").pop().unwrap();
    assert_eq!((&last["checkpoint"], &last["rebuilt"]), (&json!(4), &json!([1])));
    pfs::assert_current(&world.prefix(), 8);
}
