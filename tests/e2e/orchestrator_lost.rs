//! The orchestrator is killed with SIGKILL: the application continues, and another orchestrator takes over.

use rustix::process::Signal;

use crate::job::Job;
use crate::pfs;
use crate::world::World;

#[test(unchecked)]
fn job_whose_orchestrator_was_killed_between_the_release_of_its_nodes_and_its_last_record_is_finished(world: &World) {
    let job = Job::new(world, 0);
    job.run(0);
    let path = world.prefix().join(".holdfast/job.json");
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(state["stage"]["stage"], "finished");
    state["stage"] = serde_json::json!({"stage": "running"});
    std::fs::write(&path, state.to_string()).unwrap();
    job.command(&["drain"], 0).prints(&["nothing to drain"]);
    job.run(0).prints(&["was finished in an earlier run"]);
    assert_eq!(world.all("generation_launched").len(), 1);
}

#[test]
fn next_run_takes_over_running_job(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    let first = job.reaches(4);
    // Otherwise the agents report again what the state does not have.
    world.sees_recorded(4);
    first.killed();
    let second = job.start_to_event("took_over");
    job.go_on();
    second.ends_with(0).prints(&["took over the running job"]);
    job.assert_result();
    assert_eq!(world.all("generation_launched").len(), 1);
    assert_eq!(world.all("restarted").len(), 1);
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn node_lost_without_orchestrator_is_replaced_after_takeover(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    job.abandon_after(4);
    world.lose_node("node1");
    let second = job.start_to("node_down", "node", "node1");
    job.finishes(second);
    let last = world.all("restarted").pop().unwrap();
    assert_eq!((last["checkpoint"].as_u64(), &last["rebuilt"]), (Some(4), &serde_json::json!([1])));
}

#[test]
fn next_run_detects_job_that_ended_meanwhile(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    job.abandon_after(4);
    job.go_on();
    // The output file gets its name after the last step.
    world.wait("the application's end", || world.path("end.heat").exists().then_some(()));
    // The agents have checkpoint 8; whether it is protected was reported to nobody.
    job.command(&["status"], 0).prints(&["newest checkpoint 8; newest protected checkpoint 4\n"]);
    assert_eq!(job.command(&["status", "--json"], 0).json()["protected"], serde_json::Value::Null);
    job.run_to_result();
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn drain_alone_ends_the_ranks_and_saves_the_newest_checkpoint(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    job.abandon_after(4);
    job.command(&["drain"], 0).prints(&["checkpoint 4 is complete"]);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
    job.command(&["drain"], 0).prints(&["nothing to drain"]);
    job.go_on();
    job.run_to_result();
}

#[test]
fn dry_run_of_a_drain_leaves_ranks_without_orchestrator_alone(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    job.abandon_after(4);
    let agent = world.agent_pid("node0");
    job.command(&["drain", "--dry-run"], 0).prints(&["checkpoint 4 would be drained"]);
    assert_eq!(world.agent_pid("node0"), agent);
    let second = job.start_to_event("took_over");
    job.go_on();
    second.ends_with(0).prints(&["took over the running job"]);
    job.assert_result();
    assert_eq!(world.all("generation_launched").len(), 1, "the ranks went on");
}

#[test]
fn drain_alone_starts_agents_when_every_process_ended(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    job.abandon_after(4);
    while world.kill(|_| true) > 0 {}
    job.command(&["drain"], 0).prints(&["checkpoint 4 is complete"]);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn next_run_restarts_from_cache_when_every_process_ended(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    job.abandon_after(4);
    while world.kill(|_| true) > 0 {}
    job.go_on();
    job.run_to_result();
    let last = world.all("restarted").pop().unwrap();
    assert_eq!((last["checkpoint"].as_u64(), last["source"].as_str()), (Some(4), Some("cache")));
}

#[test]
fn next_drain_finishes_interrupted_drain(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let mut running = job.reaches(4);
    running.signal(Signal::TERM);
    running.sees_event("drain_started");
    running.killed();
    // Any number of files may be copied, but no incomplete checkpoint is called complete.
    if pfs::current_id(&world.prefix()).is_some() {
        pfs::assert_current(&world.prefix(), 4);
    }
    job.command(&["drain"], 0);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn run_finishes_interrupted_drain_and_continues(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let mut running = job.reaches(4);
    running.signal(Signal::TERM);
    running.sees_event("drain_started");
    running.killed();
    job.run(75).prints(&["halted by SIGTERM"]);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
    job.go_on();
    job.run_to_result();
}

#[test]
fn rejects_second_orchestrator_while_first_runs(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let running = job.reaches(4);
    job.run(69).prints(&["is running", "process"]);
    job.command(&["drain"], 69).prints(&["is running"]);
    let status = job.command(&["status", "--json"], 0).json();
    assert_eq!((status["generation"].as_u64(), status["checkpoint"].as_u64()), (Some(1), Some(4)));
    assert_eq!(status["protected"], true);
    // The generations and the last event are read from the event log.
    job.command(&["status"], 0).prints(&["generation 1: from the beginning\n", "last event, ", "checkpoint 4 "]);
    job.finishes(running);
}
