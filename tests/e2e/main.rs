//! The main job end to end: the real binary, real agents and ranks on virtual nodes, failures at exact moments, and
//! results that must equal an undisturbed run's to the bit.
//!
//! * [`world`]: a directory of its own for every test, in which everything that a job makes is found and ended;
//! * [`job`]: the job spec of a small heat equation, and what its result must be;
//! * [`pfs`]: what stands on the "parallel file system";
//! * everything else: one file a subject, each test named for what it shows.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate holdfast_test_attribute;

mod job;
mod pfs;
mod world;

mod agents;
mod bad_input;
mod drain;
mod endings;
mod fallback;
mod halting;
mod hang;
mod lost_nodes;
mod many_ranks;
mod orchestrator_lost;
mod schemes;
mod scr_files;
mod signals;
mod stalled_prefix;
mod stalled_screen;
mod steps;
mod too_few_nodes;
mod unauthenticated;

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_testkit::harness::run()
}
