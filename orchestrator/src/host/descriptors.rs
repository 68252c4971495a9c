//! How many descriptors this process may have.
//!
//! The soft limit is 1,024 on most systems, because programs that use `select` fail beyond it. Every agent takes one
//! connection, sometimes two, so that it is raised for jobs that need more, and set back for what this process starts.

use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// Descriptors beside those of the connections: files, pipes, epoll.
const OTHERS: u64 = 256;

/// The limit that this process was started with, once it was raised.
static INHERITED: OnceLock<Rlimit> = OnceLock::new();

/// The limit cannot be raised.
#[derive(Debug, thiserror::Error)]
#[error(
    "{needed} descriptors are needed for {connections} connections, and {hard} are allowed: {errno}; raise the hard limit (`ulimit -Hn`)"
)]
pub struct DescriptorError {
    needed: u64,
    connections: usize,
    hard: u64,
    errno: Errno,
}

/// Lets this process have so many connections.
///
/// # Errors
/// The hard limit is lower, and this user may not raise it. As many as it allows are allowed then.
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
        // What is allowed without being the administrator never fails.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: inherited.maximum, ..inherited });
    }
    let _ = INHERITED.set(inherited);
    raised
}

/// Sets a process that this one has started back to the limit that this one was started with.
pub fn restore_limit(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let (Some(inherited), Some(pid)) = (INHERITED.get(), pid)
        && let Err(error) = prlimit(Some(pid), Resource::Nofile, *inherited)
    {
        tracing::warn!(%error, "the descriptor limit of a process that was started could not be set back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_is_started_gets_the_limit_back_that_was_raised_for_connections() {
        let before = getrlimit(Resource::Nofile);
        let Some(current) = before.current else { return };
        // So that it can be raised without being the administrator.
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
