//! Streams of raw bytes over TLS, read and written by threads that may block.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{Generation, NodeName};
use holdfast_wire::peer::{PeerHello, PeerWelcome, Purpose};
use holdfast_wire::{ALPN_PEER, VERSION, frame, trust};
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsConnector, client};

use super::StreamError;
use crate::agent::Agent;

/// How long a peer may be silent in the middle of a transfer. A node that dies without a word is noticed by the
/// orchestrator long before; this only keeps a thread from waiting for ever.
const SILENCE: Duration = Duration::from_secs(120);
const CONNECT: Duration = Duration::from_secs(5);
/// What TLS takes in before it sends: a few pieces' worth, so that one call of `write` becomes few system calls.
const BUFFER: usize = 1 << 20;

/// A stream to a peer.
#[derive(Debug)]
pub struct Outgoing {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// The peer.
    pub node: NodeName,
}

/// A stream from a peer.
#[derive(Debug)]
pub struct Incoming {
    stream: StreamOwned<ServerConnection, TcpStream>,
    /// The peer.
    pub node: NodeName,
}

/// Connects to the agent of `node`. Blocks.
pub fn connect(
    agent: &Agent,
    generation: Generation,
    node: &NodeName,
    purpose: Purpose,
) -> Result<Outgoing, StreamError> {
    let address = agent.collectives.address(node).ok_or_else(|| StreamError::UnknownNode(node.clone()))?;
    let broken = |source| StreamError::Connection { node: node.clone(), source };
    let protocol = |source| StreamError::Protocol { node: node.clone(), source };
    let socket = TcpStream::connect_timeout(&address, CONNECT).map_err(broken)?;
    settle(&socket).map_err(broken)?;
    agent.streams.remember(generation, &purpose, socket.try_clone().map_err(broken)?)?;
    let config = trust::client_config(&agent.start.trust, &[ALPN_PEER])?;
    let mut connection = ClientConnection::new(Arc::new(config), trust::server_name())
        .map_err(|error| StreamError::Trust(error.into()))?;
    connection.set_buffer_limit(Some(BUFFER));
    let mut stream = StreamOwned::new(connection, socket);
    frame::send(&mut stream, &hello(agent, generation, purpose)).map_err(protocol)?;
    welcomed(node, frame::receive(&mut stream).map_err(protocol)?)?;
    Ok(Outgoing { stream, node: node.clone() })
}

/// Connects to the leader at `address`, for the whole run.
pub async fn connect_link(
    agent: &Agent,
    generation: Generation,
    leader: &NodeName,
    address: SocketAddr,
) -> Result<client::TlsStream<tokio::net::TcpStream>, StreamError> {
    let broken = |source| StreamError::Connection { node: leader.clone(), source };
    let protocol = |source| StreamError::Protocol { node: leader.clone(), source };
    let connecting = tokio::net::TcpStream::connect(address);
    let socket = tokio::time::timeout(CONNECT, connecting).await.map_err(|late| broken(late.into()))?;
    let socket = socket.map_err(broken)?;
    socket.set_nodelay(true).map_err(broken)?;
    let config = trust::client_config(&agent.start.trust, &[ALPN_PEER])?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(trust::server_name(), socket).await.map_err(broken)?;
    frame::send_async(&mut stream, &hello(agent, generation, Purpose::Link)).await.map_err(protocol)?;
    welcomed(leader, frame::receive_async(&mut stream).await.map_err(protocol)?)?;
    Ok(stream)
}

fn hello(agent: &Agent, generation: Generation, purpose: Purpose) -> PeerHello {
    PeerHello {
        version: VERSION,
        token: agent.start.trust.token.clone(),
        job: agent.start.job_id.clone(),
        generation,
        node: agent.start.node.clone(),
        purpose,
    }
}

fn welcomed(node: &NodeName, answer: PeerWelcome) -> Result<(), StreamError> {
    match answer {
        PeerWelcome::Welcome => Ok(()),
        PeerWelcome::Refused(failure) => Err(StreamError::Refused { node: node.clone(), failure }),
    }
}

impl Outgoing {
    /// Says that nothing more comes, so that the peer can tell an end from a break.
    pub fn finish(mut self) -> io::Result<()> {
        self.stream.conn.send_close_notify();
        self.stream.flush()
    }
}

impl Read for Outgoing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Incoming {
    /// Takes a stream over from the async door.
    pub(super) fn from_async(stream: TlsStream<tokio::net::TcpStream>, node: NodeName) -> io::Result<Incoming> {
        let (socket, mut connection) = stream.into_inner();
        let socket = socket.into_std()?;
        socket.set_nonblocking(false)?;
        settle(&socket)?;
        connection.set_buffer_limit(Some(BUFFER));
        Ok(Incoming { stream: StreamOwned::new(connection, socket), node })
    }

    pub(super) fn socket(&self) -> Option<TcpStream> {
        self.stream.sock.try_clone().ok()
    }
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl Write for Incoming {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn settle(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(SILENCE))?;
    socket.set_write_timeout(Some(SILENCE))
}
