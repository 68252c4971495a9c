//! The channel to an agent: the connection that is kept for its polls, and carries other requests meanwhile.
//!
//! Ten thousand agents are polled once a second or more often, and nearly all answers report no change. A connection
//! pool, a task and a timer for each poll would cost more than the poll itself; a TLS handshake for each request of a
//! relaunch costs more than all the rest of it.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_wire::agent::{POLL, PollReply, PollRequest};
use holdfast_wire::channel::{Answer, ChannelHello, Pipe, PipeError, Request};
use holdfast_wire::frame::{HELLO, send_async};
use holdfast_wire::trust;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::answer::{innermost, read_answer};
use super::error::RequestError;

/// The status of an answer to a poll that reports no change.
const NO_CONTENT: u16 = 204;
/// Requests that wait until a channel takes them.
const WAITING: usize = 16;

/// What a connection to an agent needs: the job's certificate, and the token.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) tls: TlsConnector,
    pub(super) hello: Arc<ChannelHello>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector(…)")
    }
}

/// A request for a channel, and where its answer is awaited.
#[derive(Debug)]
pub(super) struct ChannelRequest {
    pub(super) path: &'static str,
    pub(super) body: Bytes,
    pub(super) answered: oneshot::Sender<Answer>,
}

/// The channels that are open, by the address of the agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Channels(Arc<Mutex<HashMap<SocketAddr, mpsc::Sender<ChannelRequest>>>>);

impl Channels {
    /// Where requests to this agent are taken; `None` without a channel.
    pub(super) fn to(&self, address: SocketAddr) -> Option<mpsc::Sender<ChannelRequest>> {
        self.0.lock().get(&address).cloned()
    }

    fn add(&self, address: SocketAddr) -> (OpenChannel, mpsc::Receiver<ChannelRequest>) {
        let (sender, requests) = mpsc::channel(WAITING);
        self.0.lock().insert(address, sender.clone());
        (OpenChannel { channels: self.clone(), address, sender }, requests)
    }
}

/// The entry of a channel; removed when it is dropped.
#[derive(Debug)]
struct OpenChannel {
    channels: Channels,
    address: SocketAddr,
    sender: mpsc::Sender<ChannelRequest>,
}

impl Drop for OpenChannel {
    fn drop(&mut self) {
        let mut channels = self.channels.0.lock();
        // A later channel to the same address may have replaced it.
        if channels.get(&self.address).is_some_and(|sender| sender.same_channel(&self.sender)) {
            channels.remove(&self.address);
        }
    }
}

#[derive(Debug)]
pub(super) enum PollAnswer {
    Unchanged,
    Reply(Box<PollReply>),
}

/// A connection that carries polls and other requests at the same time. It works while an answer is awaited.
#[derive(Debug)]
pub(super) struct AgentChannel {
    address: SocketAddr,
    pipe: Pipe<TlsStream<TcpStream>, Answer>,
    _open: OpenChannel,
    requests: mpsc::Receiver<ChannelRequest>,
    /// Where answers are awaited, by the number of the request.
    waiting: HashMap<u32, oneshot::Sender<Answer>>,
    last: u32,
    /// The last poll and its text: most polls equal the one before.
    encoded: Option<(PollRequest, Bytes)>,
}

impl AgentChannel {
    /// Connects to the agent at an address.
    ///
    /// # Errors
    /// [`RequestError::Silent`], [`RequestError::Broken`].
    pub(super) async fn open(
        connector: &Connector,
        channels: &Channels,
        address: SocketAddr,
        within: Duration,
    ) -> Result<Self, RequestError> {
        let connecting = tokio::time::timeout(within, Self::connect(connector, channels, address));
        connecting.await.unwrap_or(Err(RequestError::Silent { address, path: POLL, within }))
    }

    async fn connect(connector: &Connector, channels: &Channels, address: SocketAddr) -> Result<Self, RequestError> {
        let socket = TcpStream::connect(address).await.map_err(|error| broken(address, &error))?;
        socket.set_nodelay(true).map_err(|error| broken(address, &error))?;
        let stream = connector.tls.connect(trust::server_name(), socket).await;
        let mut stream = stream.map_err(|error| broken(address, &error))?;
        send_async(&mut stream, &*connector.hello, HELLO).await.map_err(|error| broken(address, &error))?;
        let (open, requests) = channels.add(address);
        let (pipe, waiting) = (Pipe::new(stream), HashMap::new());
        Ok(AgentChannel { address, pipe, _open: open, requests, waiting, last: 0, encoded: None })
    }

    /// Has a poll sent; returns its number.
    pub(super) fn send_poll(&mut self, request: &PollRequest) -> Result<u32, RequestError> {
        let body = self.encode(request)?;
        Ok(self.send(POLL, body))
    }

