//! `checkpoint.flush.keep`: the newest checkpoints of a job stay on the prefix directory. What the user made there, and
//! what the job needs, is not deleted. A lost index is made again.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::job::Job;
use crate::world::World;
use crate::{pages, pfs};

fn indexed(world: &World) -> Vec<u64> {
    pfs::indexed(&world.prefix()).into_keys().collect()
}

fn deleted(world: &World) -> Vec<Value> {
    world.all("prefix_deleted").into_iter().map(|event| event["checkpoint"].clone()).collect()
}

#[test]
fn only_the_newest_checkpoints_stay_on_the_prefix_directory() {
    for kind in ["mode: sync", "mode: async", "container: {kind: sion, files: 2}"] {
        let world = World::unchecked();
        let job = Job::new(&world, 0).flush(&format!("{{every: 1, keep: 2, {kind}}}"));
        job.run_to_result();
        assert_eq!(indexed(&world), [7, 8], "{kind}");
        assert_eq!(deleted(&world), [1, 2, 3, 4, 5, 6].map(|id| json!(id)));
        pfs::assert_current(&world.prefix(), 8);
        let directories = fs::read_dir(world.prefix()).unwrap().map(|entry| entry.unwrap().file_name());
        let directories = directories.filter(|name| name.to_string_lossy().starts_with("scr.2"));
        assert_eq!(directories.count(), 2);
    }
}

#[test(unchecked)]
fn what_the_user_keeps_made_or_planted_stays(world: &World) {
    let job = Job::new(world, 0).flush("{every: 1, keep: 1}").holding_after(2);
    let mut running = job.reaches(2);
    running.sees_event("prefix_deleted");
    let second = pfs::directory_of(&world.prefix(), 2).unwrap();
    let name = second.file_name().unwrap().to_str().unwrap();
    world.run(world.holdfast(["index", "keep", name, "--prefix"]).arg(world.prefix())).with_code(0);
    // A copy of the dataset under a name of this job, a directory and a link under such names.
    let like = |id: u64| world.prefix().join(format!("{}.{id}", name.rsplit_once('.').unwrap().0));
    fs::create_dir(like(101)).unwrap();
    for entry in fs::read_dir(&second).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), like(101).join(entry.file_name())).unwrap();
    }
    fs::create_dir(like(102)).unwrap();
    fs::write(like(102).join("notes"), "of the user").unwrap();
    symlink(like(102), like(103)).unwrap();
    job.goes_on_to_its_end(running);
    assert_eq!(indexed(world), [2, 8]);
    assert!(like(101).join("summary.scr").exists());
    assert_eq!(fs::read_to_string(like(103).join("notes")).unwrap(), "of the user");
}

#[test(unchecked)]
fn drain_keeps_the_window(world: &World) {
    let job = Job::new(world, 0).flush("{every: 2, keep: 1}").holding_after(3);
    let running = job.reaches(3);
    assert_eq!(indexed(world), [2]);
    running.terminated();
    assert_eq!(indexed(world), [3]);
    assert_eq!(deleted(world), [json!(2)]);
    pfs::assert_current(&world.prefix(), 3);
}

#[test(unchecked)]
fn run_restarts_from_a_prefix_directory_that_lost_its_index(world: &World) {
    // The files in cache are not used.
    let job = Job::new(world, 0).checkpoint("restart: {distribute: false}").holding_after(4);
    job.reaches(4).terminated();
    fs::remove_file(world.prefix().join("index.scr")).unwrap();
    fs::remove_file(world.prefix().join("scr.current")).unwrap();
    job.go_on();
    job.run_to_result();
    let restarted = world.all("restarted").pop().unwrap();
    assert_eq!((&restarted["checkpoint"], &restarted["source"]), (&json!(4), &json!("fetched")));
    let made_again = |event: &Value| event["message"].as_str().is_some_and(|it| it.contains("was made again with 1"));
    assert!(world.all("notice").iter().any(made_again));
}

#[test(unchecked)]
fn the_verification_has_the_limit_of_bandwidth_until_the_end_of_the_run(world: &World) {
    let job = Job::new(world, 0).flush("{every: 2, keep: 1, bandwidth: 1}");
    job.run_to_result();
    let events = world.events();
    let last = events.iter().rposition(|event| event["event"] == "checkpoint_complete").unwrap();
    let first = events.iter().position(|event| event["event"] == "prefix_deleted").unwrap();
    assert!(first > last, "each node read its file of some kilobytes at a quarter of a byte a second");
    assert_eq!((indexed(world), deleted(world).len()), (vec![8], 3));
}

#[test]
fn example_of_the_page_leaves_the_three_newest_checkpoints(world: &World) {
    let events = pages::run_example(world, "prefix.md");
    let of = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    let newest = of("checkpoint_complete") as u64;
    let left: Vec<_> = pfs::indexed(&world.path("heat-run")).into_iter().collect();
    assert_eq!(left, (newest - 2..=newest).map(|id| (id, Some(true))).collect::<Vec<_>>());
    assert_eq!(of("prefix_deleted") as u64, newest - 3);
}
