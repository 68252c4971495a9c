//! The playbooks, run by Ansible over ssh against containers of the cluster's image: installed twice, checked, drained
//! twice, removed twice; the second time changes nothing. Installed on a shared file system, and from the collection.
//!
//! The package for Debian, in a container of that image.
//!
//! Without a Docker engine, or without `ansible-playbook`, the tests are ignored. `HOLDFAST_REQUIRE_CLUSTER=1`
//! makes that a failure; `HOLDFAST_ANSIBLE` names another `ansible-playbook` than the one in PATH.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate holdfast_test_attribute;

mod collection;
mod life;
mod machines;
mod package;
mod shared;

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_testkit::harness::run()
}
