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

use holdfast_model::{Failure, Generation, NodeName};
use holdfast_wire::frame::{receive_async, send_async};
use holdfast_wire::peer::{PeerHello, PeerWelcome, Purpose};
use holdfast_wire::{VERSION, frame, trust};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

pub use bulk::{Incoming, Outgoing, connect, connect_link};
pub use inbox::Streams;

use crate::admission::Refusal;
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

/// Why a connection does not count as one of the job's.
#[derive(Debug, thiserror::Error)]
pub enum Unauthenticated {
    /// Nothing came.
    #[error("sent nothing")]
    Silent,
    /// Something else than a hello came.
    #[error("sent no hello: {0}")]
    NoHello(frame::FrameError),
    /// The token is not the job's.
    #[error("presented a wrong token")]
    WrongToken,
}

/// Serves a connection on which ALPN `holdfast/1` was agreed: checks the hello, hands the stream to the thread that waits
/// for it.
///
/// # Errors
/// When the connection does not show the job's token: to be counted and reported by the caller.
pub async fn accept(
    agent: Arc<Agent>,
    mut stream: TlsStream<TcpStream>,
    peer: SocketAddr,
) -> Result<(), Unauthenticated> {
    let hello: PeerHello = match tokio::time::timeout(PATIENCE, receive_async(&mut stream)).await {
        Err(_) => return Err(Unauthenticated::Silent),
        Ok(Err(error)) => return Err(Unauthenticated::NoHello(error)),
        Ok(Ok(hello)) => hello,
    };
    if !trust::token_matches(&agent.start.trust, &hello.token.0) {
        // No answer: without the token nothing is to be learned here.
        return Err(Unauthenticated::WrongToken);
    }
    // From here on it belongs to the job: a refusal is sent to the peer, not reported as unauthenticated.
    let answer = match admit(&agent, &hello).await {
        Ok(()) => PeerWelcome::Welcome,
        Err(refusal) => {
            tracing::info!(node = %hello.node, %peer, %refusal, "peer refused");
            PeerWelcome::Refused(refusal.into())
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

async fn admit(agent: &Agent, hello: &PeerHello) -> Result<(), Refusal> {
    if hello.version != VERSION {
        return Err(Refusal::Version { theirs: hello.version });
    }
    if hello.job != agent.start.job_id {
        return Err(Refusal::Job { ours: agent.start.job_id.clone(), theirs: hello.job.clone() });
    }
    // A peer may have its plan before we have ours.
    let asked = hello.generation;
    match tokio::time::timeout(PATIENCE, agent.collectives.reached(asked)).await {
        Err(_) => Err(Refusal::TooEarly(asked)),
        Ok(serving) if serving > asked => Err(Refusal::Superseded { asked, serving }),
        Ok(_) => Ok(()),
    }
}
