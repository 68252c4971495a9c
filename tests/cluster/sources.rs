//! Jobs of other checkpoint sources than the API for files, under srun: variables, programs without calls, and MPI
//! programs into which libscr_interpose is loaded. Each loses a node.

use std::path::{Path, PathBuf};

use holdfast_testkit::cluster::{Cluster, Job, assert_contains, heat_of};

use crate::mpi::OPEN_MPI;

/// Kills the second node when the third checkpoint is protected.
fn loses_a_node(cluster: &Cluster, job: &Job<'_>) {
    job.wait_for("checkpoint 3 protected");
    cluster.docker("kill", "n2");
}

/// The lost files were rebuilt, on another node, and nothing else failed but the start of Open MPI (docs/mpirun.md).
fn assert_rebuilt(output: &str, ranks: &str) {
    assert_contains(output, &["node failure: n2", &format!("rebuilt: {ranks}")]);
    let crashed = output.matches("the ranks crashed before they had joined").count();
    assert!(!output.contains(&format!("generation {} launched", 3 + crashed)), "{output}");
}

#[test(crate::cluster)]
fn variables_continue_after_node_loss(cluster: &Cluster) {
    let spec = heat_of(&["--steps", "120", "--variables"], "checkpoint: {source: variables}");
    let job = cluster.submit("variables", &spec, "--nodes=6 --time=10", "holdfast run job.yaml").expecting(120);
    loses_a_node(cluster, &job);
    assert_rebuilt(&job.finish_well(), "rank 1");
    let verified = job.run("holdfast verify heat-run/scr.current/*.fti; echo \"code $?\"");
    assert!(verified.contains("intact") && verified.contains("code 0"), "{verified}");
}

#[test(crate::cluster)]
fn shell_program_without_calls_continues_after_node_loss(cluster: &Cluster) {
    let program = include_str!("../../configs/command/count.sh");
    let spec = "job: count\nprefix: ./heat-run\nallocation: {manager: slurm}\n\
                run:\n  nodes: 4\n  command: [sh, count.sh, state.$HOLDFAST_RANK, '500']\n\
                checkpoint:\n  source: command\n  command:\n    \
                save: [cp, state.$HOLDFAST_RANK, $HOLDFAST_CHECKPOINT_DIR/state]\n    every: 1s\n    timeout: 20s\n  \
                resume: [sh, count.sh, state.$HOLDFAST_RANK, '500', $HOLDFAST_RESTART_DIR/state]\n";
    let batch = "#!/bin/bash\nholdfast --verbose run job.yaml\necho \"exit code $?\"\n";
    let files = [("job.yaml", spec), ("job.sbatch", batch), ("count.sh", program)];
    let options = "--output=output --no-kill --ntasks-per-node=1 --nodes=6 --time=10 job.sbatch";
    let job = cluster.batch("command", &files, options);
    loses_a_node(cluster, &job);
    let output = job.finish_with(0);
    assert_rebuilt(&output, "rank 1");
    for rank in 0..4 {
        assert!(output.contains(&format!("[{rank}] sum 125250")), "rank {rank}:\n{output}");
    }
    cluster.heal();
    job.assert_nothing_left_on(&["n1", "n3", "n4", "n5", "n6"]);
}

/// The path of a file that cargo has built beside the test's executable, or of the repository.
fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)
}

#[test(crate::cluster)]
fn unchanged_mpi_program_continues_after_node_loss(cluster: &Cluster) {
    const LIBRARY: &str = "/opt/holdfast/lib/libscr_interpose.so";
    const PROGRAM: &str = "/opt/holdfast/test/unchanged_mpi";
    let built = std::env::current_exe().unwrap().with_file_name("libscr_interpose.so");
    cluster.share(&built, LIBRARY);
    cluster.share(&in_repository("tests/libscr/programs/unchanged_mpi.c"), &format!("{PROGRAM}.c"));
    let compiled = cluster.on("ctl", &format!("mpicc.openmpi -Wall -o {PROGRAM} {PROGRAM}.c && echo compiled"));
    assert_eq!(compiled.trim(), "compiled");
    let spec = OPEN_MPI.launches(&format!(
        "job: unchanged\nprefix: ./heat-run\nallocation: {{manager: slurm}}\n\
         run:\n  nodes: 3\n  ranks_per_node: 2\n  command: [{PROGRAM}, ., '700']\n\
         checkpoint:\n  redundancy: [{{scheme: xor, set_size: 3}}]\n  flush: {{every: 0}}\n  \
         interpose: {{files: '^state_[0-9]+\\.dat$', library: {LIBRARY}}}\n"
    ));
    let options = "--nodes=6 --ntasks-per-node=2 --time=10";
    let job = cluster.submit("interpose", &spec, options, "holdfast run job.yaml");
    loses_a_node(cluster, &job);
    let output = job.finish_with(0);
    assert_rebuilt(&output, "ranks 2-3");
    for rank in 0..6 {
        // Of the steps 1 to 10, continued after step 6 or 8.
        let result = job.run(&format!("cat result.{rank}"));
        let words: Vec<&str> = result.split_whitespace().collect();
        assert_eq!((words[0], words[2]), ((55 * (rank + 1)).to_string().as_str(), "15"), "{result}");
        assert!(["6", "8"].contains(&words[1]), "{result}");
    }
    let left = job.run("ls");
    assert!(!left.contains("state_"), "the state files are in the caches: {left}");
}
