//! What the keys of `kind: replicated` change, each shown by a job that would end otherwise, or not at all, without it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use rustix::thread::sched_getaffinity;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::pair_faults::registry_of;
use crate::pair_programs::compile;
use crate::pairs::{list, printed, ready, run, sees, waits_for_line, waits_for_state};
use crate::world::{Running, World, signal};

/// The copies pause for ever after each round.
const EXAMPLE: &str = r#"[holdfast, example, pair, "{side}", "{index}", "20", "100000000"]"#;
/// The restart of copies that are not to return while the test looks.
const NEVER: &str = "{first: 10min, most: 10min}";

/// A spec with these pairs and further keys.
fn spec(world: &World, nodes: u32, pairs: &str, more: &str) -> PathBuf {
    let text = format!(
        "kind: replicated\njob: vision\nprefix: {}\nallocation: {{manager: local, nodes: {nodes}}}\npairs:\n  - \
         {{{pairs}}}\n{more}",
        world.prefix().display()
    );
    world.write("job.yaml", &text)
}

const HEARTBEAT: &str = "heartbeat: {period: 5ms, misses: 2000}";

fn ends(job: Running<'_>, world: &World) {
    job.terminated();
    world.assert_nothing_is_left();
}

/// The names of jobs with this change, in the order of the log.
fn jobs_with(world: &World, change: &str) -> Vec<String> {
    let events = world.all("pair").into_iter().filter(|event| event["change"] == change);
    events.map(|event| event["name"].as_str().unwrap().to_owned()).collect()
}

fn boot_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap()
}

#[test]
fn index_in_commands_counts_within_an_element(world: &World) {
    let main = r#"main: [holdfast, example, pair, "{side}", "{index}", "1"]"#;
    // The example refuses a number that is not that of its copy.
    let pairs = |name: &str| format!("name: \"{name}{{index}}\", count: 2, {main}, {HEARTBEAT}");
    let job = run(world, &spec(world, 1, &pairs("a"), &format!("  - {{{}}}\n", pairs("b"))));
    job.ends_with(0).prints(&["all pairs are finished"]);
    for name in ["a0", "a1", "b0", "b1"] {
        assert_eq!(printed(world, &format!("{name}.main")), "1\n3\n6\n7\n9\n12\n13\n15\n18\n", "{name}");
    }
}

#[test]
fn listed_jobs_are_suspended_in_their_order_and_resumed_in_reverse(world: &World) {
    let pair = format!(
        "name: dnn0, main: {EXAMPLE}, nodes: [node0, node1], {HEARTBEAT}, restart: {{first: 3s}}, suspends: [second, \
         first]"
    );
    let job = |name: &str, order| format!("  - {{name: {name}, command: [sleep, '3600'], node: 1, order: {order}}}\n");
    let jobs = format!("jobs:\n{}{}{}", job("second", 2), job("first", 1), job("other", 0));
    let mut running = run(world, &spec(world, 2, &pair, &jobs));
    signal(ready(world, "dnn0"), Signal::KILL);
    sees(&mut running, "dnn0", "fail_back", None);
    running.sees("both resumed", |_| jobs_with(world, "job_resumed").len() == 2);
    assert_eq!(jobs_with(world, "job_suspended"), ["first", "second"]);
    assert_eq!(jobs_with(world, "job_resumed"), ["second", "first"]);
    running.ends_with(0);
}

#[test(unchecked)]
fn no_job_is_suspended_where_the_list_is_empty(world: &World) {
    let pair = format!("name: dnn0, main: {EXAMPLE}, nodes: [0, 1], {HEARTBEAT}, restart: {NEVER}, suspends: []");
    let jobs = "jobs:\n  - {name: app1, command: [sleep, '3600'], node: 1}\n";
    let mut job = run(world, &spec(world, 2, &pair, jobs));
    signal(ready(world, "dnn0"), Signal::KILL);
    sees(&mut job, "dnn0", "fail_over", None);
    waits_for_line(world, "dnn0.replica", "12");
    assert_eq!(jobs_with(world, "job_started"), ["app1"]);
    assert_eq!(jobs_with(world, "job_suspended"), [""; 0]);
    ends(job, world);
}

