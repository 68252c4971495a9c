//! Outputs of SCR 3: their files lie at the paths that the program named, below the prefix directory.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::world::{Link, World, exits_with, holdfast, output};

/// The files of an output in the shared directory.
fn plot(world: &World, step: u32) -> Vec<Option<String>> {
    let path = |rank| world.path().join(format!("prefix/plots/{step}.{rank}"));
    (0..6).map(|rank| fs::read_to_string(path(rank)).ok()).collect()
}

fn written(step: u32) -> Vec<Option<String>> {
    (0..6).map(|rank| Some(format!("plot.{step} of {rank}"))).collect()
}

/// The directories of the index with their completeness, in the order of the ids.
fn index(world: &World) -> Vec<(String, Value)> {
    let described = |entry: Value| (entry["directory"].as_str().unwrap().to_owned(), entry["complete"].clone());
    world.indexed().into_iter().rev().map(described).collect()
}

fn complete(names: &[&str]) -> Vec<(String, Value)> {
    names.iter().map(|name| ((*name).to_owned(), Value::Bool(true))).collect()
}

fn run(world: &World, place: &str, steps: &str, checkpoint: &str, faults: &str, more: &str) -> std::process::Output {
    let program = world.compile("cc", "outputs.c", Link::Shared);
    let prefix = world.path().join("prefix");
    let bypass = format!("SCR_CACHE_BYPASS={}", u8::from(place == "bypass"));
    let command = ["env", &bypass, program.to_str().unwrap(), prefix.to_str().unwrap(), steps];
    world.run_with(&command, checkpoint, faults, more)
}

/// The flush of plot.1 takes longer than the job: a node is lost in the next checkpoint.
fn loses_a_node_before_the_output_is_flushed(world: &World) -> std::process::Output {
    let flush = ", flush: {every: 0, mode: async, bandwidth: 1}";
    run(world, "cache", "3", flush, "{node: 1, during: encode, checkpoint: 2}", "relaunch: {attempts: 0}")
}

/// The exit code of a verification that changes nothing.
fn verify(world: &World, directory: &str) -> Option<i32> {
    let verified = ["index", "add", directory, "--rescan", "--dry-run", "--prefix", "prefix"];
    holdfast(&verified, world.path()).status.code()
}

/// The exit code and the output of a command about the prefix directory.
fn of_prefix(world: &World, arguments: &[&str]) -> (Option<i32>, String) {
    let ran = holdfast(&[arguments, &["--prefix", "prefix"]].concat(), world.path());
    (ran.status.code(), output(&ran))
}

fn assert_files_are_where_they_were_named(place: &str) {
    let world = World::new();
    let ran = run(&world, place, "3", "", "", "");
    assert_eq!(ran.status.code(), Some(0), "{place}: {}", output(&ran));
    for step in 1..=3 {
        assert_eq!(plot(&world, step), written(step), "{place}");
        let directory = world.path().join(format!("prefix/plot.{step}"));
        assert!(directory.join("summary.scr").exists() && !directory.join(format!("{step}.0")).exists(), "{place}");
        assert!(world.path().join(format!("prefix/state.{step}/rank_5")).exists(), "{place}");
    }
    let all = ["plot.1", "state.1", "plot.2", "state.2", "plot.3", "state.3"];
    assert_eq!(index(&world), complete(&all), "{place}");
    assert_eq!(world.current(), "state.3", "{place}");
    assert!(!output(&ran).contains("FAILED"), "{place}: {}", output(&ran));
    // The next allocation restarts from a checkpoint that is output.
    let ran = run(&world, place, "4", "", "", "");
    assert_eq!(ran.status.code(), Some(0), "{place}: {}", output(&ran));
    assert_eq!((plot(&world, 4), world.current()), (written(4), "state.4".to_owned()), "{place}");
}

#[test]
fn output_files_lie_where_the_program_named_them_below_the_prefix() {
    assert_files_are_where_they_were_named("cache");
}

#[test]
fn output_files_that_bypass_the_cache_lie_where_the_program_named_them() {
    assert_files_are_where_they_were_named("bypass");
}

