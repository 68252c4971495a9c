//! `libscr`: the functions of SCR 3.1 for C and Fortran, carried out by Holdfast's agents. No MPI inside.
//!
//! A program that was written for SCR, be it the v1.1-8 of the manual (`SCR_Start_checkpoint`, `SCR_Route_file`,
//! `SCR_Complete_checkpoint`) or 3.1 (`SCR_Start_output`, `SCR_Have_restart`, …), is compiled with `include/scr.h` or
//! `include/scrf.h`, linked with `-lscr`, and started by `holdfast run`. Rank and size come from the launcher's
//! environment ([`holdfast_client::surroundings`]), collectives go through the agents.
//!
//! * [`session`]: what the functions do, in safe Rust;
//! * [`settings`] holds what `SCR_Config` says;
//! * [`boundary`]: pointers in and out, no unwinding across, one call at a time;
//! * [`c`] and [`format`](mod@format): the C functions; [`fortran`]: the Fortran ones.
//!
//! # Where it differs from SCR
//!
//! * **Unsaid defaults.** `SCR_CACHE_BYPASS` is 0 here (1 in SCR 3.1): files go to the cache of the node, protected, and
//!   from there to the prefix directory. A program whose ranks write *one* file together sets it to 1, in the environment
//!   or by `SCR_Config("SCR_CACHE_BYPASS=1")`; its files are then routed to the dataset's directory below the prefix.
//! * **Names.** A dataset's directory below the prefix is `scr.<time>.<job>.<id>`, as SCR v1.1-8 names it; the name
//!   given to `SCR_Start_output` is recorded in it, and is what `SCR_Have_restart`, `SCR_Current`, `SCR_Drop` and
//!   `SCR_Delete` talk about. Without one a dataset is called `scr.dataset.<id>`, as in SCR 3.1. Only the base names of
//!   files count, as in v1.1-8.
//! * **Halting.** SCR 3.1 ends no program by itself unless `SCR_HALT_EXIT=1`; v1.1-8 always does, in
//!   `SCR_Complete_checkpoint`. Here `SCR_HALT_EXIT` decides if it is set. If not: `SCR_Complete_checkpoint` exits with code
//!   0 as v1.1-8, until the program has called `SCR_Should_exit`; `SCR_Complete_output`, which v1.1-8 does not have, never
//!   does; and `SCR_Init` exits when a halt condition holds already, since nothing was loaded to go on from.
//! * **`SCR_Route_file` outside of a start/complete pair** returns the name as it was given, as in 3.1; but in a program
//!   that has called none of the functions of 3.1 it finds the restart file, as in v1.1-8, until the first checkpoint.
//! * **`SCR_ENABLE=0`** makes every function succeed and do nothing; file names are left as they are.
//! * **`SCR_Config`** keeps every setting and returns it. In force from it are `SCR_ENABLE`, `SCR_CACHE_BYPASS` and
//!   `SCR_HALT_EXIT`. What the agents do is settled before the program starts, by the job's spec and the SCR parameters
//!   of its environment and files; `SCR_Init` names the settings that came too late.

#![warn(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

pub mod boundary;
pub mod c;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub mod format;
pub mod fortran;
pub mod session;
pub mod settings;

pub use c::*;
