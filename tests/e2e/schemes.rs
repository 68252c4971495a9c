//! Other redundancy schemes, placements and copies of checkpoints.

use serde_json::json;

use crate::job::Job;
use crate::pfs;
use crate::world::World;

/// Node 1 is lost after checkpoint 5; the job restarts from it and finishes.
fn survives(job: &Job<'_>, world: &World, rebuilt: &serde_json::Value) {
    let mut running = job.start();
    running.sees_event("node_down");
    job.finishes(running);
    let last = world.all("restarted").pop().unwrap();
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(5), &json!("rebuilt")));
    // A partner copy may also be moved back.
    let restored = if last["rebuilt"] == json!([]) { &last["moved"] } else { &last["rebuilt"] };
    assert_eq!(restored, rebuilt, "{last}");
    pfs::assert_current(&world.prefix(), 8);
    world.assert_nothing_is_left();
}

fn job(world: &World) -> Job<'_> {
    Job::new(world, 1).holding_after(5).faults("{node: 1, after_checkpoint: 5}")
}

#[test]
fn restores_files_of_lost_node_from_partner_copies() {
    let world = World::unchecked();
    survives(&job(&world).redundancy("[{scheme: partner}]"), &world, &json!([1]));
}

#[test]
fn partner_copies_can_be_two_nodes_away() {
    let world = World::unchecked();
    survives(&job(&world).redundancy("[{scheme: partner, hop_distance: 2}]"), &world, &json!([1]));
}

#[test]
fn several_ranks_a_node_are_all_rebuilt() {
    let world = World::unchecked();
    let mut job = job(&world);
    job.per_node = 3;
    survives(&job, &world, &json!([3, 4, 5]));
}

#[test]
fn several_files_a_rank_are_all_rebuilt() {
    let world = World::unchecked();
    survives(&job(&world).heat("--files-per-rank 3"), &world, &json!([1]));
}

#[test]
fn several_files_a_rank_are_all_copied_by_partners() {
    let world = World::unchecked();
    survives(&job(&world).heat("--files-per-rank 3").redundancy("[{scheme: partner}]"), &world, &json!([1]));
}

#[test]
fn the_last_node_may_have_fewer_ranks() {
    let world = World::new();
    let job = job(&world);
    let yaml = job.yaml().replace("  ranks_per_node: 1\n", "  ranks_per_node: 2\n  ranks: 7\n");
    let mut running = world.start_spec(&yaml);
    running.sees_event("node_down");
    job.finishes(running);
    assert_eq!(world.all("restarted").pop().unwrap()["rebuilt"], json!([2, 3]));
}

#[test]
fn relaunches_with_asynchronous_flushes() {
    let world = World::unchecked();
    let job = job(&world).flush("{every: 2, mode: async}");
    survives(&job, &world, &json!([1]));
    assert!(!world.all("flushed").is_empty());
    for (id, complete) in pfs::indexed(&world.prefix()) {
        // An interrupted flush is in the index without a COMPLETE entry, as in SCR.
        assert_ne!(complete, Some(false), "checkpoint {id}");
    }
}

#[test]
fn without_redundancy_restarts_from_cache_after_failure_and_from_prefix_after_node_loss() {
    let world = World::new();
    let job = job(&world).redundancy("[{scheme: local}]").flush("{every: 2}");
    let mut running = job.start();
    running.sees_event("node_down");
    job.finishes(running);
    let last = world.all("restarted").pop().unwrap();
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(4), &json!("fetched")));
}

#[test]
fn cache_and_control_directory_can_have_different_bases() {
    let world = World::unchecked();
    let job = job(&world)
        .checkpoint("control: {base: /var/control}")
        .checkpoint("cache: [{base: /fast, keep: 1}, {base: /slow, keep: 2}]")
        .redundancy("[{scheme: xor, cache: /fast}, {scheme: partner, every: 5, cache: /slow}]");
    survives(&job, &world, &json!([1]));
}
