//! The orchestrator's requests, one function a path. Work with files is done on blocking threads.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use holdfast_model::pair::PairStatus;
use holdfast_model::{Failure, FailureKind, HaltChange, HaltState, Inventory};
use holdfast_wire::agent::{
    CHECKPOINT, COPY, CheckpointReply, CheckpointRequest, CopyReply, CopyRequest, END_RUN, Empty, EndRunRequest,
    FLUSHED, FORGET, FaultRequest, FlushedNote, ForgetRequest, HALT, HALT_RANKS, HaltRequest, Health, INJECT_FAULT,
    INVENTORY, KILL, KillReply, KillRequest, KnownHealth, PEERS, POLL, PULSE, PeersUpdate, PollReply, PollRequest,
    PulseReply, PulseRequest, REBUILD, RUN, RebuildReply, RebuildRequest, RunAccepted, STACK, STOP, StackReply,
    StackRequest, StopRequest, TERMINATE, TerminateReply, TerminateRequest, VERIFY, VerifyReply, VerifyRequest,
    largest_request,
};
use holdfast_wire::pairs::{self, CommandRequest, PairsAccepted, PairsPlan, PairsReport, PairsStop, PairsSync};
use holdfast_wire::plan::RunRequest;
use holdfast_wire::pulse;
use serde::de::DeserializeOwned;
use tokio::task::JoinError;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::faults;
use crate::agent::Agent;
use crate::agent::forget::{self, ForgetError};
use crate::agent::inventory;
use crate::collective::{self, Collectives, RunError};
use crate::copy::{self, CopyError, on_prefix};
use crate::library::watch;
use crate::pairs::PairsError;
use crate::prefix::job_prefixes;
use crate::ranks;
use crate::report::health::{AgentStatus, Published};
use crate::state::halt::Moment;
use crate::state::memory;
use crate::store::StoreError;
use crate::watchdog;

/// The longest time for which a poll is held.
const LONGEST_POLL: Duration = Duration::from_secs(60);
/// How often an inventory is tried while descriptors or memory are exhausted, and the first pause, which doubles.
const INVENTORY_TRIES: u32 = 8;
const INVENTORY_PAUSE: Duration = Duration::from_millis(50);
/// How long a poll waits for a look at the control directory: a poll must be answered whatever the disks do.
const LOOK_WITHIN: Duration = Duration::from_millis(200);
/// How long the answer to a request to kill waits for the halt conditions.
const HALT_WITHIN: Duration = Duration::from_millis(200);

pub(super) fn router(collectives: Arc<Collectives>) -> Router {
    let unknown = || async { Rejection::invalid(StatusCode::NOT_FOUND, "no such path") };
    let method = || async { Rejection::invalid(StatusCode::METHOD_NOT_ALLOWED, "no such method for this path") };
    Router::new()
        .route(POLL, post(poll))
        .route(RUN, post(run))
        .route(KILL, post(kill))
        .route(HALT_RANKS, post(halt_ranks))
        .route(TERMINATE, post(terminate))
        .route(INJECT_FAULT, post(inject_fault))
        .route(STACK, post(stack))
        .route(PULSE, post(pulse))
        .route(PEERS, post(peers))
        .route(END_RUN, post(end_run))
        .route(INVENTORY, get(take_inventory))
        .route(HALT, post(change_halt))
        .route(CHECKPOINT, post(request_checkpoint))
        .route(FORGET, post(forget_finished))
        .route(COPY, post(copy_files))
        .route(REBUILD, post(rebuild))
        .route(VERIFY, post(verify))
        .route(FLUSHED, post(flushed))
        .route(STOP, post(stop))
        .route(pairs::PLAN, post(plan_pairs))
        .route(pairs::SYNC, post(sync_pairs))
        .route(pairs::COMMAND, post(command_pair))
        .route(pairs::STOP, post(stop_pairs))
        .fallback(unknown)
        .method_not_allowed_fallback(method)
        .with_state(collectives)
}

/// The answer to a request that failed.
struct Rejection(StatusCode, Failure);

