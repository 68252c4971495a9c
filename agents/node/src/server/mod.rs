//! The agent's one port: TLS 1.3 with the job's certificate, behind it the orchestrator's requests (ALPN `http/1.1`)
//! and the peers' links and streams (ALPN `holdfast/1`).
//!
//! Without the token nothing is answered but a refusal. A connection that has not presented the token within ten
//! seconds is closed, and of too many such connections the oldest is evicted, so that silent connections cannot block
//! others.
//!
//! * `requests`: what each path does; `access`: the token; `peers`: links and streams;
//! * `pending`: connections that have not presented the token yet; `unauthenticated`: counts and reports those that do
//!   not present it.

mod access;
mod peers;
mod pending;
mod requests;
mod unauthenticated;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use holdfast_wire::{ALPN_HTTP, ALPN_PEER, trust};
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::agent::Agent;
use crate::collective::Collectives;
use pending::{PendingConnection, PendingConnections};
use unauthenticated::UnauthenticatedConnections;

/// The time in which a connection must present the token.
const TOKEN_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection of the orchestrator may be idle between requests.
const IDLE: Duration = Duration::from_secs(300);
/// The time for the requests under way when the agent ends.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    #[error(transparent)]
    Trust(#[from] trust::TrustError),
}

/// Why a connection that was evicted ended.
const EVICTED: &str = "sent nothing and was evicted for newer connections";

/// What all connections share.
struct Port {
    agent: Arc<Agent>,
    collectives: Arc<Collectives>,
    router: axum::Router,
    pending: PendingConnections,
    unauthenticated: UnauthenticatedConnections,
}

/// Serves the port until the agent is to end, and then until the requests under way are answered.
///
/// # Errors
/// When the job's certificate cannot be used.
pub async fn serve(collectives: Arc<Collectives>, listener: TcpListener) -> Result<(), ServerError> {
    let agent = collectives.agent.clone();
    let config = trust::server_config(&agent.start.trust, &[ALPN_HTTP, ALPN_PEER])?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let port = Arc::new(Port {
        router: requests::router(collectives.clone()),
        pending: PendingConnections::default(),
        unauthenticated: UnauthenticatedConnections::default(),
        agent: agent.clone(),
        collectives,
    });
    let mut stop = agent.stop.subscribe();
    let (alive, mut all_ended) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(Option::is_some) => break,
        };
        match accepted {
            Ok((socket, peer)) => {
                let (port, acceptor, alive) = (port.clone(), acceptor.clone(), alive.clone());
                let pending = port.pending.add();
                tokio::spawn(async move {
                    serve_connection(&port, &acceptor, socket, peer, &pending).await;
                    drop(alive);
                });
            }
            Err(error) => {
                // For instance out of descriptors: other connections may end.
                tracing::warn!(%error, "connection_not_accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(alive);
    let _ = tokio::time::timeout(SHUTDOWN_LIMIT, all_ended.recv()).await;
    Ok(())
}

async fn serve_connection(
    port: &Arc<Port>,
    acceptor: &TlsAcceptor,
    socket: TcpStream,
    peer: SocketAddr,
    pending: &Arc<PendingConnection>,
) {
    let unauthenticated = |reason: &str| port.unauthenticated.add(&port.agent, peer, reason);
    // Answers are small, and the peer waits for them.
    let _ = socket.set_nodelay(true);
    let stream = tokio::select! {
        handshake = acceptor.accept(socket) => match handshake {
            Ok(stream) => stream,
            Err(error) => return unauthenticated(&format!("the TLS handshake failed: {error}")),
        },
        () = pending.evicted() => return unauthenticated(EVICTED),
        () = tokio::time::sleep(TOKEN_LIMIT) => return unauthenticated("sent nothing"),
    };
    match stream.get_ref().1.alpn_protocol() {
        Some(protocol) if protocol == ALPN_PEER => serve_peer(port, stream, peer, pending).await,
        _ => serve_http(port, stream, peer, pending).await,
    }
}

/// A connection of a peer, which may last for the entire run. [`peers::accept`] checks the token within its own time
/// limit: a connection that is open after that has presented it.
async fn serve_peer(
    port: &Arc<Port>,
    stream: TlsStream<TcpStream>,
    peer: SocketAddr,
    pending: &Arc<PendingConnection>,
) {
    let accepted = peers::accept(port.collectives.clone(), stream, peer);
    tokio::pin!(accepted);
    loop {
        tokio::select! {
            result = accepted.as_mut() => {
                if let Err(reason) = result {
                    port.unauthenticated.add(&port.agent, peer, &reason.to_string());
                }
                return;
            }
            () = pending.evicted() => {
                return port.unauthenticated.add(&port.agent, peer, EVICTED);
            }
            () = tokio::time::sleep_until(pending.since + TOKEN_LIMIT * 3), if !pending.is_authenticated() => {
                pending.set_authenticated();
            }
        }
    }
}

async fn serve_http(
    port: &Arc<Port>,
    stream: TlsStream<TcpStream>,
    peer: SocketAddr,
    pending: &Arc<PendingConnection>,
) {
    let router = TowerToHyperService::new(port.router.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (port, router, pending) = (port.clone(), router.clone(), pending.clone());
        async move {
            if let Err(reason) = access::check(&port.agent.start.trust, request.headers()) {
                port.unauthenticated.add(&port.agent, peer, reason);
                return Ok(access::refusal());
            }
            pending.set_authenticated();
            let _contact = port.agent.contact.begin();
            let answer: Result<Response<Body>, _> = router.call(request.map(Body::new)).await;
            answer
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        // It is not read.
        .auto_date_header(false)
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut stop = port.agent.stop.subscribe();
    let mut stopping = false;
    let mut checked = false;
    loop {
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result && !pending.is_authenticated() {
                    port.unauthenticated.add(&port.agent, peer, &format!("sent no HTTP request: {error}"));
                }
                return;
            }
            _ = stop.wait_for(Option::is_some), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = pending.evicted() => {
                return port.unauthenticated.add(&port.agent, peer, EVICTED);
            }
            () = tokio::time::sleep_until(pending.since + TOKEN_LIMIT), if !checked => {
                checked = true;
                if !pending.is_authenticated() {
                    return port.unauthenticated.add(&port.agent, peer, "presented no token");
                }
            }
        }
    }
}

/// Listens at the address that the orchestrator chose.
///
/// # Errors
/// When the address cannot be bound.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(test)]
pub(crate) mod client;
#[cfg(test)]
mod tests;
