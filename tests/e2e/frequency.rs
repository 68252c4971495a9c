//! `checkpoint.every`: how often there are checkpoints; and the report where they take too much of the time.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::command::{end_all, start as start_command};
use crate::job::Job;
use crate::world::{Ran, World};

/// Runs the heat example, which asks in each of its 40 steps whether a checkpoint is due.
fn heat(world: &World, checkpoint: &str) -> Ran {
    let job = Job::new(world, 0).checkpoint(checkpoint);
    let yaml = job.yaml().replace("\"--checkpoint-every\", \"5\"", "\"--need\"");
    world.run_spec(&yaml).with_code(0)
}

#[test(unchecked)]
fn a_number_of_calls_sets_how_often_there_are_checkpoints(world: &World) {
    heat(world, "every: 8 calls");
    assert_eq!(world.all("checkpoint_complete").len(), 40 / 8);
}

#[test(unchecked)]
fn a_time_sets_how_often_there_are_checkpoints(world: &World) {
    heat(world, "every: 1h");
    assert_eq!(world.all("checkpoint_complete").len(), 0);
}

/// A step takes 20 ms at least: a checkpoint is due at the fifth step after the last one, or earlier.
#[test(unchecked)]
fn parts_of_a_second_count(world: &World) {
    let job = Job::new(world, 0).checkpoint("every: 100ms").heat("--step-delay 20ms");
    world.run_spec(&job.yaml().replace("\"--checkpoint-every\", \"5\"", "\"--need\"")).with_code(0);
    assert!(world.all("checkpoint_complete").len() >= 40 / 6);
}

#[test(unchecked)]
fn with_auto_checkpoints_take_a_small_part_of_the_time_of_programs_that_ask(world: &World) {
    heat(world, "every: auto");
    let (complete, all) = (world.all("checkpoint_complete").len(), 40);
    assert!((1..all).contains(&complete), "the first one at once, and not each: {complete}");
    let status = world.run(world.holdfast(["check", "--explain", "job.yaml"])).with_code(0);
    assert!(status.out.lines().any(|line| line.starts_with("checkpoint.every ") && line.contains(" auto ")));
}

/// What the first one costs makes the next one due after minutes, which this job does not last.
#[test(unchecked)]
fn with_auto_rare_failures_make_checkpoints_rare(world: &World) {
    let job = Job::new(world, 0).checkpoint("every: auto").health("mtbf: 1000h");
    let yaml = job.yaml().replace("\"--checkpoint-every\", \"5\"", "\"--need\"");
    world.run_spec(&yaml).with_code(0).prints(&["interval      best ", "a failure every 3600000.0 s (`health.mtbf`)"]);
    assert_eq!(world.all("checkpoint_complete").len(), 1);
    let expected = world.the("failures_expected");
    assert_eq!(
        (&expected["given"], &expected["auto"], &expected["mtbf_ms"]),
        (&true.into(), &true.into(), &3_600_000_000_u64.into())
    );
    let ran = world.run(world.holdfast(["check", "--explain", "job.yaml"])).with_code(0);
    ran.prints(&["checkpoint.every is auto: Daly's interval for a failure every 41d16h (`health.mtbf`), but so"]);
}

/// Without the key, the first one of variables is due after 3 min.
#[test(unchecked)]
fn a_time_is_the_interval_of_the_first_level_of_variables(world: &World) {
    let job = Job::new(world, 0).checkpoint("source: variables").checkpoint("every: 100ms");
    let job = job.heat("--variables --step-delay 20ms");
    let yaml = job.yaml().replace("\"--checkpoint-every\", \"5\"", "\"--need\"");
    world.run_spec(&yaml).with_code(0);
    assert!(world.all("checkpoint_complete").iter().any(|event| event["level"] == 1));
}

/// Those of FTI: the first one is due after 3 min.
#[test(unchecked)]
fn with_auto_variables_keep_their_four_intervals(world: &World) {
    let job = Job::new(world, 0).checkpoint("source: variables").checkpoint("every: auto").heat("--variables");
    world.run_spec(&job.yaml().replace("\"--checkpoint-every\", \"5\"", "\"--need\"")).with_code(0);
    assert_eq!(world.all("checkpoint_complete").len(), 0);
    let explained = world.run(world.holdfast(["check", "--explain", "job.yaml"])).with_code(0).out;
    for (level, interval) in [("local", "3min"), ("partner", "5min"), ("parity", "7min"), ("prefix", "11min")] {
        let key = format!("checkpoint.variables.snapshots.{level} ");
        let line = explained.lines().find(|line| line.starts_with(&key)).unwrap();
        assert!(line.contains(&format!(" {interval} ")), "{line}");
    }
}

