//! Several allocations for one job: what submits the next one, and from where it continues.

use holdfast_testkit::cluster::{Allocation, Cluster, Job, heat_command, until};
use serde_json::Value;

/// The files shown in docs/slurm.md.
const SCRIPT: &str = include_str!("../../configs/slurm/job.sbatch");
const MANUAL: &str = include_str!("../../configs/slurm/manual.sbatch");

/// A checkpoint about every second, until the file `delay` is changed.
const SLOW: &str = "100ms";
const STEPS: u32 = 600;

/// A job whose steps take a minute, unless [`finish_soon`] is called before its launch.
fn spec(requeue: &str) -> String {
    let command = format!("exec holdfast example heat --checkpoint-every 10 --steps {STEPS} --step-delay $(cat delay)");
    heat_command(&format!("[sh, -c, {command:?}]"), requeue)
}

/// Submits one of the documented scripts.
fn submit<'a>(cluster: &'a Cluster, name: &str, script: (&str, &str), requeue: &str, options: &str) -> Job<'a> {
    let spec = spec(requeue);
    let files = [("job.yaml", spec.as_str()), ("delay", SLOW), script];
    let job = cluster.batch(name, &files, &format!("{options} {}", script.0));
    job.expecting(STEPS)
}

/// Later launches compute without pauses.
fn finish_soon(job: &Job<'_>) {
    job.run("echo 0 >delay");
}

fn all(job: &Job<'_>, event: &str) -> Vec<Value> {
    job.events().into_iter().filter(|item| item["event"] == event).collect()
}

/// Waits until this many runs have begun, and the newest one has completed two checkpoints.
fn wait_for_progress_of_run(job: &Job<'_>, runs: usize) {
    until("progress of the run", || {
        let events = job.events();
        let begun: Vec<usize> = (0..events.len()).filter(|at| events[*at]["event"] == "job_started").collect();
        let complete = |event: &&Value| event["event"] == "checkpoint_complete";
        begun.len() == runs && events[begun[runs - 1]..].iter().filter(complete).count() >= 2
    });
}

/// Ends the first run with a signal when it has made progress.
fn signal_first_run(job: &Job<'_>) {
    wait_for_progress_of_run(job, 1);
    finish_soon(job);
    job.run(&format!("scancel --batch --signal=TERM {}", job.id));
}

/// Slurm runs the job again, and the second run finishes it.
fn second_run_after_requeue_finishes(job: &Job<'_>) {
    job.begins_again();
    ended_with(job, &[0]);
    every_run_continued(job, 2);
}

/// The id and the source of the checkpoint of each restart.
fn restarts(job: &Job<'_>) -> Vec<(u64, String)> {
    let restart = |event: Value| Some((event["checkpoint"].as_u64()?, event["source"].as_str()?.to_owned()));
    all(job, "restarted").into_iter().filter_map(restart).collect()
}

/// The newest checkpoint that was complete before the end of each run.
fn newest_at_ends(job: &Job<'_>) -> Vec<u64> {
    let (mut newest, mut ends) = (0, Vec::new());
    for event in job.events() {
        match event["event"].as_str() {
            Some("checkpoint_complete") => newest = event["checkpoint"].as_u64().unwrap(),
            Some("finished") => ends.push(newest),
            _ => {}
        }
    }
    ends
}

/// All allocations of the job have ended, with these exit codes of their batch scripts.
fn ended_with(job: &Job<'_>, codes: &[i32]) {
    until("the end of the chain", || {
        let chain = job.allocations();
        chain.len() >= codes.len() && chain.iter().all(Allocation::has_ended)
    });
    let ended: Vec<i32> = job.allocations().iter().map(|allocation| allocation.exit_code).collect();
    assert_eq!(ended, codes, "{}", job.output());
}

/// The last run finished the job; every other one continued from the checkpoint that the one before it drained.
fn every_run_continued(job: &Job<'_>, runs: usize) {
    let output = job.output();
    let result = job.expected();
    assert!(output.contains(&result), "{result} is missing:\n{output}");
    let ends = newest_at_ends(job);
    let expected: Vec<(u64, String)> = ends[..runs - 1].iter().map(|newest| (*newest, "fetched".to_owned())).collect();
    assert_eq!((ends.len(), restarts(job)), (runs, expected), "{output}");
}

#[test(crate::cluster)]
fn requeue_command_submits_every_next_allocation_once_until_the_job_is_finished(cluster: &Cluster) {
    let requeue = "requeue: {command: [sbatch, job.sbatch]}";
    // Slurm's timer sends the warning signal 20 to 50 s after the start.
    let options = "--time=2 --signal=B:TERM@70";
    let job = submit(cluster, "chain", ("job.sbatch", SCRIPT), requeue, options);
    wait_for_progress_of_run(&job, 1);
    until("the second allocation", || job.allocations().len() == 2);
    // The ranks were not ended by a signal: they ended with a checkpoint. It may have been complete just before.
    let (events, output) = (job.events(), job.output());
    let place = |name: &str| events.iter().position(|event| event["event"] == name);
    assert!(place("signal").is_some() && place("signal") < place("finished"), "{output}");
    let (before, step) = output.split_once("heat: halted at step ").unwrap_or_else(|| panic!("{output}"));
    let saved = before.rsplit_once(" at step ").and_then(|(_, rest)| rest.lines().next());
    assert_eq!(saved, step.split(':').next(), "{output}");
    assert_eq!((place("ranks_terminated"), all(&job, "rank_failed").len()), (None, 0), "{}", job.output());

    // The second one is ended by a halt condition, the third finishes the job.
    wait_for_progress_of_run(&job, 2);
    finish_soon(&job);
    job.run("holdfast halt set --now job.yaml");
    ended_with(&job, &[75, 75, 0]);
    every_run_continued(&job, 3);
    let submitted: Vec<Value> = all(&job, "requeued").into_iter().map(|event| event["message"].clone()).collect();
    let expected: Vec<String> =
        job.allocations()[1..].iter().map(|allocation| format!("Submitted batch job {}", allocation.id)).collect();
    assert_eq!(submitted, expected);
}

#[test(crate::cluster)]
fn slurm_requeues_the_job_with_the_same_id(cluster: &Cluster) {
    let job = submit(cluster, "requeued", ("job.sbatch", SCRIPT), "requeue: {slurm: true}", "--requeue");
    signal_first_run(&job);
    second_run_after_requeue_finishes(&job);
    let begun = all(&job, "job_started");
    assert!(begun.iter().all(|event| event["job_id"] == *job.id) && begun.len() == 2, "{begun:?}");
    assert_eq!(all(&job, "requeue_failed"), Vec::<Value>::new());
}

#[test(crate::cluster)]
fn requeue_exit_of_slurm_runs_the_documented_script_again(cluster: &Cluster) {
    let _configured = cluster.configure("RequeueExit=75");
    let job = submit(cluster, "requeue-exit", ("job.sbatch", SCRIPT), "", "--requeue");
    signal_first_run(&job);
    second_run_after_requeue_finishes(&job);
}

#[test(crate::cluster)]
fn manual_script_submits_the_next_allocation_after_75_only(cluster: &Cluster) {
    let job = submit(cluster, "manual-chain", ("manual.sbatch", MANUAL), "", "");
    signal_first_run(&job);
    ended_with(&job, &[75, 0]);
    every_run_continued(&job, 2);
    assert!(job.output().contains("halted by SIGTERM"), "{}", job.output());
}
