//! `progress`: programs that keep their own state are relaunched as long as they make progress.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::{Running, World};

/// Rank 0 keeps its step in a file. With `advance` it makes a step in each generation, and otherwise in the first one
/// only; then it waits to be killed, or ends after four steps. The other ranks end with it.
const PROGRAM: &str = r#"
cd "$1" || exit 9
if [ "$HOLDFAST_RANK" != 0 ]; then
    until [ -e finished ]; do sleep 0.02; done
    exit 0
fi
echo started
: > "started.$HOLDFAST_GENERATION"
until [ -e go ]; do sleep 0.02; done
step=$(cat state/step 2>/dev/null || echo 0)
if [ "$2" = advance ] || [ "$step" = 0 ]; then
    step=$((step + 1))
    echo "$step" > state/temporary
    mv state/temporary state/step
fi
echo "step $step"
: > "waits.$HOLDFAST_GENERATION"
if [ "$step" -ge 4 ]; then
    : > finished
    exit 0
fi
while :; do sleep 1; done
"#;

const FILES: &str = "{files: [state/step]}";
const OUTPUT: &str = r#"{output: "^step ([0-9]+)"}"#;

/// Starts the program on two of five nodes.
fn start<'a>(world: &'a World, progress: &str, mode: &str) -> Running<'a> {
    fs::create_dir_all(world.path("state")).unwrap();
    let program = world.write("program", PROGRAM);
    let home = world.path("");
    let spec = format!(
        "job: plain\nprefix: {:?}\nallocation: {{manager: local, nodes: 5}}\n\
         run: {{nodes: 2, command: [sh, {program:?}, {home:?}, {mode}]}}\n\
         relaunch: {{no_progress_limit: 2}}\nhealth: {{down_after: 10s}}\nprogress: {progress}\n",
        world.prefix()
    );
    world.start_spec(&spec)
}

fn go(world: &World) {
    fs::write(world.path("go"), "").unwrap();
}

/// The node of rank 1 dies when this generation waits.
fn lose_node_in(world: &World, running: &mut Running<'_>, generation: u64) {
    let waits = world.path(&format!("waits.{generation}"));
    world.wait("the program", || waits.exists().then_some(()));
    let is_placed = |event: &Value| event["event"] == "generation_placed" && event["generation"] == generation;
    let placed = running.sees("the generation", is_placed);
    let node = placed["nodes"][1].as_str().unwrap().to_owned();
    let agent = world.wait("its agent", || world.state()["running"][&node]["pid"].as_u64());
    let root = world.node_root(&node);
    // The directory first: an agent that was started again before would make another one.
    fs::rename(&root, world.path(&format!("lost.{generation}"))).unwrap();
    crate::world::signal(agent as u32, Signal::KILL);
}

/// The program is killed when this generation waits.
fn kill_in(world: &World, generation: u64) {
    let waits = world.path(&format!("waits.{generation}"));
    world.wait("the program", || waits.exists().then_some(()));
    assert!(world.kill(|line| line.contains("/program ")) > 0);
}

/// For each generation: the source of its progress, and the number of generations without.
fn recorded(world: &World) -> Vec<(Value, u64)> {
    let ended = world.all("generation_ended").into_iter();
    ended.map(|event| (event["progress"]["source"].clone(), event["without_progress"].as_u64().unwrap())).collect()
}

fn goes_on_beyond_the_limit(progress: &str, source: &str, shown: &str) {
    let world = World::new();
    go(&world);
    let mut running = start(&world, progress, "advance");
    (1..=3).for_each(|generation| lose_node_in(&world, &mut running, generation));
    running.ends_with(0).prints(&[shown, "the job is finished"]);
    let of_source = || (json!(source), 0);
    assert_eq!(recorded(&world)[..3], [of_source(), of_source(), of_source()]);
    let mut status = world.holdfast(["status", "--json", "--prefix"]);
    status.arg(world.prefix());
    let status = world.run(status).with_code(0).json();
    assert_eq!((&status["without_progress"], &status["progress"]["source"]), (&json!(1), &json!(source)), "{status}");
}

