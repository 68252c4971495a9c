//! Nodes are lost and no spare is left: the run goes on with fewer nodes.

use serde_json::json;

use crate::job::Job;
use crate::pfs;
use crate::world::World;

#[test]
fn run_goes_on_with_fewer_nodes_from_rebuilt_checkpoint(world: &World) {
    let job = Job::new(world, 0)
        .top("relaunch: {min_nodes: 2, max_ranks_per_node: 2}")
        .holding_after(4)
        .faults("{node: 1, after_checkpoint: 4}");
    job.finishes(job.start_to_event("node_down"));
    let placed = &world.all("generation_placed")[1];
    assert_eq!((&placed["nodes"], &placed["moved"]), (&json!(["node0", "node2", "node3"]), &json!([1])));
    let again = &world.all("restarted")[1];
    assert_eq!(
        (&again["checkpoint"], &again["source"], &again["rebuilt"]),
        (&json!(4), &json!("rebuilt"), &json!([1]))
    );
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn two_losses_one_after_the_other_leave_two_nodes_with_protected_checkpoints(world: &World) {
    let mut job = Job::new(world, 0)
        .redundancy("[{scheme: xor, set_size: 2}]")
        .top("relaunch: {min_nodes: 2}")
        .holding_after(8)
        .faults("{node: 3, during: write, checkpoint: 4}")
        .faults("{node: 1, after_checkpoint: 8}");
    job.steps = 60;
    job.finishes(job.start_to("node_down", "node", "node1"));
    world.assert_restarted(8, "rebuilt");
    assert_eq!(world.all("generation_placed")[2]["nodes"], json!(["node0", "node2"]));
}

#[test]
fn checkpoint_whose_set_lost_two_members_is_fetched_from_prefix(world: &World) {
    let job = Job::new(world, 0)
        .top("relaunch: {min_nodes: 1}")
        .flush("{every: 3}")
        .holding_after(5)
        .faults("{node: 1, after_checkpoint: 5}")
        .faults("{node: 2, after_checkpoint: 5}");
    job.finishes(job.start_to("node_down", "node", "node2"));
    world.assert_restarted(3, "fetched");
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn excluded_node_without_spare_leaves_fewer_nodes_with_more_ranks(world: &World) {
    let job = Job::new(world, 0).top("relaunch: {min_nodes: 3}").allocation("exclude: node3");
    job.run_to_result();
    assert_eq!(world.the("generation_placed")["nodes"], json!(["node0", "node1", "node2"]));
}

#[test(unchecked)]
fn nodes_without_enough_free_space_are_not_used_for_a_first_launch(world: &World) {
    let sizes = rustix::fs::statvfs(world.path("")).unwrap();
    // As much as the file system has: some of it is in use.
    let total = sizes.f_blocks * sizes.f_frsize;
    let job = Job::new(world, 0).checkpoint(&format!("cache: [{{base: /tmp, bytes: {total}}}]"));
    job.run(69).prints(&["bytes free, expected are", "before a first launch"]);
    assert_eq!(world.all("generation_launched").len(), 0);
}
