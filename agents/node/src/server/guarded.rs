//! A connection from which only a few kilobytes are read until it has presented the token: the TLS handshake, the hello
//! of a peer and the head of a request together.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::pending::PendingConnection;

/// The most bytes before the token: a handshake, and one record of TLS with the beginning of the next one, because the
/// body of a request follows its head at once.
pub(super) const UNAUTHENTICATED_BYTES: usize = 32 << 10;

#[derive(Debug)]
pub(super) struct GuardedStream {
    socket: TcpStream,
    pending: Arc<PendingConnection>,
    left: usize,
}

impl GuardedStream {
    pub(super) fn new(socket: TcpStream, pending: Arc<PendingConnection>) -> Self {
        GuardedStream { socket, pending, left: UNAUTHENTICATED_BYTES }
    }

    pub(super) fn into_inner(self) -> TcpStream {
        self.socket
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        if !self.pending.is_authenticated() {
            let Some(left) = self.left.checked_sub(buffer.filled().len() - before) else {
                let limit = UNAUTHENTICATED_BYTES;
                let error = format!("more than {limit} bytes were sent before the token");
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
            };
            self.left = left;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
