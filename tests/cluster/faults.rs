//! Faults that are injected on the nodes of a Slurm job, by its agents.

use holdfast_testkit::cluster::{Cluster, heat};

#[test(crate::cluster)]
fn a_node_that_an_injected_fault_takes_along_is_replaced_and_nothing_runs_without_permission(cluster: &Cluster) {
    let faults = "{manager: slurm, faults: [{node: 2, after_checkpoint: 3}]}";
    let spec = heat("").replace("{manager: slurm}", faults);
    let submit = |name: &str, work: &str| cluster.submit(name, &spec, "--nodes=6 --time=10", work);
    let (output, code) = submit("fault-refused", "holdfast run job.yaml").finish();
    assert_eq!(code, 78, "{output}");
    assert!(output.contains("machines of `manager: slurm`; nothing was started"), "{output}");
    let job = submit("fault", "holdfast run --allow-faults=heat job.yaml");
    let output = job.finish_well();
    let lost = output.lines().find_map(|line| line.split_once(" is down").map(|(before, _)| before.to_owned()));
    let lost = lost.unwrap_or_else(|| panic!("no node is down:\n{output}"));
    let node = lost.rsplit(' ').next().unwrap();
    assert!(output.contains("rebuilt: rank 2"), "{output}");
    assert!(output.contains("fault injected: `kill` of node 2 of the allocation after checkpoint 3"), "{output}");
    cluster.wait_for_nothing_on(node);
    let left = cluster.on(node, "ls -d /tmp/*/scr.* 2>/dev/null || true");
    assert!(!left.contains(&format!("scr.{}", job.id)), "{left}");
}
