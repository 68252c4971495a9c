//! Flushes in the background that are interrupted: the next generation or the drain continues them in the same
//! directory, or removes them. They are so slow here that none ends by itself.

use std::fs;

use holdfast_testkit::files_below;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::job::Job;
use crate::pfs;
use crate::world::{Running, World, signal};

/// A job that flushes checkpoint 4, and would need hours for it.
fn flushing(world: &World, spares: u32) -> Job<'_> {
    Job::new(world, spares).flush("{every: 4, mode: async, bandwidth: 1}")
}

/// Waits until files of checkpoint 4 are being copied to its directory.
fn sees_flush(world: &World) {
    world.wait("the flush of checkpoint 4", || {
        let begun = pfs::indexed(&world.prefix()).get(&4) == Some(&None);
        (begun && !temporary_files(world).is_empty()).then_some(())
    });
}

/// Temporary files below the prefix directory.
fn temporary_files(world: &World) -> Vec<String> {
    let names = files_below(&world.prefix()).into_iter().map(|path| path.file_name().unwrap().to_owned());
    names.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with(".hf-")).collect()
}

/// The checkpoint directories below the prefix, by id.
fn directories(world: &World) -> Vec<u64> {
    let names = fs::read_dir(world.prefix()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let of_checkpoint = names.filter(|name| name.starts_with("scr.2"));
    let mut ids: Vec<u64> = of_checkpoint.map(|name| name.rsplit_once('.').unwrap().1.parse().unwrap()).collect();
    ids.sort_unstable();
    ids
}

/// These checkpoints are complete, each in one directory, and nothing else is there.
#[track_caller]
fn assert_flushed(world: &World, ids: &[u64]) {
    assert_eq!(directories(world), ids);
    let complete: Vec<_> = ids.iter().map(|id| (*id, Some(true))).collect();
    assert_eq!(pfs::indexed(&world.prefix()).into_iter().collect::<Vec<_>>(), complete);
    assert_eq!(temporary_files(world), [""; 0]);
}

/// Checkpoint 4 is complete, in one directory, which a drain continued.
#[track_caller]
fn assert_continued(world: &World) {
    let started = world.the("drain_started");
    assert_eq!((&started["checkpoint"], &started["resumed"]), (&json!(4), &json!(true)), "{started}");
    assert_flushed(world, &[4]);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
}

fn holding_at_4<'a>(job: &Job<'a>, world: &World) -> Running<'a> {
    let running = job.reaches(4);
    sees_flush(world);
    // Otherwise a drain after the death of the orchestrator continues no directory.
    world.sees_recorded(4);
    running
}

#[test(unchecked)]
fn drain_after_a_signal_stops_the_flush_and_continues_in_its_directory(world: &World) {
    let job = flushing(world, 0).holding_after(4);
    let running = holding_at_4(&job, world);
    running.terminated();
    assert_continued(world);
}

#[test(unchecked)]
fn drain_after_the_death_of_the_orchestrator_stops_the_flush_and_continues_in_its_directory(world: &World) {
    let job = flushing(world, 0).holding_after(4);
    let running = holding_at_4(&job, world);
    running.killed();
    job.command(&["drain"], 0);
    assert_continued(world);
}

#[test(unchecked)]
fn restarted_agent_of_the_leader_continues_the_flush_in_its_directory(world: &World) {
    let job = flushing(world, 0).holding_after(4);
    let mut running = holding_at_4(&job, world);
    let killed = world.agent_pid("node0");
    let before = temporary_files(world);
    signal(killed, Signal::KILL);
    running.sees_event("agent_lost");
    // All nodes copy again: the order of the killed leader was cancelled, and what it had copied has another name.
    world.wait("the flush of the restarted leader", || {
        let now = temporary_files(world);
        (now.iter().filter(|name| !before.contains(name)).count() >= 4).then_some(())
    });
    assert_eq!(directories(world), [4]);
    running.terminated();
    assert_continued(world);
}

#[test]
fn generation_after_a_node_loss_removes_the_flush_of_a_checkpoint_that_it_does_not_restart_from(world: &World) {
    // The ranks wait for the loss. Checkpoint 6 would wait for the flush of 4.
    let mut job = flushing(world, 1).faults("{node: 2, after_checkpoint: 5}").holding_after(5);
    // Seven checkpoints: the next one that would be flushed is not reached.
    job.steps = 35;
    job.finishes(job.start_to_event("node_down"));
    let restarted: Vec<Value> = world.all("restarted");
    assert_eq!(restarted[1]["checkpoint"], 5, "{restarted:#?}");
    let notices = world.all("notice");
    assert!(
        notices.iter().any(|notice| notice["message"].as_str().unwrap().contains("unfinished flush")),
        "{notices:#?}"
    );
    assert_flushed(world, &[7]);
}

