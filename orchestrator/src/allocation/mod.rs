//! Resource managers: the nodes of a job, the end of the allocation, and the start of agents.
//!
//! A resource manager is one folder and one line in the [`registry`]. Its [`ManagerEntry`] declares what other rooms
//! need to know of it; what it opens implements [`Allocation`].
//!
//! | folder, file | subject |
//! |---|---|
//! | [`flux`] | the nodes of the Flux instance of this process's batch job |
//! | [`local`] | virtual nodes on this machine, each a root directory and an agent process |
//! | [`pbs`] | the nodes of the OpenPBS job of this process |
//! | [`slurm`] | the nodes of the Slurm job of this process |
//! | [`ssh`] | machines that the spec lists, without a resource manager |
//! | [`agents`] | the start of agents: message, handshake, logs, one command for many nodes |
//! | [`lent`] | the part of an allocation that one step of a job has |
//! | `entry`, `nodes` | what a manager declares and implements |
//! | `reachable` | whether a machine with a silent agent still answers |
//! | `watch` | polls a manager for down nodes and the end of the allocation |
//! | [`record`] | what a successor of the orchestrator needs to know of an allocation |

pub mod agents;
mod entry;
mod error;
pub mod flux;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub mod lent;
pub mod local;
mod nodes;
pub mod pbs;
mod reachable;
pub mod record;
pub mod registry;
pub mod slurm;
pub mod ssh;
mod watch;

pub use agents::start_error::AgentStartError;
pub use agents::template::{AgentSettings, AgentTemplate};
pub use entry::{AllocationPreview, AllocationRequest, Continuation, ManagerEntry, PendingAllocation};
pub use error::AllocationError;
pub use nodes::{AgentPresence, Allocation, RemoteShell};
pub use record::{AllocationIdentity, AllocationRecord};
