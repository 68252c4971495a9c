//! Starting and ending the agent of this machine.
//!
//! The agent is a child in a session of its own: the end of the connection, with all that sshd ends then, does not reach
//! it. What it says on its standard output is handed on, and that is the end of this process.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::{NodeError, line};
use crate::host::log::last_line;
use crate::host::process;

/// How long an agent may take to say that it is up; a busy machine is slow, a broken one never answers.
const READY_WITHIN: Duration = Duration::from_secs(25);
/// An agent's first line is short; what is longer is not an agent.
const LONGEST_READY_LINE: u64 = 64 << 10;
/// How long a killed process may take to disappear.
const KILLED: Duration = Duration::from_secs(5);

/// Starts an agent whose log goes to `log`, and hands on that it is up.
///
/// # Errors
/// [`NodeError`].
pub fn start(input: &mut impl BufRead, mut output: impl Write, log: &Path) -> Result<(), NodeError> {
    let message = line(input)?;
    let errors = OpenOptions::new().create(true).append(true).mode(0o600).open(log);
    let errors = errors.map_err(NodeError::io("open the agent's log", log.display().to_string()))?;
    let program = std::env::current_exe().map_err(NodeError::io("find", "the holdfast program itself"))?;
    let mut child = Command::new(program)
        .args(["agent", "--own-session"])
        // It stays long after whoever may want to unmount the user's home.
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .map_err(NodeError::io("start", "the agent"))?;
    let heard = hear(&mut child, message);
    let problem = match heard {
        Ok(Some(ready)) => {
            let said = output.write_all(&ready).and_then(|()| output.flush());
            if said.is_err() {
                // Nobody would know of it.
                let _ = child.kill();
            }
            return said.map_err(NodeError::io("write to", "standard output"));
        }
        Ok(None) => match last_line(log, 0, |_| true) {
            Some(last) => format!("ended without saying that it is up: {last}"),
            None => "ended without saying that it is up".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    let _ = child.kill();
    let _ = child.wait();
    Err(NodeError::Agent { problem, log: log.display().to_string() })
}

/// The agent's first line; `None` if it ended without one.
fn hear(child: &mut Child, message: Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("has no standard input or output"));
    };
    let (tell, told) = mpsc::channel();
    std::thread::Builder::new().name("agent".to_owned()).spawn(move || {
        // One that ends at once does not read it all; what it says counts.
        let _ = input.write_all(&message);
        drop(input);
        let mut ready = Vec::new();
        let read = BufReader::new(output.take(LONGEST_READY_LINE)).read_until(b'\n', &mut ready);
        let _ = tell.send(read.map(|_| ready));
    })?;
    match told.recv_timeout(READY_WITHIN) {
        Ok(ready) => Ok(ready.map(Some)?.filter(|ready| ready.ends_with(b"\n"))),
        Err(_) => Err(io::Error::other(format!("did not come up within {} s", READY_WITHIN.as_secs()))),
    }
}

/// Ends the process if it is an agent, and still there after `patience`; a stranger of its number is left alone. False if
/// it does not end.
pub fn end(pid: u32, patience: Duration) -> bool {
    !process::plays(pid, "agent") || process::wait_gone(pid, patience) || process::kill_agent(pid, KILLED)
}
