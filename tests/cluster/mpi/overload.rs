//! Ranks that spin on machines with a fraction of a processor each.

use holdfast_testkit::harness::takes_minutes;

use super::{OPEN_MPI, world};

/// The processors of the machine that the six nodes have together.
const SHARE: f64 = 0.4;

#[test]
fn spinning_ranks_on_slow_nodes_lose_neither_agents_nor_nodes() {
    takes_minutes();
    let cluster = crate::cluster();
    let _slow = cluster.slow_down(SHARE);
    // Two ranks a node, which poll while they wait for each other.
    let job = world::submit_spinning(OPEN_MPI, &cluster, "overload", 60);
    let output = job.finish_with(0);
    let count = |name: &str| job.events().iter().filter(|event| event["event"] == name).count();
    let lost = ["generation_launched", "agent_lost", "node_down", "hang"].map(count);
    println!("launches, agents lost, nodes lost, hangs: {lost:?}; silent agents: {}", count("agent_silent"));
    assert_eq!(lost, [1, 0, 0, 0], "{output}");
}
