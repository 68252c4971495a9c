//! A process of this boot that is held by a file descriptor: a child of this process, or of an earlier one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use holdfast_model::RankEnd;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal, waitid,
};

use crate::identity::{ProcessId, start_time};
use crate::stat::ProcessStat;

/// A process that was started by this one or by an earlier one, or that has told its number.
#[derive(Debug)]
pub struct ObservedProcess {
    pub id: ProcessId,
    pid: Pid,
    pidfd: OwnedFd,
}

impl ObservedProcess {
    /// Starts a process in a group of its own.
    ///
    /// # Errors
    /// The process cannot be started or observed.
    pub fn start(command: &mut Command) -> io::Result<ObservedProcess> {
        let child = command.process_group(0).spawn()?;
        // It is our child, and nobody has waited for it: the number is its own.
        let id = ProcessId::of(child.id());
        id.and_then(ObservedProcess::open).ok_or_else(|| io::Error::other("the process cannot be observed"))
    }

    /// The process, if it exists. It may have ended without having been waited for.
    pub fn open(id: ProcessId) -> Option<ObservedProcess> {
        // Never our own group, and never everyone's.
        let pid = Pid::from_raw(i32::try_from(id.pid).ok()?).filter(|pid| *pid != Pid::INIT)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // The number may have been used again before it was opened.
        (start_time(id.pid) == Some(id.start_time)).then_some(ObservedProcess { id, pid, pidfd })
    }

    /// Readable when the process has ended.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The group that the process is in now; `None`: it has ended, or is in that of this process.
    fn group(&self) -> Option<Pid> {
        // Not by getpgid: a group that is not of the namespace of this process has the number 0.
        let of = |pid: u32| ProcessStat::of(pid).map(|stat| stat.group);
        let group = of(self.id.pid).filter(|group| *group > 1 && Some(*group) != of(std::process::id()));
        let group = group.and_then(Pid::from_raw);
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

    /// The same for a process beside the one that has started it, which has the signal already: not twice to a program
    /// in the same group.
    pub fn signal_beside(&self, started: &ObservedProcess, signal: Signal) {
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
                // Not our child: an earlier process has started it.
                Ok(None) | Err(_) => return RankEnd::Unknown,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::process::Stdio;

    use rustix::event::{PollFd, PollFlags, poll};

    use crate::stat;

    fn shell(script: &str) -> (ObservedProcess, std::process::Child) {
        let mut command = Command::new("sh");
        let child = command.args(["-c", script]).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        (ObservedProcess::open(ProcessId::of(child.id()).unwrap()).unwrap(), child)
    }

    fn wait(process: &ObservedProcess) -> RankEnd {
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
        assert!(ObservedProcess::open(process.id).is_none());
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
        assert!(ObservedProcess::open(other).is_none());
        assert!(stat::threads(process.id.pid).iter().all(|thread| thread.name == "sh" || thread.name == "sleep"));
        process.signal(Signal::KILL);
        wait(&process);
    }
}
