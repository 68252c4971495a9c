//! The prefix directory hangs for seconds: healthy agents and ranks are kept, and node losses in this time are
//! detected.
//!
//! The file system is on a loop device and is frozen with `fsfreeze`, which requires root.

use std::fs;
use std::time::{Duration, Instant};

use holdfast_testkit::harness::takes_minutes;
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;
use serde_json::Value;

use crate::disk::Disk;
use crate::job::Job;
use crate::pfs;
use crate::world::{Running, World, is_secured, signal};

/// How long it hangs: longer than the longest silence of agents that these jobs accept.
const STALL: Duration = Duration::from_secs(10);
/// The longest accepted silence.
const DOWN_AFTER: &str = "4s";

/// A job whose prefix directory can be frozen, held after checkpoint 4.
fn held<'a>(world: &'a World, down_after: &'static str) -> (Disk, Job<'a>, Running<'a>) {
    let disk = Disk::mounted(world, world.prefix());
    let mut job = Job::new(world, 1).holding_after(4);
    job.down_after = down_after;
    let running = job.reaches(4);
    (disk, job, running)
}

/// The prefix directory hangs for this time: no agent and no node is lost, and the generation goes on.
fn assert_hang_loses_nothing(stall: Duration, down_after: &'static str) {
    let world = World::unchecked();
    let (mut disk, job, running) = held(&world, down_after);
    disk.freeze();
    std::thread::sleep(stall);
    disk.thaw();
    job.finishes(running);
    world.assert_nothing_lost();
}

#[test]
fn hanging_prefix_directory_loses_no_agent_node_or_run() {
    assert_hang_loses_nothing(STALL, DOWN_AFTER);
}

#[test(unchecked)]
fn prefix_directory_that_hangs_before_the_first_launch_delays_it_and_loses_no_node(world: &World) {
    let mut disk = Disk::mounted(world, world.prefix());
    let go_on = world.path("before-ends");
    let wait = format!("until [ -e {} ]; do sleep 0.01; done", go_on.display());
    let mut job = Job::new(world, 1).top(&format!("before: [{{command: [sh, -c, {wait:?}]}}]"));
    job.down_after = DOWN_AFTER;
    let running = job.start();
    world.wait("the command", || world.processes().iter().any(|(_, line)| line.contains("until [ -e")).then_some(()));
    disk.freeze();
    // What follows the command is written to the prefix directory first.
    fs::write(&go_on, "").unwrap();
    std::thread::sleep(STALL);
    assert!(!fs::read_to_string(world.path("err.0")).unwrap().contains("launched"), "the launch waits for the journal");
    disk.thaw();
    running.ends_with(0);
    world.assert_nothing_lost();
    job.assert_result();
}

#[test(unchecked)]
fn agent_that_dies_alone_while_prefix_directory_hangs_is_replaced_and_its_ranks_go_on(world: &World) {
    let (mut disk, job, mut running) = held(world, DOWN_AFTER);
    let agent = world.agent_pid("node1");
    disk.freeze();
    signal(agent, Signal::KILL);
    let output = || fs::read_to_string(world.path("err.0")).unwrap();
    world.wait("the loss of the agent", || output().contains("node1: agent lost").then_some(()));
    std::thread::sleep(STALL);
    disk.thaw();
    running.sees_where("agent_ready", "again", true);
    job.goes_on_to_its_end(running);
    assert_eq!(world.all("agent_lost").len(), 1);
    assert_eq!(world.all("node_down"), [] as [serde_json::Value; 0]);
    assert_eq!(world.all("generation_launched").len(), 1);
    job.assert_result();
}

/// Prints figures. To be run alone and in release mode:
///
///     HOLDFAST_LONG_TESTS=1 cargo test --release -p holdfast --test e2e -- prefix_directory_that_hangs_for_minutes
#[test]
fn prefix_directory_that_hangs_for_minutes_loses_no_agent_node_or_run() {
    takes_minutes();
    for seconds in [8, 20, 60, 120] {
        assert_hang_loses_nothing(Duration::from_secs(seconds), "750ms");
        println!("prefix directory frozen for {seconds} s: no agent lost, no node down, one launch");
    }
}

