//! From the line on standard input to the end of the process.
//!
//! The agent ends on request of the orchestrator, on SIGTERM, or when it has received no request for a long time and no
//! rank and no pair is on the node. Killed at any instant, it leaves a control directory with which its successor
//! continues.

mod housekeeping;
mod identity;
mod log;
pub mod runtime;

use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_core::owned::OwnedDirectory;
use holdfast_model::Generation;
use holdfast_wire::VERSION;
use holdfast_wire::agent::StopRequest;
use holdfast_wire::run::{AgentReady, AgentStart};
use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, setrlimit, umask};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::identity::IdentityError;
use crate::agent::Agent;
use crate::agent::forget::{self, ForgetError};
use crate::collective::{self, Collectives};
use crate::directories::claim::{self, ClaimError};
use crate::directories::kept;
use crate::directories::paths::Paths;
use crate::server::{self, ServerError};
use crate::server::{pulse, rank_socket};
use crate::store::StoreError;

/// The longest start line, in bytes. It contains the identity of this agent, not the job's specification.
const LONGEST_START: u64 = 1 << 20;
/// Threads for file work: orders, drains, streams.
const BLOCKING: usize = 256;
/// Stack of each thread. Deep recursion is refused everywhere.
const STACK_BYTES: usize = 2 << 20;
/// An orchestrator without any request for so long is considered lost.
const ORCHESTRATOR_LOST: Duration = Duration::from_secs(5);
/// The shortest time between two checks whether the agent is still needed.
const SHORTEST_WATCH: Duration = Duration::from_millis(10);

/// Why the agent did not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    #[error("cannot {action}: {source}; the agent is started by the orchestrator, not by hand")]
    Pipe { action: &'static str, source: io::Error },
    #[error(
        "the first line on standard input is no start message: {0}; the agent is started by the orchestrator, not by \
         hand"
    )]
    Start(String),
    #[error(
        "the orchestrator uses protocol version {orchestrator}, this agent version {VERSION}: install the same \
         release on all nodes"
    )]
    Version { orchestrator: u64 },
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    OtherJob(#[from] ForgetError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("cannot serve the ranks' socket in {directory}: {source}")]
    Socket { directory: String, source: io::Error },
    #[error("cannot set up the agent's threads: {0}")]
    Runtime(io::Error),
}

/// Runs an agent: reads its start line, writes its address to `ready`, and returns when it is to end.
///
/// # Errors
/// When it cannot start or continue.
pub fn run(start_line: impl BufRead, ready: impl Write) -> Result<(), DaemonError> {
    let mut start = read_start(start_line)?;
    identity::settle(&mut start, |name| std::env::var(name).ok())?;
    log::settle(&start);
    if let Some(mask) = start.umask {
        umask(Mode::from_bits_truncate(mask));
    }
    raise_descriptor_limit();
    // This thread answers requests and runs all asynchronous tasks: nothing on it may block. With others beside it,
    // each wake-up of an agent without work would wake several.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.max_blocking_threads(BLOCKING).thread_stack_size(STACK_BYTES);
    let runtime = runtime::start(builder.thread_name("holdfast").enable_all()).map_err(DaemonError::Runtime)?;
    let result = runtime.block_on(serve(start, ready));
    // File work that hangs must not keep the process.
    runtime.shutdown_timeout(Duration::from_millis(200));
    result
}

/// Reads the start line, bounded. The version is checked first: the rest may differ in another version.
fn read_start(start_line: impl BufRead) -> Result<AgentStart, DaemonError> {
    let mut line = String::new();
    let read = start_line.take(LONGEST_START).read_line(&mut line);
    let read = read.map_err(|source| DaemonError::Pipe { action: "read the start message", source })?;
    if read as u64 == LONGEST_START && !line.ends_with('\n') {
        return Err(DaemonError::Start(format!("it is longer than {LONGEST_START} bytes")));
    }
    let value: serde_json::Value =
        serde_json::from_str(&line).map_err(|error| DaemonError::Start(error.to_string()))?;
    let orchestrator = value.get("version").and_then(serde_json::Value::as_u64);
    match orchestrator {
        Some(version) if version == u64::from(VERSION) => {}
        Some(orchestrator) => return Err(DaemonError::Version { orchestrator }),
        None => return Err(DaemonError::Start("it has no version".to_owned())),
    }
    serde_json::from_value(value).map_err(|error| DaemonError::Start(error.to_string()))
}

