//! The start of agents: the start message ([`template`]) and the handshake ([`handshake`]).

pub mod handshake;
pub mod template;

pub use template::{AgentSettings, AgentTemplate};
