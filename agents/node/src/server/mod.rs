//! The socket of the node's ranks (`rank_socket`), and the agent's one port: TLS 1.3 with the job's certificate, behind
//! it the orchestrator's channel (ALPN `holdfast-requests/1`), requests of users' commands (ALPN `http/1.1`), and the
//! peers' links and streams (ALPN `holdfast/1`).
//!
//! Without the token nothing is answered but a refusal. A connection that has not presented the token within ten
//! seconds, however slowly it sends, is closed; only a few kilobytes of it are read until then, and the number of such
//! connections is limited, so that they cost little memory and cannot block others.
//!
//! * `channel`: several requests at a time; `requests`: what each path does; `faults`: injected faults; `access`: the
//!   token; `peers`: links and streams;
//! * `pending`: connections that have not presented the token yet; `guarded`: limits what is read of them;
//!   `unauthenticated`: counts and reports those that do not present it.

mod access;
mod channel;
mod faults;
mod guarded;
mod peers;
mod pending;
pub mod pulse;
pub(crate) mod rank_socket;
mod requests;
mod unauthenticated;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use holdfast_wire::agent::{OF_USER, REQUEST_OF};
use holdfast_wire::channel::ALPN_CHANNEL;
use holdfast_wire::frame::FrameError;
use holdfast_wire::{ALPN_HTTP, ALPN_PEER, trust};
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::agent::Agent;
use crate::collective::Collectives;
use guarded::GuardedStream;
use peers::Unauthenticated;
use pending::{PendingConnection, PendingConnections, PendingLimits};
use unauthenticated::{UnauthenticatedConnections, is_closed_by_peer};

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

/// Why a connection ended that was evicted, or refused.
const EVICTED: &str = "presented no token and was evicted for newer connections";
const TOO_MANY: &str = "was one of too many connections at a time";
const LATE: &str = "presented no token in time";

/// What all connections share.
struct Port {
    agent: Arc<Agent>,
    collectives: Arc<Collectives>,
    router: axum::Router,
    pending: Arc<PendingConnections>,
    unauthenticated: UnauthenticatedConnections,
}

/// Serves the port until the agent is to end, and then until the requests under way are answered.
///
/// # Errors
/// When the job's certificate cannot be used.
pub async fn serve(collectives: Arc<Collectives>, listener: TcpListener) -> Result<(), ServerError> {
    let agent = collectives.agent.clone();
    let config = trust::server_config(&agent.start.trust, &[ALPN_CHANNEL, ALPN_HTTP, ALPN_PEER])?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let port = Arc::new(Port {
        router: requests::router(collectives.clone()),
        pending: PendingConnections::new(PendingLimits::for_descriptors(getrlimit(Resource::Nofile).current)),
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
                let Some(pending) = port.pending.add(peer.ip(), agent.streams.is_node(peer.ip())) else {
                    port.unauthenticated.add(&agent, peer, TOO_MANY);
                    continue;
                };
                let (port, acceptor, alive) = (port.clone(), acceptor.clone(), alive.clone());
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
        handshake = acceptor.accept(GuardedStream::new(socket, pending.clone())) => match handshake {
            Ok(stream) => stream,
            Err(error) if is_closed_by_peer(&error) => return port.unauthenticated.add_closed(&port.agent, peer),
            Err(error) => return unauthenticated(&format!("the TLS handshake failed: {error}")),
        },
        () = pending.evicted() => return unauthenticated(EVICTED),
        () = tokio::time::sleep_until(pending.since + TOKEN_LIMIT) => return unauthenticated(LATE),
    };
    match stream.get_ref().1.alpn_protocol() {
        Some(protocol) if protocol == ALPN_PEER => serve_peer(port, stream, peer, pending).await,
        Some(protocol) if protocol == ALPN_CHANNEL => channel::serve(port, stream, peer, pending).await,
        _ => serve_http(port, stream, peer, pending).await,
    }
}

/// A connection of a peer, which may last for the entire run.
async fn serve_peer(
    port: &Arc<Port>,
    mut stream: TlsStream<GuardedStream>,
    peer: SocketAddr,
    pending: &Arc<PendingConnection>,
) {
    let hello = peers::authenticate(&port.agent, &mut stream);
    if let Some(hello) = authenticated(port, hello, peer, pending).await {
        peers::serve(&port.collectives, hello, stream, peer).await;
    }
}

/// The result of a hello with the token. Without one the connection is counted and reported, and is to be closed.
async fn authenticated<T>(
    port: &Port,
    hello: impl Future<Output = Result<T, Unauthenticated>>,
    peer: SocketAddr,
    pending: &PendingConnection,
) -> Option<T> {
    let reason = tokio::select! {
        hello = hello => match hello {
            Ok(hello) => {
                pending.set_authenticated();
                return Some(hello);
            }
            Err(Unauthenticated::NoHello(FrameError::Io(error))) if is_closed_by_peer(&error) => {
                port.unauthenticated.add_closed(&port.agent, peer);
                return None;
            }
            Err(reason) => reason.to_string(),
        },
        () = pending.evicted() => EVICTED.to_owned(),
        () = tokio::time::sleep_until(pending.since + TOKEN_LIMIT) => LATE.to_owned(),
    };
    port.unauthenticated.add(&port.agent, peer, &reason);
    None
}

async fn serve_http(
    port: &Arc<Port>,
    stream: TlsStream<GuardedStream>,
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
            let of_user = request.headers().get(REQUEST_OF).is_some_and(|value| value == OF_USER);
            let _contact = (!of_user).then(|| port.agent.contact.begin());
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
                    return port.unauthenticated.add(&port.agent, peer, LATE);
                }
            }
        }
    }
}

/// Connections that the kernel keeps until they are accepted. If it has no place for one, its client tries again after
/// a second, when its node may count as down.
const BACKLOG: u32 = 4096;

/// Listens at the address that the orchestrator chose.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
pub(crate) mod client;
#[cfg(test)]
mod tests;
