//! Hostile clients against a real agent process: connections without the token, and processes that speak the protocol
//! of a rank, a peer, a leader or the orchestrator and send what none of them would.
//!
//! * [`agent`]: the agent process, its directories, and what it may use of the machine;
//! * [`client`]: connections to it, without the code of the project's own clients; [`rank`]: those of ranks, each of a
//!   process of its own, because an agent kills the ranks of runs that are over;
//! * [`unauthenticated`]: connections without the token: their number, memory and time;
//! * [`mutated`]: valid and invalid messages in random sequences.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate holdfast_test_attribute;

mod agent;
mod client;
#[path = "../../agents/wire/src/fuzzing/examples.rs"]
#[allow(dead_code, reason = "the tests of the decoders use the rest")]
mod examples;
mod mutated;
mod rank;
mod unauthenticated;

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::var_os(rank::SOCKET) {
        Some(socket) => rank::connect_for_parent(socket.as_ref()),
        None => holdfast_testkit::harness::run(),
    }
}
