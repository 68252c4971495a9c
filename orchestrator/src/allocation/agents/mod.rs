//! Agents at their start: what each one is told ([`template`]).

pub mod template;

pub use template::AgentTemplate;
