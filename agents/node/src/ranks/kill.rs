//! Killing the node's ranks, at once: nothing waits for the resource manager to notice.
//!
//! Ranks are found twice: those that are connected, and every process of this user whose environment names the job, a
//! generation that is over, and (on a virtual node) this node. The second finds programs that never called our API,
//! and what ranks have started themselves.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use holdfast_wire::agent::KillRequest;
use holdfast_wire::{Generation, environment};

use super::process::Process;
use crate::agent::Agent;

/// How long a killed process may take to be gone, before the answer is given without it (a process that hangs in the
/// kernel cannot be waited for).
const PATIENCE: Duration = Duration::from_secs(2);

/// Kills the node's ranks of the generation and older ones, and waits until they are gone. Returns their processes.
pub async fn kill(agent: &Agent, request: &KillRequest) -> Vec<u32> {
    let killed = kill_now(agent, request.generation);
    if !killed.is_empty() {
        tracing::info!(generation = %request.generation, reason = request.reason, processes = killed.len(), "ranks killed");
    }
    let pids = killed.iter().map(|(pid, _)| *pid).collect();
    let gone = async {
        for (_, process) in killed {
            process.ended().await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, gone).await;
    pids
}

/// Sends SIGKILL to the node's ranks of the generation and older ones; does not wait.
pub fn kill_now(agent: &Agent, generation: Generation) -> Vec<(u32, Process)> {
    let mut pids: BTreeSet<u32> = agent.ranks.processes(generation).into_iter().collect();
    pids.extend(marked(agent, generation));
    pids.remove(&std::process::id());
    let mut killed = Vec::new();
    for pid in pids {
        if let Some(process) = Process::open(pid)
            && process.kill().is_ok()
        {
            killed.push((pid, process));
        }
    }
    killed
}

/// True if any process of the job's ranks lives on this node.
pub fn others_alive(agent: &Agent) -> bool {
    !marked(agent, Generation(u64::MAX)).is_empty()
}

/// Processes of this user whose environment says that they belong to the job, up to this generation.
fn marked(agent: &Agent, generation: Generation) -> Vec<u32> {
    let job = format!("{}={}", environment::JOB, agent.start.job_id);
    let node = format!("{}={}", environment::NODE, agent.start.node);
    let virtual_node = agent.start.root.is_some();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let belongs = |environment: &[u8]| {
        let mut variables = environment.split(|byte| *byte == 0);
        let has = |wanted: &str| environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
        let of_generation = variables.find_map(|entry| {
            let value = entry.strip_prefix(environment::GENERATION.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(value).ok()?.parse::<u64>().ok()
        });
        of_generation.is_some_and(|of| Generation(of) <= generation) && has(&job) && (!virtual_node || has(&node))
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        // Unreadable: another user's, or gone.
        .filter(|pid| fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| belongs(&environment)))
        .collect()
}
