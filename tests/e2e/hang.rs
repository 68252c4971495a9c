//! Ranks without progress: detected, their stacks saved, relaunched; and ranks that only compute for a long time.

use std::fs;

use crate::job::Job;
use crate::pfs;
use crate::world::World;

const WATCHED: &str = "hang_after: 2s";

fn stack(world: &World, rank: u32) -> String {
    let path = world.prefix().join(format!(".holdfast/generations/1/rank_{rank}.stack"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn reports_rank_missing_in_collective_with_stack_and_relaunches(world: &World) {
    // After the last step, before all ranks add up the checksum together.
    let once = world.path("hung");
    let job =
        Job::new(world, 0).health(WATCHED).heat(&format!("--hang-at 40 --hang-rank 2 --hang-once {}", once.display()));
    job.run(0).prints(&["generation 1 hangs in rank 2", "the application hangs: rank 2 made no call"]);
    job.assert_result();
    for name in ["hang_suspected", "hang"] {
        // The first one: on a busy machine, a rank of the next generation may be suspected for a moment.
        let event = &world.all(name)[0];
        assert_eq!(
            (&event["generation"], &event["ranks"]),
            (&serde_json::json!(1), &serde_json::json!([2])),
            "{event}"
        );
        let reason = event["reason"].as_str().unwrap();
        assert!(reason.contains("waiting in allgather: ranks 0-1,3"), "{reason}");
    }
    assert_eq!(world.all("generation_ended")[0]["cause"], "hang");
    assert_eq!(world.all("generation_launched").len(), 2);
    assert_eq!(world.all("restarted")[1]["checkpoint"], 8);
    let stack_2 = stack(world, 2);
    assert!(stack_2.starts_with("rank 2 of generation 1 on node2\n"), "{stack_2}");
    assert!(stack_2.contains("example heat") && stack_2.contains("thread "), "{stack_2}");
    assert!(!world.prefix().join(".holdfast/generations/1/rank_1.stack").exists(), "this rank only waited");
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn detects_hang_of_ranks_outside_of_api_calls(world: &World) {
    let once = world.path("hung");
    let job =
        Job::new(world, 0).health(WATCHED).heat(&format!("--hang-at 12 --hang-rank 1 --hang-once {}", once.display()));
    job.run_to_result();
    // The rank that the others wait for is unknown: the stacks of all ranks are kept.
    assert_eq!(world.the("hang")["ranks"], serde_json::json!([0, 1, 2, 3]));
    for rank in 0..4 {
        assert!(stack(world, rank).starts_with(&format!("rank {rank} of generation 1 on node{rank}\n")));
    }
    assert_eq!(world.all("restarted")[1]["checkpoint"], 2);
}

#[test]
fn long_computation_of_one_rank_is_not_a_hang(world: &World) {
    let once = format!("--hang-at 40 --hang-rank 2 --hang-busy 6s --hang-once {}", world.path("busy").display());
    let job = Job::new(world, 0).health(WATCHED).heat(&once);
    job.run_to_result();
    assert!(world.path("busy.2").exists(), "it has computed");
    assert_eq!((world.all("hang").len(), world.all("generation_launched").len()), (0, 1));
}

#[test]
fn detects_spinning_ranks_when_configured(world: &World) {
    let once = format!("--hang-at 40 --hang-rank 2 --hang-busy 10min --hang-once {}", world.path("busy").display());
    let job = Job::new(world, 0).health("hang_after: 2s, busy_hang_after: 4s").heat(&once);
    job.run_to_result();
    assert_eq!(world.the("hang")["ranks"], serde_json::json!([2]));
}

#[test]
fn detects_hang_of_program_without_api_calls(world: &World) {
    let script = r#"echo begun; test -e hung.$HOLDFAST_RANK || { touch hung.$HOLDFAST_RANK; sleep 600; }"#;
    let spec = format!(
        "prefix: {:?}\nallocation: {{manager: local}}\nrun: {{nodes: 2, command: [sh, -c, '{script}']}}\nhealth: \
        {{hang_after: 4s}}\n",
        world.prefix()
    );
    world.run_spec(&spec).with_code(0).prints(&["the job is finished"]);
    assert_eq!(world.the("hang")["ranks"], serde_json::json!([0, 1]));
    assert!(stack(world, 1).contains("sleep 600"), "{}", stack(world, 1));
    assert_eq!(world.all("generation_launched").len(), 2);
}

/// A job of a rank process whose program repeats `body` until the file `ends` exists, and is never saved by itself.
fn silent_program(world: &World, body: &str) -> std::path::PathBuf {
    let (home, prefix) = (world.path(""), world.prefix());
    let script = world
        .write("program", &format!("cd {}; until [ -e ends.$HOLDFAST_GENERATION ]; do {body}; done\n", home.display()));
    let spec = format!(
        "job: silent\nprefix: {prefix:?}\nallocation: {{manager: local, nodes: 1}}\n\
         run: {{command: [sh, {script:?}]}}\nhealth: {{{WATCHED}}}\n\
         checkpoint: {{source: command, command: {{save: [sh, -c, 'echo > $HOLDFAST_CHECKPOINT_DIR/state'], \
         every: 10h}}}}\n"
    );
    world.write("silent.yaml", &spec)
}

#[test(unchecked)]
fn a_program_without_calls_that_computes_between_two_checkpoints_does_not_hang(world: &World) {
    let spec = silent_program(world, ":");
    let mut running = world.start(world.holdfast(["run".as_ref(), spec.as_os_str()]));
    let launched = running.sees_event("generation_launched");
    let launched = chrono::DateTime::parse_from_rfc3339(launched["time"].as_str().unwrap()).unwrap();
    // Three times the limit, by the clock of the log.
    world.wait("three times the limit", || {
        assert!(running.is_running());
        (chrono::Utc::now() - launched.to_utc() > chrono::TimeDelta::seconds(6)).then_some(())
    });
    world.write("ends.1", "");
    running.ends_with(0);
    assert_eq!((world.all("hang_suspected").len(), world.all("generation_launched").len()), (0, 1));
}

#[test(unchecked)]
fn a_program_without_calls_that_does_nothing_hangs(world: &World) {
    let spec = silent_program(world, "sleep 1000");
    let mut running = world.start(world.holdfast(["run".as_ref(), spec.as_os_str()]));
    let hang = running.sees_event("hang");
    assert_eq!(hang["ranks"], serde_json::json!([0]));
    world.write("ends.2", "");
    running.ends_with(0);
    assert_eq!(world.all("generation_launched").len(), 2);
}
