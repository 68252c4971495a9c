//! The leader: gathers each collective call from all ranks, decides, and has it carried out by orders to the agents.
//!
//! [`LeaderMachine`] is pure: it handles a [`LeaderEvent`] at a time that is passed in, and returns [`LeaderAction`]s.
//! [`driver`] performs the actions in the agent: links, file work on blocking threads, the timer. A test or a
//! simulation is another driver.
//!
//! | module | what |
//! |---|---|
//! | [`machine`] | events to actions; owns the procedures |
//! | [`event`], [`action`] | the machine's input and output, with the file work and its results |
//! | [`memory`] | what must survive the leader's process |
//! | [`gather`] | which calls were received, and when a collective is complete |
//! | [`dispatch`] | orders and their results; members whose links go down and up |
//! | [`context`] | the state that the procedures share and wait for; [`files`]: file work with typed results |
//! | [`layout`] | groups and descriptors of the run |
//! | [`collective`] | procedure: one collective from its calls to its results |
//! | [`restart`] | procedure: init, and falling back; [`rebuild`]: from cache; [`fetch`]: from the prefix directory |
//! | [`damage`] | files in cache that fail their checksum count as lost |
//! | [`blame`] | whether a restart failed because of the checkpoint, a node, or the prefix directory |
//! | [`checkpoint`] | procedure: need, start, complete |
//! | [`awaiting`] | procedure: the ranks wait until a checkpoint is due |
//! | [`request`] | checkpoints that a user requests |
//! | [`flush`] | procedure: cache to prefix, while the ranks wait or in the background |
//! | [`datasets`] | procedure: named datasets, and output; [`direct`]: datasets that bypass the cache |
//! | [`driver`] | links, threads, timer |

mod action;
mod awaiting;
mod blame;
mod checkpoint;
mod collective;
mod context;
mod damage;
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
mod request;
mod restart;
#[cfg(test)]
mod tests;
mod waves;

pub use action::{FetchStage, HaltWork, LeaderAction, LeaderWork};
pub use driver::Leader;
pub use event::{LeaderEvent, WorkOutput, WorkResult};
pub use layout::LayoutError;
pub use machine::{LeaderMachine, LeaderStart};
pub use memory::{CompletedDataset, LeaderMemory, Restarted, UnfinishedFlushes};