#[test]
fn generation_after_a_node_loss_continues_the_flush_of_the_checkpoint_that_it_restarts_from(world: &World) {
    let mut job = flushing(world, 1).faults("{node: 2, after_checkpoint: 4}").holding_after(4);
    job.steps = 35;
    job.finishes(job.start_to_event("node_down"));
    let restarted: Vec<Value> = world.all("restarted");
    assert_eq!(restarted[1]["checkpoint"], 4, "{restarted:#?}");
    assert_flushed(world, &[4, 7]);
}

#[test]
fn halt_waits_for_the_flush_that_is_under_way_and_leaves_one_directory_a_checkpoint(world: &World) {
    // Half a second for the 1152 bytes of a rank.
    let job = Job::new(world, 0).flush("{every: 3, mode: async, bandwidth: 2304}").top("halt: {checkpoints_left: 4}");
    job.run(75);
    assert_flushed(world, &[3, 4]);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn halt_does_not_wait_for_the_bandwidth_limit_of_a_flush(world: &World) {
    // Hours, with the limit.
    let job = Job::new(world, 0).flush("{every: 3, mode: async, bandwidth: 1}").top("halt: {checkpoints_left: 4}");
    job.run(75);
    assert_flushed(world, &[3, 4]);
}

#[test]
fn checkpoint_waits_for_a_flush_without_its_limit_instead_of_evicting_the_newest_one(world: &World) {
    let job = flushing(world, 0).checkpoint("cache: [{base: /tmp, keep: 2}]");
    job.run_to_result();
    let position = |name: &str, id: u64| {
        let events = world.events();
        events.iter().position(|event| event["event"] == name && event["checkpoint"] == id).unwrap()
    };
    // With 5 in the cache, and 4 being flushed, there is no room for 6.
    assert!(position("checkpoint_complete", 5) < position("flushed", 4));
    assert!(position("flushed", 4) < position("checkpoint_started", 6));
}

#[test]
fn checkpoints_are_not_delayed_by_the_flush_of_an_older_one(world: &World) {
    let job = flushing(world, 0).checkpoint("cache: [{base: /tmp, keep: 3}]").holding_after(7);
    let mut running = job.start();
    // More checkpoints than the cache keeps, while checkpoint 4 stays in it.
    running.sees_checkpoint(7);
    assert_eq!(pfs::indexed(&world.prefix()).into_iter().collect::<Vec<_>>(), [(4, None)]);
    let cached = |id: u64| {
        files_below(&world.node_root("node1"))
            .iter()
            .any(|path| path.components().any(|part| part.as_os_str().to_string_lossy() == format!("checkpoint.{id}")))
    };
    assert_eq!([4, 5, 6, 7].map(cached), [true, false, true, true]);
    running.terminated();
    // The newest is drained; the flush of the older one is removed.
    assert_eq!(directories(world), [7]);
    assert_eq!(pfs::indexed(&world.prefix()).into_iter().collect::<Vec<_>>(), [(7, Some(true))]);
    let removed = world.the("flush_abandoned");
    assert!(removed["directory"].as_str().unwrap().ends_with(".4"), "{removed}");
}

#[test(unchecked)]
fn temporary_files_of_killed_processes_are_removed_by_the_next_command(world: &World) {
    let job = flushing(world, 0).holding_after(4);
    let running = holding_at_4(&job, world);
    // The orchestrator first, so that it restarts no agent.
    running.killed();
    world.kill(|line| line.contains("holdfast"));
    world.wait("the end of all processes", || world.processes().is_empty().then_some(()));
    assert!(!temporary_files(world).is_empty(), "the copies were killed in the middle");
    job.command(&["drain"], 0);
    assert_continued(world);
}

/// The transfer file of the node of rank 1, as `scr_print_hash_file` prints it, without indentation.
fn transfer_file(world: &World) -> Vec<String> {
    let files = files_below(&world.node_root("node1"));
    let Some(path) = files.into_iter().find(|path| path.ends_with("transfer.scrinfo")) else { return Vec::new() };
    let mut command = world.holdfast(["compat", "scr_print_hash_file"]);
    command.arg(path);
    world.run(command).with_code(0).out.lines().map(|line| line.trim().to_owned()).collect()
}

/// The value behind a key.
#[track_caller]
fn value<'a>(lines: &'a [String], key: &str) -> &'a str {
    let at = lines.iter().position(|line| line == key).unwrap_or_else(|| panic!("no {key} in {lines:?}"));
    &lines[at + 1]
}

