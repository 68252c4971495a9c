//! Two nodes of one XOR set are lost at once: the set cannot be rebuilt. The job restarts from the newest usable
//! checkpoint, and reports which one.

use serde_json::{Value, json};

use crate::job::Job;
use crate::pfs;
use crate::world::World;

/// Nodes 1 and 3 are lost after a checkpoint; the job continues when both losses are detected.
fn lose_two(job: &Job<'_>, world: &World) -> Value {
    let mut running = job.start();
    for node in ["node1", "node3"] {
        running.sees_where("node_down", "node", node);
    }
    let ran = job.finishes(running);
    world.assert_nothing_is_left();
    let last = world.all("restarted").pop().unwrap();
    let output = match last["checkpoint"].as_u64() {
        Some(id) => format!("started from checkpoint {id}"),
        None => "started from the beginning".to_owned(),
    };
    ran.prints(&["checkpoint 5 from cache cannot be used", &output]);
    last
}

fn job(world: &World) -> Job<'_> {
    let both = ["{node: 1, after_checkpoint: 5}", "{node: 3, after_checkpoint: 5}"];
    both.into_iter().fold(Job::new(world, 2).holding_after(5), Job::faults)
}

#[test(unchecked)]
fn uses_older_checkpoint_in_cache_from_partners(world: &World) {
    let job = job(world).redundancy("[{scheme: xor, set_size: 4}, {scheme: partner, every: 2}]");
    let last = lose_two(&job, world);
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(4), &json!("rebuilt")));
    let attempts = world.all("restart_attempt");
    assert!(attempts.iter().any(|attempt| attempt["checkpoint"] == 5 && attempt["from"] == "cache"), "{attempts:#?}");
}

#[test(unchecked)]
fn fetches_newest_from_prefix_when_cache_is_empty(world: &World) {
    let job = job(world).flush("{every: 2}");
    let last = lose_two(&job, world);
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(4), &json!("fetched")));
    pfs::assert_current(&world.prefix(), 8);
}

#[test(unchecked)]
fn starts_from_beginning_without_checkpoint(world: &World) {
    let last = lose_two(&job(world), world);
    assert_eq!((&last["checkpoint"], &last["source"]), (&Value::Null, &json!("fresh")));
    pfs::assert_current(&world.prefix(), 8);
    let reason = "checkpoint 5 cannot be used: two members of the XOR set of ranks 0-3 were lost (1 and 3), and it \
                  survives one; see `scheme: rs`";
    assert_eq!(world.the("from_beginning")["reason"], reason);
}

#[test]
fn a_failure_before_the_first_checkpoint_is_named_as_the_reason_for_the_beginning(world: &World) {
    let job = Job::new(world, 0).holding_at(2);
    let mut running = job.start_to_event("restarted");
    assert!(world.kill(|line| line.contains("example heat")) >= 4);
    running.sees_event("generation_ended");
    let ran = job.goes_on_to_its_end(running);
    let reason = "generation 2: from the beginning (no checkpoint was completed); the application is finished";
    ran.prints(&["warning: generation 2 starts from the beginning: no checkpoint was completed", reason]);
    ran.prints(&["generation 1: from the beginning; "]);
    job.command(&["status"], 0).prints(&["generation 2: from the beginning (no checkpoint was completed); "]);
    job.assert_result();
}

#[test(unchecked)]
fn falls_back_to_prefix_when_survivor_is_lost_during_rebuild(world: &World) {
    let job = Job::new(world, 2)
        .flush("{every: 2}")
        .holding_after(5)
        .faults("{node: 1, after_checkpoint: 5}")
        .faults("{node: 3, during: rebuild}");
    let last = lose_two(&job, world);
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(4), &json!("fetched")));
}

#[test(unchecked)]
fn two_lost_nodes_are_two_members_of_every_set(world: &World) {
    let mut job = job(world).flush("{every: 2}");
    job.per_node = 2;
    let last = lose_two(&job, world);
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(4), &json!("fetched")));
}

#[test]
fn status_says_whether_the_checkpoint_of_a_restart_is_protected() {
    for (list, scheme) in [("[{scheme: xor, set_size: 4}]", "XOR"), ("[{scheme: local}]", "LOCAL")] {
        let world = World::new();
        let job = Job::new(&world, 0).redundancy(list).holding_after(4);
        job.reaches(4).terminated();
        pfs::assert_current(&world.prefix(), 4);
        // What the earlier run reported of its checkpoints is gone, as where another program wrote them.
        std::fs::remove_file(world.prefix().join(".holdfast/events.jsonl")).unwrap();
        let job = Job::new(&world, 0).redundancy(list).holding_at(21);
        let mut running = job.start();
        let restarted = running.sees_event("restarted");
        let is_protected = scheme == "XOR";
        assert_eq!((&restarted["checkpoint"], &restarted["protected"]), (&json!(4), &json!(is_protected)));
        let status = world.wait("the restart in the status", || {
            let status = job.command(&["status", "--json"], 0).json();
            (status["checkpoint"] == 4).then_some(status)
        });
        assert_eq!((&status["protected"], &status["newest_protected"]), (&json!(is_protected), &Value::Null), "{list}");
        let text =
            if is_protected { "newest checkpoint 4, protected\n" } else { "newest checkpoint 4, not protected\n" };
        job.command(&["status"], 0).prints(&[text]);
        let ran = job.goes_on_to_its_end(running);
        assert_eq!(ran.err.contains("; it is not protected from the loss of a node"), !is_protected, "{}", ran.err);
        job.assert_result();
    }
}
