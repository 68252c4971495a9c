//! The relaunch loop as a pure state machine; [`crate::job`] drives it.
//!
//! The machine does no I/O and has no clock. Whatever happens is an [`Event`] with the time at which it happened;
//! what is to be done comes back as [`Action`]s, in the order in which they are to be begun:
//!
//! ```text
//!              all agents settled      halt? nodes?            every node prepared
//!  Gathering ─────────────────────▶ AskingHalt ──▶ Preparing ─────────────────────▶ Running
//!      ▲                              │  ▲   │                                        │ ranks ended, node down,
//!      │              node went down  │  │   └────────┐ halted, too few, limits       │ hang, signal, time limit
//!      └──────────────────────────────┘  │            ▼                               ▼
//!                            Settling ◀──┴─────── Draining ──▶ Finished  ◀─────── Ending: ranks killed on every
//!                                └── relaunch ────────▲───────────────────────────  node, every node heard of
//! ```
//!
//! | file | subject |
//! |---|---|
//! | [`config`] | what is known from the start |
//! | [`event`], [`action`] | the two sides of the machine |
//! | [`outcome`] | the end of it all, and its exit code |
//! | [`placement`] | which rank goes where |
//! | `classify` | why a generation ended |
//! | `policy` | relaunch or stop |
//! | [`machine`] | the machine itself; its parts: `nodes`, `agents` (are the nodes up), `stages` (on the way to a launch), `ending` (from there to the end) |
//! | `watchdog`, `hang` | does the run hang, and what follows |
//! | [`explain`] | every verdict, with its reason and time |
//! | [`snapshot`] | the machine's memory, for an orchestrator that takes over |
//!
//! What the driver owes the machine:
//! * it polls every healthy agent so often that an answer comes well within `down_after`, until the drain begins (from then on silence
//!   is the drain's business, and only `AgentLost` counts);
//! * it hands in what a poll brought before the `PollAnswered` itself;
//! * it writes [`Machine::snapshot`] when [`Machine::revision`] has changed, before it performs the actions;
//! * every action ends as one of the events that it names.
//!
//! **Time** is a `Duration` since [`Config::started`], also in an orchestrator that took over: it subtracts the `started`
//! of the snapshot from the wall clock.

pub mod action;
mod agents;
mod classify;
pub mod config;
mod ending;
pub mod event;
pub mod explain;
mod hang;
pub mod machine;
mod nodes;
pub mod outcome;
pub mod placement;
mod policy;
pub mod snapshot;
mod stages;
#[cfg(test)]
mod tests;
mod watchdog;

pub use action::Action;
pub use config::{AllocatedNode, Config};
pub use event::Event;
pub use explain::Explanation;
pub use machine::Machine;
pub use outcome::Outcome;
pub use snapshot::Snapshot;
