//! Why there is no connection to a peer.

use holdfast_model::{Failure, Generation, NodeName};
use holdfast_wire::peer::Purpose;
use holdfast_wire::{frame, trust};

/// Why there is no connection to a peer.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("node {0} is not part of the run")]
    UnknownNode(NodeName),
    #[error("the connection to node {node} failed: {source}")]
    Connection { node: NodeName, source: std::io::Error },
    #[error("node {node} refused the connection: {failure}")]
    Refused { node: NodeName, failure: Failure },
    #[error("node {node} sent an unexpected message: {source}")]
    Protocol { node: NodeName, source: frame::FrameError },
    #[error("no peer connected for {what:?} within {seconds} s")]
    NoPeer { what: Purpose, seconds: u64 },
    #[error("generation {0} is over")]
    Over(Generation),
    #[error("the order was cancelled because another member failed")]
    Cancelled,
    #[error(transparent)]
    Trust(#[from] trust::TrustError),
}
