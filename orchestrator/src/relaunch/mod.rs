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
//! | `notices` | what agents are told of each other, once for all events of a batch |
//! | `timers` | when something is due on which node |
//! | [`snapshot`], [`changes`] | the machine's memory, for an orchestrator that takes over; what of it changed |
//! | `tracked` | collections that note what changed in them |
//! | [`held`] | the actions that wait until their decision is on disk |
//!
//! What the driver owes the machine:
//! * it polls every healthy agent so often that an answer comes well within `down_after`, until the drain begins
//!   (from then on silence
//!   is the drain's business, and only `AgentLost` counts);
//! * it hands in what a poll brought before the `PollAnswered` itself;
//! * it hands in all events that are there at once ([`Machine::handle_all`]), and after them writes
//!   [`Machine::take_changes`]; actions that must not precede that wait in [`HeldActions`];
//! * every action ends as one of the events that it names.
//!
//! **Time** is a `Duration` since [`Config::started`], also in an orchestrator that took over: it subtracts the
//! `started` of the snapshot from the wall clock.

pub mod action;
mod agent_events;
pub mod changes;
mod classify;
pub mod config;
mod ending;
pub mod event;
pub mod explain;
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
mod timers;
mod tracked;
mod watchdog;

pub use action::Action;
pub use changes::Changes;
pub use config::{AllocatedNode, Config};
pub use event::Event;
pub use explain::Explanation;
pub use held::HeldActions;
pub use machine::Machine;
pub use outcome::Outcome;
pub use snapshot::Snapshot;
