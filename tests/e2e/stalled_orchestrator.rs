//! Delays that are not the agents' fault: the orchestrator is stopped, the machine is loaded, there are many nodes, an
//! agent is stopped for a while. No healthy node is lost, and lost nodes are detected all the same.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use holdfast_testkit::harness::takes_minutes;
use rustix::process::Signal;

use crate::job::Job;
use crate::world::{World, signal};

/// The default of the spec: these tests need no longer limit.
const DOWN_AFTER: &str = "750ms";
/// How long the orchestrator is stopped: several times the longest accepted silence, and longer than most requests.
const STALL: Duration = Duration::from_secs(5);

/// Uses processors until it is dropped.
struct Load(Vec<Child>);

impl Load {
    fn start(world: &World, processes: usize) -> Self {
        let spin = |_| {
            let mut command = world.command("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap()
        };
        Load((0..processes).map(spin).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn stopped_orchestrator_loses_no_agent(world: &World) {
    let mut job = Job::new(world, 2).holding_after(4);
    job.down_after = DOWN_AFTER;
    let mut running = job.reaches(4);
    running.signal(Signal::STOP);
    std::thread::sleep(STALL);
    running.signal(Signal::CONT);
    let stalled = running.sees_event("orchestrator_stalled");
    assert!(stalled["millis"].as_u64().unwrap() >= 4000, "{stalled}");
    job.finishes(running);
    world.assert_nothing_lost();
}

#[test(unchecked)]
fn node_lost_while_orchestrator_is_stopped_is_replaced(world: &World) {
    let mut job = Job::new(world, 1).holding_after(4);
    job.down_after = DOWN_AFTER;
    let mut running = job.reaches(4);
    running.signal(Signal::STOP);
    world.lose_node("node1");
    std::thread::sleep(Duration::from_secs(2));
    running.signal(Signal::CONT);
    assert_eq!(running.sees_event("node_down")["node"], "node1");
    job.finishes(running);
    assert_eq!(world.all("node_down").len(), 1);
    assert_eq!(world.all("generation_launched").len(), 2);
}

#[test(unchecked)]
fn stopped_agent_is_suspected_and_kept_when_it_answers_again(world: &World) {
    let mut job = Job::new(world, 0).holding_after(4).health("replace_after: 100s");
    job.down_after = DOWN_AFTER;
    let mut running = job.reaches(4);
    let agent = world.agent_pid("node2");
    signal(agent, Signal::STOP);
    assert_eq!(running.sees_event("agent_silent")["node"], "node2");
    let status = job.command(&["status"], 0);
    let line = status.out.lines().find(|line| line.contains("node2")).unwrap();
    assert!(line.contains("silent") && line.contains("is being checked"), "{line}");
    signal(agent, Signal::CONT);
    assert_eq!(running.sees_event("agent_answers")["node"], "node2");
    job.finishes(running);
    world.assert_nothing_lost();
}

#[test(unchecked)]
fn silence_of_most_agents_restarts_none_that_exist(world: &World) {
    let mut job = Job::new(world, 0).holding_after(4).health("replace_after: 3s");
    job.down_after = DOWN_AFTER;
    let mut running = job.reaches(4);
    let agents = ["node0", "node1", "node2"].map(|node| world.agent_pid(node));
    agents.into_iter().for_each(|agent| signal(agent, Signal::STOP));
    assert_eq!(running.sees_event("most_agents_silent")["agents"], 4);
    std::thread::sleep(Duration::from_secs(4));
    agents.into_iter().for_each(|agent| signal(agent, Signal::CONT));
    job.finishes(running);
    world.assert_nothing_lost();
}

#[test(unchecked)]
fn loaded_machine_loses_no_node(world: &World) {
    let mut job = Job::new(world, 2);
    job.down_after = DOWN_AFTER;
    let _load = Load::start(world, 12);
    job.run(0);
    world.assert_nothing_lost();
    job.assert_result();
}

/// Runs a job of idle programs on many virtual nodes, with default settings.
fn many_nodes(world: &World, nodes: u32, seconds: u32) {
    let prefix = world.prefix();
    let spec = world.write(
        "many.yaml",
        &format!(
            "job: many\nprefix: {prefix:?}\nallocation: {{manager: local, nodes: {nodes}}}\n\
             run: {{nodes: {nodes}, command: [sleep, \"{seconds}\"]}}\n"
        ),
    );
    world.run(world.holdfast(["run".as_ref(), spec.as_os_str()])).with_code(0);
    world.assert_nothing_lost();
    assert_eq!(world.all("agent_ready").len(), nodes as usize);
    world.assert_nothing_is_left();
}

#[test]
fn hundred_nodes_run_without_loss() {
    many_nodes(&World::unchecked(), 100, 2);
}

/// Prints figures. To be run alone and in release mode:
///
///     HOLDFAST_LONG_TESTS=1 cargo test --release -p holdfast --test e2e -- many_nodes_run_without_loss
#[test]
fn many_nodes_run_without_loss() {
    takes_minutes();
    for nodes in [64, 100, 150, 200] {
        let world = World::unchecked();
        let begun = Instant::now();
        many_nodes(&world, nodes, 20);
        println!("{nodes} nodes: {:.1} s, no agent lost, no node down, one launch", begun.elapsed().as_secs_f64());
    }
}

/// Prints figures, as `many_nodes_run_without_loss` does.
#[test]
fn orchestrator_stopped_for_a_minute_loses_no_agent() {
    takes_minutes();
    for seconds in [3, 20, 60] {
        let world = World::unchecked();
        let mut job = Job::new(&world, 2).holding_after(4);
        job.down_after = DOWN_AFTER;
        let mut running = job.reaches(4);
        running.signal(Signal::STOP);
        std::thread::sleep(Duration::from_secs(seconds));
        running.signal(Signal::CONT);
        let stalled = running.sees_event("orchestrator_stalled");
        job.finishes(running);
        world.assert_nothing_lost();
        println!(
            "stopped for {seconds} s ({} ms reported): no agent lost, no node down, one launch",
            stalled["millis"]
        );
    }
}
