//! `holdfast run` takes over a job with pairs whose orchestrator was killed, with a spec that was changed meanwhile:
//! what changes, and what is refused.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::pairs::{printed, ready, run, sees, waits_for_state};
use crate::world::{World, signal};

const SPEC: &str = r#"
kind: replicated
job: vision
prefix: PREFIX
allocation: {manager: local, nodes: 2}
pairs:
  - name: dnn0
    main: [holdfast, example, pair, "{side}", "{index}", "20", "100000000"]
    heartbeat: {period: 5ms, misses: 200}
    checkpoint: {size: 4KiB}
    restart: {first: 10min, most: 10min}
jobs:
  - {name: app1, command: [sleep, "3600"], restart: {first: 10ms, most: 10ms}}
replication: {lease: 2s, env: {GREETING: before}}
"#;

/// The spec with these changes.
fn spec(world: &World, name: &str, changes: &[(&str, &str)]) -> PathBuf {
    let mut text = SPEC.replace("PREFIX", world.prefix().to_str().unwrap());
    for (before, after) in changes {
        assert!(text.contains(before), "{before}");
        text = text.replace(before, after);
    }
    world.write(name, &text)
}

/// A job whose orchestrator was killed. Returns the processes of main and replica.
fn begun(world: &World) -> [u32; 2] {
    let job = run(world, &spec(world, "job.yaml", &[]));
    let main = ready(world, "dnn0");
    let replica = waits_for_state(world, 0, "replica", "asleep");
    job.killed();
    [main, replica]
}

#[test]
fn changed_commands_and_policies_are_used_when_a_process_is_started_next(world: &World) {
    let [main, replica] = begun(world);
    // A shell does not find the program that runs the job by its name.
    let command = format!(
        r#"main: [sh, -c, 'echo "{{side}}: $GREETING"; exec "$0" "$@"', '{}', example, pair, "{{side}}", "{{index}}",
           "20", "100000000"]"#,
        env!("CARGO_BIN_EXE_holdfast")
    );
    let changed = spec(
        world,
        "changed.yaml",
        &[
            (r#"main: [holdfast, example, pair, "{side}", "{index}", "20", "100000000"]"#, &command),
            ("restart: {first: 10min, most: 10min}", "restart: {first: 1s, most: 10min}"),
            (r#"command: [sleep, "3600"]"#, "command: [sh, -c, 'echo \"app: $GREETING\"; exec sleep 3600']"),
            ("GREETING: before", "GREETING: after"),
        ],
    );
    let dry = world.holdfast(["run", "--dry-run", changed.to_str().unwrap()]);
    world.run(dry).with_code(0).prints(&["would take over job"]);
    let mut job = run(world, &changed);
    job.sees_event("pairs_taken_over");
    // They go on as they are.
    assert_eq!(waits_for_state(world, 0, "main", "awake"), main);
    assert_eq!(waits_for_state(world, 0, "replica", "asleep"), replica);
    let app = sees(&mut job, "app1", "job_started", None)["pid"].as_u64().unwrap();
    signal(u32::try_from(app).unwrap(), Signal::KILL);
    world.wait("the new command of the job", || (printed(world, "app1") == "app: after\n").then_some(()));
    // The main returns by the new policy; by the old one, it would in ten minutes.
    signal(main, Signal::KILL);
    sees(&mut job, "dnn0", "fail_back", None);
    job.ends_with(0).prints(&[
        "the spec has changed for dnn0, app1, replication: used when a process is started next",
        "the spec has changed for dnn0: used from now on",
    ]);
    assert_eq!(printed(world, "dnn0.main"), "1\n3\n6\nmain: after\n13\n15\n18\n");
    // The replica that took over had been started before.
    assert!(printed(world, "dnn0.replica").starts_with("7\n9\n12\n"), "{}", printed(world, "dnn0.replica"));
}

#[test]
fn changed_number_of_missed_heartbeats_counts_for_the_copy_that_is_awake(world: &World) {
    // A main that hangs would be found after more than an hour.
    let patient = spec(world, "job.yaml", &[("misses: 200", "misses: 1000000")]);
    let job = run(world, &patient);
    let main = ready(world, "dnn0");
    job.killed();
    signal(main, Signal::STOP);
    let changes = [("misses: 200", "misses: 300"), ("restart: {first: 10min", "restart: {first: 1s")];
    let mut job = run(world, &spec(world, "changed.yaml", &changes));
    let fail_over = sees(&mut job, "dnn0", "fail_over", None);
    assert_eq!(fail_over["cause"], "hang", "{fail_over}");
    assert!(fail_over["misses"].as_u64() >= Some(300), "{fail_over}");
    sees(&mut job, "dnn0", "fail_back", None);
    let ran = job.ends_with(0);
    ran.prints(&["the spec has changed for dnn0: used from now on"]);
    assert!(!ran.err.contains("started next"), "{}", ran.err);
}

#[test]
fn agent_that_dies_after_the_change_goes_on_with_it(world: &World) {
    let [main, _] = begun(world);
    let changed =
        spec(world, "changed.yaml", &[("first: 10min", "first: 1s"), ("GREETING: before", "GREETING: after")]);
    let mut job = run(world, &changed);
    job.sees_event("pairs_taken_over");
    job.sees_where("agent_ready", "node", "node0");
    world.wait("the plan that the agent has saved", || {
        let saved = walk(&world.temporary()).into_iter().find(|path| path.ends_with("pairs/state"))?;
        fs::read_to_string(saved).ok()?.contains("after").then_some(())
    });
    signal(world.agent_pid("node0"), Signal::KILL);
    sees(&mut job, "dnn0", "adopted", Some("main"));
    signal(main, Signal::KILL);
    sees(&mut job, "dnn0", "fail_back", None);
    job.ends_with(0);
}

/// All files below a directory.
fn walk(directory: &std::path::Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(walk(&entry.path())),
            _ => found.push(entry.path()),
        }
    }
    found
}

