//! Agents that the system refuses threads, descriptors or memory: calls fail and are made again, no agent is lost.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::files_below;
use holdfast_testkit::harness::ignore;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, getuid, prlimit};
use serde_json::Value;

use crate::job::Job;
use crate::world::{Running, World, is_secured};

/// A limit of processes does not bind root: where these tests run as root, each runs again as this user.
const USER: u32 = 54_400;
/// How often the limits are lowered and raised again.
const ROUNDS: u32 = 4;
/// Until so many checkpoints have failed, or were made, with a lowered limit.
const CHECKPOINTS: usize = 2;

/// Runs a test of this name, as a user who is bound by limits.
fn unprivileged(name: &str, test: impl FnOnce()) {
    if !getuid().is_root() {
        return test();
    }
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(directory.path(), Some(USER), Some(USER)).unwrap();
    let program = directory.path().join("limits");
    // Not by this process, whose other threads start programs: one of these would have it open for writing for a
    // moment, and it could not be started.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success());
    let mut again = Command::new(&program);
    again.args(["--exact", &format!("limits::{name}"), "--nocapture"]).current_dir(directory.path());
    let output = again.env("TMPDIR", directory.path()).uid(USER).gid(USER).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}

/// The processes of the agents of a job, by node.
fn agents(world: &World) -> BTreeMap<String, u32> {
    let state = world.state();
    let running = state["running"].as_object().unwrap();
    running.iter().map(|(node, agent)| (node.clone(), agent["pid"].as_u64().unwrap() as u32)).collect()
}

/// How many checkpoints failed, and how many are protected.
fn checkpoints(world: &World) -> (usize, usize) {
    let events = world.events();
    let failed = events.iter().filter(|event| event["event"] == "checkpoint_failed").count();
    (failed, events.iter().filter(|event| is_secured(event)).count())
}

/// 128 ranks on each node, which save until they are halted. They wait between two steps: that many processes which
/// compute leave an agent without processor time for longer than the orchestrator waits for it.
fn job(world: &World) -> Job<'_> {
    let mut job = Job::new(world, 0).heat("--step-delay 20ms").grace("10s").redundancy("[{scheme: xor, set_size: 2}]");
    (job.nodes, job.on, job.per_node, job.steps, job.size) = (2, 2, 128, 100_000_000, "8x256");
    job
}

fn halt(job: &Job<'_>, world: &World, running: Running<'_>) {
    job.command(&["halt", "set", "--now"], 0);
    running.ends_with(75);
    world.assert_nothing_is_left();
}

/// Waits until checkpoints were made.
fn sees_checkpoints(world: &World, running: &mut Running<'_>) {
    let (_, protected) = checkpoints(world);
    running.sees("checkpoints", |_| checkpoints(world).1 >= protected + CHECKPOINTS);
}

fn assert_no_panic(world: &World) {
    for log in files_below(&world.prefix().join(".holdfast/agents")) {
        let text = fs::read_to_string(log).unwrap();
        assert!(!text.contains("panicked"), "{text}");
    }
}

/// No node is given up, and no rank is launched again.
fn assert_no_relaunch(world: &World) {
    assert_eq!(world.all("node_down"), [] as [Value; 0]);
    assert_eq!(world.all("generation_launched").len(), 1);
}

/// The agents of a job have this soft limit several times, and then their usual one again.
fn limit(world: &World, running: &mut Running<'_>, resource: Resource, lowered: impl Fn(u32, u32) -> u64) {
    running.sees_checkpoint(1);
    for round in 0..ROUNDS {
        let (failed, protected) = checkpoints(world);
        let (again, agents) = (world.all("agent_ready").len(), agents(world));
        let set = |pid: u32, limit| prlimit(Some(Pid::from_raw(pid.cast_signed()).unwrap()), resource, limit);
        // The hard limit is inherited.
        let low = |pid| Rlimit { current: Some(lowered(pid, round)), ..getrlimit(resource) };
        let usual: Vec<(u32, Rlimit)> = agents.values().map(|pid| (*pid, set(*pid, low(*pid)).unwrap())).collect();
        running.sees("checkpoints with the lowered limit, or a new agent", |_| {
            let now = checkpoints(world);
            now.0 >= failed + CHECKPOINTS || now.1 >= protected + CHECKPOINTS || world.all("agent_ready").len() > again
        });
        for (pid, limit) in usual {
            // It may have ended.
            let _ = set(pid, limit);
        }
        sees_checkpoints(world, running);
    }
    assert_no_relaunch(world);
}

/// As [`limit`], for a resource without which an agent lives on.
fn limit_living(resource: Resource, lowered: impl Fn(u32, u32) -> u64) {
    let world = World::unchecked();
    let job = job(&world);
    let mut running = job.start_to_event("checkpoint_complete");
    let at_the_start = agents(&world);
    limit(&world, &mut running, resource, lowered);
    assert!(checkpoints(&world).0 > 0, "the limit had no effect");
    assert_eq!(agents(&world), at_the_start);
    assert_no_panic(&world);
    halt(&job, &world, running);
}