#[test(unchecked)]
fn job_that_is_started_while_a_replica_is_awake_is_suspended_for_that_pair(world: &World) {
    let pair = format!("name: dnn0, main: {EXAMPLE}, nodes: [0, 1], {HEARTBEAT}, restart: {NEVER}");
    let jobs = "jobs:\n  - {name: app1, command: [sleep, '3600'], node: 1, restart: {first: 10ms}}\n";
    let mut job = run(world, &spec(world, 2, &pair, jobs));
    waits_for_line(world, "dnn0.main", "6");
    waits_for_state(world, 0, "replica", "asleep");
    let app = sees(&mut job, "app1", "job_started", None)["pid"].as_u64().unwrap();
    signal(waits_for_state(world, 0, "main", "awake"), Signal::KILL);
    sees(&mut job, "app1", "job_suspended", None);
    signal(u32::try_from(app).unwrap(), Signal::KILL);
    job.sees("the second suspension", |_| jobs_with(world, "job_suspended").len() == 2);
    let suspended = world.all("pair").into_iter().filter(|event| event["change"] == "job_suspended");
    assert_eq!(suspended.map(|event| event["pair"].clone()).collect::<Vec<_>>(), ["dnn0", "dnn0"]);
    ends(job, world);
}

/// The CPUs on which the watcher of an agent may run.
fn cpus_of_watcher(agent: u32) -> Option<String> {
    for task in fs::read_dir(format!("/proc/{agent}/task")).unwrap() {
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        if status.starts_with("Name:\tpairs\n") {
            let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
            return Some(cpus.unwrap().to_owned());
        }
    }
    None
}

#[test(unchecked)]
fn watcher_runs_on_the_cpu_that_the_spec_names(world: &World) {
    let allowed = sched_getaffinity(None).unwrap();
    // The last one: without the key, it would not be the only one, unless there is but one.
    let cpu = (0..1024).rev().find(|cpu| allowed.is_set(*cpu)).unwrap();
    let pair = format!("name: dnn0, main: {EXAMPLE}, {HEARTBEAT}");
    let job = run(world, &spec(world, 1, &pair, &format!("replication: {{pin_watcher: {cpu}}}\n")));
    waits_for_line(world, "dnn0.main", "6");
    let agent = world.agent_pid("node0");
    world.wait("the pinned watcher", || (cpus_of_watcher(agent)? == cpu.to_string()).then_some(()));
    ends(job, world);
}

#[test]
fn cpu_that_the_agent_may_not_use_ends_the_job_with_the_remedy(world: &World) {
    let pair = format!("name: dnn0, main: {EXAMPLE}, {HEARTBEAT}");
    let job = run(world, &spec(world, 1, &pair, "replication: {pin_watcher: 4000}\n"));
    job.ends_with(78).prints(&["node0 cannot run its pairs: the watcher", "CPU 4000", "change `pin_watcher`"]);
    // It is not tried again.
    assert_eq!(world.all("agent_not_started"), [] as [serde_json::Value; 0]);
}

fn starts_of_main(event: &Value) -> u64 {
    let is_start = event["change"] == "started" && event["side"] == "main";
    if is_start { event["incarnation"].as_u64().unwrap() } else { 0 }
}

#[test(unchecked)]
fn pauses_before_restarts_grow_from_the_first_one(world: &World) {
    let pair = "name: dnn0, main: [sh, -c, exit 3], restart: {first: 700ms, most: 1min}";
    let mut job = run(world, &spec(world, 1, pair, ""));
    job.sees("three mains", |event| starts_of_main(event) == 3);
    // From the start before, which precedes the failure: a failure may be written down later than it is seen.
    let starts = world.all("pair").into_iter().filter(|event| event["change"] == "started" && event["side"] == "main");
    let started: Vec<u64> = starts.map(|event| event["at"].as_u64().unwrap()).collect();
    assert!(started[1] >= started[0] + 700 - 1, "{started:?}");
    assert!(started[2] >= started[1] + 1400 - 1, "{started:?}");
    ends(job, world);
}

#[test(unchecked)]
fn pauses_before_restarts_are_limited(world: &World) {
    // Twenty doublings of the first one would take hours.
    let pair = "name: dnn0, main: [sh, -c, exit 3], restart: {first: 20ms, most: 20ms}";
    let mut job = run(world, &spec(world, 1, pair, ""));
    job.sees("twenty mains", |event| starts_of_main(event) == 20);
    ends(job, world);
}

