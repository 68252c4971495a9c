//! Which copy of a pair is awake. Everything here decides and does nothing: events and the time come in, actions go
//! out, and the node's agent (or the orchestrator, for leases) performs them.
//!
//! * [`PairMachine`]: the life of a pair's copies on one node;
//! * [`BeatWatch`]: which copies have missed their heartbeats;
//! * [`JobQueue`]: which non-critical jobs are suspended;
//! * [`lease`]: which of two nodes may have its copy awake;
//! * [`BackOff`]: when a process that failed is started again.
//!
//! Two rules come before all others. Two copies of a pair are never awake: a copy is woken only when the other one has
//! ended or was killed. And while a copy can be woken, one is.

#![forbid(unsafe_code)]

mod back_off;
mod beats;
mod jobs;
pub mod lease;
mod machine;

pub use back_off::BackOff;
pub use beats::{BeatWatch, Missed, Watched};
pub use jobs::{JobChange, JobQueue};
pub use machine::{Action, CommandRefused, CopySnapshot, Event, Found, HeldLease, LocalSides, PairMachine, Snapshot};
