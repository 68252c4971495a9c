//! A run that leaves the job unfinished keeps caches and control directories; another run in the allocation restarts
//! from them.

use std::fs;
use std::time::SystemTime;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::job::Job;
use crate::pfs;
use crate::world::{World, signal};

/// A job that has halted after its fourth checkpoint; the next run of it goes on to the end.
pub fn halted<'a>(world: &'a World, job: Job<'a>) -> Job<'a> {
    halted_in(world, job, 1)
}

/// As [`halted`], with a fault in each generation before this one.
fn halted_in<'a>(world: &'a World, job: Job<'a>, generation: usize) -> Job<'a> {
    let job = job.holding_after(4);
    let mut running = job.reaches(4);
    running.sees("the start of the last generation", |_| world.all("restarted").len() >= generation);
    job.command(&["halt", "set", "--now"], 0);
    running.ends_with(75);
    job.go_on();
    world.assert_nothing_is_left();
    job
}

pub fn last_restart(world: &World) -> (Value, Value) {
    let last = world.all("restarted").pop().unwrap();
    (last["checkpoint"].clone(), last["source"].clone())
}

#[test]
fn second_run_in_the_allocation_restarts_from_cache(world: &World) {
    let job = halted(world, Job::new(world, 1));
    assert_eq!(world.all("cache_kept").len(), 1);
    let workspace = world.kept_workspace().unwrap();
    let of_first = world.all("job_started").pop().unwrap()["job_id"].clone();
    job.command(&["run", "--dry-run"], 0).prints(&["would continue after generation 1 with the caches"]);
    // The halt condition ended with the first run.
    job.run(0).prints(&["continues after generation 1 with the caches"]);
    world.assert_restarted(4, "cache");
    let started = world.all("job_started");
    assert_eq!((started.len(), &started[1]["job_id"]), (2, &of_first));
    assert_eq!(world.all("generation_launched").pop().unwrap()["generation"], 2);
    job.assert_result();
    assert!(!workspace.exists(), "a finished job keeps nothing");
}

#[test]
fn without_kept_caches_the_second_run_restarts_from_the_prefix(world: &World) {
    let job = halted(world, Job::new(world, 0).top("keep_cache: none"));
    assert_eq!((world.kept_workspace(), world.all("cache_kept").len()), (None, 0));
    job.run_to_result();
    world.assert_restarted(4, "fetched");
}

#[test]
fn a_drain_of_a_dataset_that_does_not_exist_leaves_the_caches_for_the_next_run(world: &World) {
    let job = halted(world, Job::new(world, 0));
    for words in [&["drain", "--checkpoint", "99"][..], &["drain", "--checkpoint", "99", "--dry-run"]] {
        job.command(words, 69).prints(&["no node that answers has dataset 99; they have 4"]);
    }
    assert_eq!(job.command(&["status", "--json"], 0).json()["stage"], "kept");
    job.run(0);
    world.assert_restarted(4, "cache");
}

#[test(unchecked)]
fn drain_removes_kept_caches(world: &World) {
    let job = halted(world, Job::new(world, 0));
    let workspace = world.kept_workspace().unwrap();
    assert!(workspace.is_dir());
    job.command(&["drain"], 0);
    assert!(!workspace.exists());
    world.assert_nothing_is_left();
    job.run(0);
    world.assert_restarted(4, "fetched");
}

/// Runs a job of another prefix directory to its end.
fn run_another(world: &World, name: &str) {
    let spec = "job: other\nprefix: PREFIX\nallocation: {manager: local, nodes: 1}\n\
                run: {command: [\"true\"], launcher: local}\ncheckpoint: {source: none}\n";
    world.run(world.holdfast(["run".into(), world.write("other.yaml", &spec.replace("PREFIX", name))])).with_code(0);
}

#[test]
fn kept_caches_whose_time_is_over_are_removed_by_the_next_job_of_the_user(world: &World) {
    let job = halted(world, Job::new(world, 0).allocation("time_limit: 1h"));
    let workspace = world.kept_workspace().unwrap();
    run_another(world, "second");
    assert!(workspace.is_dir(), "its allocation has not ended");

    let record = workspace.join("kept.json");
    let mut kept: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    let until = kept["until"].as_u64().unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert!((now..=now + 3600).contains(&until), "the end of the allocation: {kept}");
    // The clock is not turned forward an hour: the record is turned back.
    kept["until"] = json!(until - 2 * 3600);
    fs::write(&record, kept.to_string()).unwrap();
    run_another(world, "third");
    assert!(!workspace.exists());

    job.run_to_result();
    world.assert_restarted(4, "fetched");
}

#[test]
fn node_that_was_down_is_not_used_by_the_second_run(world: &World) {
    let job = halted_in(world, Job::new(world, 1).faults("{node: 1, after_checkpoint: 2}"), 2);
    job.run(0);
    assert_eq!(last_restart(world).1, json!("cache"));
    let placed = world.all("generation_placed").pop().unwrap();
    assert_eq!(placed["nodes"], json!(["node0", "node2", "node3", "node4"]));
    assert_eq!(world.all("node_down").len(), 1);
    job.assert_result();
}

#[test]
fn run_with_other_caches_drains_the_kept_ones_and_begins_anew(world: &World) {
    let job = halted(world, Job::new(world, 0));
    let workspace = world.kept_workspace().unwrap();
    let base = world.temporary().join("cache");
    std::fs::create_dir(&base).unwrap();
    let job = job.checkpoint(&format!("cache: [{{base: {}}}]", base.display()));
    job.run(0);
    assert!(!workspace.exists());
    world.assert_restarted(4, "fetched");
    std::fs::remove_dir(&base).unwrap();
}

#[test]
fn end_without_drain_keeps_the_caches_and_the_next_run_restarts_from_them(world: &World) {
    let mut job = Job::new(world, 0).grace("10min").holding_after(4);
    job.down_after = "10min";
    let mut running = job.reaches(4);
    signal(world.agent_pid("node2"), Signal::STOP);
    for number in 1..=3 {
        running.signal(Signal::TERM);
        running.sees_where("signal", "number", number);
    }
    running.ends_with(75);
    assert!(!pfs::indexed(&world.prefix()).contains_key(&4), "nothing was drained");
    job.go_on();
    job.run(0);
    let (checkpoint, source) = last_restart(world);
    assert_eq!(checkpoint, 4);
    assert_ne!(source, "fetched");
    job.assert_result();
}