#[test]
fn flush_in_the_background_is_in_the_transfer_file_of_each_node(world: &World) {
    let job = flushing(world, 0).holding_after(4);
    let running = holding_at_4(&job, world);
    let lines = world.wait("the transfer file", || Some(transfer_file(world)).filter(|lines| !lines.is_empty()));
    let source = lines.iter().find(|line| line.ends_with("checkpoint.4/rank_1.ckpt")).unwrap();
    assert!(source.starts_with("/tmp/"), "as the node sees it: {source}");
    let destination = value(&lines[lines.iter().position(|line| line == source).unwrap()..], "DESTINATION");
    assert!(destination.starts_with(world.prefix().to_str().unwrap()), "{destination}");
    for (key, expected) in [("COMMAND", "RUN"), ("STATE", "RUNNING"), ("BW", "1.000000"), ("WRITTEN", "0")] {
        assert_eq!(value(&lines, key), expected, "{key} of {lines:?}");
    }
    assert!(lines.iter().any(|line| line.ends_with("rank_1.ckpt.scr")) && !lines.iter().any(|line| line == "DONE"));
    // The end of the job waits for the flush, without its limit.
    job.finishes(running);
    assert_eq!(directories(world), [4, 8]);
}

#[test(unchecked)]
fn a_long_flush_is_shown_in_a_batch_log(world: &World) {
    let job = flushing(world, 0).holding_after(4);
    let running = job.start();
    let printed = || fs::read_to_string(world.path("err.0")).unwrap_or_default();
    let line = || printed().lines().find(|line| line.contains("flush of checkpoint 4: ")).map(str::to_owned);
    let line = world.wait("a line about the flush", line);
    assert!(line.contains("KiB of ") && line.ends_with(" nodes"), "{line}");
    job.goes_on_to_its_end(running);
}

#[test]
fn finished_flush_in_the_background_is_done_in_the_transfer_file(world: &World) {
    let job = Job::new(world, 0).flush("{every: 4, mode: async, bandwidth: 0}").holding_after(4);
    let running = job.start_to_event("flushed");
    let lines = transfer_file(world);
    for (key, expected) in [("STATE", "STOPPED"), ("FLAG", "DONE")] {
        assert_eq!(value(&lines, key), expected, "{key} of {lines:?}");
    }
    let numbers = |key: &str| -> Vec<&String> {
        (1..lines.len()).filter(|at| lines[at - 1] == key).map(|at| &lines[at]).collect()
    };
    assert_eq!(numbers("SIZE"), numbers("WRITTEN"));
    assert_eq!(numbers("SIZE").len(), 2, "the file of rank 1 and its meta file");
    job.goes_on_to_its_end(running);
}

#[test]
fn several_flushes_wait_for_their_turn_and_survive_the_death_of_agents_and_of_the_orchestrator(world: &World) {
    // The first is so slow that the others wait until something waits for all of them: the end of the run.
    let job = Job::new(world, 0).flush("{every: 1, mode: async, bandwidth: 1}");
    let job = job.checkpoint("cache: [{base: /tmp, keep: 9}]").holding_after(3);
    let mut running = job.reaches(3);
    let background = |sees: &Value| {
        world.wait("the flushes in `holdfast status`", || {
            let status = job.command(&["status", "--json"], 0).json();
            (status["background"]["flushing"] == *sees).then_some(())
        });
    };
    background(&json!([1, 2, 3]));
    let shown = job.command(&["status"], 0).out;
    assert!(shown.contains("in the background: flush of checkpoints 1, 2, 3"), "{shown}");
    for node in ["node0", "node2"] {
        signal(world.agent_pid(node), Signal::KILL);
        running.sees_agent_again(node);
    }
    running.killed();
    let second = job.start_to_event("took_over");
    background(&json!([1, 2, 3]));
    job.finishes(second);
    assert_flushed(world, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(world.all("generation_launched").len(), 1);
}
