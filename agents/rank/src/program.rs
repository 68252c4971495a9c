//! The program beside a rank process: start, signals, end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_client::Interrupter;
use holdfast_process::GroupLeader;
use rustix::process::Signal;

use crate::guard;
use crate::program_end::ProgramEnd;
use crate::words::Variables;

/// A program that was started. It leads a process group of its own, so that a signal to the group of the rank process
/// reaches it once: passed on.
#[derive(Clone, Debug)]
pub struct Program {
    process: Arc<GroupLeader>,
}

impl Program {
    /// Starts a program. Must be called by the main thread: the kernel kills the program when the thread that started
    /// it ends. `interrupter` is used when the program ends.
    ///
    /// # Errors
    /// The process or its thread cannot be started. A program that cannot be executed ends with exit code 126 or 127.
    pub fn start(words: &[String], variables: &Variables, interrupter: Interrupter) -> io::Result<Program> {
        let (process, _) = GroupLeader::start(guard::program(words)?.envs(variables))?;
        let program = Program { process: Arc::new(process) };
        let process = Arc::clone(&program.process);
        let wait = move || {
            process.wait();
            interrupter.interrupt();
        };
        std::thread::Builder::new().name("program".to_owned()).spawn(wait).inspect_err(|_| program.kill())?;
        Ok(program)
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<ProgramEnd> {
        self.process.end().map(ProgramEnd::of)
    }

    /// Sends a signal to the program, without the processes that it has started; none if it has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.process.signal(signal)
    }

    /// True if the program has a handler for the signal. Blocked signals do not count: shells block all of them while
    /// they wait.
    pub fn handles(&self, signal: Signal) -> bool {
        let process = procfs::process::Process::new(self.pid().cast_signed());
        let status = process.and_then(|process| process.status());
        let bit = u32::try_from(signal.as_raw() - 1).map_or(0, |shift| 1_u64.checked_shl(shift).unwrap_or(0));
        status.is_ok_and(|status| status.sigcgt & bit != 0)
    }

    /// Sends a signal to the program and the processes of its group.
    pub fn signal_group(&self, signal: Signal) {
        self.process.signal_group(signal);
    }

    /// Kills the program with the processes of its group, and waits for its end.
    pub fn kill(&self) {
        self.signal_group(Signal::KILL);
        self.wait(guard::KILLED_WITHIN);
    }

    /// Ends the program: SIGTERM, and SIGKILL after `grace`.
    pub fn terminate(&self, grace: Duration) {
        self.signal_group(Signal::TERM);
        if self.wait(grace).is_none() {
            self.kill();
        }
    }

    /// Waits for its end, no longer than `limit`.
    pub fn wait(&self, limit: Duration) -> Option<ProgramEnd> {
        self.process.wait_for(limit).map(ProgramEnd::of)
    }
}
