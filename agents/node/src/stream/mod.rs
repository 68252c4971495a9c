//! Connections between agents.
//!
//! A *link* carries the collectives between a member and the leader for the entire run (module
//! [`collective`](crate::collective)). A *stream* carries one body of raw bytes, the pieces of a ring or the files of a
//! rank; a thread that may block reads or writes it. The receiver may get its order after the sender has connected, so
//! streams that have arrived wait in the [`Streams`] inbox until they are claimed.
//!
//! * `bulk`: both ends of a stream; [`connect`]: connecting to a peer;
//! * `inbox`: the streams that have arrived; `idle`: the connections that are kept for the next step.

mod bulk;
mod connect;
mod error;
mod idle;
mod inbox;

pub(crate) use bulk::Closer;
#[cfg(feature = "simulation")]
pub(crate) use bulk::Connection;
pub use bulk::{IncomingStream, OutgoingStream};
pub(crate) use connect::PeerConnector;
pub use error::StreamError;
pub use inbox::Streams;

#[cfg(test)]
mod tests;
