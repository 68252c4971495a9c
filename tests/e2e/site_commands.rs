//! `before:` and `after:`: when they run, where, how often, and how they end.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::job::Job;
use crate::world::{World, signal};

/// A file that commands append to, one line a run.
fn journal(world: &World) -> PathBuf {
    world.path("journal")
}

fn lines(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// A command in a list of the spec, of this shell script.
fn command(script: &str, more: &str) -> String {
    format!("{{command: [sh, -c, {script:?}]{more}}}")
}

/// Appends its name and the node's to the journal.
fn noting(world: &World, name: &str, more: &str) -> String {
    command(&format!("echo {name} $HOLDFAST_NODE >>{}", journal(world).display()), more)
}

/// The processes that a command has written to a file, one a line.
fn pids(file: &Path) -> Vec<u32> {
    lines(file).iter().map(|line| line.parse().unwrap()).collect()
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn ends(world: &World, file: &Path) {
    for pid in pids(file) {
        world.wait(&format!("the end of process {pid}"), || (!is_alive(pid)).then_some(()));
    }
}

/// Runs until the test ends it, with two children, of which one is in a session of its own. Writes their processes to a
/// file.
fn endless(file: &Path) -> String {
    let file = file.display();
    command(&format!("sleep 600 & echo $! >>{file}; setsid sleep 600 & echo $! >>{file}; echo $$ >>{file}; wait"), "")
}

#[track_caller]
fn wait_for_lines(world: &World, file: &Path, count: usize) {
    world.wait(&format!("{count} lines in {}", file.display()), || (lines(file).len() >= count).then_some(()));
}

fn named<'a>(events: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["event"] == name)
}

#[test]
fn commands_run_once_in_their_order_on_healthy_nodes_and_their_output_is_kept(world: &World) {
    let all = noting(world, "all", ", on: all");
    let (first, last) = (noting(world, "first", ""), noting(world, "last", ""));
    let printing = command("echo hello; echo broken >&2", "");
    let job = Job::new(world, 1)
        .faults("{node: node1, after_checkpoint: 2}")
        .top(&format!("before: [{first}, {all}, {printing}]"))
        .top(&format!("after: [{all}, {last}]"));
    job.run(0);
    let mut seen = lines(&journal(world));
    assert_eq!(seen.remove(0), "first node0");
    seen[..5].sort();
    assert_eq!(seen[..5], ["all node0", "all node1", "all node2", "all node3", "all node4"]);
    // The node that was lost is left out.
    seen[5..9].sort();
    assert_eq!(seen[5..], ["all node0", "all node2", "all node3", "all node4", "last node0"]);
    let events = world.events();
    let order = |name: &str| events.iter().position(|event| event["event"] == name).unwrap();
    assert!(order("agent_ready") < order("site_command_started"));
    assert!(order("site_command") < order("generation_launched"));
    let directory = PathBuf::from(named(&events, "site_command").next().unwrap()["output"].as_str().unwrap());
    assert_eq!(fs::read_to_string(directory.join("before.3.node0.out")).unwrap(), "hello\n");
    assert_eq!(fs::read_to_string(directory.join("before.3.node0.err")).unwrap(), "broken\n");
    job.assert_result();
}

#[test]
fn commands_run_once_in_a_job_of_several_steps(world: &World) {
    let step = |name: &str| format!("- {{name: {name}, run: {{nodes: 2, command: [sh, -c, 'exit 0']}}}}\n");
    let text = format!(
        "prefix: {:?}\nallocation: {{manager: local, nodes: 2}}\nbefore: [{}]\nafter: [{}]\nsteps:\n{}{}{}",
        world.prefix(),
        noting(world, "before", ""),
        noting(world, "after", ""),
        step("a"),
        step("b"),
        step("c"),
    );
    world.run_spec(&text).with_code(0);
    assert_eq!(lines(&journal(world)), ["before node0", "after node0"]);
}

#[test]
fn after_is_run_if_the_next_step_cannot_begin(world: &World) {
    let next = world.prefix().join("b");
    let spoil = format!("rm -rf {0}; echo >{0}", next.display());
    let text = format!(
        "prefix: {:?}\nallocation: {{manager: local, nodes: 1}}\nafter: [{}]\nsteps:\n\
         - {{name: a, run: {{nodes: 1, command: [sh, -c, {spoil:?}]}}}}\n\
         - {{name: b, run: {{nodes: 1, command: [sh, -c, 'exit 0']}}}}\n",
        world.prefix(),
        noting(world, "after", ""),
    );
    world.run_spec(&text).with_code(69).prints(&[&next.display().to_string()]);
    assert_eq!(lines(&journal(world)), ["after node0"]);
}

#[test]
fn command_that_fails_launches_nothing_and_is_run_again_by_the_next_run(world: &World) {
    let (gate, file) = (world.path("gate"), journal(world));
    let script = format!("echo run >>{}; test -e {} || {{ echo broken >&2; exit 3; }}", file.display(), gate.display());
    let job = Job::new(world, 0).top(&format!("before: [{}]", command(&script, "")));
    job.run(69).prints(&[
        "the `before` command sh failed on node0: exit code 3: broken",
        "nothing was launched",
        "its output is in",
    ]);
    assert_eq!(named(&world.events(), "generation_launched").count(), 0);
    fs::write(gate, "").unwrap();
    job.run(0);
    assert_eq!(lines(&file).len(), 2);
    job.assert_result();
}

#[test(unchecked)]
fn signal_ends_processes_of_a_command_and_the_next_run_repeats_it(world: &World) {
    let file = world.path("pids");
    let mut job = Job::new(world, 0);
    job.top.push(format!("before: [{}]", endless(&file)));
    let running = job.start();
    wait_for_lines(world, &file, 3);
    running.terminated().prints(&["SIGTERM"]);
    assert!(pids(&file).into_iter().all(|pid| !is_alive(pid)), "a process is left");
    assert_eq!(named(&world.events(), "generation_launched").count(), 0);
    world.assert_nothing_is_left();
    job.top[0] = format!("before: [{}]", noting(world, "again", ""));
    job.run(0);
    assert_eq!(lines(&journal(world)), ["again node0"]);
    job.assert_result();
}

#[test]
fn processes_of_a_command_end_with_a_killed_orchestrator_and_its_successor_repeats_the_command(world: &World) {
    let (gate, file) = (world.path("gate"), world.path("pids"));
    let done = noting(world, "done", "");
    let (shown, open) = (file.display(), gate.display());
    let script = format!("echo $$ >>{shown}; sleep 600 & echo $! >>{shown}; test -e {open} || wait");
    let job = Job::new(world, 0).top(&format!("before: [{done}, {}]", command(&script, "")));
    let running = job.start();
    wait_for_lines(world, &file, 2);
    fs::write(&gate, "").unwrap();
    running.killed();
    ends(world, &file);
    job.run(0);
    // The first command had succeeded; the second one was interrupted.
    assert_eq!((lines(&journal(world)), pids(&file).len()), (vec!["done node0".to_owned()], 4));
    assert!(pids(&file).into_iter().all(|pid| !is_alive(pid)), "a process that the command left behind is alive");
    job.assert_result();
}

#[test]
fn command_that_exceeds_its_time_limit_fails_and_its_processes_end(world: &World) {
    let file = world.path("pids");
    let endless = endless(&file).replace("]}", "], time_limit: 1s}");
    let job = Job::new(world, 0).top(&format!("before: [{endless}]"));
    job.run(69).prints(&["the `before` command sh failed on node0: it did not end within 1 s"]);
    assert_eq!(pids(&file).len(), 3);
    assert!(pids(&file).into_iter().all(|pid| !is_alive(pid)), "a process is left");
}

#[test]
fn command_on_a_node_that_is_lost_is_run_on_another_one(world: &World) {
    let (file, gate) = (world.path("pids"), world.path("gate"));
    let script = format!(
        "echo $HOLDFAST_NODE >>{0}; test -e {1} || {{ touch {1}; while :; do sleep 0.1; done; }}",
        file.display(),
        gate.display()
    );
    let mut job = Job::new(world, 1).top(&format!("before: [{}]", command(&script, "")));
    job.down_after = "750ms";
    let running = job.start();
    wait_for_lines(world, &file, 1);
    let agent = world.wait("the agent in the state", || world.state()["running"]["node0"]["pid"].as_u64());
    fs::remove_dir_all(world.node_root("node0")).unwrap();
    signal(agent.try_into().unwrap(), Signal::KILL);
    running.ends_with(0);
    assert_eq!(lines(&file), ["node0", "node1"]);
    job.assert_result();
}

#[test]
fn failed_after_command_costs_no_checkpoint_and_its_output_is_named(world: &World) {
    let last = noting(world, "last", "");
    let job = Job::new(world, 0).top(&format!("after: [{}, {last}]", command("echo broken >&2; exit 7", "")));
    job.run(0).prints(&["`after` command sh failed on node0: exit code 7: broken; its output is in"]);
    // The commands after a failed one are not run.
    assert!(lines(&journal(world)).is_empty());
    crate::pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn health_test_that_does_not_end_within_its_limit_excludes_the_node(world: &World) {
    let test = "test_timeout: 1s, command: [sh, -c, 'test $HOLDFAST_NODE != node1 || exec sleep 1000']";
    let job = Job::new(world, 1).health(test);
    job.run(0).prints(&["node1 is down: a health test failed: health.command: it did not end within 1 s"]);
    assert_eq!(world.the("node_down")["node"], "node1");
    job.assert_result();
}

#[test]
fn failed_health_test_excludes_the_node(world: &World) {
    let test = "command: [sh, -c, 'test $HOLDFAST_NODE != node1 || { echo bad disk >&2; exit 3; }']";
    let mut job = Job::new(world, 1).health(test);
    job.top.push(format!("before: [{}]", noting(world, "all", ", on: all")));
    job.run(0).prints(&["node1 is down: a health test failed: health.command: exit code 3: bad disk"]);
    let mut seen = lines(&journal(world));
    seen.sort();
    assert_eq!(seen, ["all node0", "all node2", "all node3", "all node4"]);
    job.assert_result();
}
