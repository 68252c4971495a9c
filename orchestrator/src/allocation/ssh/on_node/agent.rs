//! Starting and ending the agent of this machine.
//!
//! The agent is a child in a session of its own: the end of the connection, with all that sshd ends then, does not reach
//! it. Its report that it is up is handed on, and that is the end of this process.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Duration;

use holdfast_wire::run::AgentStart;
use tokio::process::Command;

use super::{NodeError, message};
use crate::allocation::agents::handshake::{self, StartLog};
use crate::host::{process, program};

/// How long an agent may take to come up; a busy machine is slow, a broken one never answers.
const READY_WITHIN: Duration = Duration::from_secs(25);
/// How long a killed process may take to disappear.
const KILLED: Duration = Duration::from_secs(5);

/// Starts an agent whose log goes to `log`, and hands on that it is up.
///
/// # Errors
/// [`NodeError`].
pub fn start(input: &mut impl BufRead, mut output: impl Write, log: &Path) -> Result<(), NodeError> {
    let start: AgentStart = message(input)?;
    let program = program::ourselves()?;
    let log = StartLog::new(log.to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(NodeError::io("wait for", "the agent"))?;
    let started = runtime.block_on(async {
        // It stays long after whoever may want to unmount the user's home.
        let mut command = Command::new(program);
        command.args(["agent", "--own-session"]).current_dir("/");
        handshake::start(&mut command, &start, &log, READY_WITHIN, |_| ()).await
    });
    let ready = started.map_err(|problem| NodeError::Agent {
        problem: Box::new(problem),
        log_line: log.last_line(),
        log: log.path().display().to_string(),
    })?;
    let mut line = serde_json::to_vec(&ready).map_err(|error| NodeError::Message(error.into()))?;
    line.push(b'\n');
    let written = output.write_all(&line).and_then(|()| output.flush());
    if written.is_err() {
        // The connection is gone: nobody would know of the agent.
        process::kill_agent(ready.pid, KILLED);
    }
    written.map_err(NodeError::io("write to", "standard output"))
}

/// Ends the process if it is an agent, and still there after `patience`; another process of its number is left alone. False if
/// it does not end.
pub fn end(pid: u32, patience: Duration) -> bool {
    !process::runs_as(pid, "agent") || process::wait_for_end(pid, patience) || process::kill_agent(pid, KILLED)
}
