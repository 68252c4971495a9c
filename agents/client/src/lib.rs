//! The checkpoint API that an application links: blocking calls, no MPI, no async.
//!
//! `holdfast run` starts a program as several processes, the *ranks*. The program asks this crate when and where to
//! write a checkpoint, and reports when its files are complete. After a failure it gets the paths of the same files,
//! which the agents have restored. The calls correspond to those of SCR (`SCR manual §11.4–11.9`):
//!
//! | call | SCR | collective |
//! |---|---|---|
//! | [`Client::init`] | `SCR_Init` | yes |
//! | [`Client::have_restart`] | `SCR_Have_restart` | no; equal result on all ranks |
//! | [`Client::start_restart`] | `SCR_Start_restart` | no; equal result on all ranks |
//! | [`Client::restart_files`] | (none) | no |
//! | [`Client::complete_restart`] | `SCR_Complete_restart` | yes |
//! | [`Client::need_checkpoint`] | `SCR_Need_checkpoint` | yes |
//! | [`Client::start_checkpoint`] | `SCR_Start_checkpoint` | yes |
//! | [`Client::route_file`] | `SCR_Route_file` | no |
//! | [`Client::complete_checkpoint`] | `SCR_Complete_checkpoint` | yes |
//! | [`Client::should_exit`] | `SCR_Should_exit` | yes |
//! | [`Client::allgather`] | (MPI) | yes |
//! | [`Client::start_output`] | `SCR_Start_output` | yes |
//! | [`Client::current`] | `SCR_Current` | yes |
//! | [`Client::drop_dataset`], [`Client::delete_dataset`] | `SCR_Drop`, `SCR_Delete` | yes |
//! | [`Client::finalize`] | `SCR_Finalize` | yes |
//!
//! # A complete program
//!
//! ```no_run
//! use holdfast_client::{Client, ClientError};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mut client = Client::init()?;
//!     let name = format!("sum_{}.ckpt", client.rank());
//!     let mut state: u64 = 0;
//!     let mut step: u64 = 0;
//!
//!     // The newest checkpoint; an older one if a rank cannot read its file.
//!     while client.have_restart().is_some() {
//!         client.start_restart()?;
//!         let read = client.route_file(&name).ok().and_then(|path| std::fs::read(path).ok());
//!         let text = read.and_then(|bytes| String::from_utf8(bytes).ok());
//!         let pair = text.as_deref().and_then(|text| text.split_once(' '));
//!         let found = pair.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
//!         if client.complete_restart(found.is_some())?.accepted() {
//!             (step, state) = found.unwrap_or_default();
//!             break;
//!         }
//!     }
//!
//!     while step < 1000 {
//!         step += 1;
//!         state += step * u64::from(client.rank().0 + 1);
//!         if client.need_checkpoint()? {
//!             client.start_checkpoint()?;
//!             let path = client.route_file(&name)?;
//!             let valid = std::fs::write(path, format!("{step} {state}")).is_ok();
//!             // Does not return if the run must end here.
//!             client.complete_checkpoint(valid)?;
//!         }
//!     }
//!
//!     // Every rank's sum, on every rank.
//!     let sums = client.allgather(&state.to_le_bytes())?;
//!     if client.rank().0 == 0 {
//!         println!("{sums:?}");
//!     }
//!     client.finalize()?;
//!     Ok(())
//! }
//! ```
//!
//! # Modules
//!
//! * [`environment`]: the identity of this process and the address of its agent, from the environment variables. The
//!   only place that reads them, also for the C, Fortran and Python interfaces.
//! * `connection`: one call at a time on the agent's Unix socket. When the agent was restarted, it reconnects and
//!   repeats the call with the same number, so that the call is carried out once.
//! * [`Client`]: the calls, and the order in which they are allowed.
//! * `variables`, with the feature of this name: checkpoints of variables in memory, in FTI-FF files.
//! * [`ClientError`]: the errors, with remedies.
//!
//! With `SCR_ENABLE=0` in the environment the client connects to no agent: `route_file` returns the given name, no
//! checkpoint is ever due, and there is nothing to restart from.

// The memory of variables, which C programs pass as addresses, is accessed in `variables::memory` only.
#![cfg_attr(not(feature = "variables"), forbid(unsafe_code))]
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod client;
mod connection;
pub mod environment;
mod error;
#[cfg(feature = "variables")]
pub mod variables;

pub use client::datasets::DatasetOptions;
pub use client::{Builder, Client, Completed, RestartOutcome};
pub use connection::Interrupter;
pub use environment::{AgentAddress, Environment, EnvironmentError};
pub use error::ClientError;
pub use holdfast_model::{CheckpointId, Failure, FailureKind, Generation, NodeName, Rank, RestartSource, Subject};
pub use holdfast_wire::rank::{
    Awaited, LARGEST_CONTRIBUTION, LARGEST_GATHERED, ProgramState, Restart, RestartFile, RestartFiles,
};
