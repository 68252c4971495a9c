//! How the pool of connections for requests connects to an agent. (Polls have connections of their own:
//! [`super::connection`].)
//!
//! An agent is reached directly, whatever the site's proxy variables are, and by its address: its certificate is the job's,
//! not that of a name.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use holdfast_wire::trust;
use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

/// Connects to the address in a URI.
#[derive(Clone)]
pub(super) struct PoolConnector {
    pub(super) tls: TlsConnector,
    /// A connection that is not there by then will not come.
    pub(super) within: Duration,
}

impl Service<Uri> for PoolConnector {
    type Response = AgentStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<AgentStream>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let PoolConnector { tls, within } = self.clone();
        Box::pin(async move {
            let address = uri.authority().and_then(|authority| authority.as_str().parse::<SocketAddr>().ok());
            let address = address.ok_or(io::ErrorKind::InvalidInput)?;
            let connecting = async {
                let socket = TcpStream::connect(address).await?;
                socket.set_nodelay(true)?;
                tls.connect(trust::server_name(), socket).await
            };
            let stream = tokio::time::timeout(within, connecting).await;
            Ok(AgentStream(TokioIo::new(stream.map_err(|_| io::ErrorKind::TimedOut)??)))
        })
    }
}

/// A connection in the pool.
pub(super) struct AgentStream(TokioIo<TlsStream<TcpStream>>);

impl Connection for AgentStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for AgentStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for AgentStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
