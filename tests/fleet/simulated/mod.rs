//! Thousands of simulated agents in one process: they serve the orchestrator's requests over TLS with the job's
//! certificate, as agents do, on an address of their own each, and have no ranks, no files and no peers.
//!
//! One listener serves all: agent *i* has the address `127.x.y.z` that [`address`] returns, so that the destination of
//! a connection identifies the agent. A process needs one descriptor per connection, and none for further listeners.

pub mod allocation;
pub mod job;
pub mod launcher;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use holdfast_model::{Generation, HaltState, Inventory, NodeName, Rank, RestartSource};
use holdfast_wire::agent::{self, AgentEvent, DirectoryHealth, Health, KnownHealth, NumberedEvent, PollReply};
use holdfast_wire::bytes::Base64;
use holdfast_wire::channel::{self, ALPN_CHANNEL, ChannelHello, Pipe};
use holdfast_wire::frame::{HELLO, receive_async};
use holdfast_wire::plan::RunRequest;
use holdfast_wire::run::TrustMaterial;
use holdfast_wire::{ALPN_HTTP, pulse, trust};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Connections that wait to be taken: those of all agents come to one listener.
const WAITING_CONNECTIONS: u32 = 4096;
/// Addresses in one `127.x.0.0/16` that are used: none ends in 0 or 255.
const ADDRESSES_A_BYTE: usize = 250;

/// The name of an agent's node.
pub fn node(index: usize) -> NodeName {
    NodeName::new(format!("node{index:05}"))
}

/// The address of an agent.
pub fn address(index: usize, port: u16) -> SocketAddr {
    let byte = |value: usize| u8::try_from(value % ADDRESSES_A_BYTE + 1).unwrap_or(u8::MAX);
    let (low, middle) = (byte(index), byte(index / ADDRESSES_A_BYTE));
    let high = byte(index / ADDRESSES_A_BYTE / ADDRESSES_A_BYTE);
    SocketAddr::from((Ipv4Addr::new(127, high, middle, low), port))
}

fn index_of(address: SocketAddr) -> Option<usize> {
    let SocketAddr::V4(address) = address else { return None };
    let [_, high, middle, low] = address.ip().octets().map(usize::from);
    let (high, middle, low) = (high.checked_sub(1)?, middle.checked_sub(1)?, low.checked_sub(1)?);
    Some((high * ADDRESSES_A_BYTE + middle) * ADDRESSES_A_BYTE + low)
}

pub struct Agents {
    trust: TrustMaterial,
    agents: Vec<Agent>,
    port: u16,
    received: Mutex<BTreeMap<&'static str, Received>>,
    /// How many connections are open.
    pub connections: watch::Sender<usize>,
}

/// The requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Received {
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

struct Agent {
    state: Mutex<State>,
    news: Notify,
    lost: watch::Sender<bool>,
    /// How often its connections were closed.
    closed: watch::Sender<u32>,
    releases: AtomicU64,
}

struct State {
    generation: Generation,
    ranks: Vec<Rank>,
    last: u64,
    events: VecDeque<NumberedEvent>,
    health_version: u64,
}

impl State {
    fn new() -> Self {
        let (generation, ranks, events) = (Generation::NONE, Vec::new(), VecDeque::new());
        State { generation, ranks, last: 0, events, health_version: 1 }
    }
}