#[test(unchecked)]
fn copy_that_was_up_for_long_has_no_failures_behind_it(world: &World) {
    let pair = format!("name: dnn0, main: {EXAMPLE}, {HEARTBEAT}, restart: {{first: 1ms, most: 100ms, attempts: 2}}");
    let mut job = run(world, &spec(world, 1, &pair, ""));
    let mut last = 0;
    for count in 1..=4 {
        job.sees("a replica", |event| {
            event["change"] == "started" && event["side"] == "replica" && event["incarnation"] == count
        });
        last = world.wait("another replica", || {
            let replica = waits_for_state(world, 0, "replica", "asleep");
            (replica != last).then_some(replica)
        });
        // Longer than `most`: two failures without such a time between them are too many.
        std::thread::sleep(Duration::from_millis(200));
        signal(last, Signal::KILL);
    }
    job.sees("the fifth replica", |event| {
        event["change"] == "started" && event["side"] == "replica" && event["incarnation"] == 5
    });
    ends(job, world);
}

#[test]
fn main_without_a_replica_is_started_again(world: &World) {
    let pair = format!(
        "name: dnn0, main: {EXAMPLE}, replica: [sh, -c, exit 3], {HEARTBEAT}, restart: {{first: 50ms, most: 50ms}}"
    );
    let mut job = run(world, &spec(world, 1, &pair, ""));
    for (line, count) in [("6", 2), ("12", 3)] {
        waits_for_line(world, "dnn0.main", line);
        signal(waits_for_state(world, 0, "main", "awake"), Signal::KILL);
        job.sees("another main", |event| starts_of_main(event) == count);
    }
    job.ends_with(0).prints(&["all pairs are finished"]);
    assert_eq!(printed(world, "dnn0.main"), "1\n3\n6\n7\n9\n12\n13\n15\n18\n");
    assert_eq!(jobs_with(world, "fail_over"), [""; 0]);
}

#[test(unchecked)]
fn copy_that_does_not_register_in_time_is_started_again(world: &World) {
    // Of the default, ten would take five minutes.
    let pair = "name: dnn0, main: [sleep, '3600'], restart: {first: 1ms, most: 1ms}";
    let mut job = run(world, &spec(world, 1, pair, "replication: {start_within: 100ms}\n"));
    job.sees("ten mains", |event| starts_of_main(event) == 10);
    assert_eq!(sees(&mut job, "dnn0", "failed", Some("main"))["cause"], "not_registered");
    ends(job, world);
}

/// Stores checkpoints until a file exists; ignores SIGTERM. The first arguments are those of a copy, then come the
/// bytes of a checkpoint, the file, and one in which the last time at which it ran is written.
const WRITER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "holdfast_pairs.h"

static char state[1 << 16];

int main(int argc, char **argv)
{
    struct timespec time;
    long long ns;
    signal(SIGTERM, SIG_IGN);
    if (argc != 6 || ft_init_wait(getpid(), 0, argv[1], atoi(argv[2])) != HOLDFAST_PAIRS_SUCCESS)
        return 1;
    int file = open(argv[5], O_WRONLY | O_CREAT, 0600);
    for (int step = 1; access(argv[4], F_OK) != 0; step++) {
        if (holdfast_pairs_update(state, atol(argv[3]), step) != HOLDFAST_PAIRS_SUCCESS)
            return 2;
        clock_gettime(CLOCK_BOOTTIME, &time);
        ns = time.tv_sec * 1000000000LL + time.tv_nsec;
        if (pwrite(file, &ns, sizeof ns, 0) != sizeof ns)
            return 3;
        usleep(2000);
    }
    return tag_job_end(getpid(), 0, argv[1]);
}
"#;

/// The command of such a copy, with checkpoints of this size.
fn writer(world: &World, bytes: u32) -> String {
    fs::write(world.path("writer.c"), WRITER).unwrap();
    let program = compile(world, &world.path("writer.c"));
    let (end, last) = (world.path("end"), world.path("last.{side}"));
    format!(
        r#"["{}", "{{side}}", "{{index}}", "{bytes}", "{}", "{}"]"#,
        program.display(),
        end.display(),
        last.display()
    )
}

