//! Runs a command on this machine. Its exit code is that of this process.
//!
//! Besides `holdfast reach` over ssh, `holdfast run` starts this on its own machine for every command of `before:`,
//! `after:` and the health test: the command ends with the process that started it, however that ends. SIGTERM has the
//! same effect as the end of standard input.

use std::io::BufRead;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{NodeCommand, NodeError, message, when_connection_ends};
use crate::host::program;
use holdfast_rank::descendants;

/// Between SIGTERM and SIGKILL for the processes of a command that is ended.
pub const TERMINATED_WITHIN: Duration = Duration::from_secs(5);
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Runs the command to its end. Processes that it leaves behind are killed then.
pub fn run(input: &mut impl BufRead) -> Result<u8, NodeError> {
    let command: NodeCommand = message(input)?;
    let Some((name, arguments)) = command.words.split_first() else { return Ok(0) };
    let path = command.environment.get("PATH").map(Into::into).or_else(|| std::env::var_os("PATH"));
    let found = program::find(name, &command.directory, path.as_deref())?;
    let ending = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ending)).map_err(NodeError::io("handle", "signals"))?;
    }
    descendants::adopt();
    let mut child = Command::new(found)
        .args(arguments)
        .current_dir(&command.directory)
        .envs(&command.environment)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(NodeError::io("run", name.clone()))?;
    let connection = Arc::clone(&ending);
    when_connection_ends(move || connection.store(true, Ordering::Relaxed))?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(NodeError::io("wait for", name.clone()))? {
            break status;
        }
        if ending.load(Ordering::Relaxed) {
            // It has not been waited for, so its id has not been reused.
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::TERM);
            }
            descendants::terminate(TERMINATED_WITHIN);
            return Ok(signal_code(SIGTERM));
        }
        std::thread::sleep(CHECK_EVERY);
    };
    descendants::kill();
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.or(status.signal().map(signal_code)).unwrap_or(u8::MAX))
}

/// The exit code for a signal, in the convention of shells.
fn signal_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