#[test]
fn outputs_that_share_a_directory_are_verified_dropped_and_deleted_each_alone(world: &World) {
    exits_with(&run(world, "cache", "4", "", "", ""), 0);
    fs::write(world.path().join("prefix/plots/3.5"), "another text").unwrap();
    assert_eq!((verify(world, "plot.2"), verify(world, "plot.3")), (Some(0), Some(65)));
    let command = |arguments: &[&str]| of_prefix(world, arguments);
    let (code, printed) = command(&["index", "delete", "--dry-run", "plot.2", "state.1"]);
    assert_eq!(code, Some(0));
    for rank in 0..6 {
        assert!(printed.contains(&format!("  with it: plots/2.{rank}\n")), "{printed}");
    }
    assert_eq!(printed.matches("with it").count(), 6, "{printed}");
    let deletion = command(&["--json", "index", "delete", "--dry-run", "plot.2"]).1;
    let deletion: Value = serde_json::from_str(&deletion).unwrap();
    assert_eq!(deletion["deleted"][0]["outside"][5], "plots/2.5");
    assert_eq!(command(&["index", "drop", "plot.1"]).0, Some(0));
    assert_eq!(command(&["index", "delete", "--yes", "plot.2", "state.1"]).0, Some(0));
    let (code, printed) = command(&["index", "add", "plot.3", "--rescan"]);
    assert!(code != Some(0) && printed.contains("3.5"), "{printed}");
    assert_eq!(command(&["index", "prune", "--yes", "--incomplete", "--keep", "1"]).0, Some(0));
    let left: Vec<String> = index(world).into_iter().map(|(directory, _)| directory).collect();
    assert_eq!(left, ["state.2", "state.3", "plot.4", "state.4"], "checkpoints that are output stay");
    assert_eq!((plot(world, 1), plot(world, 4)), (written(1), written(4)), "dropped, and untouched");
    assert_eq!(plot(world, 2), [const { None }; 6]);
    assert_eq!(plot(world, 3).iter().flatten().collect::<Vec<_>>(), ["another text"], "not what was recorded");
    for gone in ["plot.2", "plot.3", "state.1"] {
        assert!(!world.path().join("prefix").join(gone).exists(), "{gone}");
    }
    // What was only dropped is added again.
    assert_eq!(command(&["index", "add", "plot.1"]).0, Some(0));
    assert!(index(world).contains(&complete(&["plot.1"])[0]));
}

#[test]
fn output_that_was_not_flushed_is_drained_to_its_paths_and_what_a_lost_node_had_is_computed(world: &World) {
    let ran = loses_a_node_before_the_output_is_flushed(world);
    assert_ne!(ran.status.code(), Some(0), "{}", output(&ran));
    assert_eq!(plot(world, 1), written(1), "{}", output(&ran));
    assert_eq!(index(world), complete(&["plot.1"]), "{}", output(&ran));
    assert_eq!(verify(world, "plot.1"), Some(0));
    // The redundancy was drained, too: lost files are computed again at their paths.
    for file in ["plots/1.2", "plots/1.3"] {
        fs::remove_file(world.path().join("prefix").join(file)).unwrap();
    }
    let added = holdfast(&["index", "add", "plot.1", "--rescan", "--prefix", "prefix"], world.path());
    assert_eq!((added.status.code(), plot(world, 1)), (Some(0), written(1)), "{}", output(&added));
}

fn put_file_of_the_user(world: &World, path: &str) {
    let path = world.path().join("prefix").join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "of the user").unwrap();
}

