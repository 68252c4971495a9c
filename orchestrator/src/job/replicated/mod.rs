//! The driver of a job with pairs of main and replica: `kind: replicated`.
//!
//! | file | subject |
//! |---|---|
//! | [`driver`] | the loop: passes events to the [machine](crate::pairs::Machine) and performs its actions |
//! | `opening` | the nodes and the state: new ones, or those of an orchestrator that died |
//! | `follow` | the task that always has a request for the state of one node's pairs under way |
//! | `claim` | which orchestrator is the newest one of the job |
//! | [`requests`] | what users request for pairs on two nodes |
//! | `writer` | writes the state without the loop waiting for a file system |
//! | `history` | what happened to each pair in this run, for the report |

mod claim;
mod driver;
mod follow;
mod history;
mod opening;
pub mod requests;
mod writer;

pub(super) use driver::run;
pub(super) use opening::plan;
