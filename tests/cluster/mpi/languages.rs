//! Applications in Fortran and Python under the launchers of MPI.

use holdfast_testkit::cluster::{Cluster, Job};

use super::{OPEN_MPI, compile, in_repository, result};

#[test(crate::cluster)]
fn fortran_program_restarts_from_named_checkpoint_after_node_loss(cluster: &Cluster) {
    let program = compile(cluster, "mpif90.openmpi", "mpi.f90", "mpi_fortran");
    // Long enough that a busy machine kills the node before the end.
    let command = [program.as_str(), "300", "result"];
    let job = OPEN_MPI.submit(cluster, "fortran", &command, "");
    job.wait_for("checkpoint 4 protected");
    cluster.docker("kill", "n2");
    let output = job.finish_with(0);
    assert!(output.contains("node failure: n2") && output.contains("rebuilt: ranks 2-3"), "{output}");
    let (hash, step, loaded) = result(&job, "result");
    assert!(step >= 30 && loaded == format!("step.{step}"), "{step} {loaded}");
    assert_eq!(hash, OPEN_MPI.undisturbed(&job, &command, "result"));
}

/// The Python module where all nodes see it.
fn install_module(cluster: &Cluster) {
    super::install_library(cluster);
    let package = ["scr.py", "holdfast/__init__.py", "holdfast/_library.py"];
    for file in package.into_iter().chain(["examples/mpi4py_style.py", "examples/torchrun_style.py"]) {
        let from = in_repository("agents/client/python").join(file);
        cluster.share(&from, &format!("/opt/holdfast/python/{file}"));
    }
}

/// The command that runs a Python program.
const PYTHON: [&str; 5] = [
    "env",
    "PYTHONPATH=/opt/holdfast/python",
    "HOLDFAST_LIBSCR=/opt/holdfast/lib/libscr.so",
    "PYTHONDONTWRITEBYTECODE=1",
    "python3",
];

/// The example sums `step * (rank + 1)`; the file of each rank contains the result and the step it restarted from.
fn finishes_after_the_loss_of_a_node(cluster: &Cluster, job: &Job<'_>) {
    job.wait_for("checkpoint 4 protected");
    cluster.docker("kill", "n3");
    let output = job.finish_with(0);
    assert!(output.contains("node failure: n3") && output.contains("rebuilt: ranks 4-5"), "{output}");
    let mut restarted = Vec::new();
    for rank in 0..6 {
        let text = job.run(&format!("cat result.{rank}"));
        let words: Vec<&str> = text.split_whitespace().collect();
        let [sum, step, name] = words[..] else { panic!("rank {rank}: {text}") };
        assert_eq!(sum, (40 * 41 / 2 * (rank + 1)).to_string(), "rank {rank}");
        assert_eq!(name, format!("step.{step}"));
        restarted.push(step.to_owned());
    }
    restarted.dedup();
    assert!(restarted.len() == 1 && restarted[0] != "0", "{restarted:?}");
}

#[test(crate::cluster)]
fn mpi4py_example_restarts_after_node_loss(cluster: &Cluster) {
    install_module(cluster);
    let example = ["/opt/holdfast/python/examples/mpi4py_style.py", "--steps", "40", "--step-delay", "0.1"];
    let job = OPEN_MPI.submit(cluster, "mpi4py", &[&PYTHON[..], &example].concat(), "");
    finishes_after_the_loss_of_a_node(cluster, &job);
    assert!(job.output().contains("6 ranks, known by MPI"), "{}", job.output());
}

#[test(crate::cluster)]
fn torchrun_example_restarts_after_node_loss(cluster: &Cluster) {
    install_module(cluster);
    // The variables of torchrun for its workers, and no other variable with a rank.
    let python = PYTHON[1..].join(" ");
    let worker = format!(
        "export RANK=$SLURM_PROCID WORLD_SIZE=6 TORCHELASTIC_RUN_ID=x; unset SLURM_PROCID PMIX_RANK PMI_RANK; \
         exec env {python} /opt/holdfast/python/examples/torchrun_style.py --steps 40 --step-delay 0.1"
    );
    let job = OPEN_MPI.submit(cluster, "torchrun", &["sh", "-c", &worker], "");
    finishes_after_the_loss_of_a_node(cluster, &job);
}
