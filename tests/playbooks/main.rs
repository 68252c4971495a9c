//! The playbooks, run by Ansible over ssh against containers of the cluster's image: installed twice, checked, drained
//! twice, removed twice; the second time changes nothing. Installed on a shared file system, and from the collection.
//!
//! The package for Debian, in a container of that image.
//!
//! The commands of the runbook, on virtual nodes.
//!
//! Without a Docker engine, or without `ansible-playbook`, the other tests are ignored. `HOLDFAST_REQUIRE_CLUSTER=1`
//! makes that a failure; `HOLDFAST_ANSIBLE` names another `ansible-playbook` than the one in PATH.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate holdfast_test_attribute;

mod collection;
mod life;
mod machines;
mod package;
mod runbook;
mod shared;

// The jobs on virtual nodes of `e2e`; not all that they can do is used here.
#[path = "../e2e/job.rs"]
#[allow(dead_code)]
mod job;
#[path = "../e2e/world.rs"]
#[allow(dead_code)]
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_testkit::harness::run()
}
