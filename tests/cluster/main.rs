//! Holdfast on a Slurm cluster: slurmctld, slurmd, munge in containers; nodes are killed, paused and disconnected.
//!
//! `docker/cluster up` makes the cluster, and the first test does that too; it stays up, `docker/cluster down` ends it.
//! With `HOLDFAST_CLUSTERS=2` there are two clusters, each for one test at a time: the tests mostly wait.
//! Without a Docker engine the tests are ignored; with `HOLDFAST_REQUIRE_CLUSTER=1` that is a failure.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate holdfast_test_attribute;

mod applications;
mod basics;
mod chains;
mod ends;
mod hosts;
mod kept_caches;
mod library;
#[path = "../e2e/library_program.rs"]
mod library_program;
mod mpi;
mod mpirun;
mod nodes;
mod preflight;
mod scr_commands;
mod services;
mod sources;

use std::process::ExitCode;

use holdfast_testkit::cluster::Cluster;

/// The cluster with this build on it. Without a Docker engine the test is ignored.
fn cluster() -> Cluster {
    Cluster::get(env!("CARGO_BIN_EXE_holdfast"))
}

fn main() -> ExitCode {
    library_program::program_if_rank();
    holdfast_testkit::harness::run()
}
