//! Complete jobs: the real binary, real agents and ranks on virtual nodes, faults at exact moments, and
//! results that must be bit-identical to those of a failure-free run.
//!
//! * [`world`]: the directory of a test, in which all files and processes of a job are found and ended;
//! * [`job`]: the job spec of a small heat equation, and its expected result;
//! * [`devices`]: machines that are network namespaces;
//! * [`disk`]: a file system that can be made to hang;
//! * [`pfs`]: the content of the prefix directory;
//! * all others: one file for each subject.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate holdfast_test_attribute;

mod devices;
mod incurable;
mod job;
mod job_reports;
mod jubatus_server;
mod kept_cache;
mod kernel_log;
mod pfs;
#[path = "../cli/redaction.rs"]
mod redaction;
mod window;
mod world;

mod agents;
mod async_redundancy;
mod bad_input;
mod batch_scripts;
mod browser;
mod buffers;
mod checksums;
mod command;
mod containers;
mod copy_threads;
mod data_plane;
mod disk;
mod drain;
mod drain_cut_off;
mod drain_emptied_nodes;
mod drain_hosts;
mod drain_in_doubt;
mod drain_unused_nodes;
mod editors;
mod endings;
mod exchanged;
mod excluded_nodes;
mod expedited;
mod failure_domains;
mod fallback;
mod faults;
mod fewer_nodes;
mod flushes;
mod flux;
mod foreign_directories;
mod frequency;
mod full_disks;
mod halting;
mod hang;
mod hostile_prefixes;
mod jubatus;
mod levels;
mod library;
mod library_program;
mod limits;
mod logs;
mod losses;
mod lost_allocation;
mod lost_nodes;
mod many_ranks;
mod metrics;
mod mismatch;
mod modes;
mod monitoring;
mod needs;
mod new_spec;
mod notify;
mod old_versions;
mod open_mpi_5;
mod orchestrator_lost;
mod other_manager;
mod other_ranks;
mod other_shapes;
mod other_users;
mod out_of_memory;
mod outputs;
mod pages;
mod pair_clients;
mod pair_copy;
mod pair_devices;
mod pair_faults;
mod pair_programs;
mod pair_reports;
mod pair_runs;
mod pair_settings;
mod pair_takeover;
mod pairs;
mod parameters;
mod pbs;
mod planted_bases;
mod planted_datasets;
mod progress;
mod quickstart;
mod reed_solomon;
mod rehearse;
mod requested;
mod requeue;
mod runbook;
mod schemes;
mod scr_files;
mod scr_scripts;
mod side_by_side;
mod signals;
mod silent_agent;
mod silent_programs;
mod site_commands;
mod snapshots;
mod stalled_disk;
mod stalled_orchestrator;
mod stalled_prefix;
mod stalled_screen;
mod steps;
mod too_few_nodes;
mod top;
mod torchrun;
mod traces;
mod unauthenticated;
mod variables;
mod waits;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = other_manager::program_in_a_lattice() {
        return code;
    }
    jubatus_server::serve_if_server();
    library_program::program_if_rank();
    pair_copy::program_if_copy();
    holdfast_testkit::harness::run()
}
