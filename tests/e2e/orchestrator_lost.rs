//! The orchestrator is killed with SIGKILL: the application does not notice, and somebody else goes on.

use rustix::process::Signal;

use crate::job::Job;
use crate::pfs;
use crate::world::World;

#[test]
fn run_again_takes_the_running_job_over_without_disturbing_it() {
    let world = World::new();
    let job = Job::new(&world, 1).holding_after(4);
    job.abandon_after(4);
    let mut second = job.start();
    second.sees_event("took_over");
    job.go_on();
    second.ends_with(0).says(&["took over the running job"]);
    job.assert_result();
    assert_eq!(world.all("generation_launched").len(), 1);
    assert_eq!(world.all("restarted").len(), 1);
    pfs::assert_current(&world.prefix(), 8);
    world.assert_nothing_is_left();
}

#[test]
fn a_node_that_died_while_nobody_was_there_is_replaced_after_the_take_over() {
    let world = World::new();
    let job = Job::new(&world, 1).holding_after(4);
    job.abandon_after(4);
    let root = world.node_root("node1");
    let of_node = root.to_string_lossy().into_owned();
    crate::world::signal(world.agent_pid("node1"), Signal::KILL);
    // The ranks of the node die with it.
    world.kill(|line| line.contains(&of_node));
    std::fs::rename(&root, world.path("lost")).unwrap();
    let mut second = job.start();
    second.sees("node1 down", |event| event["event"] == "node_down" && event["node"] == "node1");
    job.go_on();
    second.ends_with(0);
    job.assert_result();
    let last = world.all("restarted").pop().unwrap();
    assert_eq!((last["checkpoint"].as_u64(), &last["rebuilt"]), (Some(4), &serde_json::json!([1])));
    world.assert_nothing_is_left();
}

#[test]
fn run_again_finds_a_job_that_went_on_and_ended_meanwhile() {
    let world = World::new();
    let job = Job::new(&world, 0).holding_after(4);
    job.abandon_after(4);
    job.go_on();
    // The output is put in its place after the last step.
    world.wait("the application's end", || world.path("end.heat").exists().then_some(()));
    job.run(0);
    job.assert_result();
    pfs::assert_current(&world.prefix(), 8);
    world.assert_nothing_is_left();
}

#[test]
fn drain_alone_ends_the_ranks_and_saves_the_newest_checkpoint() {
    let world = World::new();
    let job = Job::new(&world, 1).holding_after(4);
    job.abandon_after(4);
    job.command(&["drain"], 0).says(&["checkpoint 4 is complete"]);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
    job.command(&["drain"], 0).says(&["nothing to drain"]);
    job.go_on();
    job.run(0);
    job.assert_result();
    world.assert_nothing_is_left();
}

#[test]
fn drain_alone_starts_agents_afresh_when_every_process_is_dead() {
    let world = World::new();
    let job = Job::new(&world, 1).holding_after(4);
    job.abandon_after(4);
    while world.kill(|_| true) > 0 {}
    job.command(&["drain"], 0).says(&["checkpoint 4 is complete"]);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
}

#[test]
fn run_again_goes_on_from_cache_when_every_process_is_dead() {
    let world = World::new();
    let job = Job::new(&world, 1).holding_after(4);
    job.abandon_after(4);
    while world.kill(|_| true) > 0 {}
    job.go_on();
    job.run(0);
    job.assert_result();
    let last = world.all("restarted").pop().unwrap();
    assert_eq!((last["checkpoint"].as_u64(), last["source"].as_str()), (Some(4), Some("cache")));
    world.assert_nothing_is_left();
}

#[test]
fn killed_in_the_middle_of_the_drain_the_next_one_finishes_it() {
    let world = World::new();
    let job = Job::new(&world, 0).holding_after(4);
    let mut running = job.start();
    running.sees_checkpoint(4);
    running.signal(Signal::TERM);
    running.sees_event("drain_started");
    running.signal(Signal::KILL);
    running.end();
    // It may have been as far as the last file, but never is anything half called whole.
    if pfs::current_id(&world.prefix()).is_some() {
        pfs::assert_current(&world.prefix(), 4);
    }
    job.command(&["drain"], 0);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
}

#[test]
fn killed_in_the_middle_of_the_drain_run_again_finishes_it_and_the_next_one_goes_on() {
    let world = World::new();
    let job = Job::new(&world, 0).holding_after(4);
    let mut running = job.start();
    running.sees_checkpoint(4);
    running.signal(Signal::TERM);
    running.sees_event("drain_started");
    running.signal(Signal::KILL);
    running.end();
    job.run(75).says(&["halted by SIGTERM"]);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
    job.go_on();
    job.run(0);
    job.assert_result();
    world.assert_nothing_is_left();
}

#[test]
fn a_second_orchestrator_is_refused_while_the_first_lives() {
    let world = World::new();
    let job = Job::new(&world, 0).holding_after(4);
    let mut running = job.start();
    running.sees_checkpoint(4);
    job.run(69).says(&["is running", "process"]);
    job.command(&["drain"], 69).says(&["is running"]);
    let status = job.command(&["status", "--json"], 0).json();
    assert_eq!((status["generation"].as_u64(), status["checkpoint"].as_u64()), (Some(1), Some(4)));
    assert_eq!(status["protected"], true);
    // The generations and the last event are read from the event log.
    job.command(&["status"], 0).says(&["generation 1: from the beginning\n", "last event, ", "checkpoint 4 complete"]);
    job.go_on();
    running.ends_with(0);
    job.assert_result();
    world.assert_nothing_is_left();
}
