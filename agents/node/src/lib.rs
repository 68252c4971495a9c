//! The node agent: one a node, `holdfast agent`.
//!
//! It serves the ranks on its node (the checkpoint API, on a Unix socket), its peers (collectives, files, pieces of
//! redundancy) and the orchestrator (health, halt, run, drain), the last two on one TLS port. What must survive
//! its process is in the control directory, so that an agent that was killed alone is started again and continues.
//!
//! | module | what |
//! |---|---|
//! | [`daemon`] | from the line on standard input to the end of the process |
//! | `claim` | the job's directories on the node, and one agent at a time in them |
//! | `admission` | why a rank or a peer is not served |
//! | [`agent`] | what all tasks of the agent share |
//! | [`identity`] | the node's name and address, if the start message does not contain them |
//! | `log` | the destination of the agent's log |
//! | [`paths`] | node paths, and their real paths below a virtual node's root |
//! | [`prefix`] | checks that this node has the job's prefix directory |
//! | [`store`] | the node's checkpoint files and their filemaps |
//! | [`inventory`] | what the node holds, for restarts and drains |
//! | [`health`] | memory, load, directories |
//! | [`halt`] | the halt file |
//! | [`library`] | follows LLNL's library, which writes checkpoints |
//! | [`forget`] | removes what finished steps of the job left |
//! | [`contact`] | when the last request of the orchestrator was received |
//! | `state_file` | small files that survive the agent's process |
//! | [`memory`] | the state of the run that must survive the agent's process |
//! | `direct_files` | the files of the open dataset that lie below the prefix directory |
//! | [`sources`] | what produces checkpoint files |
//! | [`server`] | the TLS port: requests of the orchestrator, connections of peers |
//! | [`copy`] | the one copy pipeline: flush, fetch, drain, transfers; rebuild and verify on the prefix |
//! | [`rank_socket`] | the ranks' connections: hello, then calls |
//! | [`ranks`] | which ranks are connected; killing them |
//! | [`run`] | the run in force |
//! | [`collective`] | calls of all ranks gathered at the leader, carried out by orders to every agent |
//! | [`orders`] | the steps that a leader can order: seal, encode, transfer, rebuild, fetch, flush |
//! | [`pairs`] | main and replica: processes, heartbeats, fail-over; non-critical jobs |
//! | [`stream`] | connections to peers: links and bulk streams |
//! | [`watchdog`] | how long ranks have been inactive, and their stacks |
//! | [`events`] | events and progress reported to the orchestrator |
//! | [`fault_injection`] | failures that a test or a demonstration orders |

#![forbid(unsafe_code)]

mod admission;
pub mod agent;
mod claim;
pub mod collective;
pub mod contact;
pub mod copy;
pub mod daemon;
pub mod dataset_directory;
mod direct_files;
pub mod events;
pub mod fault_injection;
pub mod forget;
pub mod halt;
pub mod health;
pub mod identity;
pub mod inventory;
pub mod library;
mod log;
pub mod memory;
pub mod orders;
pub mod pairs;
pub mod paths;
pub mod prefix;
pub mod rank_socket;
pub mod ranks;
pub mod run;
pub mod server;
pub mod sources;
mod state_file;
pub mod store;
pub mod stream;
pub mod watchdog;
mod workspace;
