//! `holdfast checkpoint`: checkpoints that a user requests, in jobs of every source.

use std::fs;

use serde_json::json;

use crate::command::{end_all, start as start_command};
use crate::job::Job;
use crate::jubatus::Servers;
use crate::world::{Ran, Running, World};

/// `holdfast checkpoint` for the job in `job.yaml`.
fn request(world: &World, options: &[&str], code: u8) -> Ran {
    world.run(world.holdfast(["checkpoint"]).args(options).arg(world.path("job.yaml"))).with_code(code)
}

/// Each request makes one more checkpoint of a job that makes none by itself.
fn makes_each_checkpoint_that_is_requested(world: &World, running: &mut Running<'_>) {
    running.sees_event("restarted");
    let first = request(world, &["--json"], 0).json();
    assert_eq!((&first["state"], &first["checkpoint"]), (&json!("complete"), &json!(1)), "{first}");
    request(world, &[], 0).prints(&["checkpoint 2 is complete"]);
    let complete: Vec<_> = world.all("checkpoint_complete").iter().map(|event| event["checkpoint"].clone()).collect();
    assert_eq!(complete, [json!(1), json!(2)]);
}

#[test(unchecked)]
fn a_program_without_calls_is_saved_on_request(world: &World) {
    let save = r#"echo "$HOLDFAST_RANK" > "$HOLDFAST_CHECKPOINT_DIR/state""#;
    let mut running = start_command(world, save, "command: {save: [SAVE], every: 10h, timeout: 30s}", "");
    makes_each_checkpoint_that_is_requested(world, &mut running);
    let asked = request(world, &["--json", "--no-wait"], 0).json();
    assert!(asked["state"] == "waiting" && asked["checkpoint"].is_null(), "{asked}");
    running.sees_checkpoint(3);
    end_all(world, 0);
    running.ends_with(0);
    let refused = request(world, &[], 69);
    refused.prints(&["is not running: it is finished", "to run it again: `holdfast run --again`"]);
    assert!(!refused.err.contains("drain"), "{}", refused.err);
}

#[test(unchecked)]
fn servers_are_saved_on_request(world: &World) {
    let servers = Servers::new(world, 3).with("every: 10h");
    let mut running = servers.start();
    makes_each_checkpoint_that_is_requested(world, &mut running);
    running.terminated();
}

/// The heat example, which computes until it is ended and asks in each step whether a checkpoint is due.
fn endless_heat<'a>(world: &'a World, checkpoint: &str, heat: &str) -> Running<'a> {
    let mut job = Job::new(world, 0).checkpoint(checkpoint).heat(heat).grace("60s");
    job.steps = 1_000_000_000;
    let yaml = job.yaml().replace("\"--checkpoint-every\", \"5\"", "\"--need\"");
    world.start_spec(&yaml)
}

#[test(unchecked)]
fn a_program_that_asks_whether_a_checkpoint_is_due_saves_one_on_request(world: &World) {
    let mut running = endless_heat(world, "need: {seconds: 1000000}", "");
    makes_each_checkpoint_that_is_requested(world, &mut running);
    running.terminated();
}

#[test(unchecked)]
fn a_snapshot_of_variables_on_request_is_protected_against_lost_nodes(world: &World) {
    let never = "source: variables\n  variables: {snapshots: {local: 0s, partner: 0s, parity: 0s, prefix: 0s}}";
    let mut running = endless_heat(world, never, "--variables");
    makes_each_checkpoint_that_is_requested(world, &mut running);
    assert!(world.all("checkpoint_complete").iter().all(|event| event["scheme"] == "XOR"));
    running.terminated();
}

#[test(unchecked)]
fn a_dropped_checkpoint_ends_the_wait_with_an_error(world: &World) {
    let keys = "command: {save: [SAVE], every: 10h, timeout: 30s}";
    let mut running = start_command(world, "echo no disk >&2; exit 3", keys, "");
    running.sees_event("restarted");
    request(world, &[], 65).prints(&["checkpoint 1 was dropped", "cause: rank ", "sh ended with exit code 3"]);
    end_all(world, 0);
    // No checkpoint was kept.
    running.ends_with(65);
}