/// When a copy ran last.
fn last_run(world: &World, side: &str) -> Duration {
    let bytes = fs::read(world.path(&format!("last.{side}"))).unwrap();
    Duration::from_nanos(u64::from_ne_bytes(bytes.try_into().unwrap()))
}

/// The shortest time between two checkpoints that arrive at the other node one after the other.
fn shortest_gap(period: &str, checkpoints: usize) -> Duration {
    let world = World::unchecked();
    let pair = format!(
        "name: dnn0, main: {}, nodes: [0, 1], {HEARTBEAT}, checkpoint: {{size: 4KiB, period: {period}}}",
        writer(&world, 100)
    );
    let mut job = run(&world, &spec(&world, 2, &pair, ""));
    sees(&mut job, "dnn0", "awake", Some("main"));
    let registry = registry_of(waits_for_state(&world, 0, "replica", "asleep"));
    let mut times: Vec<u64> = Vec::new();
    world.wait("mirrored checkpoints", || {
        let newest = registry.newest(0)?.stored_at;
        if times.last() != Some(&newest) {
            times.push(newest);
        }
        (times.len() == checkpoints).then_some(())
    });
    fs::write(world.path("end"), "").unwrap();
    job.ends_with(0);
    world.assert_nothing_is_left();
    // The first two belong to the beginning of the connection.
    let gaps = times.windows(2).skip(2).map(|pair| Duration::from_nanos(pair[1] - pair[0]));
    gaps.min().unwrap()
}

#[test]
fn checkpoints_are_sent_to_the_other_node_as_often_as_the_period_says() {
    let gap = shortest_gap("2s", 5);
    assert!(gap >= Duration::from_millis(900), "{gap:?}");
    let gap = shortest_gap("10ms", 40);
    assert!(gap < Duration::from_millis(900), "{gap:?}");
}

#[test]
fn checkpoint_that_is_larger_than_the_spec_says_is_refused(world: &World) {
    let pair = |size: &str| {
        format!(
            "name: dnn0, main: {}, {HEARTBEAT}, checkpoint: {{size: {size}}}, restart: {{first: 1ms, most: 10min, \
             attempts: 1}}",
            writer(world, 5000)
        )
    };
    run(world, &spec(world, 1, &pair("4KiB"), "")).ends_with(90);
    assert!(printed(world, "dnn0.main").contains("5000"), "{}", printed(world, "dnn0.main"));
    let job = run(world, &spec(world, 1, &pair("8KiB"), ""));
    world.wait("a checkpoint", || (fs::read(world.path("last.main")).ok()?.len() == 8).then_some(()));
    fs::write(world.path("end"), "").unwrap();
    job.ends_with(0);
}

#[test]
fn copy_that_does_not_end_has_the_whole_grace(world: &World) {
    let pair = format!(
        "name: dnn0, main: {}, {HEARTBEAT}, checkpoint: {{size: 4KiB}}, restart: {{first: 1s, most: 1s}}",
        writer(world, 100)
    );
    let mut job = run(world, &spec(world, 1, &pair, "replication: {stop_grace: 2s}\n"));
    sees(&mut job, "dnn0", "awake", Some("main"));
    waits_for_state(world, 0, "replica", "asleep");
    signal(waits_for_state(world, 0, "main", "awake"), Signal::KILL);
    sees(&mut job, "dnn0", "fail_over", None);
    // The replica must end when there is a main again, not before the event of its start.
    let again = job.sees("another main", |event| starts_of_main(event) == 2)["at"].as_u64().unwrap();
    sees(&mut job, "dnn0", "fail_back", None);
    let clock = Duration::from_millis(boot_offset_ms());
    let replica_ended = last_run(world, "replica") + clock;
    assert!(replica_ended >= Duration::from_millis(again) + Duration::from_millis(1900), "{replica_ended:?} {again}");
    fs::write(world.path("end"), "").unwrap();
    job.ends_with(0);
}

/// The time since the epoch at which the boot-time clock began, milliseconds.
fn boot_offset_ms() -> u64 {
    let epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from((epoch - boot_time()).as_millis()).unwrap()
}

