//! The drain: the newest dataset that can be completed goes from the nodes' caches to the prefix directory.
//!
//! [`DrainMachine`] decides; it does no I/O and has no clock. [`drain`] and [`survey`] drive it.
//!
//! | file | subject |
//! |---|---|
//! | [`config`], [`event`], [`action`], [`report`], `error` | what goes into the machine and what comes out |
//! | [`machine`] | the machine: its phases, and what follows from each event |
//! | `agents`, `requests` | which agents are up; the requests that wait and those that are under way |
//! | `asking` | the inventories |
//! | [`plan`] | which dataset, from what the nodes hold |
//! | `agenda` | the datasets in their order, and which report is that of the drain |
//! | [`rounds`], `copying` | who copies what in which round; agents that die meanwhile and come back |
//! | `awaited` | the wait for lost agents |
//! | `completion` | what is verified and rebuilt, and the report |
//! | `driver`, `prefix_steps` | performs the actions: requests to agents, steps on the prefix directory |
//! | [`resume`] | which directory an interrupted drain left |

pub mod action;
mod agenda;
mod awaited;
mod completion;
pub mod config;
mod copying;
mod driver;
mod error;
pub mod event;
mod inventory_round;
pub mod machine;
pub mod plan;
mod prefix_steps;
mod reachable;
pub mod report;
mod requests;
pub mod resume;
pub mod rounds;
#[cfg(test)]
mod tests;

pub use action::{AgentAt, DrainAction, Findings};
pub use config::{DrainConfig, LOST_AGENT_WAIT};
pub use driver::{DrainOrder, drain, survey};
pub use error::DrainError;
pub use event::{Answer, DrainEvent, RequestId};
pub use machine::DrainMachine;
pub use report::{DrainEnd, DrainReport, Survey};
