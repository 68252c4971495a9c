//! The relaunch loop as a pure state machine; [`crate::job`] drives it.
//!
//! The machine does no I/O and has no clock. Its input is [`Event`]s, with the time at which they happened; its output
//! is [`Action`]s, in the order in which they are to be begun:
//!
//! ```text
//!              all agents settled      halt? nodes?            every node prepared
//!  Gathering ─────────────────────▶ AskingHalt ──▶ Preparing ─────────────────────▶ Running
//!      ▲                              │  ▲   │                                        │ ranks ended, node down,
//!      │              node went down  │  │   └────────┐ halted, too few, limits       │ hang, signal, time limit
//!      └──────────────────────────────┘  │            ▼                               ▼
//!                            Settling ◀──┴─────── Draining ──▶ Finished  ◀─────── Ending: ranks killed on every
//!                                └── relaunch ────────▲───────────────────────────  node, every node has answered
//! ```
//!
//! With `progress` in the spec, `CheckingProgress` follows `Ending`. `CheckingAllocation` follows a launch that was
//! refused because the allocation does not exist.
//!
//! | file | subject |
//! |---|---|
//! | [`config`] | the configuration of the loop |
//! | [`event`], [`action`] | the two sides of the machine |
//! | [`outcome`] | the end of the loop, and its exit code |
//! | [`placement`] | which rank runs on which node |
//! | `classify` | why a generation ended |
//! | `policy` | relaunch or stop |
//! | `disturbances` | series of node losses and refused launches |
//! | `handlers` | what follows from each event; a file for each subject |
//! | [`machine`] | the state in memory, on which the handlers work |
//! | [`snapshot`], [`changes`] | the part of it that an orchestrator gets which takes over; its changes |
//! | `node_state`, [`exclusion`], `running_halt`, `superseding`, `drain_estimate` | parts of the snapshot |
//! | `tracked` | collections that record their changes |
//! | `contacts` | when the agents answered last, and how long each may be silent |
//! | `watchdog` | whether the application hangs |
//! | `waits` | which ranks wait in a call for which others |
//! | [`explain`] | every decision, with its reason and time |
//! | [`held`] | the actions that wait until the decision behind them is on disk |
//!
//! The driver must:
//! * poll every healthy agent so often that an answer arrives well within `down_after`, until the drain begins (during
//!   the drain silent agents are handled by the drain, and only `AgentLost` counts);
//! * pass the events that a poll returned before the `PollAnswered` itself;
//! * pass all events that are ready together ([`Machine::handle_all`]), then write [`Machine::take_changes`]; actions
//!   that must not precede that wait in [`HeldActions`];
//! * end every action with one of the events that its description names.
//!
//! **Time** is a `Duration` since [`Config::started`], also in an orchestrator that took over, which uses the
//! `started` of the snapshot.

pub mod action;
pub mod changes;
mod classify;
pub mod config;
mod contacts;
mod disturbances;
mod drain_estimate;
pub mod event;
pub mod exclusion;
pub mod explain;
mod handlers;
pub mod held;
pub mod machine;
mod node_state;
pub mod outcome;
pub mod placement;
mod policy;
mod running_halt;
pub mod snapshot;
mod superseding;
#[cfg(test)]
mod tests;
mod tracked;
mod waits;
mod watchdog;

pub use action::Action;
pub use changes::Changes;
pub use config::{AllocatedNode, Config};
pub use event::{BeforeFailure, Event, ProgressFound};
pub use exclusion::Exclusion;
pub use explain::Explanation;
pub use held::HeldActions;
pub use machine::Machine;
pub use outcome::Outcome;
pub use snapshot::Snapshot;
