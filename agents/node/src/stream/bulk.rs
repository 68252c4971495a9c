//! Streams of raw bytes over TLS, read and written by threads that may block.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use holdfast_model::NodeName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use tokio::sync::oneshot;

/// The buffer of TLS for a few pieces, so that one call of `write` becomes few system calls.
const BUFFER: usize = 1 << 20;

/// What carries the bytes of a stream: TLS on a socket; in the simulation, memory.
pub(crate) trait Connection: Read + Write + Debug + Send {
    /// Nothing in memory has one.
    fn socket(&self) -> Option<&TcpStream>;

    /// Another handle on the connection, with which it can be closed.
    fn closer(&self) -> io::Result<Closer>;

    /// True if bytes have arrived that can be read at once.
    fn has_arrived(&mut self) -> io::Result<bool>;
}

/// Closes a connection: reads and writes of its ends get an error, or the end of the stream.
pub(crate) struct Closer(Box<dyn Fn() + Send + Sync>);

impl Closer {
    pub(crate) fn new(close: impl Fn() + Send + Sync + 'static) -> Self {
        Closer(Box::new(close))
    }

    pub(crate) fn close(&self) {
        (self.0)();
    }
}

impl Debug for Closer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Closer")
    }
}

/// Both sides of TLS are connections alike.
macro_rules! tls_connection {
    ($side:ty) => {
        impl Connection for StreamOwned<$side, TcpStream> {
            fn socket(&self) -> Option<&TcpStream> {
                Some(&self.sock)
            }

            fn closer(&self) -> io::Result<Closer> {
                let socket = self.sock.try_clone()?;
                Ok(Closer::new(move || drop(socket.shutdown(Shutdown::Both))))
            }

            fn has_arrived(&mut self) -> io::Result<bool> {
                let state = self.conn.process_new_packets().map_err(io::Error::other)?;
                Ok(state.plaintext_bytes_to_read() > 0)
            }
        }
    };
}

tls_connection!(ClientConnection);
tls_connection!(ServerConnection);

#[derive(Debug)]
pub struct OutgoingStream {
    stream: Box<dyn Connection>,
    pub node: NodeName,
}

#[derive(Debug)]
pub struct IncomingStream {
    stream: Box<dyn Connection>,
    pub node: NodeName,
    /// Receives it back when its step is over, to wait for the next hello on it.
    back: Option<oneshot::Sender<IncomingStream>>,
}

impl OutgoingStream {
    pub(super) fn new(mut connection: ClientConnection, socket: TcpStream, node: NodeName) -> Self {
        connection.set_buffer_limit(Some(BUFFER));
        Self::over(StreamOwned::new(connection, socket), node)
    }

    pub(crate) fn over(connection: impl Connection + 'static, node: NodeName) -> Self {
        OutgoingStream { stream: Box::new(connection), node }
    }

    /// The socket, with which the connection can be closed.
    pub(super) fn socket(&self) -> io::Result<TcpStream> {
        self.stream.socket().ok_or(io::ErrorKind::NotConnected)?.try_clone()
    }
}

impl IncomingStream {
    /// Takes a stream over from the asynchronous server.
    pub(crate) fn from_async(
        socket: tokio::net::TcpStream,
        mut connection: ServerConnection,
        node: NodeName,
    ) -> io::Result<IncomingStream> {
        let socket = socket.into_std()?;
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        connection.set_buffer_limit(Some(BUFFER));
        Ok(Self::over(StreamOwned::new(connection, socket), node))
    }

    pub(crate) fn over(connection: impl Connection + 'static, node: NodeName) -> Self {
        IncomingStream { stream: Box::new(connection), node, back: None }
    }

    /// Limits how long it may carry no data.
    pub(crate) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.stream.socket().map_or(Ok(()), |socket| set_timeout(socket, timeout))
    }

    /// Receives the stream back if its step ends without error; otherwise the receiver gets an error.
    pub(crate) fn comes_back(&mut self) -> oneshot::Receiver<IncomingStream> {
        let (back, returned) = oneshot::channel();
        self.back = Some(back);
        returned
    }

    /// Its step has ended without error, and all of it was read: the next step may begin.
    pub(crate) fn give_back(mut self) {
        if let Some(back) = self.back.take() {
            // It is not expected any more: it is closed.
            let _ = back.send(self);
        }
    }

    /// Waits until there is something to read, or the peer has closed it.
    pub(crate) async fn readable(&mut self) -> io::Result<()> {
        if self.stream.has_arrived()? {
            return Ok(());
        }
        let Some(own) = self.stream.socket() else { return Ok(()) };
        let socket = own.try_clone()?;
        socket.set_nonblocking(true)?;
        let waiting = tokio::net::TcpStream::from_std(socket)?;
        let readable = waiting.readable().await;
        drop(waiting);
        own.set_nonblocking(false)?;
        readable
    }

    /// The socket, with which the connection can be closed.
    pub fn socket(&self) -> Option<TcpStream> {
        self.stream.socket()?.try_clone().ok()
    }

    /// Another handle on the connection, with which it can be closed while a thread reads it.
    pub(crate) fn closer(&self) -> io::Result<Closer> {
        self.stream.closer()
    }
}

/// Both ends read and write alike, and close the connection when they are dropped.
macro_rules! end_of_stream {
    ($end:ty) => {
        impl Read for $end {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.stream.read(buffer).map_err(|error| explain(self.stream.socket(), error))
            }
        }

        impl Write for $end {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.stream.write(bytes).map_err(|error| explain(self.stream.socket(), error))
            }

            fn flush(&mut self) -> io::Result<()> {
                self.stream.flush().map_err(|error| explain(self.stream.socket(), error))
            }
        }

        impl Drop for $end {
            /// The list of open connections also holds the socket, which would otherwise stay open, and the peer would
            /// wait.
            fn drop(&mut self) {
                self.stream.socket().map(|socket| socket.shutdown(Shutdown::Both));
            }
        }
    };
}

end_of_stream!(OutgoingStream);
end_of_stream!(IncomingStream);

/// Limits how long a socket may carry no data. The orchestrator notices a lost node much earlier; this prevents that a
/// thread waits for ever.
pub(super) fn set_timeout(socket: &TcpStream, timeout: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(timeout))?;
    socket.set_write_timeout(Some(timeout))
}

/// Names the limit in the error of a socket that has reached it.
fn explain(socket: Option<&TcpStream>, error: io::Error) -> io::Error {
    match socket.map(TcpStream::read_timeout) {
        Some(Ok(Some(timeout))) if error.kind() == io::ErrorKind::WouldBlock => {
            let why = format!("no data for {} s (checkpoint.stream_timeout)", timeout.as_secs_f64());
            io::Error::new(io::ErrorKind::TimedOut, why)
        }
        _ => error,
    }
}