impl Rejection {
    fn new(status: StatusCode, kind: FailureKind, message: impl Into<String>) -> Self {
        Rejection(status, Failure::new(kind, message))
    }

    /// The request cannot be understood.
    fn invalid(status: StatusCode, message: impl Into<String>) -> Self {
        let failure = Failure::new(FailureKind::InvalidRequest, message);
        Rejection(status, failure.remedy("install the same release everywhere"))
    }

    /// A file of this node could not be read or changed.
    fn io(error: impl Display) -> Self {
        Rejection::new(StatusCode::INTERNAL_SERVER_ERROR, FailureKind::Io, error.to_string())
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        tracing::warn!(status = self.0.as_u16(), failure = %self.1, "request_failed");
        (self.0, Json(self.1)).into_response()
    }
}

impl From<JoinError> for Rejection {
    fn from(error: JoinError) -> Self {
        Rejection::new(StatusCode::INTERNAL_SERVER_ERROR, FailureKind::Internal, format!("the agent failed: {error}"))
    }
}

impl From<CopyError> for Rejection {
    fn from(error: CopyError) -> Self {
        let (status, kind) = match error {
            ref error if error.prevents_writing() => (StatusCode::INTERNAL_SERVER_ERROR, FailureKind::Unwritable),
            CopyError::Directory(_) => (StatusCode::BAD_REQUEST, FailureKind::InvalidRequest),
            CopyError::Rebuild { .. } => (StatusCode::UNPROCESSABLE_ENTITY, FailureKind::Damaged),
            CopyError::Durable(_) | CopyError::Prefix(_) | CopyError::Store(_) | CopyError::Unlisted { .. } => {
                (StatusCode::INTERNAL_SERVER_ERROR, FailureKind::Io)
            }
        };
        Rejection::new(status, kind, error.to_string())
    }
}

impl From<StoreError> for Rejection {
    fn from(error: StoreError) -> Self {
        let mut failure = Failure::new(FailureKind::Io, error.to_string());
        failure.retryable = error.is_exhaustion();
        Rejection(StatusCode::INTERNAL_SERVER_ERROR, error.locate(failure))
    }
}

impl From<RunError> for Rejection {
    fn from(error: RunError) -> Self {
        let (status, kind) = match error {
            RunError::Old { .. } => (StatusCode::CONFLICT, FailureKind::Superseded),
            RunError::ForeignPrefix(_) | RunError::ForeignBase(_) => {
                (StatusCode::BAD_REQUEST, FailureKind::InvalidRequest)
            }
            RunError::Plan(_) | RunError::Unusable { .. } | RunError::Source(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, FailureKind::InvalidRequest)
            }
            RunError::Crashed(_) => (StatusCode::INTERNAL_SERVER_ERROR, FailureKind::Internal),
            RunError::Record { .. } | RunError::Store(_) | RunError::Claim(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, FailureKind::Io)
            }
        };
        Rejection::new(status, kind, error.to_string())
    }
}

impl From<PairsError> for Rejection {
    fn from(error: PairsError) -> Self {
        let (status, kind) = match error {
            PairsError::Superseded(..) => (StatusCode::CONFLICT, FailureKind::Superseded),
            PairsError::OtherPlan | PairsError::NoPlan | PairsError::Command(_) => {
                (StatusCode::CONFLICT, FailureKind::InvalidRequest)
            }
            PairsError::Plan(_) | PairsError::Cpu { .. } | PairsError::NotInPrefix(_) => {
                (StatusCode::BAD_REQUEST, FailureKind::InvalidRequest)
            }
            PairsError::Claim(_) | PairsError::Registry(_) | PairsError::Stream(_) | PairsError::Io { .. } => {
                (StatusCode::INTERNAL_SERVER_ERROR, FailureKind::Io)
            }
        };
        Rejection::new(status, kind, error.to_string())
    }
}

type Answer<T> = Result<Json<T>, Rejection>;
type Shared = State<Arc<Collectives>>;

