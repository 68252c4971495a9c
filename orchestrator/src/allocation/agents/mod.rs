//! The start of agents.
//!
//! | file | subject |
//! |---|---|
//! | [`template`] | the start message |
//! | [`handshake`] | the message to an agent, and its report when it is ready |
//! | [`shared_step`] | one command of a resource manager that starts the agents of many nodes |
//! | [`step_agents`] | agents that such commands hold: first start, restart, end |
//! | [`logs`] | the logs of agents, whose directory may hang |
//! | [`start_error`] | why an agent was not started |

pub mod handshake;
pub mod logs;
pub mod shared_step;
pub mod start_error;
pub mod step_agents;
pub mod template;
