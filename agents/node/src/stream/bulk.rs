//! Streams of raw bytes, read and written by threads that may block.

use std::fmt::Debug;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use holdfast_model::NodeName;
use holdfast_wire::peer::RecordProtection;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use tokio::sync::oneshot;

use super::records::{Direction, Records};

/// The buffer of TLS for a few pieces, so that one call of `write` becomes few system calls.
const BUFFER: usize = 1 << 20;

/// What carries the bytes of a stream: TLS or records on a socket; in the simulation, memory.
pub(crate) trait Connection: Read + Write + Debug + Send {
    /// From now on the bytes are in records; memory needs none.
    fn begin_records(&mut self, _protection: &RecordProtection) -> io::Result<()> {
        Ok(())
    }

    /// From now on they are sent over TLS again. Returns false if not all that has arrived was read.
    fn end_records(&mut self) -> bool {
        true
    }

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

/// A socket on which the hello is sent over TLS, and what follows it also, or in records.
#[derive(Debug)]
struct OnSocket<S> {
    tls: StreamOwned<S, TcpStream>,
    records: Option<Records>,
}

/// Both sides of TLS are connections alike.
macro_rules! connection_on_socket {
    ($side:ty, $direction:expr) => {
        impl Connection for OnSocket<$side> {
            fn begin_records(&mut self, protection: &RecordProtection) -> io::Result<()> {
                self.records = Some(Records::new(protection, $direction)?);
                Ok(())
            }

            fn end_records(&mut self) -> bool {
                self.records.take().is_none_or(|records| records.is_read())
            }

            fn socket(&self) -> Option<&TcpStream> {
                Some(&self.tls.sock)
            }

            fn closer(&self) -> io::Result<Closer> {
                let socket = self.tls.sock.try_clone()?;
                Ok(Closer::new(move || drop(socket.shutdown(Shutdown::Both))))
            }

            fn has_arrived(&mut self) -> io::Result<bool> {
                let state = self.tls.conn.process_new_packets().map_err(io::Error::other)?;
                Ok(state.plaintext_bytes_to_read() > 0)
            }
        }

        impl Read for OnSocket<$side> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                match &mut self.records {
                    Some(records) => records.read(&mut self.tls.sock, buffer),
                    None => self.tls.read(buffer),
                }
            }
        }

        impl Write for OnSocket<$side> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.write_vectored(&[IoSlice::new(bytes)])
            }

            fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                match &mut self.records {
                    Some(records) => records.write(&mut self.tls.sock, parts),
                    None => self.tls.write_vectored(parts),
                }
            }

            fn flush(&mut self) -> io::Result<()> {
                match &self.records {
                    Some(_) => Ok(()),
                    None => self.tls.flush(),
                }
            }
        }
    };
}

connection_on_socket!(ClientConnection, Direction::FromConnector);
connection_on_socket!(ServerConnection, Direction::FromAcceptor);

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
        Self::over(OnSocket { tls: StreamOwned::new(connection, socket), records: None }, node)
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
        Ok(Self::over(OnSocket { tls: StreamOwned::new(connection, socket), records: None }, node))
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
        let is_read = self.end_records();
        if let Some(back) = self.back.take().filter(|_| is_read) {
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
        impl $end {
            /// What follows is in records, as the hello asked for.
            pub(crate) fn begin_records(&mut self, protection: Option<&RecordProtection>) -> io::Result<()> {
                protection.map_or(Ok(()), |protection| self.stream.begin_records(protection))
            }

            /// What follows is sent over TLS again. Returns false if not all that has arrived was read.
            pub(super) fn end_records(&mut self) -> bool {
                self.stream.end_records()
            }
        }

        impl Read for $end {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.stream.read(buffer).map_err(|error| explain(self.stream.socket(), error))
            }
        }

        impl Write for $end {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.stream.write(bytes).map_err(|error| explain(self.stream.socket(), error))
            }

            fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                self.stream.write_vectored(parts).map_err(|error| explain(self.stream.socket(), error))
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
