//! Pairs whose copies and agents are killed and stopped at bad moments, and whose shared memory is damaged: no two
//! copies are awake, and the work goes on.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use holdfast_shm::{Registry, Side, SlotState};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::pair_programs::{compile, held};
use crate::pairs::{list, printed, ready, run, sees, spec, spec_of_two_nodes, waits_for_line, waits_for_state};
use crate::world::{Running, World, signal};

/// The lease of pairs on two nodes.
const LEASE: u64 = 2_000_000_000;

/// Appends the time to a file while it is awake, each millisecond, and finishes when another file exists.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "holdfast_pairs.h"

int main(int argc, char **argv)
{
    struct timespec time;
    if (argc != 5 || ft_init_wait(getpid(), 0, argv[1], atoi(argv[2])) != HOLDFAST_PAIRS_SUCCESS)
        return 1;
    int file = open(argv[3], O_WRONLY | O_CREAT | O_APPEND, 0600);
    while (access(argv[4], F_OK) != 0) {
        clock_gettime(CLOCK_BOOTTIME, &time);
        dprintf(file, "%lld\n", time.tv_sec * 1000000000LL + time.tv_nsec);
        usleep(1000);
    }
    return tag_job_end(getpid(), 0, argv[1]);
}
"#;

fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// When the copies of a side were awake.
fn awake(world: &World, side: &str) -> Vec<u64> {
    let text = fs::read_to_string(world.path(&format!("awake.{side}"))).unwrap_or_default();
    // A last line may be incomplete.
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.parse().ok()).collect()
}