#[test(unchecked)]
fn copies_and_jobs_have_the_environment_and_the_directory_of_the_spec(world: &World) {
    let directory = world.path("work");
    fs::create_dir(&directory).unwrap();
    // The shortest period.
    let pair = format!("name: dnn0, main: {EXAMPLE}, heartbeat: {{period: 100us, misses: 100000}}");
    let more = format!(
        "jobs:\n  - {{name: app1, command: [sh, -c, 'echo \"$GREETING in $PWD\"']}}\n\
         replication: {{env: {{GREETING: hello}}, directory: '{}'}}\n",
        directory.display()
    );
    let mut job = run(world, &spec(world, 1, &pair, &more));
    sees(&mut job, "app1", "job_finished", None);
    assert_eq!(printed(world, "app1"), format!("hello in {}\n", directory.display()));
    let main = waits_for_state(world, 0, "main", "awake");
    assert_eq!(fs::read_link(format!("/proc/{main}/cwd")).unwrap(), directory);
    let environment = fs::read(format!("/proc/{main}/environ")).unwrap();
    for expected in ["GREETING=hello", "HOLDFAST_PAIR_PERIOD_US=100"] {
        assert!(environment.split(|byte| *byte == 0).any(|variable| variable == expected.as_bytes()), "{expected}");
    }
    world.wait("heartbeats", || (list(world)["pairs"][0]["main"]["beats"].as_u64()? > 100).then_some(()));
    ends(job, world);
}

/// A command for the job, with these words before its spec.
fn command(world: &World, words: &[&str]) -> crate::world::Ran {
    let prefix = world.prefix();
    world.run(world.holdfast(words.iter().copied()).args(["--prefix", prefix.to_str().unwrap()]))
}

