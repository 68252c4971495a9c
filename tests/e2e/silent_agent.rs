//! An agent stops while redundancy is computed: the others wait for its data for `checkpoint.stream_timeout`.

use std::fs;
use std::time::Duration;

use holdfast_testkit::files_below;
use rustix::process::Signal;

use crate::job::Job;
use crate::world::{World, signal};

/// Longer than the short limit, and much shorter than the default.
const SILENCE: Duration = Duration::from_secs(4);

/// Stops the agent of node2 for a while as soon as it writes its XOR file. Returns the lines of the log of the leader's
/// agent about failed attempts, one for each node on which an attempt failed.
fn failed_attempts(settings: &str) -> Vec<String> {
    let world = World::unchecked();
    // Many small pieces: the agent is stopped before it has sent the last one.
    let mut job = Job::new(&world, 0).checkpoint("piece_size: 4KiB").checkpoint(settings).health("replace_after: 1h");
    (job.size, job.steps, job.every) = ("2048x4096", 1, 1);
    let mut running = job.start_to_event("generation_launched");
    let (root, agent) = (world.node_root("node2"), world.agent_pid("node2"));
    world.wait("the XOR file", || {
        files_below(&root).iter().any(|path| path.extension().is_some_and(|it| it == "xor")).then_some(())
    });
    signal(agent, Signal::STOP);
    std::thread::sleep(SILENCE);
    assert_eq!(world.all("checkpoint_protected").len(), 0);
    signal(agent, Signal::CONT);
    running.sees_checkpoint(1);
    running.ends_with(0);
    assert_eq!((world.all("checkpoint_failed").len(), world.all("agent_lost").len()), (0, 0));
    let log = fs::read_to_string(world.prefix().join(".holdfast/agents/node0.log")).unwrap();
    log.lines().filter(|line| line.contains("order_tried_again")).map(str::to_owned).collect()
}

#[test]
fn redundancy_is_computed_again_when_an_agent_has_sent_nothing_for_the_limit() {
    let attempts = failed_attempts("stream_timeout: 1s");
    // One agent has reached the limit; the others have too, or have lost their connection to one that has.
    assert!(attempts.iter().any(|line| line.contains("no data for 1 s (checkpoint.stream_timeout)")), "{attempts:?}");
}

#[test]
fn agent_that_sends_nothing_for_less_than_the_limit_fails_no_attempt() {
    assert_eq!(failed_attempts("stream_timeout: 60s"), [""; 0]);
}
