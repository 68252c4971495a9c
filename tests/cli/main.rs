//! The command line: specs and their mistakes, output, exit codes.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod check;
mod compat;
mod documents;
mod dry_run;
mod exit_codes;
mod explain;
mod hints;
mod hosts;
mod index;
mod inspect;
mod node;
mod packages;
mod parameters;
mod program;
mod redaction;
mod relative_paths;
mod resolution;
mod snapshots;
mod spec;
mod usage;
