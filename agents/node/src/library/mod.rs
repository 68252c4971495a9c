//! Applications that use LLNL's library instead of the API: it writes checkpoint files, control files and caches by
//! itself, and the agent follows what it leaves.
//!
//! * [`progress`]: what happened, from successive states of the control directory;
//! * [`watch`]: reads the control directory of the node;
//! * [`transfer`]: copies what the library's asynchronous flush requests (`SCR manual §9.7`).

mod file_version;
pub mod progress;
pub mod transfer;
pub mod watch;
