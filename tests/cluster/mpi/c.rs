//! Programs in C: nodes are lost, checkpoints are drained, and the next allocation continues.

use super::{BY_HYDRA, BY_MPIRUN, MPICH, Mpi, OPEN_MPI, STEPS, named, result};
use holdfast_testkit::cluster::Cluster;

/// MPICH of Debian 12, over UCX and TCP, may hang in its MPI_Finalize, under any launcher: the watchdog ends it.
const FINALIZE: &str = "health: {hang_after: 5s, busy_hang_after: 5s}";

/// A job whose third node is lost; it must end with the result of a failure-free run, from a named
/// checkpoint if its checkpoints have names.
fn continues_after_node_loss(mpi: Mpi, name: &str, command: &[&str], more: &str) {
    let cluster = crate::cluster();
    let program = mpi.compile_c(&cluster);
    let mut words = vec![program.as_str()];
    words.extend(command);
    words.extend(["--delay", "20"]);
    let job = mpi.submit(&cluster, name, &words, more);
    job.wait_for("checkpoint 4 protected");
    cluster.docker("kill", "n3");
    let output = job.finish_with(0);
    assert!(output.contains("node failure: n3"), "{output}");
    let (hash, step, loaded) = result(&job, "result");
    assert!(step > 0, "{output}");
    if command[0] != "plain" {
        assert_eq!(loaded, format!("step.{step}"));
    }
    // The cache was lost with the node, and rebuilt from the others; the shared file was never in the cache.
    assert_eq!(output.contains("rebuilt: ranks 4-5"), command[0] != "shared", "{output}");
    // Slurm would wait for the lost node.
    cluster.heal();
    assert_eq!(hash, mpi.undisturbed(&job, &words, "result"));
}

#[test]
fn mpich_program_restarts_from_rebuilt_files_after_node_loss() {
    continues_after_node_loss(MPICH, "mpich", &["own", STEPS, "result"], FINALIZE);
}

#[test]
fn mpich_program_under_mpiexec_restarts_from_rebuilt_files_after_node_loss() {
    continues_after_node_loss(BY_HYDRA, "mpich-hydra", &["own", STEPS, "result"], FINALIZE);
}

#[test]
fn open_mpi_program_under_mpirun_restarts_from_rebuilt_files_after_node_loss() {
    continues_after_node_loss(BY_MPIRUN, "openmpi-mpirun", &["own", STEPS, "result"], "");
}

#[test]
fn open_mpi_scr_1_program_restarts_from_rebuilt_files_after_node_loss() {
    continues_after_node_loss(OPEN_MPI, "openmpi-plain", &["plain", STEPS, "result"], "");
}

#[test]
fn open_mpi_program_restarts_from_shared_mpi_io_file_after_node_loss() {
    continues_after_node_loss(OPEN_MPI, "openmpi-shared", &["shared", STEPS, "result"], "");
}

#[test(crate::cluster)]
fn open_mpi_program_is_drained_and_restarts_by_name_in_next_allocation(cluster: &Cluster) {
    let program = OPEN_MPI.compile_c(cluster);
    let command = [program.as_str(), "own", STEPS, "result", "--delay", "20"];
    let spec = OPEN_MPI.spec(&command, "");
    let job = cluster.submit(
        "openmpi",
        &spec,
        "--nodelist=n1,n2,n3,n4 --ntasks-per-node=2 --time=10",
        "holdfast run job.yaml",
    );
    job.wait_for("checkpoint 4 protected");
    cluster.docker("kill", "n3");
    // The program's third datasets (2, 5, 8) are output, and reported when they are flushed.
    job.wait_for("generation 2 launched").wait_for("checkpoint 9 protected");
    cluster.docker("kill", "n2");
    // Two of three nodes with ranks are left: the job is not finished, and the files of the lost node are rebuilt in
    // the drain.
    let output = job.finish_with(75);
    assert!(output.contains("node failure: n3") && output.contains("node failure: n2"), "{output}");

    cluster.heal();
    let output = OPEN_MPI.again(&job, &command);
    assert!(output.contains("from the prefix directory"), "{output}");
    let (hash, step, loaded) = result(&job, "result");
    assert!(step >= 50 && loaded == format!("step.{step}"), "{step} {loaded}");
    let expected = OPEN_MPI.undisturbed(&job, &command, "result");
    assert_eq!(hash, expected);
    let (files, indexed) = named(&job);
    assert!(files.contains(&"picture.20".to_owned()) && !indexed.contains(&"picture.20".to_owned()), "{indexed:?}");
    assert!(!files.contains(&"picture.40".to_owned()), "{files:?}");
    for step in [60, 80, 100, 120] {
        assert!(indexed.contains(&format!("picture.{step}")), "{indexed:?}");
    }

    // An older checkpoint, selected by the user.
    let mut chosen = command.to_vec();
    chosen.extend(["--current", &loaded]);
    OPEN_MPI.again(&job, &chosen);
    assert_eq!(result(&job, "result"), (expected, step, loaded.clone()));
}
