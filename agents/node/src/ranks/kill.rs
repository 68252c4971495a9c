//! Killing the node's ranks, at once: nothing waits for the resource manager to notice.
//!
//! Ranks are found twice: those that are connected, and those that their environment gives away (`marked`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::Generation;
use holdfast_wire::agent::KillRequest;

use super::Ranks;
use super::process::Process;

/// How long a killed process may take to be gone, before the answer is given without it (a process that hangs in the
/// kernel cannot be waited for).
const PATIENCE: Duration = Duration::from_secs(2);

/// Kills the node's ranks of the generation and older ones, and waits until they are gone. Returns their processes.
pub async fn kill(ranks: &Arc<Ranks>, request: KillRequest) -> Vec<u32> {
    // Reading an environment below `/proc` can wait for a process that hangs in the kernel.
    let killing = {
        let ranks = ranks.clone();
        tokio::task::spawn_blocking(move || ranks.kill_now(request.generation))
    };
    let killed = killing.await.unwrap_or_default();
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

impl Ranks {
    /// Sends SIGKILL to the node's ranks of the generation and older ones; does not wait.
    pub fn kill_now(&self, generation: Generation) -> Vec<(u32, Process)> {
        let mut pids: BTreeSet<u32> = self.processes(generation).into_iter().collect();
        pids.extend(self.marked(|of| of <= generation).iter().map(|process| process.pid));
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
    pub fn others_alive(&self) -> bool {
        !self.marked(|_| true).is_empty()
    }
}
