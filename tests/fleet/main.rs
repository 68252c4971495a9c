//! The orchestrator and thousands of agents: the real fleet code, and simulated agents behind real connections.

mod here;
mod polls;
mod relaunch;
mod simulated;
