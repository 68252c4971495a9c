//! The `holdfast` program: the orchestrator and every subcommand.
//!
//! * [`cli`]: one file a subcommand, thin: parse, call, print;
//! * [`spec`]: the YAML job spec;
//! * [`host`]: this machine: programs, processes, external commands;
//! * [`allocation`]: resource managers, one folder each;
//! * [`launch`]: launchers, one folder each, with the supervision of what they started;
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
pub mod host;
pub mod job;
pub mod launch;
pub mod relaunch;
pub mod spec;
