//! The agent's one port: TLS 1.3 with the job's certificate, behind it the orchestrator's requests (ALPN `http/1.1`) and
//! the peers' links and streams (ALPN `holdfast/1`).
//!
//! Whoever has no token learns nothing and holds up nobody: a connection that has not shown the token within ten seconds
//! is cut, and of too many such connections the oldest goes first, so that a flood of silent ones cannot keep out
//! those who know the word.
//!
//! * `requests`: what each path does; `access`: the token; `peers`: links and streams;
//! * `newcomers`: connections that have not shown the token; `strangers`: counting and reporting those who do not.

mod access;
mod newcomers;
mod peers;
mod requests;
mod strangers;

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
use newcomers::{Newcomer, Newcomers};
use strangers::Strangers;

/// How long a connection may go on without having shown the token.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// How long a connection of the orchestrator may be idle between requests.
const IDLE: Duration = Duration::from_secs(300);
/// How long requests that are under way at the end may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why the port cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The job's certificate.
    #[error(transparent)]
    Trust(#[from] trust::TrustError),
}

/// What all connections share.
struct Port {
    agent: Arc<Agent>,
    collectives: Arc<Collectives>,
    router: axum::Router,
    newcomers: Newcomers,
    strangers: Strangers,
}

/// Serves the port until the agent is told to end, and then until the requests under way are answered.
///
/// # Errors
/// When the job's certificate cannot be used.
pub async fn serve(collectives: Arc<Collectives>, listener: TcpListener) -> Result<(), ServerError> {
    let agent = collectives.agent.clone();
    let config = trust::server_config(&agent.start.trust, &[ALPN_HTTP, ALPN_PEER])?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let port = Arc::new(Port {
        router: requests::router(collectives.clone()),
        newcomers: Newcomers::default(),
        strangers: Strangers::default(),
        agent: agent.clone(),
        collectives,
    });
    let mut stop = agent.stop.subscribe();
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(Option::is_some) => break,
        };
        match accepted {
            Ok((socket, peer)) => {
                let (port, acceptor, alive) = (port.clone(), acceptor.clone(), alive.clone());
                let newcomer = port.newcomers.admit();
                tokio::spawn(async move {
                    introduce(&port, &acceptor, socket, peer, &newcomer).await;
                    drop(alive);
                });
            }
            Err(error) => {
                // Out of descriptors, for instance: others may close theirs.
                tracing::warn!(%error, "connection_not_accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(alive);
    let _ = tokio::time::timeout(FAREWELL, all_gone.recv()).await;
    Ok(())
}

/// A connection from its first byte on.
async fn introduce(
    port: &Arc<Port>,
    acceptor: &TlsAcceptor,
    socket: TcpStream,
    peer: SocketAddr,
    newcomer: &Arc<Newcomer>,
) {
    let stranger = |reason: &str| port.strangers.report(&port.agent, peer, reason);
    // Answers are small and waited for.
    let _ = socket.set_nodelay(true);
    let stream = tokio::select! {
        handshake = acceptor.accept(socket) => match handshake {
            Ok(stream) => stream,
            Err(error) => return stranger(&format!("made no TLS connection: {error}")),
        },
        () = newcomer.turned_away() => return stranger("gave way, silent, to newer connections"),
        () = tokio::time::sleep(INTRODUCTION) => return stranger("was silent"),
    };
    match stream.get_ref().1.alpn_protocol() {
        Some(protocol) if protocol == ALPN_PEER => from_peer(port, stream, peer, newcomer).await,
        _ => http(port, stream, peer, newcomer).await,
    }
}

/// A connection of a peer, which may last for the whole run. Whoever takes it in asks for the token within his own time;
/// when that is over, whoever is still here has shown it.
async fn from_peer(port: &Arc<Port>, stream: TlsStream<TcpStream>, peer: SocketAddr, newcomer: &Arc<Newcomer>) {
    let accepted = peers::accept(port.collectives.clone(), stream, peer);
    tokio::pin!(accepted);
    loop {
        tokio::select! {
            result = accepted.as_mut() => {
                if let Err(reason) = result {
                    port.strangers.report(&port.agent, peer, &reason.to_string());
                }
                return;
            }
            () = newcomer.turned_away() => {
                return port.strangers.report(&port.agent, peer, "gave way, silent, to newer connections");
            }
            () = tokio::time::sleep_until(newcomer.since + INTRODUCTION * 3), if !newcomer.known() => newcomer.is_known(),
        }
    }
}

/// A connection that speaks HTTP.
async fn http(port: &Arc<Port>, stream: TlsStream<TcpStream>, peer: SocketAddr, newcomer: &Arc<Newcomer>) {
    let router = TowerToHyperService::new(port.router.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (port, router, newcomer) = (port.clone(), router.clone(), newcomer.clone());
        async move {
            if let Err(reason) = access::check(&port.agent.start.trust, request.headers()) {
                port.strangers.report(&port.agent, peer, reason);
                return Ok(access::refusal());
            }
            newcomer.is_known();
            let _contact = port.agent.contact.begin();
            let answer: Result<Response<Body>, _> = router.call(request.map(Body::new)).await;
            answer
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        // Nobody reads it.
        .auto_date_header(false)
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut stop = port.agent.stop.subscribe();
    let mut stopping = false;
    let mut introduced = false;
    loop {
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result && !newcomer.known() {
                    port.strangers.report(&port.agent, peer, &format!("spoke no HTTP: {error}"));
                }
                return;
            }
            _ = stop.wait_for(Option::is_some), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = newcomer.turned_away() => {
                return port.strangers.report(&port.agent, peer, "gave way, silent, to newer connections");
            }
            () = tokio::time::sleep_until(newcomer.since + INTRODUCTION), if !introduced => {
                introduced = true;
                if !newcomer.known() {
                    return port.strangers.report(&port.agent, peer, "showed no token");
                }
            }
        }
    }
}

/// Listens where the orchestrator said.
///
/// # Errors
/// When the address cannot be had.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(test)]
pub(crate) mod client;
#[cfg(test)]
mod tests;