#[test]
fn commands_check_all_pairs_before_they_change_one(world: &World) {
    let endless = |name: &str, nodes: &str| {
        format!("name: {name}, main: {EXAMPLE}, nodes: {nodes}, restart: {NEVER}, {HEARTBEAT}")
    };
    let ended = format!(r#"name: done, main: [holdfast, example, pair, "{{side}}", "{{index}}", "1"], {HEARTBEAT}"#);
    let more = format!("  - {{{}}}\n  - {{{ended}}}\n", endless("far", "[0, 1]"));
    let job = run(world, &spec(world, 2, &endless("near", "[0, 0]"), &more));
    for (at, name) in ["near", "far"].into_iter().enumerate() {
        waits_for_line(world, &format!("{name}.main"), "6");
        waits_for_state(world, at, "replica", "asleep");
    }
    world.wait("the end of the pair `done`", || {
        let pair = &list(world)["pairs"][2];
        ["main", "replica"].iter().any(|side| pair[side]["state"] == "finished").then_some(())
    });
    let main = waits_for_state(world, 0, "main", "awake");
    for words in [&["near,done"][..], &["done"], &["--dry-run", "near,done"]] {
        let ran = command(world, &[&["pairs", "fail-over"], words].concat()).with_code(69);
        ran.prints(&["nothing was changed", "done: the pair has finished"]);
    }
    // The orchestrator decides about this one.
    signal(waits_for_state(world, 1, "replica", "asleep"), Signal::KILL);
    world.wait("the end of the replica", || (list(world)["pairs"][1]["replica"]["state"] == "absent").then_some(()));
    let ran = command(world, &["pairs", "fail-over", "all"]).with_code(69);
    ran.prints(&["not possible for 1 of 2 pairs; nothing was changed", "far: the replica is absent, not asleep"]);
    assert_eq!(waits_for_state(world, 0, "main", "awake"), main);
    command(world, &["pairs", "restart", "--side", "replica", "far"]).with_code(0);
    waits_for_state(world, 1, "replica", "asleep");
    // A step that fails after others.
    let lock = world.prefix().join(".holdfast/pairs.lock");
    fs::create_dir(&lock).unwrap();
    let ran = command(world, &["pairs", "fail-over", "all"]);
    assert_ne!(ran.status.code(), Some(0));
    ran.prints(&["it was done for near; repeat the command for the others"]);
    fs::remove_dir(&lock).unwrap();
    waits_for_state(world, 0, "replica", "awake");
    let ran = command(world, &["pairs", "fail-over", "all"]).with_code(0);
    ran.prints(&["requested: fail over to the replica of near, far", "left out, because they have finished: done"]);
    waits_for_state(world, 1, "replica", "awake");
    command(world, &["checkpoint"]).with_code(69).prints(&["cannot be requested", "`holdfast pairs list`"]);
    command(world, &["nodes", "list"]).with_code(0).prints(&["node0", "node1", "used"]);
    let status = command(world, &["status", "--json"]).with_code(0).json();
    let nodes: Vec<_> = status["nodes"].as_array().unwrap().iter().map(|node| node["name"].clone()).collect();
    assert_eq!(nodes, ["node0", "node1"]);
    command(world, &["nodes", "exclude", "node0"]).with_code(69).prints(&["cannot be excluded", "change `nodes`"]);
    command(world, &["nodes", "include", "node0"]).with_code(69);
    command(world, &["halt", "set", "--checkpoints", "3"]).with_code(69).prints(&["has no effect", "`--now`"]);
    command(world, &["halt", "set", "--now", "--dry-run"]).with_code(0).prints(&["would set: halt now"]);
    command(world, &["halt", "set", "--now"]).with_code(0).prints(&["halt now", "ends its copies and jobs now"]);
    job.ends_with(75);
}

#[test]
fn second_signal_and_immediate_halt_do_not_wait_for_the_grace() {
    let deaf = r#"[sh, -c, "trap '' TERM; echo ready; while :; do sleep 1; done"]"#;
    let more =
        format!("jobs: [{{name: app, command: {deaf}}}]\nreplication: {{stop_grace: 10min, start_within: 10min}}\n");
    for (first_signal, then_halt) in [(true, false), (false, true), (true, true)] {
        let world = World::new();
        let mut job = run(&world, &spec(&world, 1, &format!("name: a, main: {deaf}"), &more));
        for name in ["a.main", "a.replica", "app"] {
            waits_for_line(&world, name, "ready");
        }
        if first_signal {
            job.signal(Signal::TERM);
            job.sees_event("pairs_ending");
        }
        if then_halt {
            command(&world, &["halt", "set", "--immediate"]).with_code(0);
        } else {
            job.signal(Signal::TERM);
        }
        job.ends_with(75);
    }
}

#[test(unchecked)]
fn remedies_name_the_keys_of_pairs(world: &World) {
    for (pair, more, expected) in [
        ("name: a, main: [./missing]", "", "check `main` of the pair `a`"),
        ("name: a, main: [sh], replica: [./missing]", "", "check `replica` of the pair `a`"),
        ("name: a, main: [sh]", "jobs: [{name: b, command: [./missing]}]\n", "check `command` of the job `b`"),
        ("name: a, main: [sh]", "replication: {directory: /missing}\n", "check `replication.directory`"),
    ] {
        run(world, &spec(world, 1, pair, more)).ends_with(78).prints(&[expected]);
    }
}

#[test]
fn lack_of_shared_memory_is_reported_with_the_bytes_and_the_key(world: &World) {
    // 10 TiB, which tmpfs refuses before it allocates any of it.
    let pair = r#"name: "a{index}", count: 1024, main: [sh, -c, sleep 600], checkpoint: {size: 1GiB}"#;
    let more = "checkpoint: {control: {base: /dev/shm}}\n";
    let ran = run(world, &spec(world, 1, pair, more)).ends_with(75);
    ran.prints(&["it needs 1099", "bytes", "lower `checkpoint.size`"]);
}

#[test(unchecked)]
fn second_process_of_a_copy_is_refused(world: &World) {
    let main = format!(
        r#"main: [sh, -c, '"$0" "$@" & "$0" "$@" & wait', '{}', example, pair, "{{side}}", "{{index}}", "20",
           "100000000"]"#,
        env!("CARGO_BIN_EXE_holdfast")
    );
    let job = run(world, &spec(world, 1, &format!("name: dnn0, {main}, restart: {NEVER}, {HEARTBEAT}"), ""));
    world.wait("the refusal, and the work of the other process", || {
        let printed = printed(world, "dnn0.main");
        (printed.contains("has done so, and runs") && printed.lines().any(|line| line == "6")).then_some(())
    });
    waits_for_state(world, 0, "main", "awake");
    assert_eq!(printed(world, "dnn0.main").lines().filter(|line| *line == "1").count(), 1);
    ends(job, world);
}
