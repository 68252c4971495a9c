//! Other redundancy schemes, placements and copies of checkpoints.

use serde_json::json;

use crate::job::Job;
use crate::pfs;
use crate::world::World;

/// Node 1 is lost after checkpoint 5; the job restarts from it and finishes.
fn survives(job: &Job<'_>, world: &World, rebuilt: &serde_json::Value) {
    job.finishes(job.start_to_event("node_down"));
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

#[test(unchecked)]
fn restores_files_of_lost_node_from_partner_copies(world: &World) {
    survives(&job(world).redundancy("[{scheme: partner}]"), world, &json!([1]));
}

#[test(unchecked)]
fn partner_copies_can_be_two_nodes_away(world: &World) {
    survives(&job(world).redundancy("[{scheme: partner, hop_distance: 2}]"), world, &json!([1]));
}

#[test(unchecked)]
fn several_ranks_a_node_are_all_rebuilt(world: &World) {
    let mut job = job(world);
    job.per_node = 3;
    survives(&job, world, &json!([3, 4, 5]));
}

#[test(unchecked)]
fn several_files_a_rank_are_all_rebuilt(world: &World) {
    survives(&job(world).heat("--files-per-rank 3"), world, &json!([1]));
}

#[test(unchecked)]
fn several_files_a_rank_are_all_copied_by_partners(world: &World) {
    survives(&job(world).heat("--files-per-rank 3").redundancy("[{scheme: partner}]"), world, &json!([1]));
}

#[test]
fn the_last_node_may_have_fewer_ranks(world: &World) {
    let job = job(world);
    let yaml = job.yaml().replace("  ranks_per_node: 1\n", "  ranks_per_node: 2\n  ranks: 7\n");
    let mut running = world.start_spec(&yaml);
    running.sees_event("node_down");
    job.finishes(running);
    assert_eq!(world.all("restarted").pop().unwrap()["rebuilt"], json!([2, 3]));
}

#[test(unchecked)]
fn relaunches_with_asynchronous_flushes(world: &World) {
    let job = job(world).flush("{every: 2, mode: async}");
    survives(&job, world, &json!([1]));
    assert!(!world.all("flushed").is_empty());
    for (id, complete) in pfs::indexed(&world.prefix()) {
        // An interrupted flush is in the index without a COMPLETE entry, as in SCR.
        assert_ne!(complete, Some(false), "checkpoint {id}");
    }
}

#[test]
fn without_redundancy_restarts_from_cache_after_failure_and_from_prefix_after_node_loss(world: &World) {
    let job = job(world).redundancy("[{scheme: local}]").flush("{every: 2}");
    job.finishes(job.start_to_event("node_down"));
    world.assert_restarted(4, "fetched");
}

#[test(unchecked)]
fn cache_and_control_directory_can_have_different_bases(world: &World) {
    let job = job(world)
        .checkpoint("control: {base: /var/control}")
        .checkpoint("cache: [{base: /fast, keep: 1}, {base: /slow, keep: 2}]")
        .redundancy("[{scheme: xor, cache: /fast}, {scheme: partner, every: 5, cache: /slow}]");
    survives(&job, world, &json!([1]));
}
