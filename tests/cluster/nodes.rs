//! Nodes that are killed, paused, disconnected, and return.

use holdfast_testkit::cluster::{Cluster, Job, assert_contains, heat, heat_of};

/// The log line of a run that restarted from a rebuilt checkpoint.
fn went_on_without(job: &Job<'_>, node: &str) {
    let output = job.finish_well();
    assert!(output.contains(&format!("{node} is down")), "{output}");
    assert_contains(&output, &["in cache, restored", "rebuilt: rank", &format!("node failure: {node}")]);
}

/// A job of four ranks on n1 to n4, without a spare, loses n4: its rank moves to a survivor.
pub fn goes_on_with_fewer_nodes(cluster: &Cluster, job: &Job<'_>) {
    job.wait_for("checkpoint 3 protected");
    cluster.docker("kill", "n4");
    let output = job.finish_well();
    assert!(output.contains("node failure: n4") && output.contains("rebuilt: rank"), "{output}");
    assert!(output.contains("generation 2 on n1 n2 n3, 0 spares, moved: rank 3\n"), "{output}");
    assert!(!output.contains("generation 3"), "{output}");
}

/// Another node is lost: the node that returned does not replace it.
fn lose_another_node_and_check_excluded_one(cluster: &Cluster, job: &Job<'_>, excluded: &str) {
    // The run has continued: a newer checkpoint is protected.
    job.wait_for("checkpoint 7 protected");
    assert!(!job.output().contains("generation 2 ended"), "{}", job.output());
    cluster.docker("kill", "n4");
    went_on_without(job, "n4");
    let output = job.output();
    let third = output.lines().find(|line| line.contains("generation 3 on ")).unwrap();
    assert!(!third.contains(excluded) && third.contains(" 0 spares"), "{output}");
    assert!(!output.contains("generation 4"), "{output}");
}

#[test(crate::cluster)]
fn rank_of_killed_node_restarts_elsewhere_from_rebuilt_checkpoint(cluster: &Cluster) {
    let job = cluster.heat("killed", "");
    job.wait_for("checkpoint 3 protected");
    cluster.docker("kill", "n3");
    went_on_without(&job, "n3");
    let output = job.output();
    assert!(output.contains("moved: rank 2\n"), "survivors keep their ranks:\n{output}");
}

#[test(crate::cluster)]
fn paused_node_is_replaced_and_stays_excluded(cluster: &Cluster) {
    let job = cluster.long_heat("paused", 360, "");
    job.wait_for("checkpoint 3 protected");
    cluster.docker("pause", "n2");
    // The kernel accepts connections for its agent, which does not use them.
    job.wait_for("n2: agent lost").wait_for("its process does not run").wait_for("generation 2 launched");
    cluster.docker("unpause", "n2");
    cluster.wait_for_nothing_on("n2");
    lose_another_node_and_check_excluded_one(cluster, &job, "n2");
}

#[test(crate::cluster)]
fn disconnected_node_is_lost_and_harmless_when_reconnected(cluster: &Cluster) {
    let job = cluster.long_heat("cut-off", 360, "");
    job.wait_for("checkpoint 3 protected");
    cluster.cut_off("n3");
    job.wait_for("generation 2 launched");
    // The node does not notice: its agent is alive, and waits for the orchestrator.
    assert!(cluster.on("n3", "ps -eo args").contains("holdfast agent"));
    cluster.reconnect("n3");
    cluster.wait_for_nothing_on("n3");
    lose_another_node_and_check_excluded_one(cluster, &job, "n3");
}

#[test(crate::cluster)]
fn two_spares_replace_two_nodes(cluster: &Cluster) {
    let job = cluster.heat("two", "");
    job.wait_for("checkpoint 2 protected");
    cluster.docker("kill", "n4");
    job.wait_for("generation 2 launched");
    // It is started again, without files of the job.
    cluster.docker("start", "n4");
    job.wait_for("checkpoint 6 protected");
    cluster.docker("kill", "n2");
    went_on_without(&job, "n2");
    let output = job.output();
    assert_contains(&output, &["node failure: n4", "generation 3 on n1 n3 n5 n6, 0 spares"]);
}

#[test(crate::cluster)]
fn replaces_first_node_of_run(cluster: &Cluster) {
    let job = cluster.interactive("first-node", &heat(""), "--nodes=6 --time=10");
    job.wait_for("checkpoint 3 protected");
    cluster.docker("kill", "n1");
    went_on_without(&job, "n1");
}

#[test(crate::cluster)]
fn killed_agent_is_restarted_and_ranks_continue(cluster: &Cluster) {
    let job = cluster.heat("agent", "");
    job.wait_for("checkpoint 3 protected");
    cluster.on("n3", "pkill -9 -f '[h]oldfast agent'");
    job.wait_for("n3: agent lost").wait_for("n3: agent restarted");
    job.wait_for("checkpoint 6 protected");
    let output = job.output();
    assert!(!output.contains("is down") && !output.contains("generation 2"), "the ranks are not affected:\n{output}");
    // Its files are used: those of another lost node are rebuilt from them.
    cluster.docker("kill", "n2");
    went_on_without(&job, "n2");
    assert!(!job.output().contains("n3 is down"));
}

#[test(crate::cluster)]
fn does_not_use_node_set_down_by_administrator(cluster: &Cluster) {
    let job = cluster.submit(
        "set-down",
        &heat_of(&["--steps", "120", "--step-delay", "100ms"], ""),
        "--nodes=6 --time=10",
        "holdfast run job.yaml",
    );
    job.wait_for("checkpoint 2 protected");
    cluster.on("ctl", "scontrol update NodeName=n6 State=DOWN Reason=broken-fan");
    // Slurm ends the processes there; their ends may be detected before the state of the node.
    job.wait_for("n6 is down");
    job.finish_well();
}

#[test(crate::cluster)]
fn run_goes_on_with_fewer_nodes_and_more_ranks_on_one(cluster: &Cluster) {
    let spec = heat("relaunch: {min_nodes: 3}");
    let job = cluster.submit("fewer", &spec, "--nodelist=n[1-4] --time=10", "holdfast run job.yaml");
    goes_on_with_fewer_nodes(cluster, &job);
    went_on_without(&job, "n4");
}

#[test(crate::cluster)]
fn excluded_nodes_get_no_ranks_and_those_excluded_now_are_left(cluster: &Cluster) {
    let work = "SCR_EXCLUDE_NODES=n2 holdfast run job.yaml";
    let job = cluster.submit("excluded", &heat(""), "--nodes=6 --time=10", work);
    job.wait_for("checkpoint 3 protected");
    job.run("holdfast nodes exclude n3 --now --reason noisy job.yaml");
    let output = job.finish_well();
    assert!(output.contains("n2 is excluded: listed in SCR_EXCLUDE_NODES"), "{output}");
    assert!(output.contains("generation 1 on n1 n3 n4 n5, 1 spare"), "{output}");
    assert!(output.contains("n3 is excluded: noisy; relaunched on other nodes: rank 1"), "{output}");
    assert!(output.contains("generation 2 on n1 n4 n5 n6, 0 spares"), "{output}");
}
