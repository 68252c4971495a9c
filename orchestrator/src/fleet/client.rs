//! Requests to the agents of a job.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_model::pair::PairStatus;
use holdfast_model::{HaltChange, HaltState, Inventory};
use holdfast_wire::agent::LARGEST_ANSWER;
use holdfast_wire::bytes::Base64;
use holdfast_wire::channel::{ALPN_CHANNEL, Answer, ChannelHello};
use holdfast_wire::run::TrustMaterial;
use holdfast_wire::{ALPN_HTTP, trust};
use holdfast_wire::{agent, pairs};
use reqwest::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;

use super::answer::{innermost, read_answer, too_large};
use super::channel::{AgentChannel, ChannelRequest, Channels, Connector};
use super::error::{FleetError, RequestError};
use super::fan_out::fan_out;
use crate::host::descriptors;

/// A connection that is not open after this is considered failed.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// An unused connection is closed after this. The pool sometimes opens one more than it needs, and an agent reports a
/// connection without a request within ten seconds as unauthenticated.
const IDLE: Duration = Duration::from_secs(4);
/// An answer over a channel that takes longer is late: another connection to the agent is tried.
const LATE: Duration = Duration::from_secs(1);
/// For requests that an agent answers at once.
const SHORT: Duration = Duration::from_secs(5);
/// The agent limits a debugger to thirty seconds.
const STACKS: Duration = Duration::from_secs(35);
/// For requests that wait for processes to end or control files to be read.
const MEDIUM: Duration = Duration::from_secs(30);

/// A request whose answer is not awaited yet.
#[derive(Debug)]
pub struct BegunRequest {
    body: Bytes,
    /// `None` if no channel took it.
    handed_over: Option<oneshot::Receiver<Answer>>,
}

/// Sends requests to the agents of one job.
#[derive(Clone, Debug)]
pub struct AgentClient {
    http: reqwest::Client,
    /// For the channels, which are kept for polls.
    connector: Connector,
    channels: Channels,
    at_once: u32,
    /// Each request has a connection of its own, which is closed after the answer.
    close_connections: bool,
}

impl AgentClient {
    /// A client that accepts only agents of this job. [`AgentClient::each`] has at most `at_once` requests under way.
    ///
    /// # Errors
    /// The job's certificate or token cannot be used.
    pub fn new(material: &TrustMaterial, at_once: u32) -> Result<Self, FleetError> {
        AgentClient::with_headers(material, at_once, HeaderMap::new())
    }

