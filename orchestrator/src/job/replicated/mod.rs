//! The driver of a job with pairs of main and replica: `kind: replicated`.
//!
//! | file | subject |
//! |---|---|
//! | [`driver`] | the loop: passes events to the [machine](crate::pairs::Machine) and performs its actions |
//! | `opening` | the nodes and the state: new ones, or those of an orchestrator that died |
//! | `follow` | the task that always has a request for the state of one node's pairs under way |
//! | [`requests`] | what users request for pairs on two nodes |
//! | `saved` | what a run leaves for the next one: checkpoints, and which pairs are finished |
//! | `history` | what happened to each pair in this run, for the report |

mod driver;
mod follow;
mod history;
mod opening;
pub mod requests;
mod saved;

pub use driver::run;
pub use opening::plan;