#[test]
fn what_running_copies_depend_on_cannot_be_changed(world: &World) {
    let [main, replica] = begun(world);
    let second = "{name: other, main: [holdfast]}";
    for (at, (before, after, message)) in [
        ("jobs:", &*format!("  - {second}\njobs:"), "the pair `other` is new"),
        ("name: dnn0", "name: dnn1", "its pair `dnn0` is not in the spec"),
        ("name: dnn0", "name: dnn0\n    nodes: [0, 1]", "`nodes` of the pair `dnn0` was [node0, node0], and is"),
        ("size: 4KiB", "size: 8KiB", "`checkpoint.size` of the pair `dnn0` was 4096 bytes, and is 8192 bytes"),
        ("period: 5ms", "period: 1ms", "`heartbeat.period` of the pair `dnn0` was 5000 µs, and is 1000 µs"),
        ("name: app1", "name: app2", "its job `app1` is not in the spec"),
        ("name: app1", "order: 7, name: app1", "`order` of the job `app1` was 1, and is 7"),
        ("name: app1", "node: 1, name: app1", "`node` of the job `app1` was node0, and is node1"),
        ("lease: 2s", "lease: 5s", "`replication.lease` was 2000 ms, and is 5000 ms"),
        ("lease: 2s", "lease: 2s, pin_watcher: 0", "`replication.pin_watcher` was not given, and is 0"),
    ]
    .into_iter()
    .enumerate()
    {
        let changed = spec(world, &format!("changed{at}.yaml"), &[(before, after)]);
        run(world, &changed).ends_with(78).prints(&[message, "restore that and run it again"]);
        let dry = world.holdfast(["run", "--dry-run", changed.to_str().unwrap()]);
        world.run(dry).with_code(78).prints(&[message]);
    }
    // Nothing was disturbed, and the job's own spec takes it over.
    let mut job = run(world, &world.path("job.yaml"));
    assert_eq!(job.sees_event("pairs_taken_over")["epoch"], 2);
    assert_eq!(waits_for_state(world, 0, "main", "awake"), main);
    assert_eq!(waits_for_state(world, 0, "replica", "asleep"), replica);
    job.terminated();
}
