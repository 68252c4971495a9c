//! The orchestrator and thousands of agents: the real fleet code, and simulated agents behind real connections.

// Helpers of tests fail as tests do; clippy knows only functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod here;
mod polls;
mod relaunch;
mod simulated;
