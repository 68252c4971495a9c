//! Whole jobs, simulated: the real machines of the relaunch loop, of the leader and of the drain against worlds that
//! exist only here, each made from a seed. `README.md` beside this file has the invariants, and how to replay a seed.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agent;
mod application;
mod content;
mod draining;
mod exchange;
mod joint;
mod launcher;
mod leading;
mod link;
mod misfortune;
mod names;
mod oracle;
mod orchestrator;
mod orders;
mod prefix;
mod protection;
mod queue;
mod scenario;
mod seeds;
mod store;
mod world;
