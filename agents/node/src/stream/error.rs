//! Why there is no connection to a peer.

use holdfast_model::{Failure, Generation, NodeName};
use holdfast_wire::peer::Purpose;
use holdfast_wire::{frame, trust};

/// Why there is no connection to a peer.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The run does not know the node.
    #[error("node {0} is not part of the run")]
    UnknownNode(NodeName),
    /// The connection could not be made, or broke.
    #[error("the connection to node {node} failed: {source}")]
    Connection {
        /// The peer.
        node: NodeName,
        /// What the system said.
        source: std::io::Error,
    },
    /// The peer does not want us.
    #[error("node {node} refused the connection: {failure}")]
    Refused {
        /// The peer.
        node: NodeName,
        /// Its reason.
        failure: Failure,
    },
    /// What the peer says makes no sense.
    #[error("node {node} sent something else than expected: {source}")]
    Protocol {
        /// The peer.
        node: NodeName,
        /// What is wrong.
        source: frame::FrameError,
    },
    /// Nobody connected.
    #[error("no peer connected for {what:?} within {seconds} s")]
    NobodyCame {
        /// What was waited for.
        what: Purpose,
        /// How long.
        seconds: u64,
    },
    /// The run is over.
    #[error("generation {0} is over")]
    Over(Generation),
    /// Another member failed; the leader gave the order up.
    #[error("another member failed")]
    Cancelled,
    /// The job's certificate cannot be used.
    #[error(transparent)]
    Trust(#[from] trust::TrustError),
}
