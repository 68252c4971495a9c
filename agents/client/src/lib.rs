//! The checkpoint API that an application links: blocking calls, no MPI, no async.
//!
//! A program that `holdfast run` starts is one of several *ranks*. It asks this crate when to write a checkpoint
//! and where, says when its files are complete, and after a failure finds them again, in whatever way the agents
//! brought them back. The calls and their meaning are those of SCR (`SCR manual §11.4–11.9`):
//!
//! | call | SCR | all ranks together |
//! |---|---|---|
//! | [`Client::init`] | `SCR_Init` | yes |
//! | [`Client::have_restart`], [`Client::start_restart`] | `SCR_Have_restart`, `SCR_Start_restart` | no, but all ranks get the same answer |
//! | [`Client::complete_restart`] | `SCR_Complete_restart` | yes |
//! | [`Client::need_checkpoint`] | `SCR_Need_checkpoint` | yes |
//! | [`Client::start_checkpoint`] | `SCR_Start_checkpoint` | yes |
//! | [`Client::route_file`] | `SCR_Route_file` | no |
//! | [`Client::complete_checkpoint`] | `SCR_Complete_checkpoint` | yes |
//! | [`Client::should_exit`] | `SCR_Should_exit` | yes |
//! | [`Client::allgather`] | (MPI) | yes |
//! | [`Client::start_output`] | `SCR_Start_output` | yes |
//! | [`Client::current`], [`Client::drop_dataset`], [`Client::delete_dataset`] | `SCR_Current`, `SCR_Drop`, `SCR_Delete` | yes |
//! | [`Client::finalize`] | `SCR_Finalize` | yes |
//!
//! # A whole program
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
//!     // The newest checkpoint that works; an older one if some rank cannot read its file.
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
//!             // Does not return if the run is to end here.
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
//! # How it is built
//!
//! * [`surroundings`]: who this process is and where its agent listens, from the environment. Everything that
//!   other faces of this API (C, Fortran, Python) need to find out stands there and nowhere else.
//! * `connection`: one call at a time on the agent's Unix socket; connects again when the agent was restarted and
//!   repeats the call under its number, so that it is carried out once.
//! * [`Client`]: the calls, and the order in which they are allowed.
//! * [`ClientError`]: what can go wrong, and what to do.
//!
//! With `SCR_ENABLE=0` in the environment the client talks to nobody: routes are the names that were given,
//! nothing is needed, nothing is there to restart from.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod client;
mod connection;
mod error;
pub mod surroundings;

pub use client::{Builder, Client, Completed, DatasetOptions, RestartOutcome};
pub use error::ClientError;
pub use holdfast_model::{CheckpointId, Failure, FailureKind, Generation, NodeName, Rank, RestartSource, Subject};
pub use holdfast_wire::rank::{LARGEST_CONTRIBUTION, LARGEST_GATHERED, Restart};
pub use surroundings::{AgentAddress, Surroundings, SurroundingsError};
