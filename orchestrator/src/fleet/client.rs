//! Requests to the agents of a job.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{Failure, HaltChange, HaltState, Inventory};
use holdfast_wire::run::TrustMaterial;
use holdfast_wire::{ALPN_HTTP, trust};
use holdfast_wire::{agent, pairs};
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;

use super::connection::{Connector, PollConnection};
use super::{FleetError, RequestError, fan_out};
use crate::host::descriptors;

/// The largest answer that is accepted; an inventory of a thousand ranks is a few megabytes.
pub(super) const LARGEST_ANSWER: usize = 64 << 20;
/// A connection that is not open after this is considered failed.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// An unused connection is closed after this. The pool sometimes opens one more than it needs, and an agent reports a
/// connection without a request within ten seconds as unauthenticated.
const IDLE: Duration = Duration::from_secs(4);
/// For requests that an agent answers at once.
const SHORT: Duration = Duration::from_secs(5);
/// The agent limits a debugger to thirty seconds.
const STACKS: Duration = Duration::from_secs(35);
/// For requests that wait for processes to end or control files to be read.
const MEDIUM: Duration = Duration::from_secs(30);

/// Sends requests to the agents of one job.
#[derive(Clone, Debug)]
pub struct AgentClient {
    http: reqwest::Client,
    /// For the connections that are kept for polls.
    connector: Connector,
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
        let mut kept = tls.clone();
        // Sessions are found by the server's name, which is the same for all agents: no session could be resumed.
        kept.resumption = Resumption::disabled();
        let connector = Connector { tls: TlsConnector::from(Arc::new(kept)), bearer: bearer.clone() };
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
        Ok(AgentClient { http, connector, at_once, close_connections: false })
    }

    /// The same client for the agents of `count` nodes. An agent needs a connection for its polls, and a second one
    /// that is reused while requests follow each other; where the descriptor limit is too low for both, the second one
    /// is closed after each answer.
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

    /// Opens the connection that is kept for the polls of an agent.
    ///
    /// # Errors
    /// [`RequestError`].
    pub(super) async fn connect_for_polls(
        &self,
        address: SocketAddr,
        patience: Duration,
    ) -> Result<PollConnection, RequestError> {
        PollConnection::open(&self.connector, address, patience.max(CONNECT_WITHIN)).await
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
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn run(&self, address: SocketAddr, request: Vec<u8>) -> Result<agent::RunAccepted, RequestError> {
        self.post_encoded(address, agent::RUN, request, MEDIUM).await
    }

    /// Kills ranks.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn kill(
        &self,
        address: SocketAddr,
        request: &agent::KillRequest,
    ) -> Result<agent::KillReply, RequestError> {
        self.post(address, agent::KILL, request, SHORT).await
    }

    /// Has the leader halt the ranks at their next checkpoint.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn request_halt(
        &self,
        address: SocketAddr,
        request: &agent::HaltRequest,
    ) -> Result<agent::Empty, RequestError> {
        self.post(address, agent::HALT_RANKS, request, SHORT).await
    }

    /// Sends SIGTERM to the ranks of a node.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn terminate(
        &self,
        address: SocketAddr,
        request: &agent::TerminateRequest,
    ) -> Result<agent::KillReply, RequestError> {
        self.post(address, agent::TERMINATE, request, SHORT).await
    }

    /// The stacks of ranks.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn stack(
        &self,
        address: SocketAddr,
        request: &agent::StackRequest,
    ) -> Result<agent::StackReply, RequestError> {
        self.post(address, agent::STACK, request, STACKS).await
    }

    /// Sends the present addresses of other agents.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn peers(&self, address: SocketAddr, update: &agent::PeersUpdate) -> Result<agent::Empty, RequestError> {
        self.post(address, agent::PEERS, update, SHORT).await
    }

    /// The files that the node holds.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn inventory(&self, address: SocketAddr) -> Result<Inventory, RequestError> {
        let request = self.http.get(url(address, agent::INVENTORY));
        self.send(address, agent::INVENTORY, request, MEDIUM).await
    }

    /// The halt conditions.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn halt(&self, address: SocketAddr) -> Result<HaltState, RequestError> {
        self.send(address, agent::HALT, self.http.get(url(address, agent::HALT)), SHORT).await
    }

    /// Changes halt conditions.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn set_halt(&self, address: SocketAddr, change: &HaltChange) -> Result<HaltState, RequestError> {
        self.post(address, agent::HALT, change, SHORT).await
    }

    /// Requests a checkpoint of the run, or returns what became of it.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn request_checkpoint(
        &self,
        address: SocketAddr,
        request: agent::CheckpointRequest,
    ) -> Result<agent::CheckpointReply, RequestError> {
        self.post(address, agent::CHECKPOINT, &request, SHORT).await
    }

    /// Copies the node's files of a dataset. The caller polls the agent meanwhile, and cancels the request when the
    /// agent is lost.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn copy(
        &self,
        address: SocketAddr,
        request: &agent::CopyRequest,
        within: Duration,
    ) -> Result<agent::CopyReply, RequestError> {
        self.post(address, agent::COPY, request, within).await
    }

    /// Rebuilds one member in the prefix directory.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn rebuild(
        &self,
        address: SocketAddr,
        request: &agent::RebuildRequest,
        within: Duration,
    ) -> Result<agent::RebuildReply, RequestError> {
        self.post(address, agent::REBUILD, request, within).await
    }

    /// Compares files in the prefix directory with their checksums.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn verify(
        &self,
        address: SocketAddr,
        request: &agent::VerifyRequest,
        within: Duration,
    ) -> Result<agent::VerifyReply, RequestError> {
        self.post(address, agent::VERIFY, request, within).await
    }

    /// Has an agent end its part in a run, before a drain.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn end_run(
        &self,
        address: SocketAddr,
        request: &agent::EndRunRequest,
    ) -> Result<agent::Empty, RequestError> {
        self.post(address, agent::END_RUN, request, MEDIUM).await
    }

    /// Removes the state of the job's finished steps.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn forget(
        &self,
        address: SocketAddr,
        request: &agent::ForgetRequest,
    ) -> Result<agent::Empty, RequestError> {
        self.post(address, agent::FORGET, request, MEDIUM).await
    }

    /// Records that a dataset is in the prefix directory.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn flushed(&self, address: SocketAddr, note: &agent::FlushedNote) -> Result<agent::Empty, RequestError> {
        self.post(address, agent::FLUSHED, note, SHORT).await
    }

    /// Ends the agent.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn stop(&self, address: SocketAddr, request: &agent::StopRequest) -> Result<agent::Empty, RequestError> {
        self.post(address, agent::STOP, request, SHORT).await
    }

    /// Announces the pairs and jobs of a node.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn pairs_plan(
        &self,
        address: SocketAddr,
        plan: &pairs::PairsPlan,
    ) -> Result<pairs::PairsAccepted, RequestError> {
        self.post(address, pairs::PLAN, plan, MEDIUM).await
    }

    /// The state of the pairs and jobs of a node; leases. The agent delays the answer by at most the request's
    /// `wait_ms`.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn pairs_sync(
        &self,
        address: SocketAddr,
        request: &pairs::PairsSync,
        patience: Duration,
    ) -> Result<pairs::PairsReport, RequestError> {
        let within = Duration::from_millis(request.wait_ms) + patience;
        self.post(address, pairs::SYNC, request, within).await
    }

    /// What a user requests for a pair.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn pair_command(
        &self,
        address: SocketAddr,
        request: &pairs::CommandRequest,
    ) -> Result<holdfast_model::pair::PairStatus, RequestError> {
        self.post(address, pairs::COMMAND, request, SHORT).await
    }

    /// Ends all copies and jobs of a node.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn pairs_stop(
        &self,
        address: SocketAddr,
        request: &pairs::PairsStop,
        grace: Duration,
    ) -> Result<agent::Empty, RequestError> {
        self.post(address, pairs::STOP, request, grace + MEDIUM).await
    }

    async fn post<R: DeserializeOwned>(
        &self,
        address: SocketAddr,
        path: &'static str,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<R, RequestError> {
        let body = serde_json::to_vec(body).map_err(|source| RequestError::Unencodable { address, path, source })?;
        self.post_encoded(address, path, body, within).await
    }

    async fn post_encoded<R: DeserializeOwned>(
        &self,
        address: SocketAddr,
        path: &'static str,
        body: Vec<u8>,
        within: Duration,
    ) -> Result<R, RequestError> {
        let (bytes, limit) = (body.len(), agent::largest_request(path));
        if bytes > limit {
            return Err(RequestError::TooLarge { address, path, bytes, limit });
        }
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
        let status = response.status();
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

pub(super) fn too_large(address: SocketAddr, path: &'static str) -> RequestError {
    let reason = format!("it is larger than {} MiB", LARGEST_ANSWER >> 20);
    RequestError::Answer { address, path, reason }
}

pub(super) fn read_answer<R: DeserializeOwned>(
    address: SocketAddr,
    path: &'static str,
    status: StatusCode,
    body: &[u8],
) -> Result<R, RequestError> {
    if !status.is_success() {
        let (kind, message) = match serde_json::from_slice::<Failure>(body) {
            Ok(failure) => (Some(failure.kind), failure.to_string()),
            Err(_) => (None, String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned()),
        };
        return Err(RequestError::Refused { address, path, status: status.as_u16(), kind, message });
    }
    serde_json::from_slice(body).map_err(|error| RequestError::Answer { address, path, reason: error.to_string() })
}

fn url(address: SocketAddr, path: &str) -> String {
    format!("https://{address}{path}")
}

/// The system's own message: the outer errors only state that a request failed.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        // A killed process closes its connections without TLS's own end, which the TLS library reports as an attack.
        Some(std::io::ErrorKind::UnexpectedEof) => "the connection was closed".to_owned(),
        _ => {
            let text = error.to_string();
            if text.contains("close_notify") { "the connection was closed".to_owned() } else { text }
        }
    }
}
