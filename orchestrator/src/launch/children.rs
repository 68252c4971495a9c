//! The child processes of a supervisor. Each leads a process group, and only this table waits for it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus};

use holdfast_model::{Rank, RankEnd};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: u32,
    /// Its standard output, if that is a pipe.
    pub(crate) output: Option<ChildStdout>,
    /// Its standard error, if that is a pipe.
    pub(crate) errors: Option<ChildStderr>,
}

/// The processes that have not been waited for. As long as they are in the table, their ids cannot be reused.
#[derive(Debug, Default)]
pub(crate) struct Children {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    running: BTreeMap<Rank, Child>,
    /// All processes were killed, and no more are started.
    ending: bool,
}

impl Children {
    /// Starts a process in a group of its own; `None` if all were killed before.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(crate) fn start(&self, rank: Rank, command: &mut Command) -> io::Result<Option<Started>> {
        let mut table = self.table.lock();
        if table.ending {
            return Ok(None);
        }
        let mut child = command.process_group(0).spawn()?;
        let started = Started { pid: child.id(), output: child.stdout.take(), errors: child.stderr.take() };
        table.running.insert(rank, child);
        Ok(Some(started))
    }

    /// The processes that have ended since the last call. The lock makes waiting for a process and forgetting its id
    /// atomic for [`Children::kill_all`].
    pub(crate) fn reap(&self) -> Vec<(Rank, RankEnd)> {
        let mut ended = Vec::new();
        self.table.lock().running.retain(|rank, child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                ended.push((*rank, end_of(status)));
                false
            }
            Err(_) => {
                ended.push((*rank, RankEnd::Unknown));
                false
            }
        });
        ended
    }

    /// Kills all process groups. No process is started afterwards.
    pub(crate) fn kill_all(&self) {
        let mut table = self.table.lock();
        table.ending = true;
        for child in table.running.values() {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
    }

    /// True once [`Children::kill_all`] was called.
    pub(crate) fn is_ending(&self) -> bool {
        self.table.lock().ending
    }

    /// True if every process has been waited for.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.lock().running.is_empty()
    }
}

/// Blocks until a child of this process has ended, or there is none. The child is reaped by [`Children::reap`].
pub(crate) fn wait_for_any() {
    while matches!(waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT), Err(Errno::INTR)) {}
}

/// How a process ended.
pub(crate) fn end_of(status: ExitStatus) -> RankEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => RankEnd::Code(code),
        (None, Some(signal)) => RankEnd::Signal(signal),
        (None, None) => RankEnd::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn reap_one(children: &Children) -> (Rank, RankEnd) {
        let begun = Instant::now();
        loop {
            if let Some(ended) = children.reap().pop() {
                return ended;
            }
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn reports_every_end_once() {
        let children = Children::default();
        children.start(Rank(3), Command::new("sh").args(["-c", "exit 7"])).unwrap();
        assert_eq!(reap_one(&children), (Rank(3), RankEnd::Code(7)));
        assert!(children.reap().is_empty() && children.is_empty());
    }

    #[test]
    fn kills_entire_groups_and_starts_nothing_afterwards() {
        let children = Children::default();
        let base = tempfile::tempdir().unwrap();
        let file = base.path().join("grandchild");
        let script = format!("sleep 600 & echo $! >{0}.new; mv {0}.new {0}; wait", file.display());
        children.start(Rank(0), Command::new("sh").args(["-c", &script])).unwrap();
        let begun = Instant::now();
        while !file.exists() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(2));
        }
        children.kill_all();
        assert_eq!(reap_one(&children), (Rank(0), RankEnd::Signal(9)));
        let grandchild = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        assert!(crate::host::process::wait_for_end(grandchild, Duration::from_secs(10)));
        assert!(children.start(Rank(1), &mut Command::new("true")).unwrap().is_none());
        assert!(children.is_ending());
    }
}