impl Agents {
    /// Serves `count` agents in the runtime that it is called in.
    pub fn serve(trust: TrustMaterial, count: usize) -> Result<Arc<Self>, Failure> {
        let config = trust::server_config(&trust, &[ALPN_CHANNEL, ALPN_HTTP])?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::UNSPECIFIED, 0).into())?;
        let listener = socket.listen(WAITING_CONNECTIONS)?;
        let port = listener.local_addr()?.port();
        let agent = |_| Agent {
            state: Mutex::new(State::new()),
            news: Notify::new(),
            lost: watch::Sender::new(false),
            closed: watch::Sender::new(0),
            releases: AtomicU64::new(0),
        };
        let agents = (0..count).map(agent).collect();
        let all =
            Arc::new(Agents { trust, agents, port, received: Mutex::default(), connections: watch::Sender::new(0) });
        let serving = Arc::clone(&all);
        tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((socket, _)) => drop(tokio::spawn(Arc::clone(&serving).connection(socket, acceptor.clone()))),
                    // For example, no descriptors are left: others may be closed.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
        Ok(all)
    }

    /// The port of all addresses.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The requests, by path.
    pub fn received(&self) -> BTreeMap<&'static str, Received> {
        self.received.lock().clone()
    }

    /// Adds an event of an agent.
    pub fn emit(&self, index: usize, event: AgentEvent) {
        let mut state = self.agents[index].state.lock();
        state.last += 1;
        let number = state.last;
        state.events.push_back(NumberedEvent { number, event });
        drop(state);
        self.agents[index].news.notify_waiters();
    }

    /// The ranks of a generation connect to their agents, and are restarted.
    pub fn start_ranks(&self, generation: Generation) {
        for index in 0..self.agents.len() {
            let ranks = self.agents[index].ranks_of(generation);
            for rank in ranks {
                self.emit(index, AgentEvent::RankConnected { generation, rank, pid: rank.0 + 1 });
            }
        }
        if let Some(leader) = self.leader() {
            let (checkpoint, source) = (None, RestartSource::Fresh);
            let restarted = AgentEvent::Restarted {
                generation,
                checkpoint,
                protected: None,
                source,
                written_by: None,
                rebuilt: Vec::new(),
                moved: Vec::new(),
                millis: 0,
            };
            self.emit(leader, restarted);
        }
    }

    /// The application has called finalize.
    pub fn finalize(&self) {
        if let Some(leader) = self.leader() {
            let generation = self.agents[leader].state.lock().generation;
            self.emit(leader, AgentEvent::Finalized { generation });
        }
    }

    /// The agent of the first node with ranks that is not lost.
    fn leader(&self) -> Option<usize> {
        let leads = |agent: &Agent| !*agent.lost.borrow() && !agent.state.lock().ranks.is_empty();
        self.agents.iter().position(leads)
    }

    /// The agent is lost with its node: its connections break, and new ones are refused.
    pub fn lose(&self, index: usize) {
        self.agents[index].lost.send_replace(true);
    }

    /// The agent closes its connections, and accepts new ones.
    #[allow(dead_code, reason = "not used by the benchmark, which includes this module")]
    pub fn close_connections(&self, index: usize) {
        self.agents[index].closed.send_modify(|times| *times += 1);
    }

    async fn connection(self: Arc<Self>, socket: TcpStream, acceptor: TlsAcceptor) {
        let Some(index) = socket.local_addr().ok().and_then(index_of).filter(|at| *at < self.agents.len()) else {
            return;
        };
        let mut lost = self.agents[index].lost.subscribe();
        let mut closed = self.agents[index].closed.subscribe();
        if *lost.borrow() || socket.set_nodelay(true).is_err() {
            return;
        }
        self.connections.send_modify(|open| *open += 1);
        let serve = async {
            let stream = acceptor.accept(socket).await?;
            if stream.get_ref().1.alpn_protocol() == Some(ALPN_CHANNEL) {
                return self.channel(index, stream).await;
            }
            let all = &self;
            let service =
                service_fn(move |request| async move { Ok::<_, Infallible>(all.answer_http(index, request).await) });
            let connection =
                http1::Builder::new().auto_date_header(false).serve_connection(TokioIo::new(stream), service);
            connection.await.map_err(io::Error::other)
        };
        tokio::select! {
            // The end of a connection needs no reaction here.
            _ = serve => {}
            _ = lost.wait_for(|lost| *lost) => {}
            _ = closed.changed() => {}
        }
        self.connections.send_modify(|open| *open -= 1);
    }

    async fn channel(&self, index: usize, mut stream: TlsStream<TcpStream>) -> io::Result<()> {
        let hello: ChannelHello = receive_async(&mut stream, HELLO).await.map_err(io::Error::other)?;
        if !trust::token_matches(&self.trust, &hello.token.0) {
            return Ok(());
        }
        let mut pipe = Pipe::new(stream);
        let turn = Notify::new();
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                received = pipe.next() => {
                    let Some(request) = received.map_err(io::Error::other)? else { return Ok(()) };
                    let channel::Request { number, path, body } = request;
                    let turn = &turn;
                    under_way.push(async move { (number, self.answer(index, &path, body, turn).await) });
                }
                Some((number, answer)) = under_way.next() => {
                    let (head, body) = answer.into_parts();
                    let body = body.collect().await.unwrap_or_default().to_bytes();
                    pipe.queue(&channel::Answer { number, status: head.status.as_u16(), body });
                }
            }
        }
    }

    async fn answer_http(&self, index: usize, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !self.is_token(token.trim_start_matches("Bearer ")) {
            return empty(StatusCode::UNAUTHORIZED);
        }
        let path = request.uri().path().to_owned();
        match request.into_body().collect().await {
            Ok(body) => self.answer(index, &path, body.to_bytes(), &Notify::new()).await,
            Err(_) => empty(StatusCode::BAD_REQUEST),
        }
    }

    /// `turn` is notified when the connection has another poll that may be held.
    async fn answer(&self, index: usize, path: &str, body: Bytes, turn: &Notify) -> Response<Full<Bytes>> {
        let agent = &self.agents[index];
        match path {
            agent::POLL => match self.read(agent::POLL, &body) {
                Some(request) => agent.poll(index, request, turn).await,
                None => empty(StatusCode::BAD_REQUEST),
            },
            agent::RUN => match self.read::<RunRequest>(agent::RUN, &body) {
                Some(request) => agent.prepare(index, request),
                None => empty(StatusCode::BAD_REQUEST),
            },
            agent::KILL => match self.read::<agent::KillRequest>(agent::KILL, &body) {
                Some(request) => agent.kill(&request),
                None => empty(StatusCode::BAD_REQUEST),
            },
            agent::PULSE => match self.read::<agent::PulseRequest>(agent::PULSE, &body) {
                Some(request) => json(&agent::PulseReply { found: pulse::look(request.address).await }),
                None => empty(StatusCode::BAD_REQUEST),
            },
            agent::HALT => self.done(agent::HALT, &body, &HaltState::default()),
            agent::PEERS => self.done(agent::PEERS, &body, &agent::Empty {}),
            agent::END_RUN => self.done(agent::END_RUN, &body, &agent::Empty {}),
            agent::FORGET => self.done(agent::FORGET, &body, &agent::Empty {}),
            agent::STOP => self.done(agent::STOP, &body, &agent::Empty {}),
            agent::INVENTORY => {
                let inventory = Inventory { node: Some(node(index)), ..Inventory::default() };
                self.done(agent::INVENTORY, &body, &inventory)
            }
            _ => empty(StatusCode::NOT_FOUND),
        }
    }

    fn is_token(&self, text: &str) -> bool {
        let token: Result<Base64, _> = serde_json::from_value(serde_json::Value::String(text.to_owned()));
        token.is_ok_and(|token| trust::token_matches(&self.trust, &token.0))
    }

    fn count(&self, path: &'static str, bytes: usize) {
        let mut received = self.received.lock();
        let known = received.entry(path).or_default();
        known.requests += 1;
        known.bytes += bytes as u64;
    }

    fn read<T: DeserializeOwned>(&self, path: &'static str, body: &[u8]) -> Option<T> {
        self.count(path, body.len());
        serde_json::from_slice(body).ok()
    }

    fn done(&self, path: &'static str, body: &[u8], answer: &impl Serialize) -> Response<Full<Bytes>> {
        self.count(path, body.len());
        json(answer)
    }
}

