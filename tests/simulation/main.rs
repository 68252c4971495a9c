//! Simulated jobs: the real machines of the relaunch loop, of the leader and of the drain, in a world generated from a
//! seed. `README.md` in this directory lists the invariants and explains how to replay a seed.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agent;
mod application;
mod content;
mod draining;
mod exchange;
mod faults;
mod files;
mod intervals;
mod joint;
mod launcher;
mod leading;
mod link;
mod names;
mod oracle;
mod orchestrator;
mod orders;
mod pairs;
mod prefix;
mod protection;
mod queue;
mod scenario;
mod seeds;
mod store;
mod world;
