//! `holdfast rehearse`: a job's own run with an injected fault, in directories of its own.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::job::Job;
use crate::world::{Ran, World};

fn rehearse(world: &World, job: &Job<'_>, options: &[&str], code: u8) -> Ran {
    world.run(world.holdfast(["rehearse"]).arg(job.spec()).args(options)).with_code(code)
}

/// The directories of rehearsals that are left.
fn left(world: &World) -> Vec<PathBuf> {
    let entries = fs::read_dir(world.path("")).unwrap().flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().contains(".rehearsal-")).collect()
}

#[track_caller]
fn assert_nothing_is_left(world: &World) {
    assert_eq!(left(world), Vec::<PathBuf>::new());
    assert!(!world.prefix().exists(), "the prefix directory of the job was touched");
    world.assert_nothing_is_left();
}

#[test(unchecked)]
fn a_rehearsal_loses_a_node_restores_the_job_and_leaves_nothing(world: &World) {
    // The job would not end in the time of a test.
    let mut job = Job::new(world, 0).top("requeue: {command: [touch, requeued]}");
    job.steps = 1_000_000;
    let ran = rehearse(world, &job, &["--json"], 0);
    let found = ran.json();
    assert_eq!((&found["injected"], &found["lost"][0]["node"]), (&json!(true), &json!("node1")), "{found}");
    assert_eq!((&found["restored"]["rebuilt"], &found["directory"]), (&json!([1]), &Value::Null), "{found}");
    assert!(found["restored"]["checkpoint"].as_u64() >= Some(1), "{found}");
    assert!(found["next_checkpoint"].as_u64() > found["restored"]["checkpoint"].as_u64(), "{found}");
    ran.prints(&["the application runs as always", "nothing is submitted: `requeue` is left out"]);
    assert!(!world.path("requeued").exists());
    assert_nothing_is_left(world);
}

#[test(unchecked)]
fn a_rehearsal_ends_after_its_limit(world: &World) {
    let mut job = Job::new(world, 0);
    job.steps = 1_000_000;
    rehearse(world, &job, &["--after", "1000000", "--limit", "2s"], 69)
        .prints(&["limit: the job is halted after 2s at the latest", "the fault was not injected: its moment did not"]);
    assert_nothing_is_left(world);
}

#[test(unchecked)]
fn the_results_of_the_disturbed_and_the_undisturbed_run_are_compared(world: &World) {
    let mut job = Job::new(world, 0);
    job.steps = 300;
    rehearse(world, &job, &["--after", "3", "--compare", "end.heat"], 0).prints(&[
        "rehearsal of heat: the job survived the fault",
        "end.heat: identical to that of the undisturbed run",
    ]);
    job_differs(world);
    assert_nothing_is_left(world);
}

/// A program that writes the number of its launches is not the same after a relaunch.
fn job_differs(world: &World) {
    let job = Job::new(world, 0);
    let counted = format!(
        "echo launched >> {0}/launches; wc -l < {0}/launches > {0}/count; exec holdfast example heat --step-delay 0 \
         --steps 300 --size 24x24 --checkpoint-every 5",
        world.path("").display()
    );
    let yaml = job.yaml();
    let line = yaml.lines().find(|line| line.trim_start().starts_with("command:")).unwrap();
    let text = yaml.replace(line, &format!("  command: [sh, -c, \"{counted}\"]"));
    let spec = world.write("counting.yaml", &text);
    let mut command = world.holdfast(["rehearse", "--compare", "count", "--"]);
    command.arg(spec);
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_holdfast")).parent().unwrap();
    command.env("PATH", format!("{}:{}", own.display(), std::env::var("PATH").unwrap_or_default()));
    world.run(command).with_code(65).prints(&["its result differs: count"]);
}

#[test(unchecked)]
fn a_rehearsal_whose_fault_never_comes_shows_nothing(world: &World) {
    rehearse(world, &Job::new(world, 0), &["--after", "step 77777"], 69)
        .prints(&["the fault was not injected: its moment did not come; nothing was shown"]);
    assert_nothing_is_left(world);
}

#[test]
fn a_rehearsal_without_a_protected_checkpoint_does_not_pass(world: &World) {
    let mut job = Job::new(world, 0).redundancy("[{scheme: local}]");
    job.steps = 300;
    rehearse(world, &job, &["--keep"], 65)
        .prints(&["no checkpoint survived the fault: the job started from the beginning", "kept"]);
    let [directory] = &left(world)[..] else { panic!("one directory is kept") };
    assert!(directory.join("disturbed/.holdfast/events.jsonl").is_file());
}

#[test(unchecked)]
fn a_pause_and_a_killed_rank_can_be_rehearsed(world: &World) {
    let mut job = Job::new(world, 0);
    job.steps = 1_000_000;
    rehearse(world, &job, &["--fault", "kill-rank"], 0)
        .prints(&["`kill-rank` of rank 1 after checkpoint 1", "the job survived the fault"]);
    rehearse(world, &job, &["--fault", "action: pause, for: 200ms"], 0)
        .prints(&["the job went on through the fault without a relaunch"]);
    rehearse(world, &job, &["--fault", "action: kill-agent, during: encode, checkpoint: 2"], 0)
        .prints(&["during `encode` of checkpoint 2", "went on through the fault without a relaunch"]);
    for (options, message) in
        [(&["--fault", "node: 9"][..], "there is no node 9"), (&["--fault", "fill-cache"][..], "`bytes` is missing")]
    {
        rehearse(world, &job, options, 78).prints(&[message]);
    }
    rehearse(world, &job, &["--limit", "soon"], 64).prints(&["`--limit soon` is no time"]);
    assert_nothing_is_left(world);
}

#[test(unchecked)]
fn machines_are_rehearsed_only_with_permission(world: &World) {
    let spec =
        world.write("ssh.yaml", "job: heat\nallocation: {hosts: [n1, n2]}\nrun: {nodes: 2, command: ['true']}\n");
    let mut command = world.holdfast(["rehearse"]);
    command.arg(spec);
    world.run(command).with_code(78).prints(&["machines of `manager: ssh`; nothing was started"]);
    assert_eq!(left(world), Vec::<PathBuf>::new());
}

#[test]
fn steps_are_rehearsed_below_one_directory_and_without_reports_to_others(world: &World) {
    let step = |name: &str, keys: &str| {
        let output = world.path(name);
        format!(
            "- name: {name}\n{keys}  run: {{nodes: 2, command: [holdfast, example, heat, --steps, '100', \
             --size, 24x24, --checkpoint-every, '40', --step-delay, 5ms, --output, {output:?}]}}\n"
        )
    };
    let text = format!(
        "job: steps\nprefix: {:?}\nallocation: {{manager: local, nodes: 2}}\nmetrics: {{file: steps.prom}}\n\
         notify: [{{command: [touch, notified]}}]\nsteps:\n{}{}",
        world.prefix(),
        step("first", ""),
        step("second", &format!("  prefix: {:?}\n", world.path("elsewhere"))),
    );
    let spec = world.write("job.yaml", &text);
    let options = ["rehearse", "--fault", "action: pause, node: 1, for: 200ms", "--after", "1"];
    let ran = world.run(world.holdfast(options).arg(spec)).with_code(0);
    ran.prints(&["the job went on through the fault without a relaunch"]);
    for name in ["notified", "steps.prom", "elsewhere"] {
        assert!(!world.path(name).exists(), "{name}");
    }
    assert_nothing_is_left(world);
}
