//! Several levels at once: XOR for each checkpoint in memory, Reed-Solomon for each third on disk, a flush each sixth.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

use crate::faults::millis_of;
use crate::job::Job;
use crate::losses::{losing, run_with_losses};
use crate::pages::{run_example, status_of_example};
use crate::pfs;
use crate::world::World;

fn job(world: &World, spares: u32) -> Job<'_> {
    let levels = "[{scheme: xor, set_size: 4, cache: /memory}, \
                  {scheme: rs, set_size: 4, failures: 2, every: 3, cache: /disk, keep: 1}]";
    let job = Job::new(world, spares).redundancy(levels).flush("{every: 6}");
    job.checkpoint("cache: [{base: /memory, keep: 2}, {base: /disk}]")
}

fn place(event: &Value) -> (&Value, &Value, &Value) {
    (&event["checkpoint"], &event["source"], &event["rebuilt"])
}

#[test]
fn the_number_of_lost_nodes_decides_which_level_is_the_newest_that_can_be_used() {
    for (lost, after, expected) in [
        (&[1][..], 5, (5, "rebuilt", json!([1]))),
        (&[1, 2], 5, (3, "rebuilt", json!([1, 2]))),
        (&[1, 2, 3], 7, (6, "fetched", json!([]))),
    ] {
        let world = World::unchecked();
        let spares = u32::try_from(lost.len()).unwrap();
        let job = losing(job(&world, spares).holding_after(after), lost, after);
        let last = run_with_losses(&job, &world, lost);
        assert_eq!(place(&last), (&json!(expected.0), &json!(expected.1), &expected.2), "{last}");
    }
}

#[test(unchecked)]
fn the_strongest_level_is_rebuilt_with_the_newest_and_survives_the_next_losses(world: &World) {
    // Ranks that go on while a node is killed could complete checkpoint 5 before they end.
    let job = job(world, 3).holding_after(5).faults("{node: 1, during: encode, checkpoint: 5}");
    let job = losing(job, &[0, 2], 5);
    let last = run_with_losses(&job, world, &[1, 0, 2]);
    let all = world.all("restarted");
    assert_eq!(place(&all[1]), (&json!(4), &json!("rebuilt"), &json!([1])), "{all:?}");
    assert_eq!(place(&last), (&json!(3), &json!("rebuilt"), &json!([0, 2])), "{last}");
}

#[test]
fn a_checkpoint_that_evicts_one_waits_for_its_flush_and_the_levels_between_do_not(world: &World) {
    let job = job(world, 0).flush("{every: 6, mode: async}").holding_after(5);
    let mut job = job.faults("{after_checkpoint: 5, action: stall-prefix, for: 5s}");
    job.steps = 12 * job.every;
    let mut running = job.start();
    let stalled = running.sees_event("prefix_stalled");
    job.finishes(running);
    // Checkpoint 9 keeps 6: it is the last that survives two lost nodes, until 9 is protected. Only 12 evicts it.
    let begun = world.all("checkpoint_started");
    let twelfth = begun.iter().find(|event| event["checkpoint"] == 12).unwrap();
    let waited = millis_of(twelfth) - millis_of(&stalled);
    assert!(waited >= 4_900, "{waited}");
    let events = world.events();
    let at = |name, id| events.iter().position(|event| event["event"] == name && event["checkpoint"] == id).unwrap();
    assert!(at("flushed", 6) < at("checkpoint_started", 12));
    let flushed: Vec<Value> = world.all("flushed").iter().map(|event| event["checkpoint"].clone()).collect();
    assert_eq!((flushed, world.all("flush_failed").len()), (vec![json!(6), json!(12)], 0));
    pfs::assert_current(&world.prefix(), 12);
    world.assert_nothing_lost();
}

/// A flush takes hours if nothing waits for it.
#[test(unchecked)]
fn two_lost_nodes_lead_back_to_the_stronger_level_whose_flush_is_held_back(world: &World) {
    let job = job(world, 2).flush("{every: 6, mode: async, bandwidth: 1}").holding_after(8);
    let mut job = losing(job, &[1, 3], 8);
    job.steps = 12 * job.every;
    let last = run_with_losses(&job, world, &[1, 3]);
    assert_eq!(place(&last), (&json!(6), &json!("rebuilt"), &json!([1, 3])), "{last}");
}

