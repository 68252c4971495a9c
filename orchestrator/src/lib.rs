//! The `holdfast` program: the orchestrator and every subcommand.
//!
//! * [`cli`]: the subcommands, one file each: parse, call, print;
//! * [`params`]: SCR_* parameters and their order of precedence;
//! * [`spec`]: the YAML job spec;
//! * [`new_spec`]: a spec for a program that is given;
//! * [`host`]: programs, processes and external commands of this machine;
//! * [`allocation`]: resource managers, one folder each;
//! * [`launch`]: launchers and their supervision, one folder each;
//! * [`fleet`]: start, poll and command the agents;
//! * [`relaunch`]: the relaunch loop, a pure state machine;
//! * [`job`]: the driver of a job: feeds the machine, performs its actions;
//! * [`drain`]: two rounds, then index;
//! * [`pairs`]: main and replica: the decisions between nodes;
//! * [`events`]: event log, live view, report;
//! * [`report`]: the report of a job from its events: why it failed, where the time went;
//! * [`exit`]: the exit codes that batch scripts may rely on.

#![forbid(unsafe_code)]

/// The values of those items that match a pattern, in their order.
#[cfg(test)]
macro_rules! found {
    ($items:expr, $($pattern:pat $(if $condition:expr)? => $value:expr),+) => {
        $items.iter().filter_map(|item| match item {
            $($pattern $(if $condition)? => Some($value),)+
            _ => None,
        }).collect::<Vec<_>>()
    };
}

pub mod allocation;
pub mod cli;
pub mod drain;
pub mod events;
pub mod exit;
pub mod fleet;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod host;
pub mod job;
pub mod launch;
pub mod new_spec;
pub mod pairs;
pub mod params;
pub mod relaunch;
pub mod report;
pub mod sources;
pub mod spec;
