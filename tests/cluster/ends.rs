//! The allocation ends before the job: time limits, signals.

use holdfast_testkit::cluster::{Cluster, assert_contains, heat, heat_of, submit_and_wait};

const LONG: [&str; 2] = ["--steps", "5000"];

#[test(crate::cluster)]
fn halts_and_drains_before_allocation_ends_also_after_change(cluster: &Cluster) {
    let more = "halt: {before_end: 45s}\ncheckpoint: {flush: {every: 0}}";
    let job = cluster.submit("time-limit", &heat_of(&LONG, more), "--nodes=5 --time=10", "holdfast run job.yaml");
    job.wait_for("checkpoint 2 protected");
    cluster.on("ctl", &format!("scontrol update JobId={} TimeLimit=1", job.id));
    job.wait_for("the allocation now ends at");
    let output = job.finish_with(75);
    assert!(output.contains("complete in") || output.contains("heat-run/scr."), "{output}");
}

#[test(crate::cluster)]
fn cancelled_job_drains_before_slurm_kills_it(cluster: &Cluster) {
    let more = "checkpoint: {flush: {every: 0}}";
    let job = cluster.submit("cancelled", &heat_of(&LONG, more), "--nodes=5 --time=10", "exec holdfast run job.yaml");
    job.wait_for("checkpoint 4 protected");
    // SIGTERM to every process of the job, also to our own steps; after KillWait, five seconds here, SIGKILL.
    job.run(&format!("scancel {}", job.id));
    job.wait_for("took ");
    let output = job.output();
    assert_contains(&output, &["exit code 75", "halted by SIGTERM", "is complete in the prefix directory"]);
    assert!(!output.contains("is down"), "an agent ended too early:\n{output}");
    // The reported checkpoint exists, is intact, and is not older than the observed one.
    let newest = |text: &str| {
        text.rsplit("is complete in scr.").next()?.split([',', '\n']).next()?.rsplit('.').next()?.parse().ok()
    };
    let newest: Option<u32> = newest(&output);
    assert!(newest.is_some_and(|newest| newest >= 4), "{newest:?}\n{output}");
    let listing = job.run("holdfast index list --prefix heat-run; readlink heat-run/scr.current");
    assert!(listing.contains(&format!(".{}\n", newest.unwrap())), "{listing}");
    for node in ["n1", "n2", "n5"] {
        cluster.wait_for_nothing_on(node);
    }
}

#[test(crate::cluster)]
fn signal_of_batch_script_halts_job_and_is_ignored_by_agents(cluster: &Cluster) {
    let job = cluster.submit("warning", &heat_of(&LONG, ""), "--nodes=5 --time=10", "exec holdfast run job.yaml");
    job.wait_for("checkpoint 2 protected");
    // To all steps, as `#SBATCH --signal=USR1@120` without the B: it kills the ranks, which do not handle it.
    job.run(&format!("scancel --signal=USR1 {}", job.id));
    job.wait_for("generation 2 launched").wait_for("checkpoint 5 protected");
    assert!(!job.output().contains("agent lost"), "{}", job.output());
    // To the batch script, as `#SBATCH --signal=B:USR1@120`.
    job.run(&format!("scancel --batch --signal=USR1 {}", job.id));
    job.wait_for("took ");
    let output = job.output();
    // The last checkpoint is flushed when the ranks halt with it.
    assert!(output.contains("halted by SIGUSR1") && output.contains("flushed to scr."), "{output}");
    assert_eq!(job.batch_exit_code(), 75, "{output}");
}

/// A program without the checkpoint API on four nodes, whose ranks save their state on SIGTERM.
fn saves_on_sigterm(name: &str, launcher: &str, rank: &str) {
    let cluster = super::cluster();
    let script =
        format!("trap 'echo state >saved-${rank}; exit 0' TERM; touch ready-${rank}; while :; do sleep 0.1; done");
    let spec = format!(
        "job: script\nprefix: ./heat-run\nallocation: {{manager: slurm}}\nhalt: {{grace: 60s}}\n\
         run: {{nodes: 4, ranks_per_node: 1, {launcher}command: [sh, -c, {script:?}]}}\n"
    );
    let job = cluster.submit(name, &spec, "--nodes=5 --time=10", "exec holdfast run job.yaml");
    job.wait_for("generation 1 launched");
    job.run("timeout 60 bash -c 'for rank in 0 1 2 3; do until [ -e ready-$rank ]; do sleep 0.1; done; done'");
    job.run(&format!("scancel --batch --signal=TERM {}", job.id));
    job.wait_for("took ");
    let output = job.output();
    assert!(output.contains("SIGTERM to the ranks") && output.contains("halted by SIGTERM"), "{output}");
    assert_eq!(job.batch_exit_code(), 75, "{output}");
    assert_eq!(job.run("cat saved-0 saved-1 saved-2 saved-3").matches("state").count(), 4);
    assert!(job.events().iter().all(|event| event["event"] != "rank_failed" || event["end"]["signal"] != 9));
}

#[test]
fn ranks_of_srun_handle_sigterm() {
    saves_on_sigterm("sigterm-srun", "", "SLURM_PROCID");
}

#[test]
fn ranks_of_mpirun_handle_sigterm() {
    saves_on_sigterm("sigterm-mpirun", "launcher: mpirun, ", "OMPI_COMM_WORLD_RANK");
}

#[test(crate::cluster)]
fn next_allocation_restarts_after_signal(cluster: &Cluster) {
    let job = cluster.submit(
        "signal",
        &heat(""),
        "--nodes=5 --time=10",
        "holdfast run job.yaml & wait_for=$!
trap 'kill -TERM $wait_for' TERM
wait $wait_for; wait $wait_for",
    );
    job.wait_for("checkpoint 4 protected");
    cluster.on("ctl", &format!("scancel --batch --signal=TERM {}", job.id));
    let output = job.finish_with(75);
    assert!(output.contains("SIGTERM"), "{output}");
    let again = submit_and_wait("--output=second --nodes=4 --ntasks-per-node=1 --time=10 job.sbatch");
    let second = job.run(&format!("{again}; cat second"));
    assert_contains(&second, &["restarted from checkpoint", "exit code 0"]);
}
