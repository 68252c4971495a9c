//! The report of a failed rank: with every launcher and MPI the rank is named, although all ranks end with it, but for
//! MPI_Abort with Hydra, which does not always report the rank.

use super::world::{self, NODES, expected, homes, nothing_is_left};
use super::{BY_HYDRA, BY_MPIRUN, MPICH, Mpi, OPEN_MPI};

/// One rank fails in the first generation: it is named, no node is excluded, and a later generation finishes: the
/// second, unless Open MPI crashes in it (see `world.c`).
fn check_that_failed_rank_is_named(mpi: Mpi, mode: &str, expected_end: &str) {
    check_failed_rank(mpi, mode, &[&format!("rank 4 ended with {expected_end}")]);
}

/// The same, with one of these reports.
fn check_failed_rank(mpi: Mpi, mode: &str, reports: &[&str]) {
    let cluster = crate::cluster();
    let job = world::submit(mpi, &cluster, &format!("mpi-{mode}"), &format!(", {mode}, \"4\""), 4);
    let output = job.finish_with(0);
    assert!(reports.iter().any(|report| output.contains(report)), "{output}");
    assert!(!output.contains("is down"), "no node is excluded:\n{output}");
    let last = job.events().iter().filter_map(|event| event["generation"].as_u64()).max().unwrap();
    assert!(last > 1, "{output}");
    assert_eq!(homes(&output, last), expected(["n1", "n1", "n2", "n2", "n3", "n3"]), "{output}");
    nothing_is_left(&cluster, &NODES);
}

#[test]
fn reports_abort_of_rank_under_mpirun() {
    check_that_failed_rank_is_named(BY_MPIRUN, "abort", "exit code 5");
}

#[test]
fn reports_abort_of_rank_under_hydra() {
    // Hydra may kill the ranks before it forwards the message of the rank: then it reports the exit code only.
    let reports = ["rank 4 ended with exit code 5", "the application failed with exit code 5"];
    check_failed_rank(BY_HYDRA, "abort", &reports);
}

#[test]
fn reports_segfault_of_rank_under_mpirun() {
    check_that_failed_rank_is_named(BY_MPIRUN, "segfault", "signal 11");
}

#[test]
fn reports_segfault_of_rank_under_hydra() {
    check_that_failed_rank_is_named(BY_HYDRA, "segfault", "signal 11");
}

#[test]
fn reports_exit_code_of_rank_under_mpirun() {
    check_that_failed_rank_is_named(BY_MPIRUN, "exit", "exit code 3");
}

#[test]
fn reports_exit_code_of_rank_under_hydra() {
    check_that_failed_rank_is_named(BY_HYDRA, "exit", "exit code 3");
}

#[test]
fn reports_abort_of_rank_with_open_mpi_under_srun() {
    check_that_failed_rank_is_named(OPEN_MPI, "abort", "exit code 5");
}

#[test]
fn reports_abort_of_rank_with_mpich_under_srun() {
    check_that_failed_rank_is_named(MPICH, "abort", "exit code 5");
}

#[test]
fn reports_segfault_of_rank_with_open_mpi_under_srun() {
    check_that_failed_rank_is_named(OPEN_MPI, "segfault", "signal 11");
}

#[test]
fn reports_segfault_of_rank_with_mpich_under_srun() {
    check_that_failed_rank_is_named(MPICH, "segfault", "signal 11");
}

#[test]
fn reports_exit_code_of_rank_with_open_mpi_under_srun() {
    check_that_failed_rank_is_named(OPEN_MPI, "exit", "exit code 3");
}

#[test]
fn reports_exit_code_of_rank_with_mpich_under_srun() {
    check_that_failed_rank_is_named(MPICH, "exit", "exit code 3");
}
