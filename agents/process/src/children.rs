//! The ranks whose parent is this process.

use std::collections::BTreeMap;
use std::io;
use std::process::Command;

use holdfast_model::{Rank, RankEnd};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};

use crate::leader::{GroupLeader, OutputPipes};

/// The processes whose ends were not reported.
#[derive(Debug, Default)]
pub struct Children {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    running: BTreeMap<Rank, GroupLeader>,
    /// All processes were killed, and no more are started.
    ending: bool,
}

impl Children {
    /// Starts a process: its process id and the pipes of its output. `None` if all were killed before.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(&self, rank: Rank, command: &mut Command) -> io::Result<Option<(u32, OutputPipes)>> {
        let mut table = self.table.lock();
        if table.ending {
            return Ok(None);
        }
        let (leader, pipes) = GroupLeader::start(command)?;
        let pid = leader.pid();
        table.running.insert(rank, leader);
        Ok(Some((pid, pipes)))
    }

    /// The processes that have ended since the last call.
    pub fn reap(&self) -> Vec<(Rank, RankEnd)> {
        let mut ended = Vec::new();
        self.table.lock().running.retain(|rank, leader| {
            let end = leader.end();
            ended.extend(end.map(|end| (*rank, end)));
            end.is_none()
        });
        ended
    }

    /// Kills all process groups. No process is started afterwards.
    pub fn kill_all(&self) {
        let mut table = self.table.lock();
        table.ending = true;
        table.running.values().for_each(|leader| leader.signal_group(Signal::KILL));
    }

    /// True once [`Children::kill_all`] was called.
    pub fn is_ending(&self) -> bool {
        self.table.lock().ending
    }

    /// True if the end of every process was reported.
    pub fn is_empty(&self) -> bool {
        self.table.lock().running.is_empty()
    }
}

/// Blocks until a child of this process has ended, or there is none. The child is reaped by [`Children::reap`].
pub fn wait_for_any() {
    while matches!(waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT), Err(Errno::INTR)) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    use crate::stat::ProcessStat;

    /// What `found` finds, within a minute.
    fn within_a_minute<T>(mut found: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = found() {
                return found;
            }
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn reports_every_end_once() {
        let children = Children::default();
        children.start(Rank(3), Command::new("sh").args(["-c", "exit 7"])).unwrap();
        assert_eq!(within_a_minute(|| children.reap().pop()), (Rank(3), RankEnd::Code(7)));
        assert!(children.reap().is_empty() && children.is_empty());
    }

    #[test]
    fn kills_entire_groups_and_starts_nothing_afterwards() {
        let children = Children::default();
        let base = tempfile::tempdir().unwrap();
        let file = base.path().join("grandchild");
        let script = format!("sleep 600 & echo $! >{0}.new; mv {0}.new {0}; wait", file.display());
        children.start(Rank(0), Command::new("sh").args(["-c", &script])).unwrap();
        let grandchild = within_a_minute(|| std::fs::read_to_string(&file).ok()).trim().parse().unwrap();
        children.kill_all();
        assert_eq!(within_a_minute(|| children.reap().pop()), (Rank(0), RankEnd::Signal(9)));
        within_a_minute(|| ProcessStat::of(grandchild).is_none_or(|stat| stat.has_ended()).then_some(()));
        assert!(children.start(Rank(1), &mut Command::new("true")).unwrap().is_none());
        assert!(children.is_ending());
    }
}
