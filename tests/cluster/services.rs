//! Failures of services: Slurm's controller, and Holdfast's orchestrator.

use holdfast_testkit::cluster::{Cluster, Job, assert_contains, heat, until};

/// The usual job, which waits for a file `go`, after Slurm has saved it: before that, within seconds of the
/// submission, the job would be lost with its controller.
fn written_down<'a>(cluster: &'a Cluster, name: &str, options: &str, more: &str) -> Job<'a> {
    let work = "touch begun; until [ -e go ]; do sleep 0.1; done; holdfast run job.yaml";
    let job = cluster.submit(name, &heat(more), options, work);
    until("the batch script", || job.run("ls").contains("begun"));
    // Slurm saves after a change only; the save of the start may be older than the file.
    job.run(&format!("scontrol update JobId={} Comment=begun", job.id));
    let written = format!("find /var/lib/slurm/ctld/job_state -newer /pfs/{name}/begun");
    until("the job in Slurm's state", || cluster.on("ctl", &written).starts_with('/'));
    job
}

#[test(crate::cluster)]
fn controller_restart_does_not_affect_job(cluster: &Cluster) {
    let job = cluster.heat("controller", "");
    job.wait_for("checkpoint 2 protected");
    cluster.on("ctl", "pkill -TERM slurmctld");
    job.wait_for("checkpoint 4 protected");
    cluster.docker("kill", "n3");
    let output = job.finish_well();
    assert!(output.contains("node failure: n3"), "{output}");
    assert!(!output.contains("generation 3"), "{output}");
}

#[test(crate::cluster)]
fn controller_crash_after_submission_only_delays_job(cluster: &Cluster) {
    let job = written_down(cluster, "submitted", "--nodes=4 --time=10", "");
    cluster.kill_controller(true);
    job.run("touch go");
    // Steps are refused until all nodes have registered again.
    let output = job.finish_well();
    assert!(!output.contains("is down") && !output.contains("generation 2"), "{output}");
}

#[test(crate::cluster)]
fn replaces_lost_node_when_controller_is_back(cluster: &Cluster) {
    let job = written_down(cluster, "away", "--nodes=6 --time=10", "relaunch: {no_progress_limit: 1}");
    job.run("touch go");
    job.wait_for("checkpoint 2 protected");
    cluster.kill_controller(false);
    job.wait_for("checkpoint 4 protected");
    cluster.docker("kill", "n3");
    job.wait_for("generation 2 cannot start yet");
    cluster.let_controller_start();
    let output = job.finish_well();
    assert_contains(&output, &["Unable to contact slurm controller", "node failure: n3"]);
    assert!(!output.contains("generation 3"), "a delayed launch is not a relaunch:\n{output}");
    for node in ["n1", "n2", "n4", "n5", "n6"] {
        assert!(!output.contains(&format!("{node} is down")), "{output}");
    }
}

#[test(crate::cluster)]
fn ranks_continue_without_orchestrator_until_takeover(cluster: &Cluster) {
    let work = "holdfast run job.yaml; echo \"first ended with $?\"; holdfast run job.yaml";
    let job = cluster.submit("orchestrator", &heat(""), "--nodes=6 --time=10", work);
    job.wait_for("checkpoint 3 protected");
    cluster.on("n1", "pkill -9 -f '[h]oldfast run'");
    job.wait_for("first ended with 137");
    let output = job.finish_well();
    assert!(!output.contains("generation 2"), "the generation is taken over, not relaunched:\n{output}");
}

#[test(crate::cluster)]
fn takeover_replaces_node_lost_meanwhile(cluster: &Cluster) {
    let work = "holdfast run job.yaml; until [ -e go ]; do sleep 0.1; done; holdfast run job.yaml";
    let job = cluster.submit("took-over", &heat(""), "--nodes=6 --time=10", work);
    job.wait_for("checkpoint 3 protected");
    cluster.on("n1", "pkill -9 -f '[h]oldfast run'");
    cluster.docker("kill", "n3");
    job.run("touch go");
    let output = job.finish_well();
    assert!(output.contains("generation 2 launched"), "{output}");
}