async fn serve(start: AgentStart, mut ready: impl Write) -> Result<(), DaemonError> {
    // First of all, so that a signal during the setup is not lost.
    let mut terminate = signal(SignalKind::terminate()).map_err(DaemonError::Runtime)?;
    let _ignored = ignore_signals_of_others().map_err(DaemonError::Runtime)?;
    claim::check_names(&start.user, &start.job_id)?;
    let paths = Paths::new(&start);
    let control = control_directory(&start, &paths)?;
    let control_path = control.path().display().to_string();
    let claim = Arc::new(claim::claim(control)?);
    let bases = usable_bases(&start, &paths);
    let agent = Arc::new(Agent::new(start, paths, bases)?);
    let collectives = Arc::new(Collectives::new(agent.clone()));
    let address = agent.start.listen;
    let failed = |source| DaemonError::Listen { address, source };
    let listener = server::listen(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let adopted = collective::adopt(&collectives).await;
    agent.pairs.adopt();
    let mut server = tokio::spawn(server::serve(collectives.clone(), listener));
    let mut socket = tokio::spawn(rank_socket::serve(collectives.clone()));
    housekeeping::start(&agent, &claim).map_err(DaemonError::Runtime)?;
    announce(&agent, &mut ready, address, adopted)?;

    let socket_failed = |source| DaemonError::Socket { directory: control_path.clone(), source };
    tokio::select! {
        // The request to stop first: the server ends because of it, and if that were taken for a failure of the server,
        // the job's directories would not be removed.
        biased;
        () = stop_requested(&agent) => {}
        result = &mut server => return result.map_err(|error| DaemonError::Runtime(error.into()))?.map_err(Into::into),
        result = &mut socket => match result {
            Ok(Err(source)) => return Err(socket_failed(source)),
            Ok(Ok(())) => return Err(socket_failed(io::Error::other("it was closed"))),
            Err(error) => return Err(DaemonError::Runtime(error.into())),
        },
        () = terminated(&agent, &mut terminate) => tracing::info!("terminated"),
        () = abandoned(&agent) => tracing::info!("abandoned"),
    }
    // It binds a socket again that was removed, and the directory of the socket is about to be removed.
    socket.abort();
    let _ = socket.await;
    end(&collectives, server).await
}

/// Makes the control directory. One of another job of the allocation is removed first, if that job has ended and no
/// drain asks for it; one of a job in an earlier allocation with the same id may be set aside. Directories of this job
/// that were set aside are used again.
fn control_directory(start: &AgentStart, paths: &Paths) -> Result<OwnedDirectory, DaemonError> {
    let bases: Vec<String> = start.cache_bases.keys().cloned().collect();
    let make = || {
        kept::restore(paths, |control| forget::all_bases(control, &bases))?;
        claim::directory(paths, paths.control_node_path())
    };
    let made = make();
    if let Err(error) = &made
        && let Some(other) = error.other_job()
    {
        forget::other_job(paths, other, &bases, start.drains_only)?;
        return Ok(make()?);
    }
    Ok(made?)
}

/// Makes the job's cache directories. A base in which another user may have a hand is left out: no path below it is
/// used. The health report has the reason, and the orchestrator decides whether the node can be used without it.
pub(crate) fn usable_bases(start: &AgentStart, paths: &Paths) -> Vec<String> {
    let is_usable = |base: &&String| match claim::directory(paths, &paths.cache_node_path(base)) {
        Ok(_) => true,
        Err(error) => {
            tracing::error!(%base, %error, "cache_directory_unusable");
            !error.is_refusal()
        }
    };
    start.cache_bases.keys().filter(is_usable).cloned().collect()
}

/// Reports on standard output that the agent is ready.
fn announce(
    agent: &Agent,
    ready: &mut impl Write,
    address: SocketAddr,
    adopted: Option<Generation>,
) -> Result<(), DaemonError> {
    let clock_ms = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    let clock_ms = clock_ms.and_then(|since| u64::try_from(since.as_millis()).ok());
    let message = AgentReady {
        version: VERSION,
        node: agent.start.node.clone(),
        address,
        pid: std::process::id(),
        adopted,
        clock_ms,
        pulse: pulse::start(address.ip()),
    };
    // Zero: it has adopted no ranks.
    let adopted = adopted.map_or(0, |generation| generation.0);
    tracing::info!(node = %agent.start.node, %address, adopted, "ready");
    let failed = |source| DaemonError::Pipe { action: "report that the agent is ready", source };
    let mut line = serde_json::to_vec(&message).map_err(|error| failed(error.into()))?;
    line.push(b'\n');
    ready.write_all(&line).and_then(|()| ready.flush()).map_err(failed)
}

/// Returns when SIGTERM is to end the agent. Some resource managers send it to every process of a job that is cancelled
/// or at its time limit, the orchestrator included, which then needs the agents to drain.
async fn terminated(agent: &Agent, terminate: &mut Signal) {
    let is_shared = agent.start.shared.as_ref().is_some_and(|shared| shared.is_signalled_with_job);
    while terminate.recv().await.is_some() {
        if !is_shared || agent.contact.silence() > ORCHESTRATOR_LOST {
            return;
        }
        tracing::info!("sigterm_deferred_to_orchestrator");
    }
}

/// Catches, until the result is dropped, signals that are meant for the ranks or the orchestrator and would by default
/// end this process: `scancel --signal=USR1` sends it to every process of a job.
fn ignore_signals_of_others() -> io::Result<Vec<Signal>> {
    let kinds =
        [SignalKind::user_defined1(), SignalKind::user_defined2(), SignalKind::hangup(), SignalKind::interrupt()];
    kinds.into_iter().map(signal).collect()
}

async fn stop_requested(agent: &Agent) {
    let mut stop = agent.stop.subscribe();
    // The sender is in the agent, so this cannot fail.
    let _ = stop.wait_for(Option::is_some).await;
}

/// Returns when the agent has not been needed for as long as the orchestrator allowed.
async fn abandoned(agent: &Arc<Agent>) {
    let limit = agent.start.abandon_after;
    loop {
        let left = limit.saturating_sub(agent.contact.silence());
        if !left.is_zero() {
            tokio::time::sleep(left.max(SHORTEST_WATCH)).await;
            continue;
        }
        // To find ranks, all of /proc is read: last, and seldom.
        let needed = {
            let agent = agent.clone();
            let busy =
                move || agent.pairs.are_needed() || agent.ranks.others_alive() || !agent.progress.snapshot().is_empty();
            tokio::task::spawn_blocking(busy).await.unwrap_or(true)
        };
        if !needed {
            return;
        }
        agent.contact.renew();
    }
}

/// Answers the requests under way, ends the ranks, and removes the job's directories if the orchestrator requested it.
async fn end(
    collectives: &Collectives,
    server: tokio::task::JoinHandle<Result<(), ServerError>>,
) -> Result<(), DaemonError> {
    let agent = &collectives.agent;
    // After a signal: ends the server too.
    let request = agent.stop.borrow().clone();
    if request.is_none() {
        agent.stop.send_replace(Some(StopRequest { remove: false }));
    }
    let _ = server.await;
    let _ = std::fs::remove_file(agent.paths.socket());
    if let Some(request) = request {
        agent.ranks.kill_now(Generation(u64::MAX));
        agent.pairs.end_with_agent().await;
        if request.remove {
            claim::remove(&agent.paths, collectives.cache_bases().into_iter())?;
        }
    }
    tracing::info!("ended");
    Ok(())
}

/// Each peer and each rank needs a descriptor, and the default soft limit is often 1024.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "descriptor_limit_not_raised");
    }
}

#[cfg(test)]
mod tests;
