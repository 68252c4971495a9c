//! The prefix directory hangs while agents die: the orchestrator goes on, detects the loss of a node, and starts the
//! agents when the directory responds again.

use std::thread::sleep;
use std::time::Duration;

use holdfast_testkit::cluster::{Cluster, Job, heat};

use crate::hosts;

const PREFIX: &str = "/frozen";
/// Longer than the longest silence of an agent that is accepted by default.
const STALL: Duration = Duration::from_secs(8);

/// Two agents die, more than the orchestrator of these small machines has threads for its loop; then a node is lost.
fn goes_on_while_it_hangs<'a>(cluster: &'a Cluster, start: impl FnOnce() -> Job<'a>) {
    let mut disk = cluster.shared_disk(PREFIX);
    let job = start();
    job.wait_for("checkpoint 3 protected");
    disk.freeze();
    for node in ["n2", "n3"] {
        cluster.on(node, "pkill -KILL -f '[h]oldfast agent'");
    }
    job.wait_for("n2: agent lost").wait_for("n3: agent lost");
    // What starts them waits for the logs now.
    sleep(STALL);
    cluster.cut_off("n4");
    job.wait_for("n4 is down");
    assert!(!job.output().contains("generation 2 launched"), "the launch waits for the journal");
    disk.thaw();
    let output = job.finish_well();
    for node in ["n1", "n2", "n3"] {
        assert!(!output.contains(&format!("{node} is down")), "{output}");
    }
    assert!(output.contains("node failure: n4") && !output.contains("generation 3"), "{output}");
}

#[test(crate::cluster)]
fn orchestrator_goes_on_under_slurm_while_prefix_directory_hangs_and_agents_die(cluster: &Cluster) {
    let spec = heat("").replace("prefix: ./heat-run", &format!("prefix: {PREFIX}/heat-run"));
    goes_on_while_it_hangs(cluster, || cluster.submit("frozen", &spec, "--nodes=6 --time=10", "holdfast run job.yaml"));
}

#[test(crate::cluster)]
fn orchestrator_goes_on_over_ssh_while_prefix_directory_hangs_and_agents_die(cluster: &Cluster) {
    let spec = hosts::spec(hosts::ALL, "", "").replace("prefix: ./heat-run", &format!("prefix: {PREFIX}/heat-run"));
    goes_on_while_it_hangs(cluster, || hosts::start(cluster, "ssh-frozen", &spec, "holdfast run job.yaml"));
}
