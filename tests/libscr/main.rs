//! Programs in C, Fortran and Python, written for SCR, FTI, SIONlib or the variables API, under the real binary: nodes
//! are lost, and the results are those of a failure-free run.
//!
//! This package depends on the libraries' packages, so that cargo has built them before a test runs; they lie beside
//! the test's own executable ([`world::library_directory`]). A test whose compiler or interpreter is not installed is
//! ignored, except for the C compiler, which Rust itself needs.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate holdfast_test_attribute;

mod alone;
mod any_ranks;
mod c;
mod example_files;
mod examples;
mod fortran;
mod fti;
mod fti_import;
mod installed;
mod interpose;
mod interrupted;
mod names;
mod new_spec;
mod outputs;
mod python;
mod sion;
mod sion_mapped;
mod sion_mpi;
mod tutorials;
mod variables;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_testkit::harness::run()
}
