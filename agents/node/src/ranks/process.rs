//! A process by its pidfd, which cannot refer to a later process with the same number.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// The process of this number, if there is one.
    pub fn open(pid: u32) -> Option<Process> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Process)
    }

    /// True if there is a process of this number that has not ended. One that has ended, but whose parent has not read
    /// its exit code, is not alive.
    pub fn is_alive(pid: u32) -> bool {
        let Some(process) = Process::open(pid) else { return false };
        // A pidfd is readable when its process has ended.
        let mut watched = [PollFd::new(&process.0, PollFlags::IN)];
        poll(&mut watched, Some(&Timespec::default())).map_or(true, |ended| ended == 0)
    }

    pub fn kill(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, Signal::KILL)?)
    }

    /// Stops it (SIGSTOP).
    pub fn stop(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, Signal::STOP)?)
    }

    pub fn terminate(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, Signal::TERM)?)
    }

    pub async fn ended(self) {
        // Its replacement is an unsafe function, for descriptors that may be closed while they are watched; this one is
        // owned by the watch.
        #[expect(deprecated, reason = "the descriptor is owned by what watches it")]
        let watched = AsyncFd::new(self.0);
        if let Ok(watched) = watched {
            // A pidfd is readable when its process has ended.
            let _ = watched.readable().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_that_was_killed_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        assert!(Process::is_alive(child.id()));
        process.kill().unwrap();
        process.ended().await;
        assert!(!Process::is_alive(child.id()), "its exit code was not read");
        assert!(!child.wait().unwrap().success());
        assert!(Process::open(u32::MAX).is_none());
    }
}