/// A JSON body of bounded size.
struct Message<T>(T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for Message<T> {
    type Rejection = Rejection;

    async fn from_request(request: Request, _: &S) -> Result<Self, Rejection> {
        let limit = largest_request(request.uri().path());
        let bytes = body(request.into_body(), limit).await?;
        serde_json::from_slice(&bytes).map(Message).map_err(|error| {
            Rejection::invalid(StatusCode::BAD_REQUEST, format!("the message could not be read: {error}"))
        })
    }
}

async fn body(body: Body, limit: usize) -> Result<axum::body::Bytes, Rejection> {
    to_bytes(body, limit).await.map_err(|error| {
        let message = format!("the body did not arrive, or is over {limit} bytes: {error}");
        Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, FailureKind::InvalidRequest, message)
    })
}

/// Runs file work on a blocking thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Rejection> {
    Ok(tokio::task::spawn_blocking(work).await?)
}

/// A token that is cancelled when the request is dropped because its client has closed the connection.
fn cancelled_with_request() -> (CancellationToken, DropGuard) {
    let cancelled = CancellationToken::new();
    (cancelled.clone(), cancelled.drop_guard())
}

/// The present moment, with the end of the allocation as of the run in force.
fn moment(collectives: &Collectives) -> Moment {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    match collectives.plan() {
        Some(plan) => collectives.agent.halt.moment(now, &plan.settings),
        None => Moment { now, ..Moment::default() },
    }
}

