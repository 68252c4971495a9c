//! Processes of copies and jobs. Each that the agent starts is the leader of a process group of its own; the program
//! that registers as a copy may be in another one.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use holdfast_model::RankEnd;
use holdfast_shm::CopySlot;
use holdfast_shm::process::start_time;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpgid, getpgrp, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};
use serde::{Deserialize, Serialize};

/// Names one process of this boot, also after its number is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessId {
    pub pid: u32,
    pub start_time: u64,
}

impl ProcessId {
    /// The process that has this number now.
    pub fn of(pid: u32) -> Option<ProcessId> {
        Some(ProcessId { pid, start_time: start_time(pid)? })
    }

    /// The process that registered as a copy.
    pub fn registered(slot: &CopySlot) -> Option<ProcessId> {
        (slot.pid != 0).then_some(ProcessId { pid: slot.pid, start_time: slot.start_time })
    }
}

/// A process that was started by this agent, or by an earlier one.
#[derive(Debug)]
pub(super) struct CopyProcess {
    pub id: ProcessId,
    pid: Pid,
    pidfd: OwnedFd,
}

impl CopyProcess {
    /// The process, if it exists. It may have ended without having been waited for.
    pub fn open(id: ProcessId) -> Option<CopyProcess> {
        // Never our own group, and never everyone's.
        let pid = Pid::from_raw(i32::try_from(id.pid).ok()?).filter(|pid| *pid != Pid::INIT)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // The number may have been used again before it was opened.
        (start_time(id.pid) == Some(id.start_time)).then_some(CopyProcess { id, pid, pidfd })
    }

    /// The program that registered as a copy, if it exists, and is another process than the one started for it.
    pub fn registered(slot: &CopySlot, started: Option<&CopyProcess>) -> Option<CopyProcess> {
        let id = ProcessId::registered(slot).filter(|id| started.is_none_or(|started| started.id != *id));
        id.and_then(CopyProcess::open)
    }

    /// Readable when the process has ended.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The group that the process is in now; `None`: it has ended, or is in that of the agent.
    fn group(&self) -> Option<Pid> {
        let group = getpgid(Some(self.pid)).ok().filter(|group| *group != getpgrp() && *group != Pid::INIT);
        // The number may be that of another process by now.
        group.filter(|_| start_time(self.id.pid) == Some(self.id.start_time))
    }

    /// Sends a signal to the process, to the group that it leads, and to the one that it is in. The number of a group
    /// is not used again while it has members.
    pub fn signal(&self, signal: Signal) {
        let group = self.group();
        // Another process with this number has another group: the group of the one that ended is empty then.
        let leads = start_time(self.id.pid).is_none_or(|found| found == self.id.start_time);
        let groups = [Some(self.pid).filter(|_| leads), group.filter(|group| *group != self.pid)];
        let mut reached = false;
        for each in groups.into_iter().flatten() {
            let is_sent = kill_process_group(each, signal).is_ok();
            // Not twice to a program that handles it.
            reached |= is_sent && group == Some(each);
        }
        if !reached {
            let _ = pidfd_send_signal(&self.pidfd, signal);
        }
    }

    /// The same for the program that registered as a copy, beside the process that was started for it, which has the
    /// signal already: not twice to a program in the same group.
    pub fn signal_beside(&self, started: &CopyProcess, signal: Signal) {
        if self.group() != Some(started.pid) {
            self.signal(signal);
        }
    }

    /// How the process ended, which `ended` has reported. What is left of its group is killed.
    pub fn reap(&self) -> RankEnd {
        self.signal(Signal::KILL);
        loop {
            match waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
                Ok(Some(status)) => {
                    let code = status.exit_status().map(RankEnd::Code);
                    return code
                        .or_else(|| status.terminating_signal().map(RankEnd::Signal))
                        .unwrap_or(RankEnd::Unknown);
                }
                Err(rustix::io::Errno::INTR) => {}
                // Not our child: an earlier agent has started it.
                Ok(None) | Err(_) => return RankEnd::Unknown,
            }
        }
    }

    /// The states of the process's threads, by name: `R`, `S`, `D`, `T` and so on, as in `/proc/<pid>/task/<tid>/stat`.
    pub fn threads(&self) -> Vec<(String, u8)> {
        threads(self.id.pid)
    }
}

