//! Halt conditions set while the job runs: it stops at a checkpoint, which is saved, and reports the reason.

use std::fs;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use serde_json::Value;

use rustix::process::Signal;

use crate::job::Job;
use crate::pfs;
use crate::world::{Running, World, signal};

/// The job waits after checkpoint 4; the conditions are set; it continues, and stops after checkpoint `last`.
fn halts_after(last: u64, job: impl Fn(Job<'_>) -> Job<'_>, conditions: &[&str], reason: &str) {
    let world = World::new();
    let job = job(Job::new(&world, 0).grace("10min").holding_after(4));
    let running = job.reaches(4);
    job.command(&[&["halt", "set"], conditions].concat(), 0);
    job.go_on();
    running.ends_with(75).prints(&["halted", reason]);
    pfs::assert_current(&world.prefix(), last);
    assert_eq!(world.all("generation_launched").len(), 1);
    world.assert_nothing_is_left();
    // Another allocation continues.
    world.run(world.holdfast(["run".as_ref(), Job::new(&world, 0).spec().as_os_str()])).with_code(0);
    job.assert_result();
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
fn unmet_halt_conditions_are_listed_and_can_be_removed(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let running = job.reaches(4);
    job.command(&["halt", "set", "--checkpoints", "2", "--after", &in_an_hour(1)], 0);
    let unknown = "the end of the allocation is not known: `--seconds` has an effect with `--before` only";
    job.command(&["halt", "set", "--seconds", "2h"], 0).prints(&[unknown]);
    job.command(&["halt", "unset", "--seconds"], 0);
    let listed = job.command(&["halt", "list", "--json"], 0).json();
    assert_eq!(listed["checkpoints_left"], 2);
    assert!(listed["after"].as_i64().is_some());
    assert_eq!(listed["met"], Value::Null);
    job.command(&["halt", "unset", "--checkpoints"], 0);
    assert_eq!(job.command(&["halt", "list", "--json"], 0).json()["checkpoints_left"], Value::Null);
    job.finishes(running);
}

#[test]
fn halt_condition_in_spec_halts_job(world: &World) {
    let job = Job::new(world, 0).top("halt: {checkpoints_left: 3}");
    job.run(75);
    pfs::assert_current(&world.prefix(), 3);
}

#[test(unchecked)]
fn halting_a_job_that_is_not_running_is_an_error(world: &World) {
    let job = Job::new(world, 0);
    job.command(&["halt", "set", "--now"], 69).prints(&["no job has been run"]);
    job.run(0);
    job.command(&["halt", "set", "--now"], 69).prints(&["is not running"]);
}

/// A program on two nodes that does not use the checkpoint API.
pub struct Script<'a> {
    world: &'a World,
    pub running: Running<'a>,
}

impl<'a> Script<'a> {
    /// Starts it; ranks write `ready-RANK` when they handle signals.
    pub fn start(world: &'a World, handler: &str, grace: &str) -> Self {
        let home = world.path("");
        let script = format!(
            "cd {}; trap '{handler}' TERM; touch ready-$HOLDFAST_RANK; while :; do sleep 0.05; done",
            home.display()
        );
        let yaml = format!(
            "prefix: {:?}\nallocation: {{manager: local}}\nrun: {{nodes: 2, command: [sh, -c, {script:?}]}}\n\
             health: {{down_after: 10s}}\nhalt: {{grace: {grace}}}\n",
            world.prefix()
        );
        let running = world.start_spec(&yaml);
        world.wait("both ranks", || (0..2).all(|rank| world.path(&format!("ready-{rank}")).exists()).then_some(()));
        Script { world, running }
    }

    pub fn halt(&self, arguments: &[&str]) {
        let mut command = self.world.holdfast([&["halt", "set"], arguments].concat());
        command.arg("--prefix").arg(self.world.prefix());
        self.world.run(command).with_code(0);
    }
}

/// Both ranks wrote the file of the handler [`SAVES`].
pub fn assert_saved(world: &World) {
    for rank in 0..2 {
        assert_eq!(fs::read_to_string(world.path(&format!("saved-{rank}"))).unwrap(), "state\n");
    }
}

/// Takes a moment, in which no rank may kill the other.
pub const SAVES: &str = "sleep 0.$((HOLDFAST_RANK * 3)); echo state >saved-$HOLDFAST_RANK; exit $HOLDFAST_RANK";

#[test]
fn program_without_api_gets_sigterm_and_saves_its_state(world: &World) {
    let script = Script::start(world, SAVES, "10min");
    script.halt(&["--now=MAINTENANCE"]);
    script.running.ends_with(75).prints(&["halted: MAINTENANCE", "SIGTERM to the ranks"]);
    assert_saved(world);
    assert_eq!(world.the("halt_set")["reason"], "MAINTENANCE");
    assert_eq!(world.the("ranks_terminated")["within_ms"], 600_000);
    assert_eq!(world.the("generation_ended")["cause"], "halted");
}

#[test]
fn program_that_ignores_sigterm_is_killed_after_grace(world: &World) {
    let script = Script::start(world, "", "500ms");
    script.halt(&["--now"]);
    script.running.ends_with(75).prints(&["halted: USER_REQUEST"]);
    let position = |name: &str| world.events().iter().position(|event| event["event"] == name).unwrap();
    assert!(position("ranks_terminated") < position("generation_ending"));
}

#[test]
fn immediate_halt_kills_ranks_without_sigterm(world: &World) {
    let script = Script::start(world, SAVES, "10min");
    script.halt(&["--immediate=FIRE"]);
    script.running.ends_with(75).prints(&["halted: FIRE"]);
    assert!(!world.path("saved-0").exists() && world.all("ranks_terminated").is_empty());
}

#[test]
fn program_that_reaches_no_checkpoint_within_grace_is_ended_and_older_checkpoint_is_drained(world: &World) {
    let job = Job::new(world, 0).grace("500ms").holding_after(4);
    let running = job.reaches(4);
    job.command(&["halt", "set", "--now"], 0);
    running.ends_with(75).prints(&["halted: USER_REQUEST", "checkpoint 4 is complete"]);
    assert_eq!(world.the("halt_requested")["within_ms"], 500);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn halt_that_is_unset_in_time_is_withdrawn(world: &World) {
    let job = Job::new(world, 0).grace("10min").holding_after(4);
    let mut running = job.reaches(4);
    job.command(&["halt", "set", "--now"], 0);
    running.sees_event("halt_requested");
    job.command(&["halt", "unset", "--now"], 0);
    running.sees_event("halt_cleared");
    job.finishes(running);
}

#[test]
fn nothing_is_relaunched_until_silent_agent_has_reported_its_halt_conditions(world: &World) {
    let mut job = Job::new(world, 1).holding_after(4);
    job.down_after = "5min";
    let mut running = job.reaches(4);
    let agents: Vec<u32> = (0..5).map(|node| world.agent_pid(&format!("node{node}"))).collect();
    // Only the spare node gets the condition.
    agents[..4].iter().for_each(|pid| signal(*pid, Signal::STOP));
    job.command(&["halt", "set", "--now=ON_ONE_NODE"], 0);
    signal(agents[4], Signal::STOP);
    agents[..4].iter().for_each(|pid| signal(*pid, Signal::CONT));
    assert_eq!(world.kill(|line| line.contains("example heat")), 4);
    running.sees_event("generation_ended");
    // Longer than a request for the conditions lasts.
    std::thread::sleep(Duration::from_secs(3));
    signal(agents[4], Signal::CONT);
    running.ends_with(75).prints(&["halted: ON_ONE_NODE"]);
    assert_eq!(world.all("generation_launched").len(), 1);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn halt_is_set_on_nodes_that_are_too_busy_to_answer_at_once(world: &World) {
    let mut job = Job::new(world, 0).holding_after(4);
    job.down_after = "5min";
    let running = job.reaches(4);
    let agents: Vec<u32> = (0..4).map(|node| world.agent_pid(&format!("node{node}"))).collect();
    agents.iter().for_each(|pid| signal(*pid, Signal::STOP));
    let halting = world.start(world.holdfast(["halt", "set", "--now=BUSY"]).arg(job.spec()));
    // Longer than a command waits for the first answer.
    std::thread::sleep(Duration::from_secs(3));
    agents.iter().for_each(|pid| signal(*pid, Signal::CONT));
    halting.ends_with(0);
    job.go_on();
    running.ends_with(75).prints(&["halted: BUSY"]);
}

#[test]
fn ranks_are_halted_before_end_of_allocation_and_drain_is_complete_before_it(world: &World) {
    let job =
        Job::new(world, 0).allocation("time_limit: 10s").top("halt: {grace: 2s, drain_reserve: 4s}").holding_after(4);
    let mut running = job.reaches(4);
    let requested = running.sees_event("halt_requested");
    assert!(requested["reason"].as_str().unwrap().contains("4 s are kept for the drain"), "{requested}");
    job.go_on();
    running.ends_with(75).prints(&["the allocation"]);
    let time = |event: &Value| event["time"].as_str().unwrap().parse::<DateTime<Utc>>().unwrap();
    let since_start = |name: &str| (time(&world.the(name)) - time(&world.the("job_started"))).num_milliseconds();
    assert!(since_start("halt_requested") >= 3_000, "the application computes as long as it can");
    assert!(since_start("finished") < 10_000, "{}", since_start("finished"));
    assert!(pfs::current_id(&world.prefix()) >= Some(4));
}

#[test]
fn time_kept_for_the_drain_is_estimated_from_the_last_flush(world: &World) {
    // A second and a half for the 1152 bytes of a rank.
    let job = Job::new(world, 0)
        .allocation("time_limit: 14s")
        .grace("1s")
        .flush("{every: 3, mode: async, bandwidth: 3072}")
        .holding_after(4);
    let mut running = job.start();
    let flush = running.sees_event("flushed")["millis"].as_u64().unwrap();
    assert!(flush >= 1_000, "{flush} ms");
    let requested = running.sees_event("halt_requested");
    let reason = requested["reason"].as_str().unwrap();
    let (_, kept) = reason.split_once("of which ").unwrap();
    let kept: u64 = kept.split(' ').next().unwrap().parse().unwrap();
    // Twice the time of the flush, and a tenth of the allocation.
    assert!(kept * 1_000 + 1_000 > 2 * flush + 1_000, "{reason}, and the flush took {flush} ms");
    assert!(kept <= 7, "{reason}: at most half of the allocation");
    job.go_on();
    running.ends_with(75).prints(&["the allocation"]);
    let time = |event: &Value| event["time"].as_str().unwrap().parse::<DateTime<Utc>>().unwrap();
    let since_start = |name: &str| (time(&world.the(name)) - time(&world.the("job_started"))).num_milliseconds();
    let latest = 14_000 - i64::try_from(kept).unwrap() * 1_000;
    assert!(since_start("halt_requested") <= latest, "{}", since_start("halt_requested"));
    assert!(since_start("finished") < 14_000, "{}", since_start("finished"));
    assert!(pfs::current_id(&world.prefix()) >= Some(4));
}

#[test]
fn job_that_restarts_in_time_of_drain_is_not_launched(world: &World) {
    let job = Job::new(world, 0).allocation("time_limit: 20s").top("halt: {drain_reserve: 19s}");
    job.run(75);
    assert!(world.all("generation_launched").is_empty());
}
