//! The limit of open file descriptors of this process.
//!
//! The soft limit is 1,024 on most systems, because programs that use `select` fail beyond it. Every agent needs one
//! connection, sometimes two. So the limit is raised for large jobs, and restored for child processes.

use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// Descriptors in addition to those of the connections: files, pipes, epoll.
const OTHERS: u64 = 256;

/// The original limit of this process, once it was raised.
static INHERITED: OnceLock<Rlimit> = OnceLock::new();

/// The limit cannot be raised.
#[derive(Debug, thiserror::Error)]
#[error(
    "{connections} connections need {needed} file descriptors, and {hard} are allowed: {errno}; raise the hard limit \
    (`ulimit -Hn`)"
)]
pub struct DescriptorError {
    needed: u64,
    connections: usize,
    hard: u64,
    errno: Errno,
}

/// Raises the limit for this many connections.
///
/// # Errors
/// The hard limit is lower, and this user may not raise it. The limit is then raised to the hard limit.
pub fn allow_connections(connections: usize) -> Result<(), DescriptorError> {
    let needed = connections as u64 + OTHERS;
    let inherited = getrlimit(Resource::Nofile);
    if inherited.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let hard = inherited.maximum.unwrap_or(u64::MAX);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: Some(hard.max(needed)) })
        .map_err(|errno| DescriptorError { needed, connections, hard, errno });
    if raised.is_err() {
        // Every user may raise the soft limit up to the hard limit.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: inherited.maximum, ..inherited });
    }
    let _ = INHERITED.set(inherited);
    raised
}

/// Restores the original limit of this process in a child process.
pub fn restore_limit(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let (Some(inherited), Some(pid)) = (INHERITED.get(), pid)
        && let Err(error) = prlimit(Some(pid), Resource::Nofile, *inherited)
    {
        tracing::warn!(%error, "cannot restore the descriptor limit of a child process");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_process_gets_the_original_limit() {
        let before = getrlimit(Resource::Nofile);
        let Some(current) = before.current else { return };
        // Lowered, so that any user may raise it again.
        let lowered = current - OTHERS;
        setrlimit(Resource::Nofile, Rlimit { current: Some(lowered), ..before }).unwrap();
        allow_connections(usize::try_from(lowered).unwrap()).unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, Some(current));
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        restore_limit(child.id());
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        assert_eq!(line.split_whitespace().nth(3), Some(lowered.to_string().as_str()), "{line}");
    }
}
