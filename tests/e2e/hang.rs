//! Ranks that stop making progress: noticed, looked at, ended, launched again; and those that only compute for long.

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
fn a_rank_that_never_comes_to_the_collective_in_which_all_others_wait_is_named_looked_at_and_the_job_goes_on() {
    let world = World::new();
    // After the last step, before all ranks add up the checksum together.
    let once = world.path("hung");
    let job =
        Job::new(&world, 0).health(WATCHED).heat(&format!("--hang-at 40 --hang-rank 2 --hang-once {}", once.display()));
    let ran = job.run(0);
    ran.says(&["generation 1 hangs in rank 2", "the application hangs: rank 2 made no call"]);
    job.assert_result();
    for name in ["hang_suspected", "hang"] {
        let event = world.the(name);
        assert_eq!(event["ranks"], serde_json::json!([2]), "{event}");
        let reason = event["reason"].as_str().unwrap();
        assert!(reason.contains("waiting in allgather: ranks 0-1,3"), "{reason}");
    }
    assert_eq!(world.all("generation_ended")[0]["cause"], "hang");
    assert_eq!(world.all("generation_launched").len(), 2);
    assert_eq!(world.all("restarted")[1]["checkpoint"], 8);
    let stack_2 = stack(&world, 2);
    assert!(stack_2.starts_with("rank 2 of generation 1 on node2\n"), "{stack_2}");
    assert!(stack_2.contains("example heat") && stack_2.contains("thread "), "{stack_2}");
    assert!(!world.prefix().join(".holdfast/generations/1/rank_1.stack").exists(), "it only waited");
    pfs::assert_current(&world.prefix(), 8);
    world.assert_nothing_is_left();
}

#[test]
fn ranks_that_wait_for_each_other_outside_of_our_calls_hang_together() {
    let world = World::new();
    let once = world.path("hung");
    let job =
        Job::new(&world, 0).health(WATCHED).heat(&format!("--hang-at 12 --hang-rank 1 --hang-once {}", once.display()));
    job.run(0);
    job.assert_result();
    // Nobody can know from outside which of them the others wait for: the stacks of all tell.
    assert_eq!(world.the("hang")["ranks"], serde_json::json!([0, 1, 2, 3]));
    for rank in 0..4 {
        assert!(stack(&world, rank).starts_with(&format!("rank {rank} of generation 1 on node{rank}\n")));
    }
    assert_eq!(world.all("restarted")[1]["checkpoint"], 2);
    world.assert_nothing_is_left();
}

#[test]
fn a_rank_that_computes_for_long_is_left_alone_however_long_the_others_wait_for_it() {
    let world = World::new();
    let once = format!("--hang-at 40 --hang-rank 2 --hang-busy 6s --hang-once {}", world.path("busy").display());
    let job = Job::new(&world, 0).health(WATCHED).heat(&once);
    job.run(0);
    job.assert_result();
    assert!(world.path("busy.2").exists(), "it has computed");
    assert_eq!((world.all("hang").len(), world.all("generation_launched").len()), (0, 1));
    world.assert_nothing_is_left();
}

#[test]
fn who_says_that_computing_may_be_spinning_has_such_ranks_ended() {
    let world = World::new();
    let once = format!("--hang-at 40 --hang-rank 2 --hang-busy 10min --hang-once {}", world.path("busy").display());
    let job = Job::new(&world, 0).health("hang_after: 2s, busy_hang_after: 4s").heat(&once);
    job.run(0);
    job.assert_result();
    assert_eq!(world.the("hang")["ranks"], serde_json::json!([2]));
    world.assert_nothing_is_left();
}

#[test]
fn a_program_that_never_calls_us_hangs_when_it_neither_works_nor_prints() {
    let world = World::new();
    let script = r#"echo begun; test -e hung.$HOLDFAST_RANK || { touch hung.$HOLDFAST_RANK; sleep 600; }"#;
    let spec = format!(
        "prefix: {:?}\nallocation: {{manager: local}}\nrun: {{nodes: 2, command: [sh, -c, '{script}']}}\nhealth: {{{WATCHED}}}\n",
        world.prefix()
    );
    let spec = world.write("plain.yaml", &spec);
    world.run(world.holdfast(["run".as_ref(), spec.as_os_str()])).with_code(0).says(&["the job is finished"]);
    assert_eq!(world.the("hang")["ranks"], serde_json::json!([0, 1]));
    assert!(stack(&world, 1).contains("sleep 600"), "{}", stack(&world, 1));
    assert_eq!(world.all("generation_launched").len(), 2);
    world.assert_nothing_is_left();
}
