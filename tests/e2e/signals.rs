//! Ctrl-C and SIGTERM: halt, drain, report; no process and no file is left.

use rustix::process::Signal;

use crate::job::Job;
use crate::pfs;
use crate::world::{World, signal};

#[test]
fn sigint_halts_drains_and_leaves_nothing_behind() {
    ends_on(Signal::INT, "SIGINT");
}

#[test]
fn sigterm_halts_drains_and_leaves_nothing_behind() {
    ends_on(Signal::TERM, "SIGTERM");
}

fn ends_on(sent: Signal, name: &str) {
    let world = World::new();
    let job = Job::new(&world, 1).holding_after(4);
    let mut running = job.start();
    running.sees_checkpoint(4);
    assert!(!world.processes().is_empty());
    running.signal(sent);
    running.ends_with(75).prints(&[name, "stopping the ranks, then draining", "checkpoint 4 is complete"]);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
    job.go_on();
    job.run(0);
    job.assert_result();
    world.assert_nothing_is_left();
}

#[test]
fn second_signal_ends_job_immediately() {
    let world = World::new();
    // A node that does not answer and is not down yet: the drain waits for it.
    let mut job = Job::new(&world, 0).holding_after(4);
    job.down_after = "10min";
    let mut running = job.start();
    running.sees_checkpoint(4);
    signal(world.agent_pid("node2"), Signal::STOP);
    running.signal(Signal::TERM);
    running.sees("the first signal", |event| event["event"] == "signal" && event["at_once"] == false);
    running.signal(Signal::TERM);
    running.ends_with(75).prints(&["again: ending at once, without a drain"]);
    world.assert_nothing_is_left();
}

#[test]
fn signal_before_launch_ends_job() {
    let world = World::new();
    let job = Job::new(&world, 0).holding_after(4);
    let mut running = job.start();
    running.sees_event("job_started");
    running.signal(Signal::TERM);
    running.ends_with(75);
    world.assert_nothing_is_left();
}
