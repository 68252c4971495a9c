//! What a program calls to run as a copy of a pair: the main, or the replica that takes over when the main fails.
//!
//! ```no_run
//! use holdfast_pairs_client::{Place, init_wait};
//!
//! # fn main() -> Result<(), holdfast_pairs_client::PairsError> {
//! let Some(copy) = init_wait(Place::from_environment()?)? else {
//!     return Ok(()); // told to end before it was this copy's turn
//! };
//! let mut step = match copy.newest_checkpoint()? {
//!     Some((checkpoint, _state)) => checkpoint.tag,
//!     None => 0,
//! };
//! while step < 1000 && !copy.stop_requested() {
//!     step += 1;
//!     copy.update_checkpoint(step, b"the state after the step")?;
//! }
//! if step == 1000 {
//!     copy.job_end(); // not when it was told to end: the other copy goes on
//! }
//! # Ok(())
//! # }
//! ```
//!
//! * [`place`]: which copy this process is;
//! * [`copy`]: its calls;
//! * [`heartbeat`]: the thread that tells the agent that this process runs.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod copy;
mod error;
pub mod heartbeat;
pub mod place;

pub use copy::{PairCopy, init_wait};
pub use error::PairsError;
pub use holdfast_shm::{Checkpoint, ShmError, Side, Woken};
pub use place::Place;
