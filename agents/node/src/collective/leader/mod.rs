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
//! | [`driver`] | links, threads, timer |
//!
//! The state, which knows no procedure:
//!
//! | module | what |
//! |---|---|
//! | [`context`] | the state that the procedures share and wait for; [`files`]: file work with typed results |
//! | [`gather`] | which calls were received, and when a collective is complete |
//! | [`dispatch`] | orders and their results; members whose links go down and up; [`waves`]: some nodes at a time |
//! | [`background`] | the list of procedures beside the collectives |
//! | [`layout`] | groups and descriptors of the run |
//! | [`request`] | checkpoints that a user requests; [`programs`]: programs of ranks that wait for a checkpoint |
//!
//! Steps of several procedures:
//!
//! | module | what |
//! |---|---|
//! | [`halt`] | reading and spreading the halt conditions |
//! | [`records`], [`inventories`] | what the nodes record of a dataset, and what they hold |
//! | [`open_dataset`] | the dataset that the ranks write |
//! | [`protection`] | seal and encode, in [`rounds`] of some groups; [`eviction`]: what a cache keeps; [`deletion`] |
//! | [`unfinished`] | flushes that did not end; [`summary`]: the files of a dataset |
//! | [`found`] | what a run restarts from; [`blame`]: why it could not; [`damage`]: files that count as lost |
//!
//! The procedures:
//!
//! | module | what |
//! |---|---|
//! | [`collective`] | one collective from its calls to its results |
//! | [`restart`] | init, and falling back; [`rebuild`]: from cache; [`fetch`]: from the prefix directory |
//! | [`prepared`] | the same before init, while the ranks are started |
//! | [`rescue`] | output that an earlier run left |
//! | [`checkpoint`] | need, start, complete |
//! | [`awaiting`] | the ranks wait until a checkpoint is due |
//! | [`flush`] | cache to prefix, while the ranks wait or in the background |
//! | [`datasets`] | named datasets, and output; [`direct`]: datasets that bypass the cache |

mod action;
mod awaiting;
mod background;
mod blame;
mod checkpoint;
mod collective;
mod context;
mod damage;
mod datasets;
mod deletion;
mod direct;
mod dispatch;
pub(crate) mod driver;
mod event;
mod eviction;
mod fetch;
mod files;
mod flush;
mod found;
mod gather;
mod halt;
mod inventories;
mod layout;
mod machine;
mod memory;
mod open_dataset;
mod prepared;
mod programs;
mod protection;
mod rebuild;
mod records;
mod request;
mod rescue;
mod restart;
mod rounds;
mod summary;
#[cfg(test)]
mod tests;
mod unfinished;
mod waves;
mod window;

pub use action::{FetchStage, HaltWork, LeaderAction, LeaderWork};
pub use driver::Leader;
pub use event::{LeaderEvent, WorkOutput, WorkResult};
pub use layout::LayoutError;
pub use machine::{LeaderMachine, LeaderStart};
pub use memory::{CompletedDataset, LeaderMemory, Restarted, UnfinishedFlushes};
