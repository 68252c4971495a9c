//! The drain: copies the newest dataset that can be completed from the nodes' caches to the prefix directory.
//!
//! [`DrainMachine`] decides; it does no I/O and has no clock. [`drain`] and [`survey`] drive it.
//!
//! | file | subject |
//! |---|---|
//! | [`config`], [`event`], [`action`], [`report`], `error` | input and output of the machine |
//! | [`machine`] | the machine: its phases, and the rules for each event |
//! | `reachable`, `requests` | the agents that are up; the requests that wait and those that are under way |
//! | `inventory_round` | the requests for the inventories |
//! | [`plan`] | the datasets to drain, from the inventories |
//! | `agenda` | the order of the datasets, and the report of the drain |
//! | [`rounds`], `copying` | the two rounds of copies; agents that are lost meanwhile and come back |
//! | `awaited` | the wait for lost agents |
//! | `completion` | the files to verify and to rebuild, and the report |
//! | `driver`, [`prefix_steps`] | performs the actions: requests to agents, steps on the prefix directory |
//! | [`resume`] | the directory that an interrupted drain left |

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
pub mod prefix_steps;
mod reachable;
pub mod report;
mod requests;
pub mod resume;
pub mod rounds;
#[cfg(test)]
mod tests;

pub use action::{AgentAt, DrainAction, DrainRequest, Findings};
pub use config::{DrainConfig, LOST_AGENT_WAIT};
pub use driver::{CopySettings, DrainOrder, drain, survey};
pub use error::{DrainError, RequestFailure};
pub use event::{Answer, DrainEvent, RequestId};
pub use machine::DrainMachine;
pub use report::{DrainEnd, DrainReport, FlushedDataset, Survey};
