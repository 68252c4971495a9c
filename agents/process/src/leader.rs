//! A child of this process that leads a process group. Only [`GroupLeader`] waits for it, so that its number is not
//! used again while a signal is sent.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdout, Command};
use std::time::{Duration, Instant};

use holdfast_model::RankEnd;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use crate::end;

/// The longest pause between two looks at a process whose end is awaited for a limited time.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The output of a process, where that was made a pipe.
#[derive(Debug, Default)]
pub struct OutputPipes {
    pub output: Option<ChildStdout>,
    pub errors: Option<ChildStderr>,
}

#[derive(Debug)]
pub struct GroupLeader {
    pid: Pid,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Not waited for: its number, and that of its group, are its own.
    Child(Child),
    Ended(RankEnd),
}

impl GroupLeader {
    /// Starts a process in a group of its own.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(command: &mut Command) -> io::Result<(GroupLeader, OutputPipes)> {
        let mut child = command.process_group(0).spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
        let pipes = OutputPipes { output: child.stdout.take(), errors: child.stderr.take() };
        Ok((GroupLeader { pid, state: Mutex::new(State::Child(child)) }, pipes))
    }

    /// Its process id, which is also that of its group.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<RankEnd> {
        let mut state = self.state.lock();
        match &mut *state {
            State::Ended(end) => Some(*end),
            State::Child(child) => {
                let end = match child.try_wait() {
                    Ok(None) => return None,
                    Ok(Some(status)) => end::of(status),
                    Err(_) => RankEnd::Unknown,
                };
                *state = State::Ended(end);
                Some(end)
            }
        }
    }

    /// Blocks until it has ended.
    pub fn wait(&self) -> RankEnd {
        loop {
            // It is not waited for here: signals can be sent to it meanwhile.
            while matches!(
                waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT),
                Err(Errno::INTR)
            ) {}
            if let Some(end) = self.end() {
                return end;
            }
        }
    }

    /// Waits for its end, no longer than `limit`.
    pub fn wait_for(&self, limit: Duration) -> Option<RankEnd> {
        let begun = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            let end = self.end();
            if end.is_some() || begun.elapsed() >= limit {
                return end;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Sends a signal to the process alone; none if it has ended.
    ///
    /// # Errors
    /// That of the system.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match &*self.state.lock() {
            State::Child(_) => Ok(kill_process(self.pid, signal)?),
            State::Ended(_) => Ok(()),
        }
    }

    /// Sends a signal to all processes of its group; none if its end was reported.
    pub fn signal_group(&self, signal: Signal) {
        if matches!(*self.state.lock(), State::Child(_)) {
            let _ = kill_process_group(self.pid, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn shell(script: &str) -> GroupLeader {
        GroupLeader::start(Command::new("sh").args(["-c", script])).unwrap().0
    }

    #[test]
    fn the_end_is_reported_to_all_that_ask() {
        let leader = Arc::new(shell("exit 7"));
        let waiting = Arc::clone(&leader);
        let thread = std::thread::spawn(move || waiting.wait());
        assert_eq!(leader.wait_for(Duration::from_secs(60)), Some(RankEnd::Code(7)));
        assert_eq!(thread.join().unwrap(), RankEnd::Code(7));
        assert_eq!(leader.end(), Some(RankEnd::Code(7)));
        // Nothing is sent to another process with its number.
        leader.signal(Signal::KILL).unwrap();
        leader.signal_group(Signal::KILL);
    }

    #[test]
    fn a_process_that_runs_on_is_waited_for_no_longer_than_requested() {
        let leader = shell("exec sleep 600");
        assert_eq!(leader.wait_for(Duration::from_millis(1)), None);
        leader.signal(Signal::KILL).unwrap();
        assert_eq!(leader.wait(), RankEnd::Signal(9));
    }
}
