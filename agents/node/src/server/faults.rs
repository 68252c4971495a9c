//! Injects a fault of the job's spec on this node, as the orchestrator requests. Signals reach only processes that were
//! started for this job, and files are written and removed only below directories with its mark.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_core::owned::{Access, OwnedError};
use holdfast_core::store;
use holdfast_model::{Generation, NodeName, Rank};
use holdfast_wire::agent::NodeFault;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

use crate::collective::Collectives;
use crate::directories::claim::{self, ClaimError};

/// The processes of all generations.
const ALL: Generation = Generation(u64::MAX);
/// The file in each cache directory that an injected fault fills.
const FILLING: &str = "fault_injection.fill";
/// It grows by this many bytes at a time, and by less where the file system is almost full.
const PIECE_BYTES: u64 = 16 << 20;
const SMALLEST_PIECE_BYTES: u64 = 4 << 10;
/// Waits, then continues the processes: an agent that is stopped cannot do that itself. One that was killed meanwhile
/// has no effect.
const CONTINUE: &str = r#"sleep "$0"; kill -CONT "$@""#;

/// Why a fault was not injected.
#[derive(Debug, thiserror::Error)]
pub(super) enum FaultError {
    #[error("no process of rank {rank} runs on {node}")]
    NoRank { rank: Rank, node: NodeName },
    #[error("cannot start the shell that continues the processes: {0}")]
    Shell(io::Error),
    #[error(transparent)]
    Directory(#[from] ClaimError),
    #[error(transparent)]
    File(#[from] OwnedError),
    #[error("cannot fill the cache: {0}")]
    Fill(io::Error),
}

/// Injects a fault; a loss of the node or of the agent does not return. Blocks.
pub(super) fn inject(collectives: &Collectives, fault: NodeFault) -> Result<(), FaultError> {
    let agent = &collectives.agent;
    tracing::warn!(?fault, "fault_injected");
    match fault {
        NodeFault::LoseNode => lose_node(collectives),
        NodeFault::KillAgent => end_this_process(),
        NodeFault::KillRank { rank } => match agent.ranks.kill_rank(rank) {
            0 => return Err(FaultError::NoRank { rank, node: agent.start.node.clone() }),
            _ => agent.events.release_polls(),
        },
        NodeFault::Pause { millis } => pause(collectives, Duration::from_millis(millis))?,
        NodeFault::FillCache { bytes } => fill_caches(collectives, bytes)?,
        NodeFault::StallPrefix { millis } => store::stall_for(Duration::from_millis(millis)),
    }
    Ok(())
}

/// The ranks are stopped first, so that they do not see their files disappear; all are killed together.
fn lose_node(collectives: &Collectives) {
    let agent = &collectives.agent;
    agent.failing.store(true, Ordering::Relaxed);
    agent.ranks.stop_now(ALL);
    if let Err(error) = claim::remove(&agent.paths, collectives.cache_bases().into_iter()) {
        tracing::warn!(%error, "directories_not_removed");
    }
    agent.ranks.kill_now(ALL);
    end_this_process();
}

fn end_this_process() {
    let _ = kill_process(getpid(), Signal::KILL);
}

fn pause(collectives: &Collectives, duration: Duration) -> Result<(), FaultError> {
    let processes = collectives.agent.ranks.open(ALL);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", CONTINUE, &duration.as_secs_f64().to_string()]);
    shell.args(processes.iter().map(|(pid, _)| pid.to_string())).arg(std::process::id().to_string());
    let mut shell = shell.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(FaultError::Shell)?;
    for (_, process) in &processes {
        let _ = process.stop();
    }
    let _ = kill_process(getpid(), Signal::STOP);
    let _ = shell.wait();
    Ok(())
}

/// Fills the caches, one after the other, until they have so many bytes more, or there is no more space.
fn fill_caches(collectives: &Collectives, bytes: u64) -> Result<(), FaultError> {
    let (paths, mut left) = (&collectives.agent.paths, bytes);
    for base in collectives.cache_bases() {
        let directory = claim::directory(paths, &paths.cache_node_path(&base))?;
        let file = directory.truncate(FILLING, Access::Private)?;
        left -= fill(&file, left).map_err(FaultError::Fill)?;
    }
    tracing::info!(bytes = bytes - left, "cache_filled");
    Ok(())
}

/// Makes a file as large as this, or as space is left. Returns its size.
fn fill(file: &File, bytes: u64) -> io::Result<u64> {
    let (mut size, mut piece) = (0, PIECE_BYTES);
    while size < bytes {
        let length = piece.min(bytes - size);
        match allocate(file, size, length) {
            Ok(()) => size += length,
            Err(Errno::INTR) => {}
            Err(Errno::NOSPC | Errno::DQUOT) if piece > SMALLEST_PIECE_BYTES => piece /= 2,
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(size)
}

fn allocate(file: &File, offset: u64, length: u64) -> Result<(), Errno> {
    match fallocate(file, FallocateFlags::empty(), offset, length) {
        Err(Errno::OPNOTSUPP) => {
            let zeros = vec![0; usize::try_from(length).unwrap_or(SMALLEST_PIECE_BYTES as usize)];
            let written = file.write_all_at(&zeros, offset);
            written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_file_has_the_requested_size_and_no_more() {
        let file = tempfile::tempfile().unwrap();
        let bytes = PIECE_BYTES + 5;
        assert_eq!(fill(&file, bytes).unwrap(), bytes);
        assert_eq!(file.metadata().unwrap().len(), bytes);
    }
}
