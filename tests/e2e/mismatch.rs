//! The spec changes between two runs so that the checkpoints of the first do not fit: nothing is marked, deleted or
//! passed over for that, and the corrected spec continues.

use std::fs;

use serde_json::{Value, json};

use crate::job::Job;
use crate::kept_cache::{halted, last_restart};
use crate::pfs;
use crate::world::World;

/// The index of the prefix directory, byte for byte.
fn index(world: &World) -> Vec<u8> {
    fs::read(world.prefix().join("index.scr")).unwrap()
}

/// `check`, the dry run and the run refuse this job, say so, and change nothing.
#[track_caller]
fn refuses(world: &World, job: &Job<'_>, parts: &[&str]) {
    let before = (index(world), pfs::current_id(&world.prefix()), world.events().len());
    for words in [&["check"][..], &["run", "--dry-run"], &["run"]] {
        job.command(words, 78).prints(parts);
    }
    assert_eq!(before, (index(world), pfs::current_id(&world.prefix()), world.events().len()));
}

/// A run whose orchestrator was killed is not taken over with another number of ranks, and is with the right one.
fn is_taken_over_with_as_many_ranks(world: &World, job: &Job<'_>) {
    let mut typo = job.clone();
    typo.on = 3;
    for words in [&["check"][..], &["run", "--dry-run"], &["run"]] {
        let refused = typo.command(words, 78);
        // The orchestrator may have been killed before it had recorded the checkpoint.
        if !refused.err.contains(OTHER_RANKS) {
            refused.prints(&["is under way", "with as many ranks"]);
        }
    }
    job.command(&["run", "--from-beginning"], 78).prints(&["is under way", "`holdfast drain`"]);
    job.go_on();
    job.run_to_result();
    world.assert_nothing_is_left();
}

#[test(unchecked)]
fn another_number_of_ranks_does_not_take_over_a_job_and_the_corrected_run_does(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    job.abandon_after(4);
    is_taken_over_with_as_many_ranks(world, &job);
}

#[test(unchecked)]
fn another_number_of_ranks_does_not_take_over_a_job_before_its_first_checkpoint(world: &World) {
    let job = Job::new(world, 0).holding_after(1);
    let mut running = job.start();
    running.sees("a launch", |event| event["event"] == "generation_launched");
    running.killed();
    is_taken_over_with_as_many_ranks(world, &job);
}

#[test(unchecked)]
fn another_source_that_cannot_read_the_checkpoint_is_refused_and_the_corrected_run_continues(world: &World) {
    let job = halted(world, Job::new(world, 0).flush("{every: 1}"));
    let other = job.clone().checkpoint("source: variables");
    refuses(world, &other, &["written with `source: scr`", "programs of `source: variables`", "`--from-beginning`"]);
    job.run_to_result();
    world.assert_restarted(4, "cache");
}

#[test]
fn another_name_of_the_job_or_another_scheme_restarts_from_the_same_checkpoint() {
    for (change, source) in [("name", "fetched"), ("scheme", "cache")] {
        let world = World::new();
        let job = halted(&world, Job::new(&world, 0));
        let (from, to) = match change {
            "name" => ("job: heat", "job: warmth"),
            _ => ("scheme: xor, set_size: 4", "scheme: partner"),
        };
        let text = job.yaml();
        assert!(text.contains(from));
        world.run_spec(&text.replace(from, to)).with_code(0);
        assert_eq!(last_restart(&world), (json!(4), json!(source)), "{change}");
        job.assert_result();
    }
}

#[test(unchecked)]
fn another_prefix_begins_another_job_and_the_first_one_continues_afterwards(world: &World) {
    let job = halted(world, Job::new(world, 0));
    let workspace = world.kept_workspace().unwrap();
    let text = job.yaml().replace("/pfs\"", "/other\"");
    world.run_spec(&text).with_code(0);
    let of_other = world.events_of(&world.path("other"));
    assert!(of_other.iter().any(|event| event["event"] == "restarted" && event["source"] == "fresh"));
    assert!(workspace.is_dir());
    job.run_to_result();
    world.assert_restarted(4, "cache");
}

#[test(unchecked)]
fn a_cache_that_is_too_small_launches_nothing_and_the_corrected_run_continues(world: &World) {
    let job = halted(world, Job::new(world, 0));
    let sizes = rustix::fs::statvfs(world.path("")).unwrap();
    // As much as the file system has: some of it is in use.
    let total = sizes.f_blocks * sizes.f_frsize;
    let small = job.clone().checkpoint(&format!("cache: [{{base: /tmp, bytes: {total}}}]"));
    small.run(69).prints(&["bytes free, expected are", "before a first launch"]);
    job.run(0);
    assert_eq!(last_restart(world).0, json!(4));
    job.assert_result();
}

const OTHER_RANKS: &str = "was written by 4 ranks, and this run has 3; nothing was started or changed";

