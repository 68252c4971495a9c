//! Connections between agents.
//!
//! A *link* carries the collectives between a member and the leader for a whole run (module [`collective`]).
//! A *stream* carries one body of raw bytes, the pieces of a ring or the files of a rank; it is read and written by a
//! thread that may block. Whoever is to receive may not have got its order yet when the sender connects, so arrivals
//! wait in the [`Streams`] inbox until they are claimed.

mod bulk;
mod inbox;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_wire::frame::{receive_async, send_async};
use holdfast_wire::peer::{PeerHello, PeerWelcome, Purpose};
use holdfast_wire::{Generation, NodeName, VERSION, frame, trust};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

pub use bulk::{Incoming, Outgoing, connect};
pub use inbox::Streams;

use crate::agent::Agent;
use crate::collective;

/// How long a stranger, or a peer that is too early, may keep a connection open without being let in.
const PATIENCE: Duration = Duration::from_secs(10);

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
    #[error("node {node} refused the connection: {reason}")]
    Refused {
        /// The peer.
        node: NodeName,
        /// What it said.
        reason: String,
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
    #[error("no peer connected for {what} within {seconds} s")]
    NobodyCame {
        /// What was waited for.
        what: String,
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

/// Serves a connection on which ALPN `holdfast/1` was agreed: checks the hello, hands the stream to who waits for it.
/// An error is a stranger's, to be counted and reported by the caller.
pub async fn accept(agent: Arc<Agent>, mut stream: TlsStream<TcpStream>, peer: SocketAddr) -> Result<(), String> {
    let hello: PeerHello = match tokio::time::timeout(PATIENCE, receive_async(&mut stream)).await {
        Err(_) => return Err("said nothing".to_owned()),
        Ok(Err(error)) => return Err(format!("sent no hello: {error}")),
        Ok(Ok(hello)) => hello,
    };
    if !trust::token_matches(&agent.start.trust, &hello.token.0) {
        // Not a word in answer: whoever has no token learns nothing.
        return Err("presented a wrong token".to_owned());
    }
    // From here on it is one of ours: trouble is told to the peer, not reported as a stranger.
    let answer = match admit(&agent, &hello).await {
        Ok(()) => PeerWelcome::Welcome,
        Err(reason) => {
            tracing::info!(node = %hello.node, %peer, reason, "peer refused");
            PeerWelcome::Refused(reason)
        }
    };
    let welcome = matches!(answer, PeerWelcome::Welcome);
    if send_async(&mut stream, &answer).await.is_err() || !welcome {
        return Ok(());
    }
    match hello.purpose {
        Purpose::Link => collective::serve_link(&agent, hello.node, hello.generation, stream).await,
        purpose => match Incoming::from_async(stream, hello.node) {
            Ok(incoming) => agent.streams.deposit(hello.generation, purpose, incoming),
            Err(error) => tracing::warn!(%peer, %error, "stream lost while it was handed over"),
        },
    }
    Ok(())
}

async fn admit(agent: &Agent, hello: &PeerHello) -> Result<(), String> {
    if hello.version != VERSION {
        return Err(format!(
            "this agent speaks version {VERSION}, the peer {}: install the same release",
            hello.version
        ));
    }
    if hello.job != agent.start.job_id {
        return Err(format!("this agent serves job {}, not {}", agent.start.job_id, hello.job));
    }
    // A peer may have its plan before we have ours.
    let serving = match tokio::time::timeout(PATIENCE, agent.collectives.reached(hello.generation)).await {
        Ok(serving) => serving,
        Err(_) => return Err(format!("this agent was not told of generation {} yet", hello.generation)),
    };
    if serving > hello.generation {
        return Err(format!("generation {} is over, {serving} runs", hello.generation));
    }
    Ok(())
}
