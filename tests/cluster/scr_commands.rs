//! SCR's commands in a Slurm job, without pdsh: a job with `scr_srun`, and commands that run on all nodes.

use holdfast_testkit::cluster::{Cluster, heat_of};

use crate::kept_caches::HOLDS;

/// The commands of a batch script, each with its exit code.
const SCRIPT: &str = "\
holdfast compat install bin; PATH=$PWD/bin:$PATH; export SCR_FLUSH=0
scr_list_down_nodes; echo \"down: $?\"
scr_list_down_nodes --reason --down n2; echo \"one down: $?\"
scr_srun -n 4 -N 4 holdfast example heat --size 24x24 --steps 40 --step-delay 0 --checkpoint-every 10
echo \"srun: $?\"
scr_postrun; echo \"postrun: $?\"
scr_halt --checkpoints 5; echo \"halt: $?\"
scr_halt --list | grep CheckpointsLeft
scr_halt --remove; echo \"remove: $?\"
true";

#[test(crate::cluster)]
fn scr_srun_runs_a_job_and_commands_reach_all_nodes(cluster: &Cluster) {
    let job = cluster.submit("scr-commands", "", "--nodes=5 --time=10", SCRIPT);
    let output = job.finish_with(0);
    for expected in [
        "down: 0\n",
        "n2: Specified on command line\none down: 1\n",
        "scr_srun: run: exit code 0\n",
        "srun: 0\n",
        "has already been flushed",
        "postrun: 0\n",
        "n1: Setting CheckpointsLeft\n",
        "halt: 0\n",
        "n1:   CheckpointsLeft: 5\n",
        "remove: 0\n",
    ] {
        assert!(output.contains(expected), "{expected}:\n{output}");
    }
    let listing = cluster.on("ctl", "find /pfs/scr-commands -name index.scr");
    assert!(listing.contains("index.scr"), "{listing}");
}

#[test(crate::cluster)]
fn scr_flush_copies_from_the_caches_of_all_nodes_in_a_step_of_the_job(cluster: &Cluster) {
    let work = "holdfast run job.yaml & run=$!
until [ -e held ]; do sleep 0.1; done
holdfast compat install bin; PATH=$PWD/bin:$PATH; export SCR_PREFIX=$PWD/flushed
copy=scr.2026-01-02_03:04:05.$SLURM_JOB_ID.4; mkdir flushed
scr_flush --verbose --id 4 --from $(scr_cntl_dir --user user1) --to $SCR_PREFIX/$copy; echo \"flush: $?\"
scr_index --prefix $SCR_PREFIX --add $copy; echo \"index: $?\"
touch go-on; wait $run";
    let job = cluster.submit("scr-flush", &heat_of(&HOLDS, ""), "--nodes=5 --time=10", work);
    job.wait_for("checkpoint 4 protected");
    job.run("touch held");
    let output = job.finish_well();
    for node in ["n1", "n2", "n3", "n4"] {
        assert!(output.contains(&format!("{node}: scr_copy: {node}: Return code: 0\n")), "{output}");
    }
    // The spare has no files.
    assert!(output.contains("n5: scr_copy: n5: Do not have any files for checkpoint id 4\n"), "{output}");
    assert!(output.contains("flush: 0\n") && output.contains("index: 0\n"), "{output}");
}
