//! The leader: gathers each collective from all ranks, decides, and has it carried out by orders.
//!
//! [`LeaderMachine`] is pure: what happens comes in as a [`LeaderEvent`], what is to be done goes out as a
//! [`LeaderAction`], time is passed in. [`driver`] performs the actions in the agent: links, file work on blocking
//! threads, the timer. A test or a simulation is another driver.
//!
//! | module | what |
//! |---|---|
//! | [`machine`] | events to actions; owns the procedures |
//! | [`event`], [`action`] | what comes in and what goes out, with the file work and its results |
//! | [`memory`] | what must survive the leader's process |
//! | [`gather`] | which calls have come in, and when a collective is complete |
//! | [`dispatch`] | orders out, results in, members that come and go |
//! | [`context`] | what the procedures share and what they wait for; [`files`]: file work with typed results |
//! | [`layout`] | groups and descriptors of the run |
//! | [`collective`] | procedure: one collective from its calls to its results |
//! | [`restart`] | procedure: init, and falling back; [`rebuild`]: from cache; [`fetch`]: from the prefix directory |
//! | [`checkpoint`] | procedure: need, start, complete |
//! | [`flush`] | procedure: cache to prefix, for the ranks or beside them |
//! | [`datasets`] | procedure: named datasets, and output; [`direct`]: those past the cache |
//! | [`driver`] | links, threads, timer |

mod action;
mod checkpoint;
mod collective;
mod context;
mod datasets;
mod direct;
mod dispatch;
pub(super) mod driver;
mod event;
mod fetch;
mod files;
mod flush;
mod gather;
mod layout;
mod machine;
mod memory;
mod rebuild;
mod restart;
#[cfg(test)]
mod tests;

pub use action::{FetchStage, HaltWork, LeaderAction, LeaderWork};
pub use driver::Leader;
pub use event::{LeaderEvent, WorkOutput, WorkResult};
pub use layout::LayoutError;
pub use machine::{LeaderMachine, LeaderStart};
pub use memory::{CompletedDataset, LeaderMemory, Restarted, UnfinishedFlushes};