    /// The client of a user's command: agents do not take its requests for a sign that the orchestrator lives.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_user(material: &TrustMaterial, at_once: u32) -> Result<Self, FleetError> {
        let of_user = (HeaderName::from_static(agent::REQUEST_OF), HeaderValue::from_static(agent::OF_USER));
        AgentClient::with_headers(material, at_once, HeaderMap::from_iter([of_user]))
    }

    fn with_headers(material: &TrustMaterial, at_once: u32, mut headers: HeaderMap) -> Result<Self, FleetError> {
        let tls = trust::client_config(material, &[ALPN_HTTP])?;
        let token = serde_json::to_value(&material.token).map_err(|_| FleetError::Token)?;
        let bearer = format!("Bearer {}", token.as_str().ok_or(FleetError::Token)?);
        let mut bearer = HeaderValue::from_str(&bearer).map_err(|_| FleetError::Token)?;
        bearer.set_sensitive(true);
        let mut kept = trust::client_config(material, &[ALPN_CHANNEL])?;
        // Sessions are found by the server's name, which is the same for all agents: no session could be resumed.
        kept.resumption = Resumption::disabled();
        let hello = Arc::new(ChannelHello { token: Base64(material.token.0.clone()) });
        let connector = Connector { tls: TlsConnector::from(Arc::new(kept)), hello };
        headers.insert(AUTHORIZATION, bearer);
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .default_headers(headers)
            .connect_timeout(CONNECT_WITHIN)
            .pool_idle_timeout(IDLE)
            // Agents are reached directly, also where the environment names a proxy.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(AgentClient { http, connector, channels: Channels::default(), at_once, close_connections: false })
    }

    /// The same client for the agents of `count` nodes. An agent needs a connection for its polls, and a second one for
    /// requests that do not travel beside them, which is reused while such requests follow each other; where the
    /// descriptor limit is too low for both, the second one is closed after each answer.
    #[must_use]
    pub fn for_agents(self, count: usize) -> Self {
        if descriptors::allow_connections(2 * count).is_ok() {
            return self;
        }
        let client = self.closing_connections();
        // Requests of one kind are bounded; a relaunch has two or three kinds under way at a time.
        if let Err(error) = descriptors::allow_connections(count + 4 * client.at_once()) {
            tracing::warn!(%error, "not all agents may be connected at a time");
        }
        client
    }

    /// The same client, which closes the connection of each request after the answer. Polls keep theirs.
    #[must_use]
    pub fn closing_connections(self) -> Self {
        AgentClient { close_connections: true, ..self }
    }

    /// How many requests are sent at a time.
    pub fn requests_at_once(&self) -> usize {
        self.at_once as usize
    }

    /// Runs `work` for each of the agents, a bounded number at a time. Returns the results in the order of the items.
    pub async fn each<T, R, F>(&self, agents: impl IntoIterator<Item = T>, work: impl Fn(T) -> F) -> Vec<R>
    where
        F: Future<Output = R>,
    {
        fan_out(agents, self.at_once(), work).await
    }

    /// Requests of one kind that are under way at a time.
    pub(super) fn at_once(&self) -> usize {
        self.at_once as usize
    }

    /// Opens the channel to an agent, which is kept for its polls.
    pub(super) async fn open_channel(
        &self,
        address: SocketAddr,
        patience: Duration,
    ) -> Result<AgentChannel, RequestError> {
        AgentChannel::open(&self.connector, &self.channels, address, patience.max(CONNECT_WITHIN)).await
    }

    /// Events and health of an agent that is polled once or seldom: see [`super::poll`] for the others. The agent
    /// delays the answer by at most the request's `wait_ms`.
    ///
    /// # Errors
    /// [`RequestError`], as for all requests. A request that names [known](agent::PollRequest::known) health may be
    /// answered without content, which counts as an error here.
    pub async fn poll(
        &self,
        address: SocketAddr,
        request: &agent::PollRequest,
        patience: Duration,
    ) -> Result<agent::PollReply, RequestError> {
        let within = Duration::from_millis(request.wait_ms) + patience;
        self.post(address, agent::POLL, request, within).await
    }

    /// Announces a generation: `request` is what [`PlanParts`](holdfast_wire::plan::PlanParts) returns for the node.
    pub async fn run(&self, address: SocketAddr, request: Vec<u8>) -> Result<agent::RunAccepted, RequestError> {
        check_size(address, agent::RUN, &request)?;
        self.ask_encoded(address, agent::RUN, request, MEDIUM).await
    }

    /// The files that the node holds.
    pub async fn inventory(&self, address: SocketAddr) -> Result<Inventory, RequestError> {
        let request = self.http.get(url(address, agent::INVENTORY));
        self.send(address, agent::INVENTORY, request, MEDIUM).await
    }

    /// The halt conditions. They are asked for before each launch: over the channel, because a TLS handshake with each
    /// agent would take most of the time of a relaunch.
    pub async fn halt(&self, address: SocketAddr) -> Result<HaltState, RequestError> {
        self.set_halt(address, &HaltChange::default()).await
    }

    /// The state of the pairs and jobs of a node; leases. The agent delays the answer by at most the request's
    /// `wait_ms`.
    pub async fn pairs_sync(
        &self,
        address: SocketAddr,
        request: &pairs::PairsSync,
        patience: Duration,
    ) -> Result<pairs::PairsReport, RequestError> {
        let within = Duration::from_millis(request.wait_ms) + patience;
        self.post(address, pairs::SYNC, request, within).await
    }

    /// A request over the channel to the agent, if one is open. Only for requests that an agent answers soon, and that
    /// may arrive twice: it cannot be cancelled, and is repeated over a connection of its own when the channel breaks.
    async fn ask<R: DeserializeOwned>(
        &self,
        address: SocketAddr,
        path: &'static str,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<R, RequestError> {
        self.ask_encoded(address, path, encoded(address, path, body)?, within).await
    }

    /// As [`ask`](Self::ask), for requests that must not arrive twice.
    async fn ask_once<R: DeserializeOwned>(
        &self,
        address: SocketAddr,
        path: &'static str,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<R, RequestError> {
        if self.channels.to(address).is_none() {
            return self.post(address, path, body, within).await;
        }
        let body = encoded(address, path, body)?;
        let answer = self.over_channel(address, path, body.into());
        let answer = within_channel(address, path, within, answer).await?;
        let broken = || RequestError::Broken { address, path, reason: "the connection was closed".to_owned() };
        let Answer { status, body, .. } = answer.ok_or_else(broken)?;
        read_answer(address, path, status, &body)
    }

    async fn ask_encoded<R: DeserializeOwned>(
        &self,
        address: SocketAddr,
        path: &'static str,
        body: Vec<u8>,
        within: Duration,
    ) -> Result<R, RequestError> {
        let body = Bytes::from(body);
        let answer = self.over_channel(address, path, body.clone());
        self.answer_or_post(address, path, body, within, answer).await
    }

    /// The answer over the channel, or over a connection of its own if there is none there.
    async fn answer_or_post<R: DeserializeOwned>(
        &self,
        address: SocketAddr,
        path: &'static str,
        body: Bytes,
        within: Duration,
        answer: impl Future<Output = Option<Answer>>,
    ) -> Result<R, RequestError> {
        let begun = Instant::now();
        if let Some(Answer { status, body, .. }) = within_channel(address, path, within, answer).await? {
            return read_answer(address, path, status, &body);
        }
        self.post_encoded(address, path, body, within.saturating_sub(begun.elapsed())).await
    }

    /// Hands a request to kill ranks over to the channel, if one is open: a poll that is requested next is written
    /// together with it. [`killed`](Self::killed) awaits the answer.
    pub fn begin_kill(&self, address: SocketAddr, request: &agent::KillRequest) -> Result<BegunRequest, RequestError> {
        let body = Bytes::from(encoded(address, agent::KILL, request)?);
        let handed_over = self.channels.to(address).and_then(|channel| {
            let (answered, answer) = oneshot::channel();
            channel.try_send(ChannelRequest { path: agent::KILL, body: body.clone(), answered }).ok()?;
            Some(answer)
        });
        Ok(BegunRequest { body, handed_over })
    }

    /// The answer to a request to kill ranks.
    pub async fn killed(&self, address: SocketAddr, begun: BegunRequest) -> Result<agent::KillReply, RequestError> {
        let BegunRequest { body, handed_over } = begun;
        let again = body.clone();
        let answer = async {
            match handed_over {
                Some(answer) => answer.await.ok(),
                None => self.over_channel(address, agent::KILL, again).await,
            }
        };
        self.answer_or_post(address, agent::KILL, body, SHORT, answer).await
    }

    /// The answer over the channel to the agent; `None` if there is none, or it breaks.
    async fn over_channel(&self, address: SocketAddr, path: &'static str, body: Bytes) -> Option<Answer> {
        let channel = self.channels.to(address)?;
        let (answered, answer) = oneshot::channel();
        channel.send(ChannelRequest { path, body, answered }).await.ok()?;
        answer.await.ok()
    }

    /// A request over a connection of its own, or one that is not used at the time.
    async fn post<R: DeserializeOwned>(
        &self,
        address: SocketAddr,
        path: &'static str,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<R, RequestError> {
        self.post_encoded(address, path, encoded(address, path, body)?.into(), within).await
    }

    async fn post_encoded<R: DeserializeOwned>(
        &self,
        address: SocketAddr,
        path: &'static str,
        body: Bytes,
        within: Duration,
    ) -> Result<R, RequestError> {
        let request = self.http.post(url(address, path)).header(CONTENT_TYPE, "application/json").body(body);
        self.send(address, path, request, within).await
    }

    async fn send<R: DeserializeOwned>(
        &self,
        address: SocketAddr,
        path: &'static str,
        request: reqwest::RequestBuilder,
        within: Duration,
    ) -> Result<R, RequestError> {
        let failed = |error: reqwest::Error| {
            if error.is_timeout() {
                return RequestError::Silent { address, path, within };
            }
            RequestError::Broken { address, path, reason: innermost(&error) }
        };
        let request = if self.close_connections { request.header(CONNECTION, "close") } else { request };
        let mut response = request.timeout(within).send().await.map_err(failed)?;
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            if body.len() + piece.len() > LARGEST_ANSWER {
                return Err(too_large(address, path));
            }
            body.extend_from_slice(&piece);
        }
        read_answer(address, path, status, &body)
    }
}

