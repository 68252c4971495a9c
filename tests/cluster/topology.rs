//! `failure_domain: topology`: the leaf switches that Slurm knows.

use holdfast_testkit::cluster::{Cluster, assert_contains, heat};

const SWITCHES: &str = "SwitchName=s1 Nodes=n[1-2]\\nSwitchName=s2 Nodes=n[3-4]\\nSwitchName=s3 Nodes=n[5-6]\\n\
                        SwitchName=top Switches=s[1-3]\\n";

fn by_switch() -> String {
    heat("").replace("{manager: slurm}", "{manager: slurm, failure_domain: topology}")
}

#[test(crate::cluster)]
fn ranks_are_spread_over_the_switches_and_a_spare_of_the_same_switch_replaces_a_node(cluster: &Cluster) {
    let _topology = cluster.with_topology(SWITCHES);
    let job = cluster.submit("topology", &by_switch(), "--nodes=6 --time=10", "holdfast run job.yaml");
    job.wait_for("checkpoint 3 protected");
    cluster.docker("kill", "n5");
    let output = job.finish_well();
    assert_contains(&output, &["failure domains: 3 switches", "generation 1 on n1 n2 n3 n5, 2 spares"]);
    // n4 comes first in the allocation.
    assert_contains(&output, &["generation 2 on n1 n2 n3 n6, 1 spare", "rebuilt: rank 3"]);
    cluster.heal();
}

#[test(crate::cluster)]
fn without_a_topology_plugin_the_run_is_refused(cluster: &Cluster) {
    let job = cluster.submit("no-topology", &by_switch(), "--nodes=6 --time=10", "holdfast run job.yaml");
    let output = job.finish_with(78);
    assert!(output.contains("the resource manager knows no switches (in Slurm: `scontrol show topology`)"), "{output}");
    assert!(!output.contains("generation 1"), "{output}");
}
