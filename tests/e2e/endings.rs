//! How the application itself ends a job.

use serde_json::Value;

use crate::job::Job;
use crate::library::hydra;
use crate::pfs;
use crate::world::World;

#[test]
fn gives_up_without_progress() {
    for (source, heat) in [("scr", ""), ("variables", "--variables")] {
        let world = World::new();
        let job = Job::new(&world, 0).checkpoint(&format!("source: {source}")).heat("--exit-at 22 --exit-code 3");
        let ran = job.heat(heat).top("relaunch: {no_progress_limit: 2}").run(91);
        ran.prints(&["relaunch.no_progress_limit", "a checkpoint newer than 4", "exit code 3"]);
        // The first generation made progress, because there was none before it.
        assert_eq!(world.all("generation_launched").len(), 3);
        assert_eq!(world.all("restarted")[2]["checkpoint"], 4);
        pfs::assert_current(&world.prefix(), 4);
    }
}

#[test]
fn relaunches_with_progress_until_attempts_are_used(world: &World) {
    let job = Job::new(world, 0).heat("--exit-at 3 --exit-rank 2").top("relaunch: {no_progress_limit: 9, attempts: 2}");
    job.run(90).prints(&["gave up after 2 relaunches (relaunch.attempts)", "failed with exit code 1"]);
    assert_eq!(world.all("generation_launched").len(), 3);
    // The first that fails in each generation; the others lost their neighbour, or were killed, and may have been gone
    // before the launcher had reported how they ended.
    let (failed, ended) = (world.all("rank_failed"), world.all("rank_ended"));
    assert_eq!(failed.len(), 3);
    assert!((1..=9).contains(&ended.len()), "{ended:?}");
    assert!(failed.iter().all(|event| event["end"]["code"] == 1), "{failed:?}");
    let has_node = |event: &Value| event["node"] == format!("node{}", event["rank"]);
    assert!(failed.iter().chain(&ended).all(has_node), "{failed:?} {ended:?}");
}

#[test]
fn does_not_retry_exit_code_of_stop_policy(world: &World) {
    let policy = "relaunch: {on_exit_code: [{codes: [17], action: stop}]}";
    let job = Job::new(world, 1).heat("--exit-at 12 --exit-code 17").top(policy);
    job.run(90).prints(&["exit code 17", "relaunch.on_exit_code excludes a relaunch"]);
    assert_eq!(world.all("generation_launched").len(), 1);
    pfs::assert_current(&world.prefix(), 2);
}

#[test]
fn does_not_relaunch_after_finalize(world: &World) {
    let job = Job::new(world, 0).heat("--never-checkpoint");
    // The other spelling of this setting is in every spec of these tests.
    let yaml = job.yaml().replace(r#""--checkpoint-every", "5", "#, "");
    world.run_spec(&yaml).with_code(0);
    job.assert_result();
    assert_eq!(world.all("generation_launched").len(), 1);
    assert_eq!(world.the("generation_ended")["cause"], "finalized");
    assert_eq!(pfs::current_id(&world.prefix()), None);
}

#[test]
fn exit_0_without_api_calls_is_finished(world: &World) {
    let spec = format!(
        "prefix: {:?}\nallocation: {{manager: local}}\nrun: {{nodes: 2, command: [sh, -c, 'echo hello']}}\n",
        world.prefix()
    );
    world.run_spec(&spec).with_code(0).prints(&["the job is finished"]);
    assert_eq!(world.all("generation_launched").len(), 1);
}

#[test]
fn exit_0_without_finalize_is_not_finished(world: &World) {
    let job = Job::new(world, 0).heat("--no-finalize").top("relaunch: {no_progress_limit: 2}");
    job.run(91).prints(&["without calling finalize"]);
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn a_crash_before_the_ranks_have_joined_is_no_attempt_under_a_launcher_of_mpi() {
    let program = hydra();
    let world = World::new();
    let crashed = world.path("crashed");
    // The first rank that comes here crashes, as Open MPI does by chance.
    let script = format!("mkdir {} 2>/dev/null && kill -SEGV $$; exec \"$@\"", crashed.display());
    let holdfast = world.holdfast([""; 0]).get_program().to_owned();
    let job = Job::new(&world, 0).top("relaunch: {attempts: 0}");
    let through = format!(
        "launcher: mpirun\n  launcher_program: {program}\n  command: [sh, -c, {script:?}, sh, {:?}, ",
        holdfast.to_str().unwrap()
    );
    let ran = world.run_spec(&job.yaml().replace("command: [\"holdfast\", ", &through)).with_code(0);
    pfs::assert_current(&world.prefix(), 8);
    assert_eq!(world.all("generation_launched").len(), 2);
    let event = world.the("mpi_start_crashed");
    assert_eq!((&event["crashes"], &event["limit"]), (&1.into(), &3.into()));
    assert!(ran.err.contains("which is no attempt (1 of at most 3 times)"), "{}", ran.err);
}
