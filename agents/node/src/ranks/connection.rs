//! One rank's connection: hello, then calls, one at a time.

use std::sync::Arc;
use std::time::Duration;

use holdfast_wire::agent::AgentEvent;
use holdfast_wire::frame::{FrameError, receive_async, send_async};
use holdfast_wire::rank::{Call, CallError, Hello, Reply, ToAgent, ToRank};
use holdfast_wire::run::RunPlan;
use holdfast_wire::{Rank, VERSION};
use tokio::net::UnixStream;

use super::process::Process;
use crate::agent::Agent;
use crate::collective;

/// How long a process may take to say hello.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves one connection until it ends.
pub(super) async fn serve(agent: Arc<Agent>, mut stream: UnixStream, pid: u32, connection: u64) {
    let hello = match tokio::time::timeout(PATIENCE, receive_async(&mut stream)).await {
        Ok(Ok(ToAgent::Hello(hello))) => hello,
        Ok(Ok(ToAgent::Call { .. })) => return refuse(&mut stream, "a call came before the hello".to_owned()).await,
        Ok(Err(error)) => return refuse(&mut stream, error.to_string()).await,
        Err(_) => return,
    };
    let plan = match admit(&agent, &hello, pid, connection) {
        Ok(plan) => plan,
        Err(reason) => return refuse(&mut stream, reason).await,
    };
    let welcome = ToRank::Welcome { node: agent.start.node.clone() };
    if send_async(&mut stream, &welcome).await.is_err() {
        return;
    }
    let rank = hello.rank;
    agent.events.add(AgentEvent::RankConnected { generation: plan.generation, rank, pid });
    tokio::spawn(watch(agent.clone(), plan.clone(), rank, pid));
    if let Err(error) = calls(&agent, &plan, rank, connection, &mut stream).await {
        tracing::debug!(%rank, %error, "connection of a rank ended");
    }
}

fn admit(agent: &Agent, hello: &Hello, pid: u32, connection: u64) -> Result<Arc<RunPlan>, String> {
    if hello.version != VERSION {
        return Err(format!(
            "the program was built with version {} of the client, the agent speaks {VERSION}: link the same release",
            hello.version
        ));
    }
    if hello.job != agent.start.job_id {
        return Err(format!("this agent serves job {}, not {}", agent.start.job_id, hello.job));
    }
    let plan = agent.collectives.plan().ok_or("no run was prepared: start the program with `holdfast run`")?;
    if hello.generation != plan.generation {
        return Err(format!("generation {} is over, {} runs now", hello.generation, plan.generation));
    }
    if hello.ranks != plan.ranks() {
        return Err(format!("the program has {} ranks, the run was planned with {}", hello.ranks, plan.ranks()));
    }
    let here = plan.node(&agent.start.node).is_some_and(|node| node.ranks.contains(&hello.rank));
    if !here {
        return Err(format!("rank {} was placed on another node than {}", hello.rank, agent.start.node));
    }
    agent.ranks.join(hello.rank, hello.generation, pid, connection)?;
    Ok(plan)
}

async fn refuse(stream: &mut UnixStream, reason: String) {
    tracing::warn!(reason, "a process on the ranks' socket was refused");
    let _ = send_async(stream, &ToRank::Refused { reason }).await;
}

async fn calls(
    agent: &Arc<Agent>,
    plan: &Arc<RunPlan>,
    rank: Rank,
    connection: u64,
    stream: &mut UnixStream,
) -> Result<(), FrameError> {
    loop {
        let (seq, call) = match receive_async(stream).await? {
            ToAgent::Call { seq, call } => (seq, call),
            ToAgent::Hello(_) => continue,
        };
        if !agent.ranks.is_current(rank, connection) {
            return Ok(());
        }
        let waiting = agent.watchdog.call(plan.generation, rank, call.name());
        let result = answer(agent, plan, rank, seq, call).await;
        drop(waiting);
        send_async(stream, &ToRank::Reply { seq, result }).await?;
    }
}

async fn answer(agent: &Arc<Agent>, plan: &Arc<RunPlan>, rank: Rank, seq: u64, call: Call) -> Result<Reply, CallError> {
    if let Call::Route { name } = call {
        let agent = agent.clone();
        let routed = tokio::task::spawn_blocking(move || collective::route(&agent, rank, &name)).await;
        return match routed {
            Ok(Ok(path)) => Ok(Reply::Path(path)),
            Ok(Err(message)) => Err(CallError { message }),
            Err(error) => Err(CallError { message: format!("the agent failed while routing a file: {error}") }),
        };
    }
    collective::call(agent, plan, rank, seq, call).await
}

/// Waits for the end of a rank's process, and reports it.
async fn watch(agent: Arc<Agent>, plan: Arc<RunPlan>, rank: Rank, pid: u32) {
    if let Some(process) = Process::open(pid) {
        process.ended().await;
    }
    if agent.ranks.process_gone(rank, pid) {
        agent.events.add(AgentEvent::RankGone { generation: plan.generation, rank, pid });
    }
}
