//! Halt conditions set while the job runs: it stops at a checkpoint, which is saved, and reports the reason.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::job::Job;
use crate::pfs;
use crate::world::World;

/// The job waits after checkpoint 4; the conditions are set; it continues, and stops after checkpoint `last`.
fn halts_after(last: u64, job: impl Fn(Job<'_>) -> Job<'_>, conditions: &[&str], reason: &str) {
    let world = World::new();
    let job = job(Job::new(&world, 0).holding_after(4));
    let mut running = job.start();
    running.sees_checkpoint(4);
    job.command(&[&["halt", "set"], conditions].concat(), 0);
    job.go_on();
    let ran = running.ends_with(75);
    ran.prints(&["halted", reason]);
    pfs::assert_current(&world.prefix(), last);
    assert_eq!(world.all("generation_launched").len(), 1);
    world.assert_nothing_is_left();
    // Another allocation continues.
    world.run(world.holdfast(["run".as_ref(), Job::new(&world, 0).spec().as_os_str()])).with_code(0);
    job.assert_result();
    world.assert_nothing_is_left();
}

fn in_an_hour(hours: i64) -> String {
    let seconds = Duration::from_secs(3600 * hours.unsigned_abs());
    let time = if hours < 0 { SystemTime::now() - seconds } else { SystemTime::now() + seconds };
    DateTime::<Utc>::from(time).format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[test]
fn halts_at_next_checkpoint_with_reason() {
    halts_after(5, |job| job, &["--now=MAINTENANCE"], "MAINTENANCE");
}

#[test]
fn halts_after_two_checkpoints_left() {
    halts_after(6, |job| job, &["--checkpoints", "2"], "checkpoints");
}

#[test]
fn halts_at_next_checkpoint_after_time() {
    halts_after(5, |job| job, &["--after", &in_an_hour(-1)], "is reached (`after`)");
}

#[test]
fn halts_at_next_checkpoint_when_time_is_near() {
    halts_after(
        5,
        |job| job,
        &["--before", &in_an_hour(1), "--seconds", "2h"],
        "is reached (`before` minus `seconds`)",
    );
}

#[test]
fn halts_at_next_checkpoint_near_end_of_allocation() {
    halts_after(5, |job| job.allocation("time_limit: 1h"), &["--seconds", "2h"], "");
}

#[test]
fn unmet_halt_conditions_are_listed_and_can_be_removed() {
    let world = World::new();
    let job = Job::new(&world, 0).holding_after(4);
    let mut running = job.start();
    running.sees_checkpoint(4);
    job.command(&["halt", "set", "--checkpoints", "2", "--after", &in_an_hour(1)], 0);
    let listed = job.command(&["halt", "list", "--json"], 0).json();
    assert_eq!(listed["checkpoints_left"], 2);
    assert!(listed["after"].as_i64().is_some());
    assert_eq!(listed["met"], Value::Null);
    job.command(&["halt", "unset", "--checkpoints"], 0);
    assert_eq!(job.command(&["halt", "list", "--json"], 0).json()["checkpoints_left"], Value::Null);
    job.go_on();
    running.ends_with(0);
    job.assert_result();
    world.assert_nothing_is_left();
}

#[test]
fn halt_condition_in_spec_halts_job() {
    let world = World::new();
    let job = Job::new(&world, 0).top("halt: {checkpoints_left: 3}");
    job.run(75);
    pfs::assert_current(&world.prefix(), 3);
    world.assert_nothing_is_left();
}

#[test]
fn halting_a_job_that_is_not_running_is_an_error() {
    let world = World::new();
    let job = Job::new(&world, 0);
    job.command(&["halt", "set", "--now"], 69).prints(&["no job has been run"]);
    job.run(0);
    job.command(&["halt", "set", "--now"], 69).prints(&["is not running"]);
}