/// Requests with a JSON body, a reply and a time limit, which may be an argument: `ask` and `ask_once` over a channel,
/// `post` over a connection, which is closed when the caller cancels the request.
macro_rules! requests {
    ($(
        $(#[doc = $documentation:literal])+
        $name:ident($request:ty $(, $argument:ident)?) -> $reply:ty = $send:ident($path:expr, $within:expr);
    )+) => {
        impl AgentClient {
            $(
                $(#[doc = $documentation])+
                pub async fn $name(
                    &self,
                    address: SocketAddr,
                    request: &$request,
                    $($argument: Duration,)?
                ) -> Result<$reply, RequestError> {
                    self.$send(address, $path, request, $within).await
                }
            )+
        }
    };
}

requests! {
    /// Kills ranks.
    kill(agent::KillRequest) -> agent::KillReply = ask(agent::KILL, SHORT);
    /// Has the leader halt the ranks at their next checkpoint.
    request_halt(agent::HaltRequest) -> agent::Empty = ask(agent::HALT_RANKS, SHORT);
    /// Sends SIGTERM to the ranks of a node.
    terminate(agent::TerminateRequest) -> agent::TerminateReply = ask(agent::TERMINATE, SHORT);
    /// Injects a fault; one that kills the agent has no answer.
    inject_fault(agent::FaultRequest) -> agent::Empty = ask_once(agent::INJECT_FAULT, SHORT);
    /// The stacks of ranks.
    stack(agent::StackRequest) -> agent::StackReply = post(agent::STACK, STACKS);
    /// Has an agent find out whether the process of another one has stopped.
    pulse(agent::PulseRequest) -> agent::PulseReply = ask(agent::PULSE, SHORT);
    /// Sends the present addresses of other agents.
    peers(agent::PeersUpdate) -> agent::Empty = ask(agent::PEERS, SHORT);
    /// Changes halt conditions.
    set_halt(HaltChange) -> HaltState = ask(agent::HALT, SHORT);
    /// Requests a checkpoint of the run, or returns what became of it.
    request_checkpoint(agent::CheckpointRequest) -> agent::CheckpointReply = ask(agent::CHECKPOINT, SHORT);
    /// Copies the node's files of a dataset. The caller polls the agent meanwhile, and cancels the request when the
    /// agent is lost.
    copy(agent::CopyRequest, within) -> agent::CopyReply = post(agent::COPY, within);
    /// Rebuilds one member in the prefix directory.
    rebuild(agent::RebuildRequest, within) -> agent::RebuildReply = post(agent::REBUILD, within);
    /// Compares files in the prefix directory with their checksums.
    verify(agent::VerifyRequest, within) -> agent::VerifyReply = post(agent::VERIFY, within);
    /// Has an agent end its part in a run, before a drain.
    end_run(agent::EndRunRequest) -> agent::Empty = ask(agent::END_RUN, MEDIUM);
    /// Removes the state of the job's finished steps.
    forget(agent::ForgetRequest) -> agent::Empty = ask(agent::FORGET, MEDIUM);
    /// Records that a dataset is in the prefix directory.
    flushed(agent::FlushedNote) -> agent::Empty = ask(agent::FLUSHED, SHORT);
    /// Ends the agent.
    stop(agent::StopRequest) -> agent::Empty = post(agent::STOP, SHORT);
    /// Announces the pairs and jobs of a node.
    pairs_plan(pairs::PairsPlan) -> pairs::PairsAccepted = ask(pairs::PLAN, MEDIUM);
    /// What a user requests for a pair.
    pair_command(pairs::CommandRequest) -> PairStatus = ask(pairs::COMMAND, SHORT);
    /// Ends all copies and jobs of a node.
    pairs_stop(pairs::PairsStop, grace) -> agent::Empty = post(pairs::STOP, grace + MEDIUM);
}

/// An answer over a channel, with a time limit, and as long as the machine of the agent answers.
async fn within_channel(
    address: SocketAddr,
    path: &'static str,
    within: Duration,
    answer: impl Future<Output = Option<Answer>>,
) -> Result<Option<Answer>, RequestError> {
    let answer = async {
        tokio::select! {
            biased;
            answer = answer => Ok(answer),
            reason = unreachable(address) => Err(RequestError::Broken { address, path, reason }),
        }
    };
    let silent = |_| RequestError::Silent { address, path, within };
    tokio::time::timeout(within, answer).await.map_err(silent)?
}

/// Returns why no connection to the address can be opened, if an answer takes so long that this is looked at; a channel
/// to a machine that is lost does not break.
async fn unreachable(address: SocketAddr) -> String {
    tokio::time::sleep(LATE).await;
    match tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(address)).await {
        Err(_) => format!("no connection within {} ms", CONNECT_WITHIN.as_millis()),
        Ok(Err(error)) if is_of_network(error.kind()) => error.to_string(),
        Ok(_) => std::future::pending().await,
    }
}

/// Other errors of a connection are those of this process, such as too many open files.
fn is_of_network(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    matches!(kind, ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut)
}

fn encoded(address: SocketAddr, path: &'static str, body: &impl Serialize) -> Result<Vec<u8>, RequestError> {
    let body = serde_json::to_vec(body).map_err(|source| RequestError::Unencodable { address, path, source })?;
    check_size(address, path, &body)?;
    Ok(body)
}

fn check_size(address: SocketAddr, path: &'static str, body: &[u8]) -> Result<(), RequestError> {
    let (bytes, limit) = (body.len(), agent::largest_request(path));
    if bytes > limit { Err(RequestError::TooLarge { address, path, bytes, limit }) } else { Ok(()) }
}

fn url(address: SocketAddr, path: &str) -> String {
    format!("https://{address}{path}")
}
