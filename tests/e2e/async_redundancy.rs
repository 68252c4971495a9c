//! Redundancy that is made while the application goes on (`async: true`).

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::job::Job;
use crate::world::{World, signal};
use crate::{pages, pfs};

/// The redundancy of a checkpoint takes some seconds while nothing waits for it: 4 MiB of each rank at 1 MiB/s.
fn job(world: &World, spares: u32) -> Job<'_> {
    let mut job = Job::new(world, spares).checkpoint("piece_size: 64KiB");
    (job.size, job.steps, job.every) = ("2048x1024", 8, 1);
    job.redundancy("[{scheme: xor, set_size: 4, async: true, bandwidth: 1MiB/s}]")
}

/// The number of an event of a checkpoint in the log.
#[track_caller]
fn place(world: &World, name: &str, checkpoint: u64) -> usize {
    let events = world.events();
    let found = events.iter().position(|event| event["event"] == name && event["checkpoint"] == checkpoint);
    found.unwrap_or_else(|| panic!("no {name} of checkpoint {checkpoint}"))
}

fn is_complete(event: &Value) -> bool {
    event["event"] == "checkpoint_complete" && event["checkpoint"] == 3
}

#[test]
fn ranks_go_on_before_the_redundancy_is_made_within_its_bandwidth_and_the_next_checkpoint_lifts_the_limit() {
    let world = World::new();
    let job = job(&world, 0).holding_after(3);
    job.finishes(job.reaches(3));
    for checkpoint in 1..=8 {
        let of = |name| place(&world, name, checkpoint);
        assert!(of("checkpoint_complete") < of("ranks_blocked"));
        assert!(of("ranks_blocked") < of("encode_started"));
        assert!(of("encode_started") < of("checkpoint_protected"));
        // The older one stays until this one is protected.
        assert!(checkpoint == 8 || of("checkpoint_protected") < place(&world, "checkpoint_started", checkpoint + 1));
    }
    let protected = world.all("checkpoint_protected");
    let of_third = protected.iter().find(|event| event["checkpoint"] == 3).unwrap();
    assert!(of_third["millis"].as_u64() > Some(3000), "nothing waited for it: {of_third}");
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn a_node_that_is_lost_meanwhile_costs_the_newest_checkpoint_and_the_older_one_is_rebuilt(world: &World) {
    let job = job(world, 1).holding_after(3).faults("{node: 1, during: encode, checkpoint: 3}");
    job.finishes(job.start_to("node_down", "node", "node1"));
    let last = world.all("restarted").pop().unwrap();
    let from = (&last["checkpoint"], &last["source"], &last["rebuilt"]);
    assert_eq!(from, (&json!(2), &json!("rebuilt"), &json!([1])), "{last}");
    let reason = world.the("restart_attempt")["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("lost rank 1, and the redundancy of ranks 0, 2 and 3 was not made"), "{reason}");
}

#[test]
fn ranks_that_fail_meanwhile_restart_from_the_newest_checkpoint_whose_redundancy_is_then_made() {
    for limit in ["bandwidth: 1MiB/s", "percent: 0.5"] {
        let world = World::new();
        let redundancy = format!("[{{scheme: xor, set_size: 4, async: true, {limit}}}]");
        let job = job(&world, 0).redundancy(&redundancy).holding_after(3);
        let mut running = job.start();
        running.sees("checkpoint 3 complete", is_complete);
        assert!(world.kill(|command| command.contains("example heat")) > 0);
        let restarted = running.sees_where("restarted", "generation", 2);
        let from = (&restarted["checkpoint"], &restarted["source"], &restarted["protected"]);
        assert_eq!(from, (&json!(3), &json!("cache"), &json!(false)), "{restarted}");
        running.sees("its redundancy", |event| {
            event["event"] == "checkpoint_protected" && event["checkpoint"] == 3 && event["generation"] == 2
        });
        job.finishes(running);
        pfs::assert_current(&world.prefix(), 8);
    }
}

#[test]
fn an_agent_that_dies_meanwhile_makes_its_part_of_the_redundancy_again() {
    for node in ["node0", "node2"] {
        let world = World::new();
        let job = job(&world, 0).holding_after(3);
        let mut running = job.start();
        running.sees("checkpoint 3 complete", is_complete);
        signal(world.agent_pid(node), Signal::KILL);
        running.sees_where("checkpoint_protected", "checkpoint", 3);
        job.finishes(running);
        assert_eq!(world.all("restarted").len(), 1, "{node}: nothing was launched again");
    }
}

#[test]
fn several_nodes_are_rebuilt_from_redundancy_that_was_made_meanwhile(world: &World) {
    let redundancy = "[{scheme: rs, set_size: 4, failures: 2, async: true, percent: 50}]";
    let job = Job::new(world, 2).redundancy(redundancy).holding_after(5);
    let job = job.faults("{node: 1, after_checkpoint: 5}").faults("{node: 3, after_checkpoint: 5}");
    let mut running = job.start();
    for node in ["node1", "node3"] {
        running.sees_where("node_down", "node", node);
    }
    job.finishes(running);
    let last = world.all("restarted").pop().unwrap();
    assert_eq!((&last["checkpoint"], &last["rebuilt"]), (&json!(5), &json!([1, 3])), "{last}");
}

#[test]
fn copies_on_a_partner_are_made_meanwhile(world: &World) {
    let redundancy = "[{scheme: partner, async: true}]";
    let job = Job::new(world, 1).redundancy(redundancy).holding_after(5).faults("{node: 1, after_checkpoint: 5}");
    job.finishes(job.start_to("node_down", "node", "node1"));
    assert_eq!(world.all("restarted").pop().unwrap()["checkpoint"], 5);
}

#[test]
fn example_of_the_page_loses_a_node_and_continues(world: &World) {
    let events = pages::run_example(world, "async-redundancy.md");
    let last = events.iter().rfind(|event| event["event"] == "restarted").unwrap();
    assert_eq!((&last["checkpoint"], &last["rebuilt"]), (&json!(2), &json!([1])), "{last}");
    let began = |name: &str| events.iter().position(|event| event["event"] == name).unwrap();
    assert!(began("ranks_blocked") < began("encode_started"));
}

#[test(unchecked)]
fn keys_of_asynchronous_redundancy_that_have_no_effect_are_refused(world: &World) {
    for (redundancy, message) in [
        ("[{scheme: local, async: true}]", "`async: true` has no effect with `scheme: local`"),
        ("[{scheme: xor, bandwidth: 1GiB/s}]", "`bandwidth` has no effect without `async: true`"),
        ("[{scheme: xor, percent: 5}]", "`percent` has no effect without `async: true`"),
        ("[{scheme: xor, async: true, bandwidth: 1kB/s}]", "is too slow"),
    ] {
        Job::new(world, 0).redundancy(redundancy).run(78).prints(&[message]);
    }
    let job = Job::new(world, 0).redundancy("[{scheme: xor, async: true}]");
    job.checkpoint("source: scr-files").run(78).prints(&["`async` has no effect with `source: scr-files`"]);
}

#[test]
fn a_checkpoint_whose_redundancy_is_being_made_is_flushed_and_drained_without_it() {
    // Minutes of work, which nothing waits for.
    let slow = "[{scheme: xor, set_size: 4, async: true, percent: 0.005}]";
    let world = World::unchecked();
    let job = job(&world, 0).redundancy(slow).flush("{every: 3, mode: async}").holding_after(3);
    let running = job.start_to("flushed", "checkpoint", 3);
    assert!(!world.all("checkpoint_protected").iter().any(|event| event["checkpoint"] == 3), "the flush did not wait");
    running.terminated();
    pfs::assert_current(&world.prefix(), 3);
    world.assert_nothing_is_left();

    let world = World::new();
    let job = self::job(&world, 0).redundancy(slow).flush("{every: 0}").holding_after(3);
    let mut running = job.start();
    running.sees("checkpoint 3 complete", is_complete);
    running.terminated();
    assert!(!world.all("checkpoint_protected").iter().any(|event| event["checkpoint"] == 3));
    pfs::assert_current(&world.prefix(), 3);
}