#[test]
fn agents_that_are_refused_threads_fail_checkpoints_and_live_on() {
    unprivileged("agents_that_are_refused_threads_fail_checkpoints_and_live_on", || {
        limit_living(Resource::Nproc, |_, _| 0);
    });
}

#[test]
fn agents_that_are_refused_descriptors_fail_checkpoints_and_live_on() {
    unprivileged("agents_that_are_refused_descriptors_fail_checkpoints_and_live_on", || {
        limit_living(Resource::Nofile, |pid, round| {
            let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
            let highest = open.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()).max();
            highest.unwrap() + 1 + u64::from(round)
        });
    });
}

/// A program that is refused a small piece of memory ends. Large ones are an error.
#[test]
fn agents_that_are_refused_memory_fail_checkpoints_or_are_started_again() {
    unprivileged("agents_that_are_refused_memory_fail_checkpoints_or_are_started_again", || {
        let world = World::unchecked();
        let job = job(&world);
        let mut running = job.start();
        limit(&world, &mut running, Resource::As, |pid, round| {
            let sizes = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
            let pages: u64 = sizes.split(' ').next().unwrap().parse().unwrap();
            pages * rustix::param::page_size() as u64 + (u64::from(round) << 20)
        });
        let lost = checkpoints(&world).0 + world.all("agent_lost").len();
        assert!(lost > 0, "the limit had no effect");
        halt(&job, &world, running);
    });
}

/// A memory control group; removed when dropped.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// A group below the first hierarchy in which this process may make one.
    fn new() -> Self {
        let name = format!("holdfast-test-{}", std::process::id());
        let made = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].into_iter().find_map(|hierarchy| {
            let group = Path::new(hierarchy).join(&name);
            fs::create_dir(&group).ok()?;
            let has_limit = LIMIT_FILES.iter().any(|file| group.join(file).exists());
            if !has_limit {
                let _ = fs::remove_dir(&group);
            }
            has_limit.then_some(group)
        });
        MemoryGroup(made.unwrap_or_else(|| ignore("memory control groups require root and a cgroup file system")))
    }

    fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    fn limit(&self, bytes: u64) {
        let file = LIMIT_FILES.into_iter().find(|file| self.0.join(file).exists()).unwrap();
        fs::write(self.0.join(file), bytes.to_string()).unwrap();
    }
}

/// Of the first and the second version of control groups.
const LIMIT_FILES: [&str; 2] = ["memory.limit_in_bytes", "memory.max"];

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

/// The kernel ends an agent whose redundancy files, which are in memory, do not fit into its control group.
#[test]
fn an_agent_that_its_memory_control_group_ends_is_started_again() {
    let group = MemoryGroup::new();
    let world = World::unchecked();
    let mut job = job(&world);
    (job.per_node, job.size) = (2, "1024x1024");
    let mut running = job.reaches(1);
    let agent = world.agent_pid("node1");
    group.limit(4 << 20);
    group.add(agent);
    running.sees_agent_again("node1");
    sees_checkpoints(&world, &mut running);
    assert_ne!(world.agent_pid("node1"), agent);
    assert_no_relaunch(&world);
    halt(&job, &world, running);
}

#[test]
fn a_job_that_is_refused_processes_ends_with_an_error_and_runs_when_it_has_them() {
    unprivileged("a_job_that_is_refused_processes_ends_with_an_error_and_runs_when_it_has_them", || {
        for allowed in [1, 2, 3, 4, 5, 6, 8, 12, 20] {
            let world = World::unchecked();
            let job = Job::new(&world, 0).top("relaunch: {attempts: 1}");
            let mut command = world.command("bash");
            command.args(["-c", &format!("ulimit -Su {allowed}; exec \"$@\""), "bash", env!("CARGO_BIN_EXE_holdfast")]);
            command.args(["run".as_ref(), job.spec().as_os_str()]);
            let ran = world.run(command);
            assert!([69, 75].contains(&ran.status.code().unwrap()), "{allowed} processes: {ran:?}");
            ran.prints(&["Resource temporarily unavailable"]);
            assert!(!ran.err.contains("panicked"), "{}", ran.err);
            assert_eq!(world.processes(), []);
            job.run(0);
            assert_no_panic(&world);
        }
    });
}

#[test]
fn a_launch_that_is_refused_processes_is_tried_again() {
    unprivileged("a_launch_that_is_refused_processes_is_tried_again", || {
        let world = World::unchecked();
        let job = Job::new(&world, 0).holding_after(1);
        let mut running = job.reaches(1);
        let orchestrator = world.state()["orchestrator"].as_u64().unwrap() as u32;
        let set = |limit| prlimit(Some(Pid::from_raw(orchestrator.cast_signed()).unwrap()), Resource::Nproc, limit);
        let usual = set(Rlimit { current: Some(0), ..getrlimit(Resource::Nproc) }).unwrap();
        assert!(world.kill(|line| line.contains("example heat")) > 0);
        let refused = |event: &Value| {
            event["event"] == "generation_ended" && event.to_string().contains("Resource temporarily unavailable")
        };
        running.sees("a launch that is refused", refused);
        set(usual).unwrap();
        job.finishes(running);
        assert_eq!(world.all("node_down"), [] as [Value; 0]);
    });
}
