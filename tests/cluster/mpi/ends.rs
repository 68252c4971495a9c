//! How a rank's bad end reaches Holdfast: whichever launcher and MPI, it is named, though all the others end with it.

use super::world::{self, NODES, expected, homes, nothing_is_left};
use super::{BY_HYDRA, BY_MPIRUN, MPICH, Mpi, OPEN_MPI};

/// One rank ends badly in the first generation: it is named, no node is blamed, and the second one finishes.
fn the_rank_that_ended_badly_is_named(mpi: Mpi, mode: &str, expected_end: &str) {
    let cluster = crate::cluster();
    let job = world::submit(mpi, &cluster, &format!("mpi-{mode}"), &format!(", {mode}, \"4\""), 4);
    let (output, code) = job.finish();
    assert_eq!(code, 0, "{output}");
    assert!(output.contains(&format!("rank 4 ended with {expected_end}")), "{output}");
    assert!(!output.contains("is down"), "no node is blamed:\n{output}");
    assert_eq!(homes(&output, 2), expected(["n1", "n1", "n2", "n2", "n3", "n3"]), "{output}");
    nothing_is_left(&cluster, &NODES);
}

#[test]
fn reports_abort_of_rank_under_mpirun() {
    the_rank_that_ended_badly_is_named(BY_MPIRUN, "abort", "exit code 5");
}

#[test]
fn reports_abort_of_rank_under_hydra() {
    the_rank_that_ended_badly_is_named(BY_HYDRA, "abort", "exit code 5");
}

#[test]
fn reports_segfault_of_rank_under_mpirun() {
    the_rank_that_ended_badly_is_named(BY_MPIRUN, "segfault", "signal 11");
}

#[test]
fn reports_segfault_of_rank_under_hydra() {
    the_rank_that_ended_badly_is_named(BY_HYDRA, "segfault", "signal 11");
}

#[test]
fn reports_exit_code_of_rank_under_mpirun() {
    the_rank_that_ended_badly_is_named(BY_MPIRUN, "exit", "exit code 3");
}

#[test]
fn reports_exit_code_of_rank_under_hydra() {
    the_rank_that_ended_badly_is_named(BY_HYDRA, "exit", "exit code 3");
}

#[test]
fn reports_abort_of_rank_with_open_mpi_under_srun() {
    the_rank_that_ended_badly_is_named(OPEN_MPI, "abort", "exit code 5");
}

#[test]
fn reports_abort_of_rank_with_mpich_under_srun() {
    the_rank_that_ended_badly_is_named(MPICH, "abort", "exit code 5");
}

#[test]
fn reports_segfault_of_rank_with_open_mpi_under_srun() {
    the_rank_that_ended_badly_is_named(OPEN_MPI, "segfault", "signal 11");
}

#[test]
fn reports_segfault_of_rank_with_mpich_under_srun() {
    the_rank_that_ended_badly_is_named(MPICH, "segfault", "signal 11");
}

#[test]
fn reports_exit_code_of_rank_with_open_mpi_under_srun() {
    the_rank_that_ended_badly_is_named(OPEN_MPI, "exit", "exit code 3");
}

#[test]
fn reports_exit_code_of_rank_with_mpich_under_srun() {
    the_rank_that_ended_badly_is_named(MPICH, "exit", "exit code 3");
}