fn stops_at_the_limit(progress: &str, source: &str) {
    let world = World::new();
    go(&world);
    let running = start(&world, progress, "repeat");
    (1..=3).for_each(|generation| kill_in(&world, generation));
    running.ends_with(91).prints(&[
        "no progress: 2 generations in a row (relaunch.no_progress_limit)",
        "nothing that `progress` names has changed",
    ]);
    assert_eq!(recorded(&world), [(json!(source), 0), (Value::Null, 1), (Value::Null, 2)]);
}

#[test]
fn files_that_change_are_progress() {
    goes_on_beyond_the_limit(FILES, "files", "progress: state/step was written");
}

#[test]
fn files_that_do_not_change_are_no_progress() {
    stops_at_the_limit(FILES, "files");
}

#[test]
fn growing_numbers_in_the_output_are_progress() {
    goes_on_beyond_the_limit(OUTPUT, "output", "progress: rank 0 printed \"step 2\"");
}

#[test]
fn numbers_that_were_printed_before_are_no_progress() {
    stops_at_the_limit(OUTPUT, "output");
}

/// Starts the program, and kills the orchestrator before the program does anything.
fn abandoned(world: &World, progress: &str, mode: &str) {
    let running = start(world, progress, mode);
    world.wait("the program", || world.path("started.1").exists().then_some(()));
    // Until its start is recorded, an orchestrator that takes over ends the generation.
    let is_recorded = |file: &str| {
        let state = fs::read_to_string(world.prefix().join(".holdfast").join(file));
        state.is_ok_and(|text| text.contains("\"started\":true"))
    };
    world.wait("the record of the start", || ["job.json", "job.journal"].into_iter().any(is_recorded).then_some(()));
    running.killed();
    go(world);
    world.wait("the program", || world.path("waits.1").exists().then_some(()));
}

fn orchestrator_that_takes_over_compares_with_the_launch(progress: &str, source: &str) {
    let world = World::unchecked();
    abandoned(&world, progress, "repeat");
    let mut running = start(&world, progress, "repeat");
    running.sees_event("took_over");
    (1..=3).for_each(|generation| kill_in(&world, generation));
    running.ends_with(91);
    assert_eq!(recorded(&world), [(json!(source), 0), (Value::Null, 1), (Value::Null, 2)]);
    assert_eq!(world.all("progress_unknown"), Vec::<Value>::new());
}

#[test]
fn orchestrator_that_takes_over_compares_files_with_the_launch() {
    orchestrator_that_takes_over_compares_with_the_launch(FILES, "files");
}

#[test]
fn orchestrator_that_takes_over_compares_output_with_the_launch() {
    orchestrator_that_takes_over_compares_with_the_launch(OUTPUT, "output");
}

#[test(unchecked)]
fn files_that_cannot_be_listed_leave_the_count_unchanged(world: &World) {
    go(world);
    // A link to itself.
    fs::create_dir(world.path("state")).unwrap();
    std::os::unix::fs::symlink("loop", world.path("state/loop")).unwrap();
    let mut running = start(world, "{files: [\"state/l*\"]}", "advance");
    (1..=3).for_each(|generation| lose_node_in(world, &mut running, generation));
    running.ends_with(0).prints(&["it is not known whether generation 1 made progress", "state/loop"]);
    assert_eq!(recorded(world)[..3], [(Value::Null, 0), (Value::Null, 0), (Value::Null, 0)]);
    assert_eq!(world.all("progress_unknown").len(), 3);
}

/// Where the record of a job is.
fn record(world: &World) -> PathBuf {
    world.prefix().join(".holdfast/progress.json")
}

#[test(unchecked)]
fn numbers_of_earlier_runs_count_until_the_job_is_finished(world: &World) {
    go(world);
    let running = start(world, OUTPUT, "repeat");
    world.wait("the program", || world.path("waits.1").exists().then_some(()));
    running.terminated();
    assert_eq!(recorded(world), [(json!("output"), 0)]);
    assert!(record(world).exists());
    let running = start(world, OUTPUT, "repeat");
    world.wait("the program", || world.path("waits.2").exists().then_some(()));
    running.terminated();
    assert_eq!(recorded(world)[1], (Value::Null, 1), "step 1 again");
    fs::write(world.path("state/step"), "3").unwrap();
    start(world, OUTPUT, "advance").ends_with(0);
    assert!(!record(world).exists(), "the job is finished");
}
