//! Agents at their start: what each one is told ([`template`]), and how it reports that it is up ([`handshake`]).

pub mod handshake;
pub mod template;

pub use template::AgentTemplate;
