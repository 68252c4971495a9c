//! Ctrl-C and SIGTERM: halt, drain, report; no process and no file is left.

use rustix::process::Signal;

use crate::halting::{SAVES, Script, assert_saved};
use crate::job::Job;
use crate::pfs;
use crate::world::{World, signal};

#[test]
fn sigint_takes_last_checkpoint_drains_and_leaves_nothing_behind() {
    ends_on(Signal::INT, "SIGINT");
}

#[test]
fn sigterm_takes_last_checkpoint_drains_and_leaves_nothing_behind() {
    ends_on(Signal::TERM, "SIGTERM");
}

#[test]
fn sigusr1_takes_last_checkpoint_drains_and_leaves_nothing_behind() {
    ends_on(Signal::USR1, "SIGUSR1");
}

#[test]
fn sighup_takes_last_checkpoint_drains_and_leaves_nothing_behind() {
    ends_on(Signal::HUP, "SIGHUP");
}

/// The application is computing after checkpoint 4 when the signal comes: checkpoint 5 is the last one.
fn ends_on(sent: Signal, name: &str) {
    let world = World::new();
    let job = Job::new(&world, 1).grace("10min").holding_after(4);
    let mut running = job.reaches(4);
    assert!(!world.processes().is_empty());
    running.signal(sent);
    let requested = running.sees_event("halt_requested");
    assert_eq!((requested["reason"].as_str(), requested["within_ms"].as_u64()), (Some(name), Some(600_000)));
    job.go_on();
    running.ends_with(75).prints(&[name, "stopping the ranks, then draining", "checkpoint 5 is complete"]);
    assert_eq!(world.the("halting")["reason"], name);
    assert!(world.all("ranks_terminated").is_empty() && world.all("generation_ending").len() == 1);
    pfs::assert_current(&world.prefix(), 5);
    world.assert_nothing_is_left();
    job.run_to_result();
}

#[test]
fn leader_agent_that_is_restarted_still_halts_the_ranks(world: &World) {
    let job = Job::new(world, 0).grace("10min").holding_after(4);
    let mut running = job.reaches(4);
    running.signal(Signal::TERM);
    running.sees_event("halt_requested");
    signal(world.agent_pid("node0"), Signal::KILL);
    running.sees_where("agent_ready", "again", true);
    job.go_on();
    let ran = running.ends_with(75);
    // Ranks to which the answer to checkpoint 4 was still on its way call the restarted agent again, and are halted
    // there.
    let repeated = world.all("checkpoint_complete").iter().filter(|complete| complete["checkpoint"] == 4).count() > 1;
    let last = if repeated { 4 } else { 5 };
    ran.prints(&[&format!("checkpoint {last} is complete")]);
    pfs::assert_current(&world.prefix(), last);
}

#[test]
fn ranks_that_reach_no_checkpoint_are_ended_after_grace(world: &World) {
    let job = Job::new(world, 0).grace("500ms").holding_after(4);
    let running = job.reaches(4);
    running.terminated().prints(&["SIGTERM to the ranks", "checkpoint 4 is complete"]);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn program_without_api_handles_sigterm_itself(world: &World) {
    let script = Script::start(world, SAVES, "10min");
    script.running.signal(Signal::TERM);
    script.running.ends_with(75).prints(&["halted by SIGTERM"]);
    assert_saved(world);
}

#[test]
fn program_that_ignores_sigterm_is_killed_after_grace(world: &World) {
    let script = Script::start(world, "", "500ms");
    script.running.signal(Signal::TERM);
    script.running.ends_with(75).prints(&["halted by SIGTERM"]);
    assert_eq!(world.the("ranks_terminated")["within_ms"], 500);
}

#[test]
fn second_signal_kills_ranks_and_drains(world: &World) {
    let job = Job::new(world, 0).grace("10min").holding_after(4);
    let mut running = job.reaches(4);
    running.signal(Signal::TERM);
    running.sees_event("halt_requested");
    running.terminated().prints(&["SIGTERM again: killing the ranks, then draining", "checkpoint 4 is complete"]);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn third_signal_ends_job_immediately(world: &World) {
    // A node that does not answer and is not down yet: the drain waits for it.
    let mut job = Job::new(world, 0).grace("10min").holding_after(4);
    job.down_after = "10min";
    let mut running = job.reaches(4);
    signal(world.agent_pid("node2"), Signal::STOP);
    for number in 1..=3 {
        running.signal(Signal::TERM);
        running.sees_where("signal", "number", number);
    }
    let ran = running.ends_with(75);
    ran.prints(&["again: ending at once, without a drain"]);
    assert!(!ran.err.contains("the end of the job is not recorded"), "{}", ran.err);
}

#[test]
fn signal_before_launch_ends_job(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    job.start_to_event("job_started").terminated();
}
