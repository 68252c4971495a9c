//! The messages between Holdfast's processes, versioned, and the little that carries them.
//!
//! | between | module | carried by |
//! |---|---|---|
//! | a rank and the agent of its node | [`rank`] | frames on a Unix socket ([`frame`], [`socket`]) |
//! | the orchestrator and an agent | [`agent`] | HTTPS + JSON on the agent's port |
//! | agents among themselves | [`peer`] | frames, then raw data, on the same port |
//!
//! Everything that crosses a network is TLS 1.3 with the job's certificate pinned, and carries the job's token
//! (module `trust`, feature `transport`).

#![forbid(unsafe_code)]

pub mod agent;
pub mod bytes;
pub mod environment;
pub mod frame;
pub mod peer;
pub mod plan;
pub mod rank;
pub mod run;
pub mod socket;
#[cfg(feature = "transport")]
pub mod trust;

/// The version of every message here. Both ends send it first; a difference is refused with both numbers named.
pub const VERSION: u32 = 3;

/// ALPN name of the orchestrator's requests.
pub const ALPN_HTTP: &[u8] = b"http/1.1";
/// ALPN name of the traffic between agents.
pub const ALPN_PEER: &[u8] = b"holdfast/1";
