//! The processes in which programs and commands are started: `holdfast rank --role …`. The kernel ends what they have
//! started when the rank process is killed.
//!
//! * A program is executed in place of its process, so that it is a child of the rank process: [`execute`].
//! * A command keeps its process, which ends all that the command leaves behind: [`supervise`]. Its standard input is a
//!   socket of the rank process: its end means that the command is to be ended, and the result is written to it.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_model::RankEnd;
use holdfast_process::{GroupLeader, descendants, end};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::program_end::ProgramEnd;
use crate::words::Variables;

/// Exit codes as of a shell.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Killed processes end within this, unless they hang in the kernel.
pub(crate) const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// In the environment of the processes of a command: they are found by it when their supervising process was killed.
const COMMAND_ID: &str = "HOLDFAST_COMMAND_ID";

/// The arguments in front of a program's words; the number is that of the process that starts it.
const ROLE_OF_PROGRAM: [&str; 4] = ["rank", "--role", "program", "--parent"];
const ROLE_OF_COMMAND: [&str; 3] = ["rank", "--role", "command"];

/// The command that starts a program; see [`execute`].
pub(crate) fn program(words: &[String]) -> io::Result<Command> {
    let mut command = own_executable()?;
    command.args(ROLE_OF_PROGRAM).arg(std::process::id().to_string()).arg("--").args(words);
    Ok(command)
}

/// Becomes the program: it is killed when `parent`, which has started this process, ends. Returns the exit code if it
/// cannot be executed.
pub fn execute(parent: u32, words: &[String]) -> u8 {
    let set = set_parent_process_death_signal(Some(Signal::KILL));
    let is_orphan = getppid().is_none_or(|pid| pid.as_raw_nonzero().get().unsigned_abs() != parent);
    if is_orphan {
        return NOT_EXECUTABLE;
    }
    if let Err(error) = set {
        eprintln!("holdfast: the program would survive its rank process: {error}");
    }
    let Some((program, arguments)) = words.split_first() else { return NOT_FOUND };
    let error = Command::new(program).args(arguments).env_remove(holdfast_wire::environment::RANK_SETTINGS).exec();
    eprintln!("holdfast: cannot run {program}: {error}");
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// The executable of rank processes, programs and commands: this one.
fn own_executable() -> io::Result<Command> {
    Ok(Command::new(std::env::current_exe()?))
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CommandReport {
    NotStarted {
        reason: String,
    },
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
        /// The names of the processes that it left behind; they were killed.
        left: Vec<String>,
    },
}

/// Runs a command whose processes all end with it. Returns an exit code, which means nothing.
pub fn supervise(words: &[String]) -> u8 {
    descendants::adopt();
    // The rank process has ended, or the time limit has passed.
    let end_with_rank = || {
        let _ = io::stdin().lock().read(&mut [0]);
        descendants::kill_all(KILLED_WITHIN);
        std::process::exit(1);
    };
    // Without it nothing would end the command.
    let watch = std::thread::Builder::new().name("watch".to_owned()).spawn(end_with_rank);
    let report = match watch.and_then(|_| start(words)) {
        Err(error) => CommandReport::NotStarted { reason: format!("cannot be run: {error}") },
        Ok(mut child) => {
            let end = child.wait().map_or(RankEnd::Unknown, end::of);
            let left = descendants::names();
            descendants::kill_all(KILLED_WITHIN);
            let (code, signal) = match ProgramEnd::of(end) {
                ProgramEnd::Code(code) => (Some(code), None),
                ProgramEnd::Signal(signal) => (None, Some(signal)),
            };
            CommandReport::Ended { code, signal, left }
        }
    };
    // Strings and numbers can always be written as JSON.
    let mut line = serde_json::to_vec(&report).unwrap_or_default();
    line.push(b'\n');
    // Standard input is a socket.
    let _ = rustix::io::write(rustix::stdio::stdin(), &line);
    let _ = io::stdout().flush();
    0
}

fn start(words: &[String]) -> io::Result<Child> {
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::NotFound)?;
    Command::new(program)
        .args(arguments)
        .env_remove(holdfast_wire::environment::RANK_SETTINGS)
        .stdin(Stdio::null())
        .spawn()
}

/// A command under supervision. It is ended with all its processes when this is dropped.
#[derive(Debug)]
pub(crate) struct GuardedCommand {
    process: GroupLeader,
    report: BufReader<UnixStream>,
    line: String,
    /// The value of [`COMMAND_ID`] in the environment of all its processes.
    id: String,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandEnd {
    NotStarted(String),
    Ended(ProgramEnd),
    /// It ended, and left processes of these names behind.
    Left(Vec<String>),
}

impl GuardedCommand {
    /// # Errors
    /// The process that supervises it cannot be started.
    pub(crate) fn start(words: &[String], variables: &Variables) -> io::Result<GuardedCommand> {
        static COMMANDS: AtomicU64 = AtomicU64::new(0);
        let id = format!("{}.{}", std::process::id(), COMMANDS.fetch_add(1, Ordering::Relaxed));
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = own_executable()?;
        command.args(ROLE_OF_COMMAND).arg("--").args(words).envs(variables).env(COMMAND_ID, &id);
        let (process, _) = GroupLeader::start(command.stdin(OwnedFd::from(theirs)))?;
        Ok(GuardedCommand { process, report: BufReader::new(ours), line: String::new(), id })
    }

    /// Waits for its end, no longer than `limit`; `None` if it still runs.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<CommandEnd> {
        let lost = || CommandEnd::NotStarted("its supervising process was killed".to_owned());
        if self.report.get_ref().set_read_timeout(Some(limit.max(Duration::from_millis(1)))).is_err() {
            return Some(lost());
        }
        match self.report.read_line(&mut self.line) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => return None,
            Err(_) => return Some(lost()),
        }
        Some(match serde_json::from_str(&self.line) {
            Ok(CommandReport::NotStarted { reason }) => CommandEnd::NotStarted(reason),
            Ok(CommandReport::Ended { code: Some(0), left, .. }) if !left.is_empty() => CommandEnd::Left(left),
            Ok(CommandReport::Ended { code: Some(code), .. }) => CommandEnd::Ended(ProgramEnd::Code(code)),
            Ok(CommandReport::Ended { signal: Some(signal), .. }) => CommandEnd::Ended(ProgramEnd::Signal(signal)),
            Ok(CommandReport::Ended { .. }) | Err(_) => lost(),
        })
    }
}

impl Drop for GuardedCommand {
    fn drop(&mut self) {
        let _ = self.report.get_ref().shutdown(std::net::Shutdown::Both);
        // With an exit code, it has ended the processes of the command.
        if let Some(RankEnd::Code(_)) = self.process.wait_for(KILLED_WITHIN + Duration::from_secs(1)) {
            return;
        }
        let _ = self.process.signal(Signal::KILL);
        self.process.wait();
        // What is left of the command would write into the directory of the next checkpoint.
        descendants::kill_marked(COMMAND_ID, &self.id, KILLED_WITHIN);
    }
}
