//! What we depend on fails: Slurm's controller, and Holdfast's own orchestrator.

use holdfast_testkit::cluster::heat;

#[test]
fn a_controller_that_restarts_meanwhile_is_not_noticed() {
    let Some(cluster) = super::cluster() else { return };
    let job = cluster.heat("controller", "");
    job.wait_for("checkpoint 2 complete");
    cluster.on("ctl", "pkill -TERM slurmctld");
    job.wait_for("checkpoint 4 complete");
    cluster.docker("kill", "n3");
    let output = job.finish_well();
    assert!(output.contains("node failure: n3"), "{output}");
}

#[test]
fn while_the_orchestrator_is_dead_the_ranks_go_on_and_the_next_one_takes_over() {
    let Some(cluster) = super::cluster() else { return };
    let work = "holdfast run job.yaml; echo \"first ended with $?\"; holdfast run job.yaml";
    let job = cluster.submit("orchestrator", &heat(""), "--nodes=6 --time=10", work);
    job.wait_for("checkpoint 3 complete");
    cluster.on("n1", "pkill -9 -f '[h]oldfast run'");
    job.wait_for("first ended with 137");
    let output = job.finish_well();
    assert!(!output.contains("generation 2"), "the run was taken over, not begun anew:\n{output}");
}

#[test]
fn an_orchestrator_that_took_over_replaces_a_node_that_died_meanwhile() {
    let Some(cluster) = super::cluster() else { return };
    let work = "holdfast run job.yaml; until [ -e go ]; do sleep 0.1; done; holdfast run job.yaml";
    let job = cluster.submit("took-over", &heat(""), "--nodes=6 --time=10", work);
    job.wait_for("checkpoint 3 complete");
    cluster.on("n1", "pkill -9 -f '[h]oldfast run'");
    cluster.docker("kill", "n3");
    job.run("touch go");
    let output = job.finish_well();
    assert!(output.contains("generation 2 launched"), "{output}");
}
