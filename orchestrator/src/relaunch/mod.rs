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
//! With `progress` in the spec, `CheckingProgress` follows `Ending`.
//!
//! | file | subject |
//! |---|---|
//! | [`config`] | the configuration of the loop |
//! | [`event`], [`action`] | the two sides of the machine |
//! | [`outcome`] | the end of the loop, and its exit code |
//! | [`placement`] | which rank runs on which node |
//! | `classify` | why a generation ended |
//! | `policy` | relaunch or stop |
//! | [`machine`] | the machine itself |
//! | `node_state` | the state of one node, and what is due on it |
//! | [`exclusion`] | nodes that the user excludes |
//! | `agent_events` | the rules for agents that come up or are lost, and for nodes that go down |
//! | `stages` | the rules from the first agent to the launch |
//! | `halt` | the ranks are halted: last checkpoint, SIGTERM, SIGKILL |
//! | `drain_reserve` | the time that is kept for the drain, and the limits that follow from it |
//! | `ending` | the rules from the end of the ranks to the end of the loop |
//! | `watchdog`, `hang` | whether the application hangs, and what follows |
//! | [`explain`] | every decision, with its reason and time |
//! | `peer_updates` | the addresses that agents need of each other, sent once for all events of a batch |
//! | `contacts` | when the agents answered last, and how long each may be silent |
//! | [`snapshot`], [`changes`] | the machine's state, for an orchestrator that takes over; its changes |
//! | `tracked` | collections that record their changes |
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
mod agent_events;
pub mod changes;
mod classify;
pub mod config;
mod contacts;
mod drain_reserve;
mod ending;
pub mod event;
pub mod exclusion;
pub mod explain;
mod halt;
mod hang;
pub mod held;
pub mod machine;
mod node_state;
pub mod outcome;
mod peer_updates;
pub mod placement;
mod policy;
pub mod snapshot;
mod stages;
#[cfg(test)]
mod tests;
mod tracked;
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
