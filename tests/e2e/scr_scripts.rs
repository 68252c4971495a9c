//! `scr_srun`, `scr_postrun` and `scr_log_event` with real processes on virtual nodes.

use std::process::Command;

use crate::job::Job;
use crate::pfs;
use crate::world::World;

/// A command of SCR in this world, on the job's prefix directory.
fn scr(world: &World, words: &[&str]) -> Command {
    std::fs::create_dir_all(world.prefix()).unwrap();
    let mut command = world.holdfast(["compat"].iter().chain(words));
    command.env("SCR_PREFIX", world.prefix()).env("SCR_FLUSH", "0");
    command
}

const HEAT: [&str; 8] = ["holdfast", "example", "heat", "--step-delay", "0", "--steps", "40", "--size"];

#[test]
fn scr_srun_runs_a_job_and_scr_postrun_finds_it_saved(world: &World) {
    let words = [&["scr_srun", "-n4", "-N", "2"], &HEAT[..], &["24x24", "--checkpoint-every", "10"]].concat();
    let ran = world.start(scr(world, &words)).ends_with(0);
    ran.prints(&["scr_srun: Started: ", "scr_srun: RUN 1: ", "scr_srun: run: exit code 0\n", "scr_srun: Ended: "]);
    let placed = world.the("generation_launched");
    assert_eq!(placed["generation"], 1, "{placed}");
    assert_eq!(world.the("job_started")["nodes"], serde_json::json!(["node0", "node1"]));
    pfs::assert_current(&world.prefix(), 4);
    let ran = world.start(scr(world, &["scr_postrun"])).ends_with(0);
    ran.prints(&["NODES:     node[0-1]", "has already been flushed", "scr_postrun: exit code: 0\n"]);
}

#[test]
fn scr_srun_launches_as_often_as_scr_runs_permits_and_returns_0_after_a_failure() {
    for (runs, launches) in [(None, 1), (Some("2"), 2)] {
        let world = World::new();
        let words = [&["scr_srun", "-n2"], &HEAT[..], &["24x24", "--exit-at", "5"]].concat();
        let mut command = scr(&world, &words);
        command.envs(runs.map(|runs| ("SCR_RUNS", runs)));
        world.start(command).ends_with(0).prints(&["scr_srun: run: exit code 9"]);
        assert_eq!(world.all("generation_launched").len(), launches);
    }
}

#[test]
fn scr_debug_makes_scr_srun_verbose(world: &World) {
    let link = world.path("scr_srun");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_holdfast"), &link).unwrap();
    let verbose = |debug: &str| {
        let mut command = world.command(&link);
        command.args(["-n1", "true"]).env("SCR_PREFIX", world.prefix()).env("SCR_DEBUG", debug);
        world.run(command).with_code(0).err.contains("DEBUG holdfast::job")
    };
    std::fs::create_dir_all(world.prefix()).unwrap();
    assert!(!verbose("0") && verbose("2"));
}

#[test]
fn scr_postrun_saves_the_checkpoint_of_a_job_whose_orchestrator_was_killed(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    job.abandon_after(4);
    let ran = world.start(scr(world, &["scr_postrun", "-p", world.prefix().to_str().unwrap()])).ends_with(0);
    ran.prints(&["scr_postrun: Flushed checkpoint 4 to ", "scr_postrun:   ", "scr.current --> ", "exit code: 0\n"]);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn scr_log_event_adds_to_the_event_log_of_a_running_job(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let running = job.reaches(4);
    let words = ["scr_log_event", "-T", "SITE NOTE", "-N", "power low", "-C4", "-S", "1290000000", "-D", "5"];
    world.start(scr(world, &words)).ends_with(0);
    let event = world.the("script_event");
    assert_eq!(
        (&event["kind"], &event["note"], &event["job"]),
        (&"SITE NOTE".into(), &"power low".into(), &"heat".into())
    );
    assert_eq!(
        (&event["checkpoint"], &event["begun"], &event["seconds"]),
        (&4.into(), &1_290_000_000.into(), &5.into())
    );
    running.terminated();
}
