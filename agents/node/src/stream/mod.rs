//! Connections between agents.
//!
//! A *link* carries the collectives between a member and the leader for the entire run (module
//! [`collective`](crate::collective)). A *stream* carries one body of raw bytes, the pieces of a ring or the files of a
//! rank; a thread that may block reads or writes it. The receiver may get its order after the sender has connected, so
//! streams that have arrived wait in the [`Streams`] inbox until they are claimed.
//!
//! * `bulk`: both ends of a stream; [`connect`]: connecting to a peer;
//! * `records`: their bytes without TLS;
//! * `inbox`: the streams that have arrived; `idle`: the connections that are kept for the next step.

use std::time::Duration;

use holdfast_model::DataPlane;
use holdfast_wire::run::Settings;

mod bulk;
mod connect;
mod error;
mod idle;
mod inbox;
mod records;

pub(crate) use bulk::Closer;
#[cfg(feature = "simulation")]
pub(crate) use bulk::Connection;
pub use bulk::{IncomingStream, OutgoingStream};
pub(crate) use connect::PeerConnector;
pub use error::StreamError;
pub use inbox::Streams;
pub(crate) use records::write_all;

/// The settings of the streams of a run.
#[derive(Clone, Copy, Debug)]
pub struct StreamSettings {
    /// How long a stream may carry no data.
    pub timeout: Duration,
    pub data_plane: DataPlane,
}

impl From<&Settings> for StreamSettings {
    fn from(settings: &Settings) -> Self {
        StreamSettings { timeout: settings.stream_timeout, data_plane: settings.data_plane }
    }
}

#[cfg(test)]
mod tests;