fn threads(pid: u32) -> Vec<(String, u8)> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let state = |stat: &[u8]| {
        let begin = stat.iter().position(|byte| *byte == b'(')? + 1;
        // The name may contain brackets, too.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let name = String::from_utf8_lossy(stat.get(begin..end)?).into_owned();
        Some((name, *stat.get(end + 2)?))
    };
    tasks.flatten().filter_map(|task| state(&fs::read(task.path().join("stat")).ok()?)).collect()
}

/// The threads of the process that registered as a copy, or else of the one that was started for it: this may be a
/// shell script that has started the program.
pub(super) fn copy_threads(slot: &CopySlot, started: Option<&CopyProcess>) -> Vec<(String, u8)> {
    match ProcessId::registered(slot).filter(|id| ProcessId::of(id.pid) == Some(*id)) {
        Some(id) => threads(id.pid),
        None => started.map(CopyProcess::threads).unwrap_or_default(),
    }
}

/// Why a process could not be started.
pub(super) fn start_failure(program: &str, error: &io::Error) -> String {
    format!("cannot start {program}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use rustix::event::{PollFd, PollFlags, poll};

    fn shell(script: &str) -> (CopyProcess, std::process::Child) {
        let mut command = Command::new("sh");
        let child = command.args(["-c", script]).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        (CopyProcess::open(ProcessId::of(child.id()).unwrap()).unwrap(), child)
    }

    fn wait(process: &CopyProcess) -> RankEnd {
        let pidfd = process.ended();
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
        process.reap()
    }

    #[test]
    fn tells_how_a_process_ended() {
        assert_eq!(wait(&shell("exit 7").0), RankEnd::Code(7));
        let (process, _child) = shell("sleep 600");
        process.signal(Signal::KILL);
        assert_eq!(wait(&process), RankEnd::Signal(9));
        assert!(CopyProcess::open(process.id).is_none());
    }

    #[test]
    fn what_a_process_has_started_is_killed_with_it() {
        use std::io::Read as _;
        let (process, mut child) = shell("sleep 600 & echo $!; exec true");
        assert_eq!(wait(&process), RankEnd::Code(0));
        let mut text = String::new();
        // Ends when the last process that has the pipe has ended.
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(text.trim().parse::<u32>().is_ok(), "{text:?}");
    }

    #[test]
    fn another_process_with_the_same_number_is_not_opened() {
        let (process, _child) = shell("sleep 600");
        let other = ProcessId { start_time: process.id.start_time + 1, ..process.id };
        assert!(CopyProcess::open(other).is_none());
        assert!(process.threads().iter().all(|(name, _)| name == "sh" || name == "sleep"));
        process.signal(Signal::KILL);
        wait(&process);
    }

    #[test]
    fn the_threads_of_a_copy_are_those_of_the_program_behind_a_script() {
        use std::io::{BufRead as _, BufReader};
        let (script, mut child) = shell("sleep 600 & echo $!; wait");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let program = ProcessId::of(line.trim().parse().unwrap()).unwrap();
        let slot = CopySlot { pid: program.pid, start_time: program.start_time, ..CopySlot::EMPTY };
        let begun = std::time::Instant::now();
        // It is a copy of the shell at first.
        while copy_threads(&slot, Some(&script)).first().is_none_or(|(name, _)| name != "sleep") {
            assert!(begun.elapsed().as_secs() < 60, "{:?}", copy_threads(&slot, Some(&script)));
        }
        for slot in [CopySlot::EMPTY, CopySlot { start_time: program.start_time + 1, ..slot }] {
            assert!(copy_threads(&slot, Some(&script)).iter().all(|(name, _)| name == "sh"));
        }
        script.signal(Signal::KILL);
        wait(&script);
    }
}