async fn poll(State(collectives): Shared, Message(request): Message<PollRequest>) -> Response {
    let agent = &collectives.agent;
    poll_begins(agent, &request);
    let mut stop = agent.stop.subscribe();
    tokio::select! {
        () = poll_released(agent, request) => {}
        // An agent that ends answers at once.
        _ = stop.wait_for(Option::is_some) => {}
    }
    match poll_reply(&collectives, &request).await {
        Some(reply) => Json(reply).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

/// Takes over what a poll reports.
pub(super) fn poll_begins(agent: &Agent, request: &PollRequest) {
    if let Some(end) = request.allocation_end {
        agent.halt.allocation_ends(end);
    }
}

/// Returns when a poll is to be answered, whatever follows it on its connection.
pub(super) async fn poll_released(agent: &Agent, request: PollRequest) {
    let wait = Duration::from_millis(request.wait_ms).min(LONGEST_POLL);
    if !wait.is_zero() {
        let _ = tokio::time::timeout(wait, agent.events.wait_for_event(request.after)).await;
    }
}

/// `None` if nothing has changed since the health that the request knows.
pub(super) async fn poll_reply(collectives: &Arc<Collectives>, request: &PollRequest) -> Option<PollReply> {
    let agent = &collectives.agent;
    if agent.failing.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
    // What the library did up to now counts: the end of a generation is judged by polls that were sent after it.
    if let Some(library) = collectives.run().and_then(|run| run.library.clone()) {
        let _ = tokio::time::timeout(LOOK_WITHIN, watch::observe(agent, &library)).await;
    }
    let generation = collective::serving(collectives);
    let status = AgentStatus {
        node: agent.start.node.clone(),
        generation,
        ranks: agent.ranks.alive(generation),
        unauthenticated: agent.unauthenticated.load(Ordering::Relaxed),
        newest: agent.store.flush.newest(),
        quiet: agent.watchdog.quiet(generation, Instant::now()),
        waiting: collectives.participation().and_then(|part| part.calls.waiting()),
        halt: agent.halt.report(&moment(collectives)),
    };
    let instance = agent.instance;
    let Published { version, health } = agent.health.report(status).await;
    let (events, progress) = (agent.events.since(request.after), agent.progress.snapshot());
    if request.known == Some(KnownHealth { instance, version }) && events.is_empty() && progress.is_empty() {
        return None;
    }
    let health = Health::clone(&health);
    Some(PollReply { instance, health_version: version, health, events, progress })
}

async fn pulse(Message(request): Message<PulseRequest>) -> Answer<PulseReply> {
    Ok(Json(PulseReply { found: pulse::look(request.address).await }))
}

async fn run(State(collectives): Shared, Message(request): Message<RunRequest>) -> Answer<RunAccepted> {
    collective::check_places(&collectives.agent, &request.shared.settings)?;
    let directory = &request.shared.settings.prefix;
    // Only for the first run of a step: later, a file system that is not reachable for a while must not prevent a
    // launch.
    if collectives.plan().is_none_or(|known| known.settings.prefix != *directory) {
        let checked = job_prefixes::check(directory).await;
        checked.map_err(|error| {
            let failure = Failure::new(FailureKind::Io, error.to_string()).at(directory);
            Rejection(StatusCode::UNPROCESSABLE_ENTITY, failure)
        })?;
    }
    Ok(Json(collective::begin_run(&collectives, request).await?))
}

async fn kill(State(collectives): Shared, Message(request): Message<KillRequest>) -> Answer<KillReply> {
    let agent = collectives.agent.clone();
    let killed = ranks::kill(&agent.ranks, request).await;
    agent.events.release_polls();
    // After the ranks have ended: one of them may have recorded that the application is finished.
    let halt = blocking(move || agent.halt.state(&moment(&collectives)));
    let halt = tokio::time::timeout(HALT_WITHIN, halt).await;
    let may_halt = !matches!(halt, Ok(Ok(HaltState { met: None, .. })));
    Ok(Json(KillReply { killed, may_halt }))
}

async fn halt_ranks(State(collectives): Shared, Message(request): Message<HaltRequest>) -> Answer<Empty> {
    collectives.agent.halt.request(request);
    collectives.halt_changed();
    Ok(Json(Empty {}))
}

async fn terminate(State(collectives): Shared, Message(request): Message<TerminateRequest>) -> Answer<TerminateReply> {
    if let Some(part) = collectives.participation().filter(|part| part.run.plan.generation == request.generation) {
        part.terminate();
    }
    let passed_on = collectives.run().is_some_and(|run| run.source.entry().has_rank_processes);
    Ok(Json(TerminateReply { terminated: ranks::terminate(&collectives.agent.ranks, request, passed_on).await }))
}

async fn inject_fault(State(collectives): Shared, Message(request): Message<FaultRequest>) -> Answer<Empty> {
    blocking(move || faults::inject(&collectives, request.fault)).await?.map_err(Rejection::io)?;
    Ok(Json(Empty {}))
}

async fn stack(State(collectives): Shared, Message(request): Message<StackRequest>) -> Answer<StackReply> {
    if collective::serving(&collectives) != request.generation {
        return Ok(Json(StackReply::default()));
    }
    let agent = &collectives.agent;
    Ok(Json(watchdog::stacks(&agent.ranks, &agent.start.node, &request).await))
}

async fn peers(State(collectives): Shared, Message(update): Message<PeersUpdate>) -> Answer<Empty> {
    collectives.update_addresses(update);
    Ok(Json(Empty {}))
}

async fn end_run(State(collectives): Shared, Message(request): Message<EndRunRequest>) -> Answer<Empty> {
    collectives.end_run(request.generation).await;
    Ok(Json(Empty {}))
}

async fn take_inventory(State(collectives): Shared) -> Answer<Inventory> {
    let mut pause = INVENTORY_PAUSE;
    for _ in 1..INVENTORY_TRIES {
        let agent = collectives.agent.clone();
        match blocking(move || inventory::inventory(&agent)).await? {
            Err(error) if error.is_exhaustion() => tracing::warn!(%error, "inventory_tried_again"),
            inventory => return Ok(Json(inventory?)),
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    let agent = collectives.agent.clone();
    Ok(Json(blocking(move || inventory::inventory(&agent)).await??))
}

async fn change_halt(State(collectives): Shared, Message(change): Message<HaltChange>) -> Answer<HaltState> {
    let agent = collectives.agent.clone();
    let is_change = change != HaltChange::default();
    let there = collectives.clone();
    let state = blocking(move || agent.halt.change(&change, &moment(&there))).await?.map_err(Rejection::io)?;
    if is_change {
        collectives.halt_changed();
    }
    Ok(Json(state))
}

async fn request_checkpoint(
    State(collectives): Shared,
    Message(request): Message<CheckpointRequest>,
) -> Answer<CheckpointReply> {
    Ok(Json(collectives.request_checkpoint(request).await))
}

async fn forget_finished(State(collectives): Shared, Message(request): Message<ForgetRequest>) -> Answer<Empty> {
    let agent = collectives.agent.clone();
    let forget = move || {
        forget::finished_steps(&agent, request.finished)?;
        forget::earlier_runs(&agent, request.earlier_runs)?;
        agent.health.expire();
        Ok::<_, ForgetError>(())
    };
    blocking(forget).await?.map_err(Rejection::io)?;
    Ok(Json(Empty {}))
}

async fn copy_files(State(collectives): Shared, Message(request): Message<CopyRequest>) -> Answer<CopyReply> {
    let agent = collectives.agent.clone();
    let (cancelled, _guard) = cancelled_with_request();
    Ok(Json(blocking(move || copy::drain::copy(&agent, &request, cancelled)).await??))
}

async fn rebuild(State(collectives): Shared, Message(request): Message<RebuildRequest>) -> Answer<RebuildReply> {
    let agent = collectives.agent.clone();
    Ok(Json(blocking(move || on_prefix::rebuild(&agent.prefixes, &agent.progress, &request)).await??))
}

async fn verify(State(collectives): Shared, Message(request): Message<VerifyRequest>) -> Answer<VerifyReply> {
    let agent = collectives.agent.clone();
    let (cancelled, _guard) = cancelled_with_request();
    Ok(Json(blocking(move || on_prefix::verify(&agent.prefixes, &request, cancelled)).await??))
}

/// A drain of this node's directories to another prefix directory than the job's leaves the job without the dataset.
fn is_of_another_job(agent: &Agent, prefix: &Path) -> bool {
    let planned = memory::read_plan(&agent.paths.control()).ok().flatten();
    let planned = planned.and_then(|plan| plan.shared.settings.prefix.canonicalize().ok());
    planned.is_some_and(|planned| prefix.canonicalize().is_ok_and(|prefix| prefix != planned))
}

async fn flushed(State(collectives): Shared, Message(note): Message<FlushedNote>) -> Answer<Empty> {
    let agent = collectives.agent.clone();
    let note_here = move || match is_of_another_job(&agent, &note.prefix) {
        true => Ok(()),
        false => agent.store.flush.note_flushed(note.checkpoint),
    };
    blocking(note_here).await??;
    Ok(Json(Empty {}))
}

async fn stop(State(collectives): Shared, Message(request): Message<StopRequest>) -> Answer<Empty> {
    let agent = collectives.agent.clone();
    agent.stop.send_replace(Some(request));
    Ok(Json(Empty {}))
}

async fn plan_pairs(State(collectives): Shared, Message(plan): Message<PairsPlan>) -> Answer<PairsAccepted> {
    let agent = collectives.agent.clone();
    Ok(Json(blocking(move || agent.pairs.begin(plan)).await??))
}

async fn sync_pairs(State(collectives): Shared, Message(sync): Message<PairsSync>) -> Answer<PairsReport> {
    let agent = &collectives.agent;
    let mut stop = agent.stop.subscribe();
    tokio::select! {
        report = agent.pairs.sync(sync, LONGEST_POLL) => Ok(Json(report?)),
        // An agent that ends answers at once.
        _ = stop.wait_for(Option::is_some) => Err(PairsError::NoPlan.into()),
    }
}

async fn command_pair(State(collectives): Shared, Message(request): Message<CommandRequest>) -> Answer<PairStatus> {
    Ok(Json(collectives.agent.pairs.command(request).await?))
}

async fn stop_pairs(State(collectives): Shared, Message(stop): Message<PairsStop>) -> Answer<Empty> {
    let agent = &collectives.agent;
    agent.pairs.stop(stop).await?;
    Ok(Json(Empty {}))
}
