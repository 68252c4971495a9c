//! Nodes that die, freeze, are cut off, and come back.

use holdfast_testkit::cluster::{Job, heat, heat_of, until};

/// What the log says when a run went on from a rebuilt checkpoint.
fn went_on_without(job: &Job<'_>, node: &str) {
    let output = job.finish_well();
    assert!(output.contains(&format!("{node} is down")), "{output}");
    assert!(output.contains("in cache, restored"), "{output}");
    assert!(output.contains("rebuilt: rank"), "{output}");
    assert!(output.contains(&format!("node failure: {node}")), "{output}");
}

#[test]
fn a_killed_node_s_rank_goes_on_elsewhere_from_a_rebuilt_checkpoint() {
    let Some(cluster) = super::cluster() else { return };
    let job = cluster.heat("killed", "");
    job.wait_for("checkpoint 3 complete");
    cluster.docker("kill", "n3");
    went_on_without(&job, "n3");
    let output = job.output();
    assert!(output.contains("moved: rank 2\n"), "survivors keep their ranks:\n{output}");
}

#[test]
fn a_paused_node_is_left_behind_and_stays_excluded_when_it_comes_back() {
    let Some(cluster) = super::cluster() else { return };
    let job = cluster.heat("paused", "");
    job.wait_for("checkpoint 3 complete");
    cluster.docker("pause", "n2");
    job.wait_for("generation 2 launched");
    cluster.docker("unpause", "n2");
    until("the end of what still ran there", || {
        let processes = cluster.on("n2", "ps -eo args");
        !processes.contains("holdfast example") && !processes.contains("holdfast agent")
    });
    // Another node is lost: the one that came back is not used.
    job.wait_for("checkpoint 7 complete");
    cluster.docker("kill", "n4");
    went_on_without(&job, "n4");
    let output = job.output();
    assert!(output.lines().any(|line| line.contains("generation 3 on") && !line.contains("n2")), "{output}");
}

#[test]
fn a_node_that_is_cut_off_from_the_network_is_a_lost_node() {
    let Some(cluster) = super::cluster() else { return };
    let job = cluster.heat("cut-off", "");
    job.wait_for("checkpoint 3 complete");
    cluster.cut_off("n3");
    went_on_without(&job, "n3");
}

#[test]
fn two_nodes_one_after_the_other_are_replaced_by_both_spares() {
    let Some(cluster) = super::cluster() else { return };
    let job = cluster.heat("two", "");
    job.wait_for("checkpoint 2 complete");
    cluster.docker("kill", "n4");
    job.wait_for("generation 2 launched").wait_for("checkpoint 6 complete");
    cluster.docker("kill", "n2");
    went_on_without(&job, "n2");
    assert!(job.output().contains("node failure: n4"));
}

#[test]
fn the_first_node_of_the_run_is_replaced_like_any_other() {
    let Some(cluster) = super::cluster() else { return };
    let job = cluster.interactive("first-node", &heat(""), "--nodes=6 --time=10");
    job.wait_for("checkpoint 3 complete");
    cluster.docker("kill", "n1");
    went_on_without(&job, "n1");
}

#[test]
fn an_agent_that_is_killed_is_started_again_and_the_ranks_go_on() {
    let Some(cluster) = super::cluster() else { return };
    let job = cluster.heat("agent", "");
    job.wait_for("checkpoint 3 complete");
    cluster.on("n3", "pkill -9 -f '[h]oldfast agent'");
    job.wait_for("n3: agent lost");
    let output = job.finish_well();
    assert!(!output.contains("is down"), "{output}");
    assert!(!output.contains("generation 2"), "the ranks never noticed:\n{output}");
}

#[test]
fn a_node_that_the_administrator_sets_down_is_left() {
    let Some(cluster) = super::cluster() else { return };
    let job = cluster.submit(
        "set-down",
        &heat_of(&["--steps", "120", "--step-delay", "100ms"], ""),
        "--nodes=6 --time=10",
        "holdfast run job.yaml",
    );
    job.wait_for("checkpoint 2 complete");
    cluster.on("ctl", "scontrol update NodeName=n6 State=DOWN Reason=broken-fan");
    // Slurm ends what runs there; whether that or Slurm's own word is noticed first does not matter.
    job.wait_for("n6 is down");
    job.finish_well();
}