#[test]
fn example_of_the_page_loses_two_nodes_and_continues_from_the_stronger_level(world: &World) {
    let events = run_example(world, "levels.md");
    let last = events.iter().rfind(|event| event["event"] == "restarted").unwrap();
    assert_eq!(place(last), (&json!(3), &json!("rebuilt"), &json!([1, 3])), "{last}");
    let (text, status) = status_of_example(world);
    let newest = status["newest_of_schemes"].as_array().unwrap();
    let newest: Vec<_> = newest.iter().map(|one| (one["scheme"].as_str().unwrap(), &one["protected"])).collect();
    assert_eq!(newest, [("rs", &json!(true)), ("xor", &json!(true))], "{status}");
    assert!(text.contains("newest of rs: checkpoint ") && text.contains("newest of xor: checkpoint "), "{text}");
}

/// Failures that ended generations, by the number of nodes that were lost.
fn failures(world: &World) -> Vec<usize> {
    let ended = world.all("generation_ended").into_iter().filter(|event| event["cause"] == "node_failure");
    ended.map(|event| event["nodes"].as_array().unwrap().len()).collect()
}

#[test(unchecked)]
fn each_level_and_the_flush_have_an_interval_of_their_own_from_the_failures_that_they_are_needed_for(world: &World) {
    let mut job = losing(losing(job(world, 3), &[1], 4), &[0, 2], 5).holding_after(5);
    job.size = "256x256";
    let mut running = job.start();
    for node in ["node0", "node1", "node2"] {
        running.sees_where("node_down", "node", node);
    }
    let ran = job.goes_on_to_its_end(running);
    ran.prints(&["checkpoint 3 complete for redundancy[1], ", "checkpoint 3 protected (redundancy[1]: RS) after "]);
    let failed = failures(world);
    let number_of = |lost: RangeInclusive<usize>| json!(failed.iter().filter(|nodes| lost.contains(nodes)).count());
    assert!(!failed.is_empty());
    let expected = [
        (json!({"descriptor": 0, "level": null, "scheme": "XOR"}), json!(1), number_of(0..=1)),
        (json!({"descriptor": 1, "level": null, "scheme": "RS"}), json!(2), number_of(2..=2)),
        (json!(null), json!(null), number_of(3..=4)),
    ];
    let status = job.command(&["status", "--json"], 0).json();
    let finished = world.the("finished");
    for interval in [&status["cost"]["interval"], &finished["interval"]] {
        let levels = interval["levels"].as_array().unwrap();
        let known =
            levels.iter().map(|one| (one["protection"].clone(), one["survives"].clone(), one["failures"].clone()));
        assert_eq!(known.collect::<Vec<_>>(), expected, "{interval}");
        for level in levels {
            // Without a failure there is no interval, whatever the level costs.
            let is_needed = level["failures"] != 0;
            assert_eq!((level["mtbf_ms"].is_u64(), level["interval_ms"].is_u64()), (is_needed, is_needed), "{level}");
            assert!(level["cost_ms"].is_u64(), "{level}");
        }
    }
    let lines = ["redundancy[0]: XOR, ", "redundancy[1]: RS, ", "flush, ", " and a failure every "];
    ran.prints(&lines);
    job.command(&["status"], 0).prints(&lines);
}

#[test(unchecked)]
fn check_explains_the_levels(world: &World) {
    let job = job(world, 1);
    job.command(&["check", "--explain"], 0).prints(&[
        "checkpoint.redundancy: xor survives the loss of any 1 node; ids that 1 divides, in /memory, 2 kept",
        "checkpoint.redundancy: rs survives the loss of any 2 nodes; ids that 3 divides, in /disk, 1 kept",
    ]);
    let levels = job.command(&["check", "--explain", "--json"], 0).json()["levels"].clone();
    let levels = levels.as_object().unwrap().values().next().unwrap().clone();
    assert_eq!((&levels[1]["survived_nodes"], &levels[1]["keep"]), (&json!(2), &json!(1)), "{levels}");
}