impl Agent {
    fn ranks_of(&self, generation: Generation) -> Vec<Rank> {
        let state = self.state.lock();
        if state.generation == generation { state.ranks.clone() } else { Vec::new() }
    }

    async fn poll(&self, index: usize, request: agent::PollRequest, turn: &Notify) -> Response<Full<Bytes>> {
        let releases = self.releases.load(Ordering::Relaxed);
        let news = async {
            loop {
                let news = self.news.notified();
                tokio::pin!(news);
                // Registered before the check, so that an event in between is not missed.
                news.as_mut().enable();
                if self.state.lock().last > request.after || self.releases.load(Ordering::Relaxed) != releases {
                    return;
                }
                news.await;
            }
        };
        if request.wait_ms > 0 {
            turn.notify_waiters();
            let changed = async {
                tokio::select! {
                    () = news => {}
                    () = turn.notified() => {}
                }
            };
            let _ = tokio::time::timeout(Duration::from_millis(request.wait_ms), changed).await;
        }
        let state = self.state.lock();
        let instance = index as u64 + 1;
        let events: Vec<_> = state.events.iter().filter(|event| event.number > request.after).cloned().collect();
        if events.is_empty() && request.known == Some(KnownHealth { instance, version: state.health_version }) {
            return empty(StatusCode::NO_CONTENT);
        }
        let health = Health {
            node: node(index),
            generation: state.generation,
            ranks: state.ranks.clone(),
            memory_total: 512 << 30,
            memory_available: 300 << 30,
            load: 64.0,
            directories: vec![
                directory("/dev/shm/user1/scr.4711", 256 << 30),
                directory("/ssd/user1/scr.4711", 2 << 40),
            ],
            kept: vec![],
            unauthenticated: 0,
            newest: None,
            agent_memory: 20 << 20,
            quiet: Vec::new(),
            waiting: None,
            halt: None,
        };
        json(&PollReply { instance, health_version: state.health_version, health, events, progress: Vec::new() })
    }

    fn serve_run(&self, generation: Generation, ranks: Vec<Rank>) {
        let mut state = self.state.lock();
        (state.generation, state.ranks) = (generation, ranks);
        state.health_version += 1;
    }

    fn prepare(&self, index: usize, request: RunRequest) -> Response<Full<Bytes>> {
        self.serve_run(request.shared.generation, request.own.ranks);
        json(&agent::RunAccepted { socket: format!("/tmp/user1/scr.4711/{}.sock", node(index)).into() })
    }

    fn kill(&self, request: &agent::KillRequest) -> Response<Full<Bytes>> {
        let mut state = self.state.lock();
        if state.generation <= request.generation && !state.ranks.is_empty() {
            state.ranks.clear();
            state.health_version += 1;
        }
        drop(state);
        self.releases.fetch_add(1, Ordering::Relaxed);
        self.news.notify_waiters();
        json(&agent::KillReply { killed: Vec::new(), may_halt: false })
    }
}

fn directory(path: &str, total: u64) -> DirectoryHealth {
    DirectoryHealth { path: path.to_owned(), fault: None, full: None, total, available: total / 2 }
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

fn json(answer: &impl Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(answer) {
        Ok(text) => Response::new(Full::new(Bytes::from(text))),
        Err(_) => empty(StatusCode::INTERNAL_SERVER_ERROR),
    }
}
