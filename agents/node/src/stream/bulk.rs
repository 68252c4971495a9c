//! Streams of raw bytes over TLS, read and written by threads that may block.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use holdfast_model::NodeName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use tokio::sync::oneshot;

/// The buffer of TLS for a few pieces, so that one call of `write` becomes few system calls.
const BUFFER: usize = 1 << 20;

#[derive(Debug)]
pub struct OutgoingStream {
    stream: StreamOwned<ClientConnection, TcpStream>,
    pub node: NodeName,
}

#[derive(Debug)]
pub struct IncomingStream {
    stream: StreamOwned<ServerConnection, TcpStream>,
    pub node: NodeName,
    /// Receives it back when its step is over, to wait for the next hello on it.
    back: Option<oneshot::Sender<IncomingStream>>,
}

impl OutgoingStream {
    pub(super) fn new(mut connection: ClientConnection, socket: TcpStream, node: NodeName) -> Self {
        connection.set_buffer_limit(Some(BUFFER));
        OutgoingStream { stream: StreamOwned::new(connection, socket), node }
    }

    /// The socket, with which the connection can be closed.
    pub(super) fn socket(&self) -> io::Result<TcpStream> {
        self.stream.sock.try_clone()
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
        Ok(IncomingStream { stream: StreamOwned::new(connection, socket), node, back: None })
    }

    /// Limits how long it may carry no data.
    pub(crate) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        set_timeout(&self.stream.sock, timeout)
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
        let state = self.stream.conn.process_new_packets().map_err(io::Error::other)?;
        if state.plaintext_bytes_to_read() > 0 {
            return Ok(());
        }
        let socket = self.stream.sock.try_clone()?;
        socket.set_nonblocking(true)?;
        let waiting = tokio::net::TcpStream::from_std(socket)?;
        let readable = waiting.readable().await;
        drop(waiting);
        self.stream.sock.set_nonblocking(false)?;
        readable
    }

    /// The socket, with which the connection can be closed.
    pub fn socket(&self) -> Option<TcpStream> {
        self.stream.sock.try_clone().ok()
    }
}

/// Both ends read and write alike, and close the connection when they are dropped.
macro_rules! end_of_stream {
    ($end:ty) => {
        impl Read for $end {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.stream.read(buffer).map_err(|error| explain(&self.stream.sock, error))
            }
        }

        impl Write for $end {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.stream.write(bytes).map_err(|error| explain(&self.stream.sock, error))
            }

            fn flush(&mut self) -> io::Result<()> {
                self.stream.flush().map_err(|error| explain(&self.stream.sock, error))
            }
        }

        impl Drop for $end {
            /// The list of open connections also holds the socket, which would otherwise stay open, and the peer would
            /// wait.
            fn drop(&mut self) {
                let _ = self.stream.sock.shutdown(Shutdown::Both);
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
fn explain(socket: &TcpStream, error: io::Error) -> io::Error {
    match socket.read_timeout() {
        Ok(Some(timeout)) if error.kind() == io::ErrorKind::WouldBlock => {
            let why = format!("no data for {} s (checkpoint.stream_timeout)", timeout.as_secs_f64());
            io::Error::new(io::ErrorKind::TimedOut, why)
        }
        _ => error,
    }
}