/// The state of a process, as in `/proc/<pid>/stat`; `None` if there is none.
fn process_state(pid: u32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

/// The registry of a copy, which expects the incarnations of now.
/// The registry of a copy.
pub fn registry_of(pid: u32) -> Registry {
    Registry::open(&registry_path(pid)).unwrap()
}

pub fn registry_path(pid: u32) -> PathBuf {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let variables: Vec<_> = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    variables.iter().find_map(|it| it.strip_prefix("HOLDFAST_PAIRS=")).unwrap().into()
}

/// A pair of this program on two nodes.
fn clock(world: &World) -> PathBuf {
    fs::write(world.path("clock.c"), CLOCK).unwrap();
    let program = compile(world, &world.path("clock.c"));
    let (file, end) = (world.path("awake.{side}"), world.path("end"));
    let main = format!(
        r#"main: ["{}", "{{side}}", "{{index}}", "{}", "{}"]"#,
        program.display(),
        file.display(),
        end.display()
    );
    // Silent agents are not replaced.
    let more = "replication: {lease: 2s}\nhealth: {down_after: 10min}\n";
    spec_of_two_nodes(world, &format!("name: safe, {main}, nodes: [0, 1], restart: {{first: 100ms}}"), more)
}

/// A node whose agent does not answer any more. Nothing on that node can end the main then but the main itself.
fn node_is_silent(main_is_stopped: bool) {
    let world = World::new();
    let mut job = run(&world, &clock(&world));
    world.wait("the main's work", || (!awake(&world, "main").is_empty()).then_some(()));
    waits_for_state(&world, 0, "replica", "asleep");
    let main = waits_for_state(&world, 0, "main", "awake");
    let (registry, agent) = (registry_of(main), world.agent_pid("node0"));

    signal(agent, Signal::STOP);
    if main_is_stopped {
        signal(main, Signal::STOP);
    }
    let failed_over = world.wait("the replica's work", || awake(&world, "replica").first().copied());
    // The agent is stopped: it was the last one that this main had.
    let lease_end = registry.held_until(0, Side::Main).unwrap();
    assert!(
        lease_end <= failed_over,
        "the replica was woken {} ns before the end of the lease",
        lease_end - failed_over
    );
    let fail_over = sees(&mut job, "safe", "fail_over", None);
    assert_eq!((&fail_over["node"], &fail_over["cause"]), (&"node1".into(), &"node_lost".into()), "{fail_over}");

    let mut resumed = lease_end;
    if main_is_stopped {
        assert_eq!(process_state(main), Some('T'));
        assert!(awake(&world, "main").into_iter().all(|time| time < failed_over));
        resumed = now();
        signal(main, Signal::CONT);
    }
    // Its parent is stopped, and does not wait for it.
    world.wait("the main's end", || (process_state(main) == Some('Z')).then_some(()));
    assert_eq!(process_state(agent), Some('T'));
    let last = awake(&world, "main").into_iter().max().unwrap();
    assert!(last < resumed + LEASE, "the main was awake {} ns after the end of its lease", last - resumed);

    signal(agent, Signal::CONT);
    assert_eq!(sees(&mut job, "safe", "fail_back", None)["node"], "node0");
    let failed_back = world.wait("the main's work", || awake(&world, "main").into_iter().find(|time| *time > last));
    fs::write(world.path("end"), "").unwrap();
    job.ends_with(0).prints(&["all pairs are finished"]);
    let last_of_replica = awake(&world, "replica").into_iter().max().unwrap();
    assert!(last_of_replica < failed_back, "two copies were awake for {} ns", last_of_replica - failed_back);
}

#[test]
fn replica_is_woken_when_the_lease_of_a_silent_node_has_ended_and_its_main_with_it() {
    node_is_silent(false);
}

#[test]
fn main_that_was_stopped_with_its_agent_dies_by_its_lease_when_it_runs_again() {
    node_is_silent(true);
}

#[test]
fn pairs_on_two_nodes_sleep_until_there_is_an_orchestrator_again(world: &World) {
    let spec = clock(world);
    let job = run(world, &spec);
    world.wait("the main's work", || (!awake(world, "main").is_empty()).then_some(()));
    let replica = waits_for_state(world, 0, "replica", "asleep");
    let main = waits_for_state(world, 0, "main", "awake");
    let registry = registry_path(main);
    job.killed();
    let killed = now();
    // The main has ended with its lease. The next one and the replica sleep: nobody permits them to wake.
    world.wait("another main", || {
        // What users ask of the agents does not count as their orchestrator.
        list(world);
        let copy = Registry::open(&registry).unwrap().copy(0, Side::Main);
        (copy.pid != main && copy.state == SlotState::Asleep).then_some(())
    });
    let last = awake(world, "main").into_iter().max().unwrap();
    assert!(last < killed + 2 * LEASE, "the main was awake {} ns after its orchestrator", last - killed);
    assert_eq!((process_state(main), process_state(replica)), (None, Some('S')));
    assert_eq!(registry_of(replica).copy(0, Side::Replica).state, SlotState::Asleep);
    list(world);
    let resumed = now();
    let mut second = run(world, &spec);
    second.sees_event("pairs_taken_over");
    world.wait("the work of a copy", || {
        ["main", "replica"].iter().any(|side| awake(world, side).into_iter().any(|time| time > last)).then_some(())
    });
    fs::write(world.path("end"), "").unwrap();
    second.ends_with(0).prints(&["all pairs are finished"]);
    let mut times = [awake(world, "main"), awake(world, "replica")].concat();
    times.retain(|time| (last + 1..resumed).contains(time));
    assert_eq!(times, [0_u64; 0], "a copy was awake without a lease");
}

/// An orchestrator whose lock is lost, as that of a node which does not answer the file system's server any more, and
/// another one that is started meanwhile.
fn orchestrator_is_replaced(is_stopped: bool) {
    let world = World::new();
    let spec = clock(&world);
    let old = run(&world, &spec);
    world.wait("the main's work", || (!awake(&world, "main").is_empty()).then_some(()));
    waits_for_state(&world, 0, "replica", "asleep");
    let agents = ["node0", "node1"].map(|node| world.agent_pid(node));
    if is_stopped {
        old.signal(Signal::STOP);
    }
    fs::remove_file(world.prefix().join(".holdfast/lock")).unwrap();
    let mut new = run(&world, &spec);
    assert_eq!(new.sees_event("pairs_taken_over")["epoch"], 2);
    // The lease is the other one's now.
    let taken_over = now();
    let works_after = |time| world.wait("work", || awake(&world, "main").into_iter().find(|at| *at > time + 2 * LEASE));
    works_after(taken_over);
    // It may have ended with its lease, if the other orchestrator needed longer to start.
    let main = waits_for_state(&world, 0, "main", "awake");
    let main_is_back = now();
    if is_stopped {
        old.signal(Signal::CONT);
    }
    old.ends_with(69).prints(&["another orchestrator has taken the job over"]);
    let ended = now();
    works_after(ended);
    assert_eq!(waits_for_state(&world, 0, "main", "awake"), main);
    assert_eq!(["node0", "node1"].map(|node| world.agent_pid(node)), agents);
    assert_eq!(world.state()["pairs"]["epoch"], 2);
    fs::write(world.path("end"), "").unwrap();
    new.ends_with(0).prints(&["all pairs are finished"]);
    assert!(awake(&world, "replica").into_iter().all(|time| time < main_is_back), "a fail-over after the takeover");
}

#[test]
fn orchestrator_that_was_stopped_and_replaced_ends_and_changes_nothing() {
    orchestrator_is_replaced(true);
}

#[test]
fn orchestrator_that_is_replaced_ends_and_changes_nothing() {
    orchestrator_is_replaced(false);
}

/// A pair whose copies pause for ever after each round, and are held at their start while a file exists.
fn held_pair(world: &World) -> PathBuf {
    let command = held(world, &format!(r#""{}", example, pair"#, env!("CARGO_BIN_EXE_holdfast")));
    let path = spec(world, &format!("name: dnn0, main: {command}, restart: {{first: 10ms, most: 10ms}}"), "");
    // A replica that is stopped while it is woken does not count as hung.
    let text = fs::read_to_string(&path).unwrap().replace("misses: 200", "misses: 60000");
    assert!(text.contains("misses: 60000"), "{text}");
    world.write("job.yaml", &text)
}

fn both_are_started_again(job: &mut Running<'_>) {
    for side in ["main", "replica"] {
        let is_second = |event: &Value| {
            event["change"] == "started" && event["side"] == side && event["incarnation"].as_u64() >= Some(2)
        };
        job.sees(&format!("another {side}"), is_second);
    }
}

#[test]
fn replica_that_is_killed_while_it_is_woken_comes_back_as_its_main_does(world: &World) {
    let mut job = run(world, &held_pair(world));
    let [hold_main, hold_replica] = ["hold.main", "hold.replica"].map(|name| world.path(name));
    let main = ready(world, "dnn0");
    let replica = waits_for_state(world, 0, "replica", "asleep");
    [&hold_main, &hold_replica].iter().for_each(|hold| fs::write(hold, "").unwrap());
    let registry = registry_of(replica);
    signal(replica, Signal::STOP);
    world.wait("the stopped replica", || (process_state(replica) == Some('T')).then_some(()));
    signal(main, Signal::KILL);
    // It is woken, and has not noticed.
    world.wait("the request to wake", || registry.is_woken(0, Side::Replica).then_some(()));
    signal(replica, Signal::KILL);
    let failed = sees(&mut job, "dnn0", "failed", Some("replica"));
    assert_eq!((&failed["state"], &failed["end"]["signal"]), (&"awake".into(), &9.into()), "{failed}");
    assert_eq!(printed(world, "dnn0.replica"), "");
    both_are_started_again(&mut job);
    fs::remove_file(&hold_main).unwrap();
    waits_for_line(world, "dnn0.main", "12");
    fs::remove_file(&hold_replica).unwrap();
    waits_for_state(world, 0, "replica", "asleep");
    signal(waits_for_state(world, 0, "main", "awake"), Signal::KILL);
    fs::write(&hold_main, "").unwrap();
    job.ends_with(0).prints(&["all pairs are finished"]);
    assert_eq!(printed(world, "dnn0.main"), "1\n3\n6\n7\n9\n12\n");
    assert_eq!(printed(world, "dnn0.replica"), "13\n15\n18\n");
}

#[test]
fn replica_that_is_killed_while_awake_comes_back_as_its_main_does(world: &World) {
    let mut job = run(world, &held_pair(world));
    let [hold_main, hold_replica] = ["hold.main", "hold.replica"].map(|name| world.path(name));
    let main = ready(world, "dnn0");
    [&hold_main, &hold_replica].iter().for_each(|hold| fs::write(hold, "").unwrap());
    signal(main, Signal::KILL);
    waits_for_line(world, "dnn0.replica", "12");
    signal(waits_for_state(world, 0, "replica", "awake"), Signal::KILL);
    let failed = sees(&mut job, "dnn0", "failed", Some("replica"));
    assert_eq!((&failed["state"], &failed["end"]["signal"]), (&"awake".into(), &9.into()), "{failed}");
    both_are_started_again(&mut job);
    fs::remove_file(&hold_main).unwrap();
    job.ends_with(0).prints(&["all pairs are finished"]);
    assert_eq!(printed(world, "dnn0.main"), "1\n3\n6\n13\n15\n18\n");
    assert_eq!(printed(world, "dnn0.replica"), "7\n9\n12\n");
}

/// Writes garbage over these bytes of a registry.
fn damage(registry: &Path, offset: u64, bytes: usize) {
    let file = fs::OpenOptions::new().write(true).open(registry).unwrap();
    file.write_all_at(&vec![0xa5; bytes], offset).unwrap();
}

#[test]
fn garbage_behind_the_header_of_the_registry_harms_no_other_pair(world: &World) {
    let main = r#"main: [holdfast, example, pair, "{side}", "{index}", "20", "100000000"]"#;
    let pair = format!("name: dnn0, {main}, restart: {{first: 1s}}");
    let other =
        format!("  - {{name: other, {main}, restart: {{first: 1s}}, heartbeat: {{period: 5ms, misses: 200}}}}\n");
    let mut job = run(world, &spec(world, &pair, &other));
    for name in ["dnn0", "other"] {
        waits_for_line(world, &format!("{name}.main"), "6");
    }
    let mains = [0, 1].map(|pair| {
        waits_for_state(world, pair, "replica", "asleep");
        waits_for_state(world, pair, "main", "awake")
    });
    // All words of `dnn0` but its heartbeats, and the heads of its checkpoints.
    damage(&registry_path(mains[0]), 4096 + 512, 2048);
    for main in mains {
        signal(main, Signal::KILL);
    }
    for name in ["other", "dnn0"] {
        sees(&mut job, name, "fail_over", None);
    }
    job.ends_with(0).prints(&["all pairs are finished"]);
    assert_eq!(printed(world, "other.main"), "1\n3\n6\n13\n15\n18\n");
    assert_eq!(printed(world, "other.replica"), "7\n9\n12\n");
}

#[test]
fn registry_whose_header_is_damaged_is_replaced_and_the_user_told(world: &World) {
    let mut job = run(world, &held_pair(world));
    let main = ready(world, "dnn0");
    let replica = waits_for_state(world, 0, "replica", "asleep");
    damage(&registry_path(main), 0, 64);
    // An agent needs the header only to find the copies of the one before.
    signal(world.agent_pid("node0"), Signal::KILL);
    let replaced = sees(&mut job, "dnn0", "registry_replaced", None);
    let reason = replaced["reason"].as_str().unwrap();
    assert!(reason.contains("registry"), "{replaced}");
    let new_main = waits_for_state(world, 0, "main", "awake");
    let new_replica = waits_for_state(world, 0, "replica", "asleep");
    assert!(new_main != main && new_replica != replica);
    for old in [main, replica] {
        // Its parent is gone.
        assert!(matches!(process_state(old), None | Some('Z')), "a copy of the damaged registry is left");
    }
    fs::write(world.path("hold.main"), "").unwrap();
    waits_for_line(world, "dnn0.main", "6");
    signal(new_main, Signal::KILL);
    waits_for_line(world, "dnn0.replica", "12");
    fs::remove_file(world.path("hold.main")).unwrap();
    job.ends_with(0).prints(&["checkpoints in shared memory lost, because the registry was replaced"]);
    assert_eq!(printed(world, "dnn0.main"), "1\n3\n6\n1\n3\n6\n13\n15\n18\n");
}
