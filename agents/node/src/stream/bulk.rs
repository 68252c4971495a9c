//! Streams of raw bytes over TLS, read and written by threads that may block.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use holdfast_model::NodeName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use tokio_rustls::server::TlsStream;

/// How long a peer may be silent in the middle of a transfer. A node that dies without a word is noticed by the
/// orchestrator long before; this only keeps a thread from waiting for ever.
const SILENCE: Duration = Duration::from_secs(120);
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

impl Outgoing {
    /// A stream on a connection whose TLS session begins with the first byte.
    pub(super) fn new(mut connection: ClientConnection, socket: TcpStream, node: NodeName) -> Self {
        connection.set_buffer_limit(Some(BUFFER));
        Outgoing { stream: StreamOwned::new(connection, socket), node }
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
    pub(crate) fn from_async(stream: TlsStream<tokio::net::TcpStream>, node: NodeName) -> io::Result<Incoming> {
        let (socket, mut connection) = stream.into_inner();
        let socket = socket.into_std()?;
        socket.set_nonblocking(false)?;
        settle(&socket)?;
        connection.set_buffer_limit(Some(BUFFER));
        Ok(Incoming { stream: StreamOwned::new(connection, socket), node })
    }

    /// The connection, for whoever has to cut it.
    pub fn socket(&self) -> Option<TcpStream> {
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

/// Time limits, and no waiting for more to send.
pub(super) fn settle(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(SILENCE))?;
    socket.set_write_timeout(Some(SILENCE))
}
