//! State in the control directory that survives the agent's process, apart from the filemaps (`store`).
//!
//! * `state_file`: how a small file of the agent is replaced and read;
//! * `memory`: the plan in force, the open checkpoint, what was removed;
//! * `direct_files`: the files of the open dataset that lie below the prefix directory;
//! * `halt`: the halt file, which SCR's programs and LLNL's library use too.

pub(crate) mod direct_files;
pub mod halt;
pub mod memory;
pub(crate) mod state_file;