/// The default of programs that do not call: a first checkpoint soon, the next one when it does not take too much.
#[test(unchecked)]
fn programs_without_calls_are_saved_as_often_as_it_takes_a_small_part_of_the_time(world: &World) {
    let save = r#"echo "$HOLDFAST_RANK" > "$HOLDFAST_CHECKPOINT_DIR/state""#;
    let mut running = start_command(world, save, "command: {save: [SAVE], timeout: 30s}", "");
    let restarted = running.sees_event("restarted");
    running.sees_checkpoint(1);
    running.sees_checkpoint(2);
    let complete = world.all("checkpoint_complete");
    let time = |event: &Value| event["time"].as_str().unwrap().parse::<DateTime<Utc>>().unwrap();
    let seconds = |event| (time(event) - time(&restarted)).num_seconds();
    assert!(seconds(&complete[0]) >= 9 && seconds(&complete[1]) >= 19, "{complete:?}");
    let explained = world.run(world.holdfast(["check", "--explain", "job.yaml"])).with_code(0).out;
    assert!(explained.lines().any(|line| line.starts_with("checkpoint.every ") && line.contains(" auto ")));
    end_all(world, 0);
    running.ends_with(0);
}

/// Each checkpoint takes a second, and is made after another one.
#[test(unchecked)]
fn checkpoints_that_take_too_much_of_the_time_are_reported_with_the_value_that_keeps_the_limit(world: &World) {
    let save = r#"sleep 1; echo "$HOLDFAST_RANK" > "$HOLDFAST_CHECKPOINT_DIR/state""#;
    let mut running = start_command(world, save, "command: {save: [SAVE], every: 1s, timeout: 30s}", "");
    let block = running.sees_event("checkpoints_block");
    assert_eq!(block["limit"], 5);
    let every = block["every_ms"].as_u64().unwrap();
    assert!((20_000..200_000).contains(&every), "{block}");
    end_all(world, 0);
    let ran = running.ends_with(0);
    let warning = format!("`checkpoint: {{every: {}s}}` would have kept it at 5 %", every.div_ceil(1000));
    ran.prints(&["warning: checkpoints blocked the ranks for ", &warning]);
    assert_eq!(world.all("checkpoints_block").len(), 1);
}

#[test(unchecked)]
fn the_report_and_the_status_name_what_a_failure_has_cost(world: &World) {
    let job = Job::new(world, 1).faults("{node: 1, after_checkpoint: 3}").holding_after(3);
    let ran = job.goes_on_to_its_end(job.start_to_event("node_down"));
    ran.prints(&[
        "nodes         5: virtual nodes on this machine",
        "cost          1 failure: lost work ",
        "restart ",
        "blocked by checkpoints ",
        "newest        protected checkpoint 8 (",
        ", flushed checkpoint 8 (",
        "interval      best ",
        "(observed), expected to cost ",
    ]);
    assert!(ran.err.lines().next().unwrap().contains("virtual nodes on this machine"), "{}", ran.err);
    let ran = job.command(&["status"], 0);
    ran.prints(&["nodes 5: virtual nodes on this machine", "cost: 1 failure: lost work ", "interval: best "]);
    let status = job.command(&["status", "--json"], 0).json();
    assert_eq!(status["virtual_nodes"], true);
    let cost = &status["cost"];
    assert_eq!((&cost["failures"], &cost["checkpoints_dropped"]), (&1.into(), &0.into()), "{cost}");
    for key in ["lost_work_ms", "restart_ms", "blocked_ms", "elapsed_ms"] {
        assert!(cost[key].as_u64().unwrap() > 0, "{key}: {cost}");
    }
    assert_eq!(cost["newest_flushed"]["checkpoint"], 8, "{cost}");
    assert_eq!(cost["interval"]["mtbf_given"], false, "{cost}");
    assert!(cost["interval"]["daly_ms"].as_u64().unwrap() > 0, "{cost}");
    job.command(&["run", "--dry-run", "--again"], 0).prints(&["the nodes are virtual: processes on this machine"]);
}
