//! Holdfast on a Slurm cluster: slurmctld, slurmd, munge in containers; nodes are killed, paused and disconnected.
//!
//! `docker/cluster up` makes the cluster, and the first test does that too; it stays up, `docker/cluster down` ends it.
//! With `HOLDFAST_CLUSTERS=3` there are three clusters, each for one test at a time: the tests mostly wait.
//! Without a Docker engine the tests are ignored; with `HOLDFAST_REQUIRE_CLUSTER=1` that is a failure.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate holdfast_test_attribute;

mod applications;
mod basics;
mod chains;
mod ends;
mod faults;
mod hosts;
mod kept_caches;
mod library;
#[path = "../e2e/library_program.rs"]
mod library_program;
mod mpi;
mod mpirun;
mod nodes;
#[path = "../e2e/pair_copy.rs"]
mod pair_copy;
mod pairs;
mod preflight;
mod scr_commands;
mod services;
mod side_by_side;
mod slurm_scripts;
mod sources;
mod stalled_prefix;
mod topology;

use std::process::{Command, ExitCode};

use holdfast_testkit::cluster::Cluster;

/// The cluster with this build on it. Without a Docker engine the test is ignored.
fn cluster() -> Cluster {
    Cluster::get(env!("CARGO_BIN_EXE_holdfast"))
}

/// This test binary on all machines of the cluster, for jobs in which it is the application.
const OWN_PROGRAM: &str = "/opt/holdfast/test/program";

/// The cluster with this build and [`OWN_PROGRAM`] on it.
fn cluster_with_own_program() -> Cluster {
    let cluster = cluster();
    cluster.make_once("own-program", || {
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("program");
        let mut strip = Command::new("strip");
        // Debug information is most of the program's size and is not used there.
        strip.arg("--strip-debug").arg("-o").arg(&copy).arg(std::env::current_exe().unwrap());
        if !strip.status().is_ok_and(|status| status.success()) {
            std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        }
        cluster.share(&copy, OWN_PROGRAM);
    });
    cluster
}

fn main() -> ExitCode {
    library_program::program_if_rank();
    pair_copy::program_if_copy();
    holdfast_testkit::harness::run()
}