/// True if the process has ended, or will as soon as its file system lets it.
fn is_killed(pid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return true };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    let kill = 1_u64 << (Signal::KILL.as_raw() - 1);
    let pending = |name: &str| u64::from_str_radix(field(name), 16).unwrap() & kill != 0;
    field("State:").starts_with('Z') || pending("ShdPnd:") || pending("SigPnd:")
}

#[test(unchecked)]
fn detects_node_loss_while_prefix_directory_hangs(world: &World) {
    let (mut disk, job, running) = held(world, DOWN_AFTER);
    let root = world.node_root("node1");
    let of_node = root.to_string_lossy().into_owned();
    let agent = world.agent_pid("node1");
    let is_rank = |line: &str| line.contains("example heat");
    let ranks: Vec<u32> = world.processes().into_iter().filter(|(_, line)| is_rank(line)).map(|(pid, _)| pid).collect();
    assert_eq!(ranks.len(), 4);
    disk.freeze();
    let frozen = Instant::now();
    // The directory first: an agent that was started again before would make another one.
    fs::rename(&root, world.path("lost")).unwrap();
    signal(agent, Signal::KILL);
    world.kill(|line| line.contains(&of_node));
    // From standard error, which does not hang.
    let output = || fs::read_to_string(world.path("err.0")).unwrap();
    world.wait("the node's death", || output().contains("node1 is down").then_some(()));
    world.wait("the end of all ranks", || ranks.iter().all(|pid| is_killed(*pid)).then_some(()));
    assert!(!output().contains("generation 2 launched"), "the launch waits for the journal");
    std::thread::sleep(STALL.saturating_sub(frozen.elapsed()));
    disk.thaw();
    job.goes_on_to_its_end(running);
    let down = world.all("node_down");
    assert_eq!(down.len(), 1, "{down:?}");
    assert_eq!(world.all("generation_launched").len(), 2);
    assert_eq!(world.all("restarted").pop().unwrap()["checkpoint"], 4);
    job.assert_result();
}

#[test(unchecked)]
fn a_pipe_in_the_place_of_the_event_log_is_refused_without_waiting_for_a_reader(world: &World) {
    let own = world.prefix().join(".holdfast");
    fs::create_dir(world.prefix()).unwrap();
    fs::DirBuilder::new().create(&own).unwrap();
    fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let log = own.join("events.jsonl");
    mkfifoat(CWD, &log, Mode::from_raw_mode(0o600)).unwrap();
    let job = Job::new(world, 0);
    let ran = job.start().end();
    // Whatever reads the log now would wait.
    fs::remove_file(&log).unwrap();
    ran.with_code(78).prints(&["events.jsonl is not a regular file", "move it away"]);
    job.run(0);
}

/// The file system of the prefix directory is away for a while: the ranks go on, and no other prefix directory is made
/// in its place.
#[test]
fn job_goes_on_while_its_prefix_directory_is_away(world: &World) {
    let mut job = Job::new(world, 0).flush("{every: 1}");
    (job.every, job.steps) = (10, 200);
    let job = job.holding_after(15);
    let yaml = job.yaml().replace("\"0\", \"--steps\"", "\"20ms\", \"--steps\"");
    let mut running = world.start_spec(&yaml);
    running.sees_event("flushed");
    let (prefix, away) = (world.prefix(), world.path("away"));
    fs::rename(&prefix, &away).unwrap();
    let failed = || world.events_of(&away).into_iter().find(|event| event["event"] == "flush_failed");
    let reason = world.wait("a failed flush", failed)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("does not exist"), "{reason}");
    assert!(!prefix.exists(), "no agent makes it");
    let complete = |id| move |event: &Value| is_secured(event) && event["checkpoint"] == id;
    world.wait("the last checkpoint before the end", || world.events_of(&away).iter().any(complete(15)).then_some(()));
    assert!(running.is_running());
    fs::rename(&away, &prefix).unwrap();
    job.finishes(running);
    assert_eq!(world.all("generation_launched").len(), 1, "the ranks were never started again");
    pfs::assert_current(&world.prefix(), 20);
}
