//! Kills the node's ranks at once, without the resource manager, or sends them SIGTERM.
//!
//! Ranks are found by their connections and by their environment (`marked`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{Generation, Rank};
use holdfast_wire::agent::{KillRequest, TerminateRequest};

use super::connected::Ranks;
use super::marked;
use super::process::Process;

/// How long to wait for the end of killed processes: a process that hangs in the kernel does not end.
const ENDED_WITHIN: Duration = Duration::from_secs(2);

/// Kills the node's ranks of the generation and older ones, and waits until they have ended. Returns their processes.
pub async fn kill(ranks: &Arc<Ranks>, request: KillRequest) -> Vec<u32> {
    // To read an environment below `/proc` can block on a process that hangs in the kernel.
    let killing = {
        let ranks = ranks.clone();
        tokio::task::spawn_blocking(move || ranks.kill_now(request.generation))
    };
    let killed = killing.await.unwrap_or_default();
    if !killed.is_empty() {
        let processes = killed.len();
        tracing::info!(generation = %request.generation, reason = request.reason, processes, "ranks_killed");
    }
    let pids = killed.iter().map(|(pid, _)| *pid).collect();
    let ended = async {
        for (_, process) in killed {
            process.ended().await;
        }
    };
    let _ = tokio::time::timeout(ENDED_WITHIN, ended).await;
    pids
}

/// Sends SIGTERM to the node's ranks of the generation. Returns their processes. `passed_on`: the connected processes
/// pass signals on to their programs, which get this one from here.
pub async fn terminate(ranks: &Arc<Ranks>, request: TerminateRequest, passed_on: bool) -> Vec<u32> {
    let terminating = {
        let ranks = ranks.clone();
        tokio::task::spawn_blocking(move || ranks.terminate_now(request.generation, passed_on))
    };
    let terminated = terminating.await.unwrap_or_default();
    if !terminated.is_empty() {
        let processes = terminated.len();
        tracing::info!(generation = %request.generation, reason = request.reason, processes, "ranks_terminated");
    }
    terminated
}

impl Ranks {
    /// Sends SIGTERM to the node's ranks of the generation and to the processes that they have started, as Slurm does,
    /// because a shell handles the signal only after its program has ended. Processes of the launcher itself get none:
    /// they would kill the ranks.
    fn terminate_now(&self, generation: Generation, passed_on: bool) -> Vec<u32> {
        let marked = self.marked(|of| of == generation);
        let of_rank: BTreeMap<u32, Rank> =
            marked.iter().filter_map(|process| Some((process.pid, process.rank?))).collect();
        let mut pids = marked::of_ranks(marked);
        pids.extend(self.processes(generation));
        for (rank, connected) in self.connected(generation) {
            // A rank process whose program has ended is ended itself.
            let has_program = pids.iter().any(|pid| *pid != connected && of_rank.get(pid) == Some(&rank));
            if passed_on && has_program {
                pids.remove(&connected);
            }
        }
        pids.remove(&std::process::id());
        let terminated = |pid: &u32| Process::open(*pid).is_some_and(|process| process.terminate().is_ok());
        pids.into_iter().filter(terminated).collect()
    }

    /// Sends SIGKILL to the node's ranks of the generation and older ones; does not wait.
    pub fn kill_now(&self, generation: Generation) -> Vec<(u32, Process)> {
        self.open(generation).into_iter().filter(|(_, process)| process.kill().is_ok()).collect()
    }

    /// Sends SIGSTOP to the node's ranks of the generation and older ones. Those that are connected are stopped before
    /// the others are looked for, which takes a while on a node with many processes.
    pub fn stop_now(&self, generation: Generation) {
        let stop = |process: &Process| drop(process.stop());
        self.processes(generation).into_iter().filter_map(Process::open).for_each(|process| stop(&process));
        self.open(generation).iter().for_each(|(_, process)| stop(process));
    }

    /// The node's processes of the generation and older ones: those of ranks and of launchers.
    pub fn open(&self, generation: Generation) -> Vec<(u32, Process)> {
        let mut pids: BTreeSet<u32> = self.processes(generation).into_iter().collect();
        pids.extend(self.marked(|of| of <= generation).iter().map(|process| process.pid));
        pids.remove(&std::process::id());
        pids.into_iter().filter_map(|pid| Some((pid, Process::open(pid)?))).collect()
    }

    /// Sends SIGKILL to the processes of a rank of any generation. Returns their number.
    pub fn kill_rank(&self, rank: Rank) -> usize {
        let marked: Vec<_> = self.marked(|_| true).into_iter().filter(|process| process.rank == Some(rank)).collect();
        let mut pids = marked::of_ranks(marked);
        pids.extend(self.process_of(rank));
        pids.remove(&std::process::id());
        pids.into_iter().filter(|pid| Process::open(*pid).is_some_and(|process| process.kill().is_ok())).count()
    }

    /// True if any process of the job's ranks is on this node.
    pub fn others_alive(&self) -> bool {
        !self.marked(|_| true).is_empty()
    }
}
