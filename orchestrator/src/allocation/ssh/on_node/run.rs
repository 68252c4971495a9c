//! Runs a command on this machine. Its exit code is that of this process.

use std::io::BufRead;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{NodeCommand, NodeError, message, when_connection_ends};
use crate::host::program;

/// Runs the command to its end.
pub fn run(input: &mut impl BufRead) -> Result<u8, NodeError> {
    let command: NodeCommand = message(input)?;
    let Some((name, arguments)) = command.words.split_first() else { return Ok(0) };
    let path = command.environment.get("PATH").map(Into::into).or_else(|| std::env::var_os("PATH"));
    let found = program::find(name, &command.directory, path.as_deref())?;
    let mut child = Command::new(found)
        .args(arguments)
        .current_dir(&command.directory)
        .envs(&command.environment)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(NodeError::io("run", name.clone()))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    when_connection_ends(move || {
        // This process ends after the child was waited for, so the id has not been reused.
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    })?;
    let status = child.wait().map_err(NodeError::io("wait for", name.clone()))?;
    let signal = status.signal().map(|signal| 128 + signal);
    Ok(status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
