//! Connections to peers: links and bulk streams.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::agent::Agent;

/// Connections to and from peers.
#[derive(Debug, Default)]
pub struct Streams {}

/// Serves a connection on which ALPN `holdfast/1` was agreed: checks the hello, hands the stream to who waits for it.
/// An error is a stranger's, to be counted and reported by the caller.
pub async fn accept(_agent: Arc<Agent>, _stream: TlsStream<TcpStream>, _peer: SocketAddr) -> Result<(), String> {
    Ok(())
}
