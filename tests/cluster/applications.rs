//! Ranks that fail or hang, and full caches.

use holdfast_testkit::cluster::{Cluster, assert_contains, heat, heat_of};

/// Sends a signal to the rank on a node after the third checkpoint, and checks how the job continues.
fn rank_dies_of(name: &str, signal: &str, number: u32) {
    let cluster = super::cluster();
    let job = cluster.heat(name, "");
    job.wait_for("checkpoint 3 protected");
    // Rust's handler for stack overflows restores the default action at the first signal and returns: until it ends.
    let ranks = "$(pgrep -f '[h]oldfast example')";
    cluster.on("n2", &format!("for pid in {ranks}; do while kill -{signal} $pid; do sleep 0.02; done; done"));
    let output = job.finish_well();
    assert_contains(&output, &[&format!("rank 1 ended with signal {number}"), "generation 2 launched"]);
    assert!(!output.contains("is down"), "no node is excluded:\n{output}");
    assert!(!output.contains("moved"), "every rank stays on its node:\n{output}");
}

#[test]
fn abort_of_one_rank_relaunches_on_same_nodes() {
    rank_dies_of("abort", "ABRT", 6);
}

#[test]
fn segfault_of_one_rank_relaunches_on_same_nodes() {
    rank_dies_of("segfault", "SEGV", 11);
}

#[test(crate::cluster)]
fn repeated_exit_code_of_one_rank_ends_job(cluster: &Cluster) {
    let arguments = ["--steps", "120", "--exit-at", "25", "--exit-code", "3", "--exit-rank", "2"];
    let more = "relaunch: {no_progress_limit: 2}";
    let job = cluster.submit("exit-code", &heat_of(&arguments, more), "--nodes=4 --time=10", "holdfast run job.yaml");
    let (output, code) = job.finish();
    assert_contains(&output, &["rank 2 ended with exit code 3", "generation 2 launched", "generation 3 launched"]);
    assert!(![0, 75].contains(&code), "another allocation would not help: {code}\n{output}");
    assert!(output.contains("heat-run/scr."), "the newest checkpoint was drained:\n{output}");
}

#[test(crate::cluster)]
fn cache_of_one_node_that_is_full_later_costs_no_node(cluster: &Cluster) {
    for node in ["n1", "n2", "n3", "n4", "n5", "n6"] {
        cluster.on(node, "rm -rf /small/*");
    }
    let job = cluster.heat("full", "checkpoint: {cache: [{base: /small, keep: 1}]}");
    job.wait_for("checkpoint 3 protected");
    cluster.on("n2", "dd if=/dev/zero of=/small/junk bs=64k 2>/dev/null");
    let output = job.finish_well();
    cluster.on("n2", "rm -f /small/junk");
    assert!(!output.contains("is down"), "{output}");
    assert!(!output.contains("generation 2 launched"), "{output}");
}

#[test(crate::cluster)]
fn reports_missing_program_before_agents_start(cluster: &Cluster) {
    let spec = heat("").replace("command: [holdfast,", "command: [./no-such-program,");
    let job = cluster.submit("missing", &spec, "--nodes=4 --time=10", "holdfast run job.yaml");
    let output = job.finish_with(78);
    assert!(output.contains("no-such-program"), "{output}");
}

#[test(crate::cluster)]
fn hang_of_rank_is_detected_with_stack_and_relaunched(cluster: &Cluster) {
    let arguments = ["--steps", "120", "--hang-at", "40", "--hang-rank", "2", "--hang-once", "/pfs/hang/hung"];
    let spec = heat_of(&arguments, "health: {hang_after: 2s}");
    let job = cluster.submit("hang", &spec, "--nodes=4 --time=10", "holdfast run job.yaml");
    let output = job.finish_well();
    assert!(output.contains("generation 1 hangs in rank") && output.contains("the application hangs: "), "{output}");
    assert!(output.contains("generation 2 launched") && output.contains("restarted from checkpoint"), "{output}");
    assert!(!output.contains("is down"), "no node is excluded:\n{output}");
    let stack = job.run("cat heat-run/.holdfast/generations/1/rank_2.stack");
    assert!(stack.starts_with("rank 2 of generation 1 on n"), "{stack}");
    // The debugger's output, not only that of the kernel.
    assert!(stack.contains("thread ") && stack.contains("heat::"), "{stack}");
}
