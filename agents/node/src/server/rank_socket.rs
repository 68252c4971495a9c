//! The socket of this node's ranks: one connection a rank, hello first, then calls, one at a time.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{Failure, FailureKind, Rank};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::frame::{self, FrameError, HELLO, receive_async, send_async};
use holdfast_wire::plan::MemberPlan;
use holdfast_wire::rank::{Call, Hello, Reply, TO_AGENT, TO_RANK, ToAgent, ToRank};
use holdfast_wire::{VERSION, socket};
use tokio::io::BufReader;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::agent::Agent;
use crate::collective::{self, CallError, Collectives};
use crate::ranks::admission::Refusal;
use crate::ranks::{Joined, KernelLog, MemoryKills, Process};
use crate::sources;

/// The time for the hello of a process.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// Calls of ranks that work on files at a time, each on a thread: enough for a fast disk, so few that calls that wait
/// for a disk leave threads for other work.
static FILE_CALLS: Semaphore = Semaphore::const_new(16);

/// Serves the ranks' socket until the agent ends.
pub async fn serve(collectives: Arc<Collectives>) -> io::Result<()> {
    let path = collectives.agent.paths.socket();
    let mut listener = listen(&path)?;
    let uid = rustix::process::getuid().as_raw();
    let mut count = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // No rank of another generation could connect, though the agent lives. One of another agent is left alone.
            () = collectives.agent.socket_removed.notified() => {
                match listen(&path) {
                    Ok(bound) => {
                        tracing::warn!(path = %path.display(), "the socket of the ranks was removed, and bound again");
                        listener = bound;
                    }
                    // A directory that cannot be used is a fault of the node's health.
                    Err(error) => tracing::warn!(%error, "the socket of the ranks was removed and cannot be bound"),
                }
                continue;
            }
        };
        let (stream, _) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // For instance out of descriptors: other connections may end.
                tracing::warn!(%error, "rank_not_accepted");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        let credentials = match stream.peer_cred() {
            Ok(credentials) => credentials,
            Err(error) => {
                tracing::warn!(%error, "rank_not_identified");
                continue;
            }
        };
        let Some(pid) = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|_| credentials.uid() == uid)
        else {
            tracing::warn!(uid = credentials.uid(), "rank_socket_foreign_user");
            continue;
        };
        count += 1;
        tokio::spawn(serve_connection(collectives.clone(), stream, pid, count));
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = socket::listen(path)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Admits the rank of one connection and serves its calls.
async fn serve_connection(collectives: Arc<Collectives>, mut stream: UnixStream, pid: u32, connection: u64) {
    let agent = collectives.agent.clone();
    let hello = match tokio::time::timeout(HELLO_LIMIT, receive_async(&mut stream, HELLO)).await {
        Ok(Ok(ToAgent::Hello(hello))) => hello,
        Ok(Ok(ToAgent::Call { .. })) => return refuse(&mut stream, Refusal::NoHello).await,
        Ok(Err(error)) => return refuse(&mut stream, error.into()).await,
        Err(_) => return,
    };
    let (plan, joined) = match admit(&collectives, &hello, pid, connection) {
        Ok(admitted) => admitted,
        Err(refusal) => {
            if refusal.is_incurable() && agent.ranks.is_first_refused(hello.generation) {
                let reason = Failure::from(&refusal).to_string();
                agent.events.add(AgentEvent::RankRefused { generation: hello.generation, rank: hello.rank, reason });
            }
            return refuse(&mut stream, refusal).await;
        }
    };
    let layout = plan.settings.variables.layout;
    let welcome = ToRank::Welcome { node: agent.start.node.clone(), layout };
    if send_async(&mut stream, &welcome, HELLO).await.is_err() {
        return;
    }
    let rank = hello.rank;
    agent.events.add(AgentEvent::RankConnected { generation: plan.generation, rank, pid });
    if joined == Joined::New {
        tokio::spawn(watch(agent.clone(), plan.clone(), rank, pid));
    }
    if let Err(error) = calls(&collectives, &plan, rank, connection, stream).await {
        tracing::debug!(%rank, %error, "rank_connection_ended");
    }
}

fn admit(
    collectives: &Collectives,
    hello: &Hello,
    pid: u32,
    connection: u64,
) -> Result<(Arc<MemberPlan>, Joined), Refusal> {
    let agent = &collectives.agent;
    if hello.version != VERSION {
        return Err(Refusal::Version { theirs: hello.version });
    }
    if hello.job != agent.start.job_id {
        return Err(Refusal::Job { ours: agent.start.job_id.clone(), theirs: hello.job.clone() });
    }
    let plan = collectives.plan().ok_or(Refusal::NoRun)?;
    if hello.generation != plan.generation {
        return Err(Refusal::Superseded { asked: hello.generation, serving: plan.generation });
    }
    if hello.ranks != plan.ranks {
        return Err(Refusal::Ranks { theirs: hello.ranks, planned: plan.ranks });
    }
    if !plan.local.contains(&hello.rank) {
        return Err(Refusal::Elsewhere { rank: hello.rank, node: agent.start.node.clone() });
    }
    let source = sources::open(&plan.settings).map_err(|_| Refusal::NoRun)?;
    // A run of another library refuses every call, with its own message.
    let entry = source.entry();
    if !entry.is_library && entry.interface != hello.interface {
        return Err(Refusal::Interface { source_name: plan.settings.source.clone(), interface: hello.interface });
    }
    let joined = agent.ranks.join(hello.rank, hello.generation, pid, connection)?;
    Ok((plan, joined))
}

