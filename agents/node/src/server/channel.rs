//! The orchestrator's channel: its requests over one connection, several at a time.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request, StatusCode};
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, poll_immediate};
use futures_util::stream::FuturesUnordered;
use holdfast_wire::agent::{POLL, PollRequest, largest_request};
use holdfast_wire::channel::{self, Answer, ChannelHello, Pipe};
use holdfast_wire::frame::{HELLO, receive_async};
use holdfast_wire::trust;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use super::guarded::GuardedStream;
use super::peers::Unauthenticated;
use super::pending::PendingConnection;
use super::{IDLE, Port, authenticated, requests};
use crate::agent::Agent;
use crate::report::contact;

/// Requests that may be under way at a time; the connection is closed at one more. The orchestrator has a few.
const AT_ONCE: usize = 64;

/// The polls of a connection. Nearly all requests are polls, and nearly all of these are equal and answered when the
/// next one arrives: the cost of an agent without work is theirs. So they need no task, and are parsed only when they
/// differ.
#[derive(Default)]
struct Polls<'a> {
    /// The body of the last one, and its meaning.
    last: Option<(Vec<u8>, PollRequest)>,
    /// The newest one that may be held. The one before is answered when it arrives, so that only the orchestrator needs
    /// a timer.
    held: Option<HeldPoll<'a>>,
}

/// A poll that is not answered yet.
struct Poll<'a> {
    number: u32,
    request: PollRequest,
    _contact: contact::Request<'a>,
}

struct HeldPoll<'a> {
    poll: Poll<'a>,
    /// Ready when it is to be answered even if no other poll arrives.
    released: BoxFuture<'a, ()>,
}

impl<'a> Polls<'a> {
    /// The meaning of a request that is a valid poll. The router refuses an invalid one.
    fn parse(&mut self, request: &channel::Request) -> Option<PollRequest> {
        if request.path != POLL || request.body.len() > largest_request(POLL) {
            return None;
        }
        if let Some((body, meaning)) = &self.last
            && request.body == *body
        {
            return Some(*meaning);
        }
        let meaning = serde_json::from_slice(&request.body).ok()?;
        self.last = Some((request.body.to_vec(), meaning));
        Some(meaning)
    }

    /// A poll has arrived; returns the one that is to be answered now.
    fn begin(&mut self, agent: &'a Agent, number: u32, request: PollRequest) -> Option<Poll<'a>> {
        requests::poll_begins(agent, &request);
        let poll = Poll { number, request, _contact: agent.contact.begin() };
        if request.wait_ms == 0 {
            return Some(poll);
        }
        let released = Box::pin(requests::poll_released(agent, request));
        self.held.replace(HeldPoll { poll, released }).map(|before| before.poll)
    }

    /// The held poll, which is to be answered now.
    fn release(&mut self) -> Option<Poll<'a>> {
        self.held.take().map(|held| held.poll)
    }

    /// Returns when the held poll is to be released.
    async fn released(&mut self) {
        match &mut self.held {
            Some(held) => held.released.as_mut().await,
            None => std::future::pending().await,
        }
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
async fn answer_all(port: &Port, mut pipe: Pipe<TlsStream<GuardedStream>, channel::Request>, peer: SocketAddr) {
    let mut under_way: FuturesUnordered<BoxFuture<'_, Answer>> = FuturesUnordered::new();
    let mut polls = Polls::default();
    let mut stop = port.agent.stop.subscribe();
    let mut stopping = false;
    let idle = tokio::time::sleep(IDLE);
    tokio::pin!(idle);
    loop {
        let mut answered = None;
        let poll = tokio::select! {
            biased;
            received = pipe.next() => match received {
                // The connection is about to be closed: the request is repeated elsewhere, or its agent is gone.
                Ok(Some(_)) if stopping => None,
                Ok(Some(_)) if under_way.len() + usize::from(polls.held.is_some()) >= AT_ONCE => {
                    return tracing::warn!(%peer, "channel_closed_for_too_many_requests");
                }
                Ok(Some(request)) => match polls.parse(&request) {
                    Some(poll) => polls.begin(&port.agent, request.number, poll),
                    None => {
                        under_way.push(Box::pin(answer(port, request)));
                        None
                    }
                },
                Ok(None) => return,
                Err(error) => return tracing::debug!(%peer, %error, "channel_ended"),
            },
            Some(answer) = under_way.next() => {
                answered = Some(answer);
                None
            }
            () = polls.released() => polls.release(),
            _ = stop.wait_for(Option::is_some), if !stopping => {
                stopping = true;
                polls.release()
            }
            () = &mut idle, if under_way.is_empty() && polls.held.is_none() => return,
        };
        if let Some(poll) = poll {
            let mut answering: BoxFuture<'_, Answer> = Box::pin(answer_poll(port, poll));
            // Nearly always it need not wait for anything.
            answered = poll_immediate(&mut answering).await;
            if answered.is_none() {
                under_way.push(answering);
            }
        }
        if let Some(answer) = answered {
            pipe.queue(&answer);
            idle.as_mut().reset(Instant::now() + IDLE);
        }
        if stopping && under_way.is_empty() {
            let _ = pipe.send_all().await;
            return;
        }
    }
}

async fn answer_poll(port: &Port, poll: Poll<'_>) -> Answer {
    let reply = requests::poll_reply(&port.collectives, &poll.request).await;
    let (status, body) = match reply.map(|reply| serde_json::to_vec(&reply)) {
        None => (StatusCode::NO_CONTENT, Bytes::new()),
        Some(Ok(body)) => (StatusCode::OK, body.into()),
        Some(Err(_)) => (StatusCode::INTERNAL_SERVER_ERROR, Bytes::new()),
    };
    Answer { number: poll.number, status: status.as_u16(), body }
}

/// What the router answers to a request.
async fn answer(port: &Port, request: channel::Request) -> Answer {
    let _contact = port.agent.contact.begin();
    let channel::Request { number, path, body } = request;
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
