//! A 2-D heat equation on several ranks, restartable.
//!
//! The field is a grid of `f64` with constant edges; each step is the explicit five-point formula (`slab`). Every rank
//! has a slab of rows and exchanges its edge rows with its two neighbours over TCP (`neighbours`). At intervals each
//! rank writes its slab to one or more files (`checkpoint`), whose paths it gets from the client API; after a failure
//! it restarts from them. The result is bit-identical to that of a failure-free run on any number of ranks, because
//! each cell is computed by the same operations in the same order.
//!
//! | file | what |
//! |---|---|
//! | `args` | the command line |
//! | `geometry` | the size of the grid, and the rows of each rank |
//! | `field` | the initial field, and field files |
//! | `partial` | a file that gets its name when it is complete |
//! | `slab` | one rank's rows, and the step |
//! | `neighbours` | the exchange between ranks |
//! | `checkpoint` | one rank's checkpoint files |
//! | `variables` | the same as variables in memory (`--variables`) |
//! | `simulation` | the program, from init to finalize |
//! | `error` | the errors |

#![forbid(unsafe_code)]

mod args;
mod checkpoint;
mod error;
mod field;
mod geometry;
mod neighbours;
mod partial;
mod simulation;
mod slab;
mod variables;

#[cfg(test)]
mod tests;

pub use args::{HeatArgs, HeatInitArgs};
pub use error::{HeatError, InputError};
pub use geometry::{InvalidSize, Size, TooFewRows};
pub use simulation::{run, run_init};