    /// Waits for the next answer to a poll, without a time limit; returns the number of the poll as well. Takes and
    /// answers other requests meanwhile. After an error the connection cannot be used any more. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<(u32, PollAnswer), RequestError> {
        loop {
            // What is there is written together, with one system call.
            while let Ok(request) = self.requests.try_recv() {
                self.send_request(request);
            }
            tokio::select! {
                biased;
                answer = self.pipe.next() => {
                    let answer = answer.map_err(|error| self.failed(&error))?.ok_or_else(|| self.closed())?;
                    match self.waiting.remove(&answer.number) {
                        // Its receiver is gone if its time limit is over.
                        Some(waiting) => drop(waiting.send(answer)),
                        None => return Ok((answer.number, self.read(&answer)?)),
                    }
                }
                Some(request) = self.requests.recv() => self.send_request(request),
            }
        }
    }

    fn send_request(&mut self, request: ChannelRequest) {
        let number = self.send(request.path, request.body);
        self.waiting.insert(number, request.answered);
    }

    /// Has a request sent; returns its number.
    fn send(&mut self, path: &str, body: Bytes) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.pipe.queue(&Request { number: self.last, path: path.to_owned(), body });
        self.last
    }

    fn read(&self, answer: &Answer) -> Result<PollAnswer, RequestError> {
        if answer.status == NO_CONTENT {
            return Ok(PollAnswer::Unchanged);
        }
        read_answer(self.address, POLL, answer.status, &answer.body).map(|reply| PollAnswer::Reply(Box::new(reply)))
    }

    fn encode(&mut self, request: &PollRequest) -> Result<Bytes, RequestError> {
        if let Some((known, text)) = &self.encoded
            && known == request
        {
            return Ok(text.clone());
        }
        let text = serde_json::to_vec(request).map_err(|error| broken(self.address, &error))?;
        let text = Bytes::from(text);
        self.encoded = Some((*request, text.clone()));
        Ok(text)
    }

    fn failed(&self, error: &PipeError) -> RequestError {
        broken(self.address, error)
    }

    fn closed(&self) -> RequestError {
        RequestError::Broken { address: self.address, path: POLL, reason: "the connection was closed".to_owned() }
    }
}

fn broken(address: SocketAddr, error: &(dyn std::error::Error + 'static)) -> RequestError {
    RequestError::Broken { address, path: POLL, reason: innermost(error) }
}

#[cfg(test)]
mod tests {
    use std::io;

    use holdfast_wire::bytes::Base64;
    use holdfast_wire::channel::ALPN_CHANNEL;
    use holdfast_wire::frame::receive_async;
    use holdfast_wire::run::TrustMaterial;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::server;

    use super::*;

    const KILL: &str = holdfast_wire::agent::KILL;

    /// A listener, what accepts a channel on it, and what opens one.
    async fn ends() -> (TcpListener, TlsAcceptor, Connector, SocketAddr) {
        let material = trust::generate().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(trust::server_config(&material, &[ALPN_CHANNEL]).unwrap()));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, acceptor, connector(&material), address)
    }

    fn connector(material: &TrustMaterial) -> Connector {
        Connector {
            tls: TlsConnector::from(Arc::new(trust::client_config(material, &[ALPN_CHANNEL]).unwrap())),
            hello: Arc::new(ChannelHello { token: Base64(material.token.0.clone()) }),
        }
    }

    async fn accept(listener: TcpListener, acceptor: TlsAcceptor) -> Pipe<server::TlsStream<TcpStream>, Request> {
        let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        let _: ChannelHello = receive_async(&mut stream, HELLO).await.unwrap();
        Pipe::new(stream)
    }

    fn without_content(number: u32) -> Answer {
        Answer { number, status: 204, body: Bytes::new() }
    }

    #[tokio::test]
    async fn a_request_is_answered_while_a_poll_is_held_back() {
        let (listener, acceptor, connector, address) = ends().await;
        let agent = tokio::spawn(async move {
            let mut pipe = accept(listener, acceptor).await;
            let poll = pipe.next().await.unwrap().unwrap();
            let request = pipe.next().await.unwrap().unwrap();
            assert_eq!((poll.path.as_str(), request.path.as_str()), (POLL, KILL));
            pipe.queue(&Answer { number: request.number, status: 200, body: request.body });
            pipe.send_all().await.unwrap();
            // Only after the other request was answered.
            assert!(pipe.next().await.unwrap().is_some());
            pipe.queue(&without_content(poll.number));
            pipe.send_all().await.unwrap();
            pipe
        });
        let channels = Channels::default();
        let mut channel = AgentChannel::open(&connector, &channels, address, Duration::from_secs(60)).await.unwrap();
        let to_agent = channels.to(address).unwrap();
        let asked = tokio::spawn(async move {
            for body in ["first", "second"] {
                let (answered, answer) = oneshot::channel();
                let request = ChannelRequest { path: KILL, body: Bytes::from_static(body.as_bytes()), answered };
                to_agent.send(request).await.unwrap();
                if body == "first" {
                    assert_eq!(answer.await.unwrap().body, "first");
                }
            }
        });
        let poll = channel.send_poll(&PollRequest::HEALTH_ONLY).unwrap();
        assert!(matches!(channel.next().await, Ok((number, PollAnswer::Unchanged)) if number == poll));
        asked.await.unwrap();
        drop(agent.await.unwrap());
        drop(channel);
        assert!(channels.to(address).is_none());
    }

    #[tokio::test]
    async fn a_poll_over_a_connection_that_the_agent_has_closed_in_order_fails_and_does_not_wait() {
        let (listener, acceptor, connector, address) = ends().await;
        let (closed, is_closed) = oneshot::channel();
        tokio::spawn(async move {
            let mut stream = acceptor.accept(listener.accept().await?.0).await?;
            let _: ChannelHello = receive_async(&mut stream, HELLO).await.map_err(io::Error::other)?;
            // The end of TLS; the socket stays open.
            stream.shutdown().await?;
            let _ = closed.send(stream);
            io::Result::Ok(())
        });
        let channels = Channels::default();
        let mut channel = AgentChannel::open(&connector, &channels, address, Duration::from_secs(60)).await.unwrap();
        let _stream = is_closed.await.unwrap();
        channel.send_poll(&PollRequest::HEALTH_ONLY).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(60), channel.next()).await;
        assert!(matches!(answer.expect("no answer is awaited"), Err(RequestError::Broken { .. })));
    }
}
