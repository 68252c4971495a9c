//! The orchestrator's channel: its requests over one connection, several at a time.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request, StatusCode};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use holdfast_wire::agent::{POLL, largest_request};
use holdfast_wire::channel::{self, Answer, ChannelHello, Pipe};
use holdfast_wire::frame::{HELLO, receive_async};
use holdfast_wire::trust;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use super::guarded::GuardedStream;
use super::peers::Unauthenticated;
use super::pending::PendingConnection;
use super::{IDLE, Port, authenticated, requests};

/// Requests that may be under way at a time; the connection is closed at one more. The orchestrator has a few.
const AT_ONCE: usize = 64;

/// Which poll of a connection is held: the newest. The one before is answered when the next one arrives, so that no
/// agent needs a timer for its polls.
#[derive(Clone, Debug, Default)]
pub(super) struct PollTurn(Arc<Notify>);

impl PollTurn {
    /// Releases the poll before, and returns when the next one is held.
    pub(super) async fn next_is_held(&self) {
        self.0.notify_waiters();
        self.0.notified().await;
    }
}

/// Serves a connection on which ALPN [`ALPN_CHANNEL`](channel::ALPN_CHANNEL) was agreed.
pub(super) async fn serve(
    port: &Arc<Port>,
    mut stream: TlsStream<GuardedStream>,
    peer: SocketAddr,
    pending: &Arc<PendingConnection>,
) {
    let hello = authenticate(port, &mut stream);
    if authenticated(port, hello, peer, pending).await.is_some() {
        answer_all(port, Pipe::new(stream), peer).await;
    }
}

/// Receives the token. Nothing is answered to another one.
async fn authenticate(port: &Port, stream: &mut TlsStream<GuardedStream>) -> Result<(), Unauthenticated> {
    let hello: ChannelHello = receive_async(stream, HELLO).await.map_err(Unauthenticated::NoHello)?;
    match trust::token_matches(&port.agent.start.trust, &hello.token.0) {
        true => Ok(()),
        false => Err(Unauthenticated::WrongToken),
    }
}

/// Answers the requests until the orchestrator closes the connection, or has no request under way for [`IDLE`]. An
/// agent that ends answers those under way.
async fn answer_all(port: &Arc<Port>, mut pipe: Pipe<TlsStream<GuardedStream>, channel::Request>, peer: SocketAddr) {
    let mut under_way = FuturesUnordered::new();
    let turn = PollTurn::default();
    let mut stop = port.agent.stop.subscribe();
    let mut stopping = false;
    let idle = tokio::time::sleep(IDLE);
    tokio::pin!(idle);
    loop {
        tokio::select! {
            biased;
            received = pipe.next() => match received {
                // The connection is about to be closed: the request is repeated elsewhere, or its agent is gone.
                Ok(Some(_)) if stopping => {}
                Ok(Some(request)) if under_way.len() < AT_ONCE => {
                    under_way.push(answer(port.clone(), turn.clone(), request));
                }
                Ok(Some(_)) => return tracing::warn!(%peer, "channel_closed_for_too_many_requests"),
                Ok(None) => return,
                Err(error) => return tracing::debug!(%peer, %error, "channel_ended"),
            },
            Some(answer) = under_way.next() => {
                pipe.queue(&answer);
                idle.as_mut().reset(Instant::now() + IDLE);
            }
            _ = stop.wait_for(Option::is_some), if !stopping => stopping = true,
            () = &mut idle, if under_way.is_empty() => return,
        }
        if stopping && under_way.is_empty() {
            let _ = pipe.send_all().await;
            return;
        }
    }
}

/// What the router answers to a request. Polls, the only requests to an agent without work, do not pass it.
async fn answer(port: Arc<Port>, turn: PollTurn, request: channel::Request) -> Answer {
    let _contact = port.agent.contact.begin();
    let channel::Request { number, path, body } = request;
    if path == POLL
        && body.len() <= largest_request(POLL)
        && let Ok(request) = serde_json::from_slice(&body)
    {
        let reply = requests::poll_reply(&port.collectives, &turn, &request).await;
        let (status, body) = match reply.map(|reply| serde_json::to_vec(&reply)) {
            None => (StatusCode::NO_CONTENT, Bytes::new()),
            Some(Ok(body)) => (StatusCode::OK, body.into()),
            Some(Err(_)) => (StatusCode::INTERNAL_SERVER_ERROR, Bytes::new()),
        };
        return Answer { number, status: status.as_u16(), body };
    }
    let method = if body.is_empty() { Method::GET } else { Method::POST };
    let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
    let Ok(request) = request.body(Body::from(body)) else {
        return Answer { number, status: StatusCode::BAD_REQUEST.as_u16(), body: Bytes::new() };
    };
    let router = TowerToHyperService::new(port.router.clone());
    let response = match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status();
    // The answers were made in memory: nothing can fail.
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
    Answer { number, status: status.as_u16(), body }
}
