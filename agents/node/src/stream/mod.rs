//! Connections between agents.
//!
//! A *link* carries the collectives between a member and the leader for a whole run (module [`collective`](crate::collective)).
//! A *stream* carries one body of raw bytes, the pieces of a ring or the files of a rank; it is read and written by a
//! thread that may block. Whoever is to receive may not have got its order yet when the sender connects, so arrivals
//! wait in the [`Streams`] inbox until they are claimed.
//!
//! * `bulk`: both ends of a stream; [`connect`]: to a peer;
//! * `inbox`: the streams that have arrived; `idle`: those that were used and wait for the next step.

mod bulk;
mod connect;
mod error;
mod idle;
mod inbox;

pub use bulk::{Incoming, Outgoing};
pub use error::StreamError;
pub use inbox::Streams;

#[cfg(test)]
mod tests;
