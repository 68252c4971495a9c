//! The driver of a job: feeds the relaunch machine with events and performs its actions.
//!
//! | file | subject |
//! |---|---|
//! | [`driver`] | the whole job: lock, screen, signals, nodes and agents; its steps, one after the other |
//! | `hand_over` | from one step to the next |
//! | [`start`] | from a spec to nodes, state and prefix directory; the dry run |
//! | `error` | why a job cannot begin |
//! | `preflight` | what can be known to be wrong before anything is started |
//! | `step` | the loop of one step, and what it is made of |
//! | `inbox` | what reaches the loop: whatever is ready is taken together |
//! | `background` | the channel from work in the background to the loop |
//! | `actions` | performs the actions of the machine |
//! | `inputs` | turns what agents, ranks and the drain report into events of the machine |
//! | `ending` | no rank is left running, and after the last step no agent |
//! | `ranks`, [`running_step`] | the ranks of a generation: launched, followed, cancelled |
//! | `drain_task` | the drain at the end of a step |
//! | `stacks` | where ranks that hang are in their code |
//! | `reporter`, `report` | event log and screen; the report at the end |
//! | [`state`], [`journal`] | `job.json`, the lock, and the journal beside it, written by a thread of its own |
//! | `record` | what of the state is handed to that thread when, and the actions that wait for it |
//! | `prefix_wait` | waiting for the prefix directory at the end: bounded, and shown |
//! | `manager_poll` | down nodes and the end of the allocation, as the resource manager reports them |
//! | [`settings`] | the spec in the terms of the loop and the agents |
//! | [`site`] | commands of the user and the site |
//! | `signals` | the signals that end a job |
//! | [`standalone`], `drain_agents` | `holdfast drain`, and the agents that it starts |
//!
//! Nothing here blocks the loop: requests are tasks with time limits whose ends come back through a channel, and whatever
//! touches a file system or waits for another command has a thread of its own.

mod actions;
mod background;
mod drain_agents;
mod drain_task;
pub mod driver;
mod ending;
mod error;
mod hand_over;
mod inbox;
mod inputs;
pub mod journal;
mod manager_poll;
mod prefix_wait;
mod preflight;
mod ranks;
mod record;
mod report;
mod reporter;
pub mod running_step;
pub mod settings;
mod signals;
pub mod site;
mod stacks;
pub mod standalone;
pub mod start;
pub mod state;
mod step;

pub use driver::{run, run_on};
pub use error::{PreflightError, RunError};
pub use preflight::Prepared;
pub use start::{RunOptions, plan_text};
