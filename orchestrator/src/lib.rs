//! The `holdfast` program: the orchestrator and every subcommand.
//!
//! * [`cli`]: one file a subcommand, thin: parse, call, print;
//! * [`spec`]: the YAML job spec;
//! * [`allocation`]: resource managers behind one trait;
//! * [`launch`]: launchers behind one trait;
//! * [`on_node`]: what runs on a host at the other end of an ssh connection;
//! * [`fleet`]: start, poll and command the agents;
//! * [`relaunch`]: the loop as a pure state machine;
//! * [`job`]: the driver of a job: feeds the machine, performs its actions;
//! * [`drain`]: two rounds, then index;
//! * [`events`]: event log, live view, report;
//! * [`exit`]: the exit codes that batch scripts may rely on.

#![forbid(unsafe_code)]

pub mod allocation;
pub mod cli;
pub mod drain;
pub mod events;
pub mod exit;
pub mod fleet;
pub mod job;
pub mod launch;
pub mod on_node;
pub mod relaunch;
pub mod spec;
