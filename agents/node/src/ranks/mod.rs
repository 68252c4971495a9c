//! The ranks on this node: which are connected, and killing them. Their socket is served by
//! `server::rank_socket`; `admission` has the reasons why a rank or a peer is not served.
//!
//! * `connected`: a rank has one connection at a time and makes one call at a time. A connection may break without the
//!   rank (the agent was restarted) and the rank without the connection;
//! * `process`: a process is watched by its pidfd; `marked`: processes that belong to ranks by their environment;
//! * `kill`: kills the node's ranks; `memory_kills`: what the system killed for lack of memory;
//!   `kernel_log`: what the kernel reported.

pub(crate) mod admission;
mod connected;
mod kernel_log;
mod kill;
mod marked;
mod memory_kills;
mod process;

pub(crate) use connected::Joined;
pub use connected::Ranks;
pub(crate) use kernel_log::KernelLog;
pub use kill::{kill, terminate};
pub use marked::Marked;
pub(crate) use memory_kills::MemoryKills;
pub(crate) use process::Process;
