//! The program beside a rank process: start, signals, end.

use std::fmt;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use holdfast_client::Interrupter;
use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use crate::guard;
use crate::words::Variables;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    Code(i32),
    Signal(i32),
}

impl ProgramEnd {
    pub const SUCCESS: ProgramEnd = ProgramEnd::Code(0);

    pub(crate) fn of(status: ExitStatus) -> ProgramEnd {
        match (status.code(), status.signal()) {
            (Some(code), _) => ProgramEnd::Code(code),
            (None, signal) => ProgramEnd::Signal(signal.unwrap_or(Signal::KILL.as_raw())),
        }
    }
}

impl fmt::Display for ProgramEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramEnd::Code(code) => write!(f, "exit code {code}"),
            ProgramEnd::Signal(signal) => match signal_hook::low_level::signal_name(*signal) {
                Some(name) => write!(f, "signal {signal} ({name})"),
                None => write!(f, "signal {signal}"),
            },
        }
    }
}

/// A program that was started. It leads a process group of its own, so that a signal to the group of the rank process
/// reaches it once: passed on.
#[derive(Clone, Debug)]
pub struct Program {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pid: Pid,
    end: Mutex<Option<ProgramEnd>>,
    ended: Condvar,
}

impl Program {
    /// Starts a program. Must be called by the main thread: the kernel kills the program when the thread that started
    /// it ends. `interrupter` is used when the program ends.
    ///
    /// # Errors
    /// The process or its thread cannot be started. A program that cannot be executed ends with exit code 126 or 127.
    pub fn start(words: &[String], variables: &Variables, interrupter: Interrupter) -> io::Result<Program> {
        let child = guard::program(words)?.envs(variables).process_group(0).spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
        let shared = Arc::new(Shared { pid, end: Mutex::new(None), ended: Condvar::new() });
        let program = Program { shared: shared.clone() };
        let wait = move || shared.wait_for_end(child, &interrupter);
        std::thread::Builder::new().name("program".to_owned()).spawn(wait).inspect_err(|_| program.kill())?;
        Ok(program)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.shared.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<ProgramEnd> {
        *self.shared.end.lock()
    }

    /// Sends a signal to the program, without the processes that it has started; none if it has ended.
    ///
    /// # Errors
    /// That of the system.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let end = self.shared.end.lock();
        // While the lock is held, the process is not waited for, and its id not used again.
        if end.is_none() { Ok(kill_process(self.shared.pid, signal)?) } else { Ok(()) }
    }

    /// True if the program has a handler for the signal. Blocked signals do not count: shells block all of them while
    /// they wait.
    pub fn handles(&self, signal: Signal) -> bool {
        let process = procfs::process::Process::new(self.shared.pid.as_raw_nonzero().get());
        let status = process.and_then(|process| process.status());
        let bit = u32::try_from(signal.as_raw() - 1).map_or(0, |shift| 1_u64.checked_shl(shift).unwrap_or(0));
        status.is_ok_and(|status| status.sigcgt & bit != 0)
    }

    /// Sends a signal to the program and the processes of its group.
    pub fn signal_group(&self, signal: Signal) {
        let end = self.shared.end.lock();
        if end.is_none() {
            let _ = kill_process_group(self.shared.pid, signal);
        }
    }

    /// Kills the program with the processes of its group, and waits for its end.
    pub fn kill(&self) {
        self.signal_group(Signal::KILL);
        self.wait(Duration::from_secs(5));
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
        let mut end = self.shared.end.lock();
        self.shared.ended.wait_while_for(&mut end, |end| end.is_none(), limit);
        *end
    }
}

impl Shared {
    fn wait_for_end(&self, mut child: Child, interrupter: &Interrupter) {
        let _ = waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let mut end = self.end.lock();
        *end = Some(child.wait().map_or(ProgramEnd::Signal(Signal::KILL.as_raw()), ProgramEnd::of));
        drop(end);
        self.ended.notify_all();
        interrupter.interrupt();
    }
}

/// Ends this process as a program has ended.
pub fn end_as(end: ProgramEnd) -> u8 {
    match end {
        ProgramEnd::Code(code) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        ProgramEnd::Signal(signal) => {
            // The program has written its core, if any.
            let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
            let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            // Signals that do not end a process by default.
            u8::try_from(128 + signal).unwrap_or(u8::MAX)
        }
    }
}

/// The program's own command, for messages.
pub(crate) fn shown(words: &[String]) -> String {
    words.first().cloned().unwrap_or_default()
}

/// The executable of rank processes, programs and commands: this one.
pub(crate) fn own_executable() -> io::Result<Command> {
    Ok(Command::new(std::env::current_exe()?))
}
