//! `requeue:` submits the next allocation: once, at the end of a run that leaves the job unfinished.

use std::fs;

use rustix::process::Signal;

use crate::job::Job;
use crate::world::{Ran, World};

/// A job whose `requeue.command` notes the checkpoint that is current on the prefix when it runs.
fn noting<'a>(world: &'a World, job: Job<'a>) -> Job<'a> {
    let script = world.write(
        "submit",
        "#!/bin/sh\nreadlink \"$HOLDFAST_PREFIX/scr.current\" >> \"$1\"\necho noise >&2\necho Submitted batch job 17\n",
    );
    let command = format!("[sh, {}, {}]", script.display(), world.path("submitted").display());
    job.top(&format!("requeue: {{command: {command}}}"))
}

fn submissions(world: &World) -> Vec<String> {
    let text = fs::read_to_string(world.path("submitted")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn next_allocation_is_submitted_once_after_the_drain(world: &World) {
    let job = noting(world, Job::new(world, 0).holding_after(4));
    let running = job.reaches(4);
    running.terminated().prints(&["next allocation submitted by", "Submitted batch job 17"]);
    let noted = submissions(world);
    assert!(matches!(&noted[..], [current] if current.ends_with(".4")), "{noted:?}");
    let events = world.events();
    let place = |name: &str| events.iter().position(|event| event["event"] == name).unwrap();
    assert!(place("drained") < place("requeued") && place("finished") < place("requeued"));
    assert_eq!(world.the("requeued")["message"], "Submitted batch job 17");
    assert_eq!(counts(world), [0], "a newer checkpoint is progress");

    // Another run in the same allocation ends unfinished too: its successor is already submitted.
    let running = job.start_to("restarted", "generation", 2);
    running.terminated().prints(&["an earlier run in this allocation did so"]);
    assert_eq!((submissions(world).len(), world.all("requeue_skipped").len()), (1, 1));

    // A finished job submits nothing.
    job.go_on();
    job.run(0);
    assert_eq!(submissions(world).len(), 1);
}

#[test(unchecked)]
fn orchestrator_that_takes_over_submits_the_next_allocation_once(world: &World) {
    let job = noting(world, Job::new(world, 0).holding_after(4));
    job.abandon_after(4);
    let running = job.start_to_event("took_over");
    running.signal(Signal::USR1);
    running.ends_with(75);
    assert_eq!((submissions(world).len(), world.all("requeued").len()), (1, 1));
}

#[test(unchecked)]
fn signal_before_the_launch_submits_the_next_allocation(world: &World) {
    let before = "before: [{command: [sleep, \"600\"]}]";
    let job = Job::new(world, 0).top(before).top("requeue: {command: [sh, -c, echo called]}");
    let running = job.start_to_event("job_started");
    running.terminated().prints(&["called"]);
    assert_eq!(world.the("requeued")["message"], "called");
}

#[test(unchecked)]
fn command_that_fails_is_reported_and_tried_again_by_the_next_run(world: &World) {
    let allowed = world.path("allowed");
    let script = format!("test -e {} || {{ echo 'no such partition' >&2; exit 1; }}", allowed.display());
    let job = Job::new(world, 0).holding_after(4).top(&format!("requeue: {{command: [sh, -c, {script:?}]}}"));
    let running = job.reaches(4);
    running.signal(Signal::TERM);
    running.ends_with(69).prints(&["the next allocation was not submitted", "no such partition", "exit code 69"]);
    assert!(world.the("requeue_failed")["reason"].as_str().unwrap().contains("no such partition"));
    assert_eq!(world.all("requeued").len(), 0);

    fs::write(&allowed, "").unwrap();
    job.start_to("restarted", "generation", 2).terminated();
    assert_eq!((world.all("requeued").len(), world.all("requeue_failed").len()), (1, 1));
}

#[test(unchecked)]
fn failed_application_submits_nothing(world: &World) {
    let mut job = noting(world, Job::new(world, 0)).top("relaunch: {attempts: 0}");
    job.heat = vec!["--no-such-option".to_owned()];
    job.run(90);
    assert!(submissions(world).is_empty());
    assert_eq!(world.all("requeued").len(), 0);
}

#[test(unchecked)]
fn command_that_does_not_exist_is_refused_before_anything_is_started(world: &World) {
    let job = Job::new(world, 0).top("requeue: {command: [no-such-sbatch, job.sbatch]}");
    job.run(78).prints(&["no-such-sbatch", "requeue.command"]);
    let job = Job::new(world, 0).top("requeue: {slurm: true}");
    job.run(78).prints(&["`slurm` has no effect with `manager: local`"]);
    assert_eq!(world.all("job_started"), Vec::<serde_json::Value>::new());
}

#[test(unchecked)]
fn killed_while_it_submits_it_does_not_submit_again(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let called = world.path("called");
    let script = format!("echo called >> {}; sleep 600", called.display());
    let job = job.top(&format!("requeue: {{command: [sh, -c, {script:?}]}}"));
    let running = job.reaches(4);
    running.signal(Signal::TERM);
    world.wait("the command", || called.exists().then_some(()));
    running.killed();
    world.kill(|line| line.contains("sleep 600"));
    job.start_to("restarted", "generation", 2).terminated();
    assert_eq!(fs::read_to_string(&called).unwrap(), "called\n");
    assert_eq!(world.all("requeue_skipped").len(), 1);
}

/// Runs a program that does not use the checkpoint API until it is ended by a signal, in an allocation of its own.
/// `keys`: what follows the command in the map `requeue:`, its end, and further lines.
fn plain_allocation(world: &World, keys: &str, code: u8, during: impl FnOnce()) -> Ran {
    let submitted = world.path("submitted");
    let script = world.write("submit", "#!/bin/sh\necho next >> \"$1\"\necho Submitted batch job 17\n");
    let spec = format!(
        "prefix: {:?}\nkeep_cache: none\nallocation: {{manager: local}}\n\
         run: {{nodes: 1, command: [sh, -c, 'echo up; sleep 600']}}\n\
         requeue: {{command: [sh, {script:?}, {submitted:?}]{keys}\n",
        world.prefix()
    );
    let spec = world.write("plain.yaml", &spec);
    let launched = world.all("generation_launched").len();
    let running = world.start(world.holdfast(["run".as_ref(), spec.as_os_str()]));
    let up = || {
        let output = world.prefix().join(".holdfast/generations/1/rank_0.out");
        let printed = fs::read_to_string(output).is_ok_and(|text| text.contains("up"));
        (printed && world.all("generation_launched").len() > launched).then_some(())
    };
    world.wait("the program", up);
    during();
    running.signal(Signal::TERM);
    running.ends_with(code)
}

fn counts(world: &World) -> Vec<u64> {
    world.all("requeued").iter().map(|event| event["without_progress"].as_u64().unwrap()).collect()
}

#[test]
fn chain_of_allocations_without_progress_ends_after_three(world: &World) {
    plain_allocation(world, "}", 75, || ());
    plain_allocation(world, "}", 75, || ());
    plain_allocation(world, "}", 91, || ()).prints(&[
        "the next allocation was not submitted: 3 allocations in a row (requeue.no_progress_limit) made no progress",
        "exit code 91",
    ]);
    assert_eq!((submissions(world).len(), counts(world)), (2, vec![1, 2]));
    assert_eq!(world.the("requeue_ended")["allocations"], 3);
    // A user who starts the job again begins another chain.
    plain_allocation(world, "}", 75, || ());
    assert_eq!(counts(world), [1, 2, 1]);
}

#[test]
fn progress_in_an_allocation_starts_the_count_of_the_chain_again(world: &World) {
    let state = world.path("state");
    let keys = format!(", no_progress_limit: 2}}\nprogress: {{files: [{state:?}]}}");
    let writes = || fs::write(&state, "more").unwrap();
    plain_allocation(world, &keys, 75, || ());
    plain_allocation(world, &keys, 75, writes);
    plain_allocation(world, &keys, 75, || ());
    assert_eq!(counts(world), [1, 0, 1]);
    plain_allocation(world, &keys, 91, || ()).prints(&["2 allocations in a row"]);
}