#[test]
fn a_checkpoint_that_cannot_be_begun_ends_the_wait_with_the_reason(world: &World) {
    let save = r#"echo "$HOLDFAST_RANK" > "$HOLDFAST_CHECKPOINT_DIR/state""#;
    let mut running = start_command(world, save, "command: {save: [SAVE], every: 10h, timeout: 30s}", "");
    running.sees_event("restarted");
    request(world, &[], 0).prints(&["checkpoint 1 is complete"]);
    // The place of the next checkpoint is taken on one node.
    let caches = holdfast_testkit::files_below(&world.node_root("node1"));
    let first = caches.iter().find_map(|file| file.ancestors().find(|path| path.ends_with("checkpoint.1"))).unwrap();
    let taken = first.with_file_name("checkpoint.2");
    fs::write(&taken, "in the way").unwrap();
    let refused = request(world, &["--json"], 65).json();
    let (message, causes) = (&refused["error"]["message"], refused["error"]["causes"].to_string());
    assert_eq!(message, "checkpoint 2 was dropped");
    assert!(causes.contains("node1") && causes.contains("checkpoint.2"), "{causes}");
    let failed = world.the("checkpoint_failed");
    assert!(causes.contains(failed["reason"].as_str().unwrap()), "{failed} {causes}");
    fs::remove_file(taken).unwrap();
    request(world, &[], 0).prints(&["checkpoint 2 is complete"]);
    end_all(world, 0);
    running.ends_with(0);
}

#[test(unchecked)]
fn a_request_outlives_a_relaunch(world: &World) {
    // The first save hangs until its program has been killed.
    let save = "cd \"$1\"; if [ ! -e relaunched ]; then : > saving; exec sleep 1000; fi; \
                echo 1 > \"$HOLDFAST_CHECKPOINT_DIR/state\"";
    let mut running = start_command(world, save, "command: {save: [SAVE], every: 10h, timeout: 1h}", "");
    running.sees_event("restarted");
    let waiting = world.start({
        let mut command = world.holdfast(["checkpoint", "--json"]);
        command.arg(world.path("job.yaml"));
        command
    });
    world.wait("the save command", || world.path("saving").exists().then_some(()));
    fs::write(world.path("relaunched"), "").unwrap();
    assert!(world.kill(|line| line.contains("holdfast rank")) > 0);
    let answer = waiting.ends_with(0).json();
    assert_eq!(answer["state"], "complete", "{answer}");
    assert_eq!(world.all("restarted").len(), 2);
    end_all(world, 0);
    running.ends_with(0);
}

#[test]
fn a_job_whose_programs_decide_refuses_the_request_and_says_so() {
    for (source, reason) in [
        ("  source: none\n", "source: none}`: there are no checkpoints"),
        ("  source: command\n  watch: {files: [never]}\n", "its programs decide when they write their files"),
    ] {
        let world = World::unchecked();
        let spec = format!(
            "job: plain\nprefix: {:?}\nallocation: {{manager: local, nodes: 1}}\n\
             run: {{command: [sleep, '1000']}}\ncheckpoint:\n{source}halt: {{grace: 0s}}\n",
            world.prefix()
        );
        let running = world.start_spec(&spec);
        world.wait("the program", || {
            world.processes().iter().any(|(_, line)| line.contains("sleep 1000")).then_some(())
        });
        let refused = request(&world, &["--json"], 69);
        let error = &refused.json()["error"];
        assert!(error["causes"].to_string().contains(reason), "{error}");
        running.terminated();
    }
}

#[test(unchecked)]
fn a_program_that_does_not_ask_lets_the_timeout_pass(world: &World) {
    let job = Job::new(world, 0).holding_after(1);
    let running = job.reaches(1);
    request(world, &["--timeout", "300ms"], 69).prints(&["not complete yet", "it stays requested"]);
    job.goes_on_to_its_end(running);
}
