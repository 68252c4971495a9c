//! `libscr`: the functions of SCR 3.1 for C and Fortran, carried out by Holdfast's agents, without MPI.
//!
//! A program for SCR v1.1-8 (`SCR_Start_checkpoint`, `SCR_Route_file`, `SCR_Complete_checkpoint`) or SCR 3.1
//! (`SCR_Start_output`, `SCR_Have_restart`, …) is compiled with `include/scr.h` or `include/scrf.h`, linked with
//! `-lscr`, and started by `holdfast run`. Rank and size come from the launcher's environment variables
//! ([`holdfast_client::environment`]); the agents carry out collective calls.
//!
//! * [`session`]: the behaviour of the functions, in safe Rust;
//! * [`settings`]: the parameters of `SCR_Config`;
//! * [`boundary`]: the session of the process, and return codes;
//! * [`c`] and [`format`](mod@format): the C functions; [`fortran`]: the Fortran ones.
//!
//! # Differences from SCR
//!
//! * **Defaults.** `SCR_CACHE_BYPASS` is 0 here (1 in SCR 3.1): files are written to the node's cache, protected there,
//!   and flushed to the prefix directory. A program whose ranks write *one* file together must set it to 1, in the
//!   environment or by `SCR_Config("SCR_CACHE_BYPASS=1")`; its files are then routed to the dataset's directory below
//!   the prefix.
//! * **Names.** A dataset's directory below the prefix carries the name given to `SCR_Start_output`, which is also used
//!   by `SCR_Have_restart`, `SCR_Current`, `SCR_Drop` and `SCR_Delete`. A dataset without a name is called
//!   `scr.dataset.<id>`, as in SCR 3.1, and its directory is `scr.<time>.<job>.<id>`, as in v1.1-8. The files of an
//!   output lie at the paths below the prefix that the program names, as in 3.1; of the files of a checkpoint only the
//!   base names are used, as in v1.1-8.
//! * **Halting.** SCR 3.1 ends the program only with `SCR_HALT_EXIT=1`; v1.1-8 always does, in
//!   `SCR_Complete_checkpoint`. Here `SCR_HALT_EXIT` decides if it is set. If it is not set, `SCR_Complete_checkpoint`
//!   exits with code 0 as in v1.1-8, unless the program has called `SCR_Should_exit`; `SCR_Complete_output`, which
//!   v1.1-8 does not have, never exits; and `SCR_Init` exits if a halt condition holds, because no checkpoint was
//!   loaded.
//! * **`SCR_Route_file` outside of a start/complete pair** returns the given name, as in 3.1. In a program that has
//!   called no function of 3.1 it returns the path of the restart file until the first checkpoint, as in v1.1-8.
//! * **`SCR_ENABLE=0`** makes every function succeed without effect; `SCR_Route_file` returns the given name.
//! * **`SCR_Config`** stores every parameter and returns those that are read. Only `SCR_ENABLE`, `SCR_CACHE_BYPASS` and
//!   `SCR_HALT_EXIT` have an effect. The agents are configured before the program starts, by the job spec and the SCR
//!   parameters of its environment and files; `SCR_Init` prints a warning with the parameters that have no effect.

pub mod boundary;
pub mod c;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub mod format;
pub mod fortran;
pub mod session;
pub mod settings;

pub use c::*;
