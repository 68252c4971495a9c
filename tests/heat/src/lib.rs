//! A 2-D heat equation on several ranks, restartable.
//!
//! The field is a grid of `f64`, its edge held constant; each step is the explicit five-point formula
//! (`slab`). Every rank has a slab of rows and exchanges its edge rows with the two ranks beside it over TCP
//! (`neighbours`). Every so many steps each rank writes its slab into one or more files (`checkpoint`), at places
//! that the client API names; after a failure it goes on from them. The result is the same to the bit, whatever
//! happened on the way and however many ranks computed it, because each cell is computed by the same operations in
//! the same order.
//!
//! | file | what |
//! |---|---|
//! | `args` | the command line |
//! | `geometry` | the size of the grid, and which rank has which rows |
//! | `field` | the initial field, and files that hold a whole field |
//! | `partial` | a file that takes its name when it is complete |
//! | `slab` | one rank's rows, and the step |
//! | `neighbours` | the exchange between ranks |
//! | `checkpoint` | one rank's checkpoint files |
//! | `simulation` | from init to finalize |
//! | `error` | why it ended without a result |

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

#[cfg(test)]
mod tests;

pub use args::{HeatArgs, HeatInitArgs};
pub use error::{HeatError, InputProblem};
pub use geometry::{InvalidSize, Size, TooFewRows};
pub use simulation::{run, run_init};