#[test]
fn a_file_of_the_user_at_the_path_of_an_output_stays_until_it_is_to_be_replaced(world: &World) {
    put_file_of_the_user(world, "plots/2.3");
    let printed = exits_with(&run(world, "cache", "3", "", "", ""), 73);
    for said in ["warning: dataset 3: plot.2/2.3 stays", "something else is at plots/2.3", "place plot.2 --replace"] {
        assert!(printed.contains(said), "{said}: {printed}");
    }
    assert_eq!(index(world), complete(&["plot.1", "state.1", "plot.2", "state.2", "plot.3", "state.3"]));
    let mut expected = written(2);
    expected[3] = Some("of the user".to_owned());
    assert_eq!((plot(world, 2), plot(world, 3)), (expected, written(3)));
    let events = fs::read_to_string(world.path().join("prefix/.holdfast/events.jsonl")).unwrap();
    assert_eq!(events.matches(r#""event":"output_not_placed""#).count(), 1);
    let command = |arguments: &[&str]| of_prefix(world, arguments);
    let unplaced = || serde_json::from_str::<Value>(&command(&["--json", "status"]).1).unwrap()["unplaced"].clone();
    let expected = serde_json::json!([{"directory": "plot.2", "path": "plots/2.3", "files": 1}]);
    assert_eq!(unplaced(), expected);
    assert!(command(&["status"]).1.contains("output: plot.2/2.3 stays there"));
    // The dataset is whole.
    assert_eq!((verify(world, "plot.2"), command(&["index", "add", "plot.2"]).0), (Some(0), Some(73)));
    assert_eq!(command(&["index", "place", "--dry-run", "plot.2"]).0, Some(0));
    assert_eq!(command(&["index", "place", "plot.2"]).0, Some(73));
    assert_eq!(plot(world, 2)[3].as_deref(), Some("of the user"));
    assert_eq!(command(&["index", "place", "plot.9", "--replace"]).0, Some(69));
    let (code, printed) = command(&["index", "place", "--replace", "plot.2"]);
    assert_eq!((code, plot(world, 2)), (Some(0), written(2)), "{printed}");
    assert_eq!(unplaced(), serde_json::json!([]));
    assert_eq!(run(world, "cache", "4", "", "", "").status.code(), Some(0));
}

#[test]
fn a_drain_leaves_a_file_of_the_user_at_the_path_of_an_output(world: &World) {
    put_file_of_the_user(world, "plots/1.0");
    let ran = loses_a_node_before_the_output_is_flushed(world);
    let printed = output(&ran);
    assert!(printed.contains("plot.1/1.0 stays there"), "{printed}");
    assert_eq!(index(world), complete(&["plot.1"]));
    assert_eq!(plot(world, 1)[0].as_deref(), Some("of the user"));
    fs::remove_file(world.path().join("prefix/plots/1.0")).unwrap();
    let placed = holdfast(&["index", "place", "plot.1", "--prefix", "prefix"], world.path());
    assert_eq!((placed.status.code(), plot(world, 1)), (Some(0), written(1)), "{}", output(&placed));
}

#[test]
fn an_output_with_the_file_of_another_one_is_refused_with_the_name_of_that_one(world: &World) {
    let printed = exits_with(&run(world, "cache", "2", "", "", ""), 0);
    assert!(printed.contains("plots/1.0 belongs to the output \"plot.1\""), "{printed}");
    assert!(printed.contains("it contains `..`") && printed.contains("is outside of the prefix"), "{printed}");
    assert!(!Path::new("/tmp/plot").exists());
}

#[test]
fn a_finished_job_of_which_every_dataset_was_dropped_warns_and_ends_with_65(world: &World) {
    let printed = exits_with(&run(world, "cache", "dropped", "", "", ""), 65);
    assert!(printed.contains("warning: all 2 datasets that the application wrote were dropped"), "{printed}");
    assert!(printed.contains("finished; no dataset was kept"), "the report: {printed}");
    let events = fs::read_to_string(world.path().join("prefix/.holdfast/events.jsonl")).unwrap();
    let event = events.lines().find(|line| line.contains("all_datasets_dropped")).expect("in the event log");
    let event: Value = serde_json::from_str(event).unwrap();
    assert_eq!((&event["count"], &event["checkpoint"]), (&2.into(), &2.into()));
    assert!(event["reason"].as_str().unwrap().contains("rank 3"), "{event}");
    // One that was kept is enough.
    exits_with(&run(world, "cache", "1", "", "", ""), 0);
}
