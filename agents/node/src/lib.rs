//! The node agent: one a node, `holdfast agent`.
//!
//! It serves the ranks on its node (the checkpoint API, on a Unix socket), its peers (collectives, files, pieces of
//! redundancy) and the orchestrator (health, halt, run, drain), the last two on one TLS port. What must survive
//! its process is in the control directory, so that an agent that was killed alone is started again and continues.
//!
//! Each module uses only those below it in this list:
//!
//! | module | what |
//! |---|---|
//! | [`daemon`] | from the line on standard input to the end of the process; the node's identity, the log |
//! | [`server`] | the ranks' socket; the TLS port: requests of the orchestrator, connections of peers |
//! | [`collective`] | calls of all ranks gathered at the leader, carried out by orders to every agent |
//! | [`orders`] | the steps that a leader can order: seal, encode, transfer, rebuild, fetch, flush |
//! | [`run`] | the run in force |
//! | [`library`] | follows LLNL's library, which writes checkpoints |
//! | [`copy`] | the one copy pipeline: flush, fetch, drain, transfers; rebuild and verify on the prefix |
//! | [`agent`] | what all tasks of the agent share; the node's inventory; injected failures |
//! | [`pairs`] | main and replica: processes, heartbeats, fail-over; non-critical jobs |
//! | [`sources`] | what produces checkpoint files |
//! | [`store`] | the node's checkpoint files and their filemaps |
//! | [`stream`] | connections to peers: links and bulk streams |
//! | [`ranks`] | which ranks are connected; killing them; why a rank or a peer is not served |
//! | [`watchdog`] | how long ranks have been inactive, and their stacks |
//! | [`report`] | events, progress and health for the orchestrator; when its last request was received |
//! | [`state`] | small files that survive the agent's process; the halt file |
//! | [`prefix`] | the job's prefix directories, and those of datasets below them |
//! | [`directories`] | the job's directories on the node: their paths, and one agent at a time in them |

#![forbid(unsafe_code)]

pub mod agent;
pub mod collective;
pub mod copy;
pub mod daemon;
pub mod directories;
#[cfg(test)]
mod fixtures;
pub mod library;
pub mod orders;
pub mod pairs;
pub mod prefix;
pub mod ranks;
pub mod report;
pub mod run;
pub mod server;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod sources;
pub mod state;
pub mod store;
pub mod stream;
pub mod watchdog;
