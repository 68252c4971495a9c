//! The messages between Holdfast's processes, versioned, and the little that carries them.
//!
//! | between | module | carried by |
//! |---|---|---|
//! | a rank and the agent of its node | [`rank`] | frames on a Unix socket ([`frame`], [`socket`]) |
//! | the orchestrator and an agent | [`agent`], [`pairs`] | [`channel`], HTTPS + JSON on the agent's port |
//! | agents among themselves | [`peer`] | frames, then raw data, on the same port |
//!
//! [`plan`] is how a run is announced to the agents: O(nodes + ranks) bytes for all of them together.
//!
//! A message may be larger than a frame; its size is limited by its kind ([`frame::Limit`]): 8 KiB for the first one on
//! a connection, before the token is checked; 128 KiB for a call of a rank; 320 MiB on a link and to a rank, which
//! leaves 256 MiB for the result of an allgather. What is over its limit is an error of the sender, and fails the call
//! or the order that it belongs to.
//!
//! Everything that crosses a network is TLS 1.3 with the job's certificate pinned, and carries the job's token
//! (module `trust`, feature `transport`).

#![forbid(unsafe_code)]

// The module `fuzzing` is also compiled by tests outside of this crate.
#[cfg(any(test, fuzzing))]
extern crate self as holdfast_wire;

pub mod agent;
pub mod bytes;
pub mod channel;
pub mod environment;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod pairs;
pub mod payload;
pub mod peer;
pub mod plan;
#[cfg(feature = "transport")]
pub mod pulse;
pub mod rank;
#[cfg(feature = "transport")]
pub mod reachable;
pub mod run;
pub mod socket;
#[cfg(feature = "transport")]
pub mod trust;

/// The version of every message here. Both ends send it first; a difference is refused with both numbers named.
pub const VERSION: u32 = 24;

/// ALPN name of requests of users' commands, and of the orchestrator where it has no channel.
pub const ALPN_HTTP: &[u8] = b"http/1.1";
/// ALPN name of the traffic between agents.
pub const ALPN_PEER: &[u8] = b"holdfast/1";

#[cfg(test)]
mod mutation_tests {
    holdfast_testkit::mutation_test!(crate::fuzzing::TARGETS, 20_000);
}