#[test]
fn another_number_of_ranks_is_refused_and_the_corrected_run_continues_from_the_prefix(world: &World) {
    let job = halted(world, Job::new(world, 0).flush("{every: 1}").top("keep_cache: none"));
    let mut typo = job.clone();
    typo.on = 3;
    refuses(world, &typo, &["checkpoint 4", OTHER_RANKS, "`run.nodes`", "--from-beginning", "--checkpoint NAME"]);
    job.run_to_result();
    world.assert_restarted(4, "fetched");
}

#[test]
fn another_number_of_ranks_is_refused_and_the_corrected_run_continues_from_cache(world: &World) {
    let job = halted(world, Job::new(world, 0));
    let mut typo = job.clone();
    typo.per_node = 2;
    refuses(world, &typo, &["checkpoint 4", "was written by 4 ranks, and this run has 8", "the caches of its nodes"]);
    job.run_to_result();
    world.assert_restarted(4, "cache");
}

#[test]
fn a_run_from_the_beginning_keeps_the_checkpoints_and_restarts_only_from_its_own(world: &World) {
    let job = halted(world, Job::new(world, 0));
    // Without redundancy the loss of a node leaves nothing to restart from.
    let mut fewer = Job::new(world, 0).redundancy("[{scheme: local}]").faults("{node: 1, after_checkpoint: 2}");
    // The application does not end before the node is lost.
    let lost = world.path("lost");
    fewer = fewer.heat(&format!("--hold-at 15 --until {}", lost.display()));
    fewer.on = 3;
    fewer.steps = 20;
    let spec = fewer.spec();
    let mut running = world.start(world.holdfast(["run".as_ref(), "--from-beginning".as_ref(), spec.as_os_str()]));
    running.sees_event("node_down");
    fs::write(lost, "").unwrap();
    running.ends_with(0);
    let restarts: Vec<_> = world.all("restarted").into_iter().skip(1).collect();
    assert_eq!(restarts.len(), 2);
    assert!(restarts.iter().all(|event| event["source"] == "fresh"), "{restarts:?}");
    fewer.assert_result();
    // The checkpoint of four ranks was drained and is unmarked; it is selected by its name.
    let listed = world.run(world.holdfast(["index", "list", "--json", "--prefix", "pfs"])).with_code(0).json();
    let listed = listed["checkpoints"].as_array().unwrap();
    let of_first = listed.iter().filter(|entry| entry["complete"] == true && entry["failed"] == json!([]));
    let names: Vec<_> = of_first.map(|entry| entry["directory"].as_str().unwrap().to_owned()).collect();
    let of_four =
        |name: &&String| pfs::parsed(&world.prefix().join(name).join("summary.scr")).to_string().contains("rank_3");
    let name = names.iter().find(of_four).unwrap();
    job.command(&["run", "--again", "--checkpoint", "nothing"], 78).prints(&["lists no complete checkpoint"]);
    fewer.command(&["run", "--again", "--checkpoint", name], 78).prints(&[OTHER_RANKS]);
    job.command(&["run", "--again", "--checkpoint", name], 0);
    world.assert_restarted(4, "fetched");
    job.assert_result();
}

#[test]
fn a_mark_of_damaged_data_has_its_reason_and_is_taken_back(world: &World) {
    let job = halted(world, Job::new(world, 0).flush("{every: 1}").top("keep_cache: none"));
    let directory = pfs::directory_of(&world.prefix(), 4).unwrap();
    let name = directory.file_name().unwrap().to_str().unwrap();
    let file = pfs::names(&directory).into_iter().find(|name| name.starts_with("rank_1")).unwrap();
    let content = fs::read(directory.join(&file)).unwrap();
    fs::write(directory.join(&file), &content[1..]).unwrap();
    job.command(&["check"], 0);
    job.run(0);
    world.assert_restarted(3, "fetched");
    let list = |words: &[&str]| world.run(world.holdfast([&["index", "list", "--prefix", "pfs"], words].concat()));
    list(&[]).with_code(0).prints(&["cf ", "failed 2", &file]);
    let entry = |document: Value| -> Value {
        let entries = document["checkpoints"].as_array().unwrap().clone();
        entries.into_iter().find(|entry| entry["directory"] == name).unwrap()
    };
    let marked = entry(list(&["--json"]).json());
    assert!(marked["reasons"][0].as_str().unwrap().contains(&file), "{marked}");
    fs::write(directory.join(&file), &content).unwrap();
    let restore = |words: &[&str], code| {
        let words = [&["index", "restore", "--prefix", "pfs", name], words].concat();
        world.run(world.holdfast(words)).with_code(code)
    };
    restore(&["--dry-run"], 0).prints(&["would no longer be marked as failed"]);
    restore(&[], 0).prints(&["is no longer marked as failed"]);
    restore(&[], 69).prints(&["nothing to take back"]);
    assert_eq!(entry(list(&["--json"]).json())["failed"], json!([]));
}