async fn refuse(stream: &mut UnixStream, refusal: Refusal) {
    tracing::warn!(%refusal, "rank_refused");
    let _ = send_async(stream, &ToRank::Refused { failure: refusal.into() }, HELLO).await;
}

/// Serves the calls of an admitted rank until the connection ends.
async fn calls(
    collectives: &Arc<Collectives>,
    plan: &Arc<MemberPlan>,
    rank: Rank,
    connection: u64,
    stream: UnixStream,
) -> Result<(), FrameError> {
    let agent = &collectives.agent;
    // One system call reads an entire call.
    let mut stream = BufReader::new(stream);
    loop {
        let (seq, call) = match receive_async(&mut stream, TO_AGENT).await? {
            ToAgent::Call { seq, call } => (seq, call),
            ToAgent::Hello(_) => continue,
        };
        if !agent.ranks.is_current(rank, connection) {
            return Ok(());
        }
        // A rank process waits while its program computes.
        let computes = matches!(call, Call::Await { .. });
        let waiting = (!computes).then(|| agent.watchdog.call(plan.generation, rank, call.name()));
        let result = match call {
            Call::Route { name } => {
                let route = move |collectives: &Collectives| collective::route(collectives, rank, &name);
                on_files(collectives, route).await.map(Reply::Path)
            }
            Call::RestartFiles => {
                let list = move |collectives: &Collectives| collective::restart_files(collectives, rank);
                on_files(collectives, list).await.map(Reply::RestartFiles)
            }
            Call::Workspace => {
                let open = move |collectives: &Collectives| collective::workspace(collectives, rank);
                on_files(collectives, open).await.map(Reply::Path)
            }
            Call::Leave => {
                if let Some(pid) = agent.ranks.leave(rank, connection) {
                    agent.events.add(AgentEvent::RankLeft { generation: plan.generation, rank, pid });
                }
                Ok(Reply::Done)
            }
            call => collective::call(collectives, plan, rank, seq, call).await,
        };
        drop(waiting);
        let frames = match frame::encode(&ToRank::Reply { seq, result }, TO_RANK) {
            Ok(frames) => frames,
            // The call fails, and the connection stays open.
            Err(error) => {
                let failure = CallError::Unsendable(error).into();
                frame::encode(&ToRank::Reply { seq, result: Err(failure) }, TO_RANK)?
            }
        };
        frame::write_async(&mut stream, &frames).await?;
    }
}

/// Carries out a call that works on files: the tasks that answer polls must not do that.
async fn on_files<T: Send + 'static>(
    collectives: &Arc<Collectives>,
    work: impl FnOnce(&Collectives) -> Result<T, CallError> + Send + 'static,
) -> Result<T, Failure> {
    let failed = |error: String| Failure::new(FailureKind::Internal, format!("the agent failed: {error}"));
    let turn = FILE_CALLS.acquire().await.map_err(|error| failed(error.to_string()))?;
    let collectives = collectives.clone();
    let worked = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work(&collectives)
    });
    worked.await.map_err(|error| failed(error.to_string()))?.map_err(Failure::from)
}

/// Waits for the end of a rank's process, and reports it.
async fn watch(agent: Arc<Agent>, plan: Arc<MemberPlan>, rank: Rank, pid: u32) {
    let (kills, mut kernel) = (MemoryKills::of(pid), KernelLog::open());
    if let Some(process) = Process::open(pid) {
        process.ended().await;
    }
    if agent.ranks.process_ended(rank, pid) {
        // Before the end itself, of which it is the reason.
        if let Some(killed) = kills.since().filter(|killed| agent.ranks.is_first_to_show(plan.generation, *killed)) {
            agent.events.add(AgentEvent::MemoryExhausted {
                generation: plan.generation,
                rank,
                pid,
                killed: killed.processes,
                of_group: killed.of_group,
            });
        }
        if let Some(message) = kernel.reason().filter(|message| agent.ranks.is_first_to_report(message.number)) {
            let (generation, message) = (plan.generation, message.text);
            agent.events.add(AgentEvent::KernelReported { generation, rank, pid, message });
        }
        agent.events.add(AgentEvent::RankGone { generation: plan.generation, rank, pid });
    }
}
