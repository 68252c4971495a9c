//! Runs a command on this machine. Its exit code is that of this process.
//!
//! Besides `holdfast reach` over ssh, `holdfast run` starts this on its own machine for every command of `before:`,
//! `after:` and the health test: the command ends with the process that started it, however that ends. SIGTERM has the
//! same effect as the end of standard input.

use std::io::BufRead;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_model::RankEnd;
use holdfast_process::end::shell_code;
use holdfast_process::{GroupLeader, descendants};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{NodeCommand, NodeError, message, when_connection_ends};
use crate::host::program;

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
    let mut process = Command::new(found);
    process.args(arguments).current_dir(&command.directory).envs(&command.environment).stdin(Stdio::null());
    let (process, _) = GroupLeader::start(&mut process).map_err(NodeError::io("run", name.clone()))?;
    let connection = Arc::clone(&ending);
    when_connection_ends(move || connection.store(true, Ordering::Relaxed))?;
    let end = loop {
        if let Some(end) = process.end() {
            break end;
        }
        if ending.load(Ordering::Relaxed) {
            process.signal_group(Signal::TERM);
            descendants::terminate(TERMINATED_WITHIN);
            return Ok(shell_code(RankEnd::Signal(SIGTERM)));
        }
        std::thread::sleep(CHECK_EVERY);
    };
    descendants::kill();
    Ok(shell_code(end))
}
