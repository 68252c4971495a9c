//! Starts and ends the agent of this machine.
//!
//! The agent runs in its own session, so that it survives the end of the connection. This process passes its report on
//! and ends.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Duration;

use holdfast_wire::run::AgentStart;
use tokio::process::Command;

use super::{NodeError, message};
use crate::allocation::agents::handshake;
use crate::allocation::agents::logs::StartLog;
use crate::host::{process, program};

/// Time limit for the start of an agent, also on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(25);
/// Time limit for the end of a killed process.
const KILLED: Duration = Duration::from_secs(5);

/// Starts an agent whose log goes to `log`, and passes its report on.
pub fn start(input: &mut impl BufRead, mut output: impl Write, log: &Path) -> Result<(), NodeError> {
    let start: AgentStart = message(input)?;
    let program = program::ourselves()?;
    let (log, file) =
        StartLog::open_in_time(log.to_owned()).map_err(NodeError::io("open", log.display().to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(NodeError::io("wait for", "the agent"))?;
    let started = runtime.block_on(async {
        // The agent must not keep the user's home busy.
        let mut command = Command::new(program);
        command.args(["agent", "--own-session"]).current_dir("/");
        handshake::start(&mut command, &start, file, READY_WITHIN, |_| ()).await
    });
    let ready = started.map_err(|problem| NodeError::Agent {
        problem: Box::new(problem),
        log_line: log.last_line(),
        log: log.path.display().to_string(),
    })?;
    let mut line = serde_json::to_vec(&ready).map_err(|error| NodeError::Message(error.into()))?;
    line.push(b'\n');
    let written = output.write_all(&line).and_then(|()| output.flush());
    if written.is_err() {
        // The connection was lost, and the orchestrator does not know the agent.
        process::kill_agent(ready.pid, KILLED);
    }
    written.map_err(NodeError::io("write to", "standard output"))
}

/// Kills the process if it is an agent and still runs after `patience`; any other process with this id is left alone.
/// False if it does not end.
pub fn end(pid: u32, patience: Duration) -> bool {
    !process::runs_as(pid, "agent") || process::wait_for_end(pid, patience) || process::kill_agent(pid, KILLED)
}
