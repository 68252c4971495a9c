//! The allocation ends before the job does: limits, signals.

use holdfast_testkit::cluster::{heat, heat_of};

const LONG: [&str; 2] = ["--steps", "5000"];

#[test]
fn before_the_allocation_ends_the_job_halts_and_drains_also_when_the_end_was_moved() {
    let Some(cluster) = super::cluster() else { return };
    let more = "halt: {before_end: 45s}\ncheckpoint: {flush: {every: 0}}";
    let job = cluster.submit("time-limit", &heat_of(&LONG, more), "--nodes=5 --time=10", "holdfast run job.yaml");
    job.wait_for("checkpoint 2 complete");
    cluster.on("ctl", &format!("scontrol update JobId={} TimeLimit=1", job.id));
    job.wait_for("the allocation now ends at");
    let (output, code) = job.finish();
    assert_eq!(code, 75, "{output}");
    assert!(output.contains("complete in") || output.contains("heat-run/scr."), "{output}");
}

#[test]
fn the_next_allocation_goes_on_where_a_signal_ended_the_first() {
    let Some(cluster) = super::cluster() else { return };
    let job = cluster.submit(
        "signal",
        &heat(""),
        "--nodes=5 --time=10",
        "holdfast run job.yaml & wait_for=$!
trap 'kill -TERM $wait_for' TERM
wait $wait_for; wait $wait_for",
    );
    job.wait_for("checkpoint 4 complete");
    cluster.on("ctl", &format!("scancel --batch --signal=TERM {}", job.id));
    let (output, code) = job.finish();
    assert_eq!(code, 75, "{output}");
    assert!(output.contains("SIGTERM"), "{output}");
    let again =
        "sbatch --wait --parsable --output=second --nodes=4 --ntasks-per-node=1 --time=10 job.sbatch; cat second";
    let second = job.run(again);
    assert!(second.contains("restarted from checkpoint"), "{second}");
    assert!(second.contains("exit code 0"), "{second}");
}
