//! What is done on a host over a connection: asking what it is, starting and ending an agent, running a command, following
//! what runs there. Each blocks, and opens a connection of its own.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use holdfast_model::Timestamp;
use holdfast_wire::run::{AgentReady, AgentStart};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::Target;
use super::connection::{Command, Connection};
use super::error::SshError;
use super::on_node::{HostFacts, NodeCommand, SurveyRequest};
use super::survey_answer::SurveyAnswer;
use crate::exit;

/// Starting an agent and looking at directories take as long, on a busy machine or a slow file system.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A line that is longer is not ours.
const LONGEST_LINE: u64 = 1 << 20;
/// Lines that the user's shell or the site may print before ours.
const FOREIGN_LINES: usize = 1000;

/// Asks a host what it is.
pub(super) fn survey_host(target: &Target, request: &SurveyRequest) -> Result<SurveyAnswer, SshError> {
    let connection = Connection::open(target)?;
    connection.set_timeout(Some(ANSWER_WITHIN));
    let mut command = connection.start(&["node", "survey"], &line(target, request)?)?;
    let facts = match answer::<HostFacts>(target, &mut command, |_| ()) {
        Err(error) => return Err(version_instead(target, &connection, error)),
        Ok(facts) => facts,
    };
    Ok(SurveyAnswer { facts, address: connection.address(), at: Timestamp::from(SystemTime::now()) })
}

/// A program that does not know the request may be another version of Holdfast.
fn version_instead(target: &Target, connection: &Connection, error: SshError) -> SshError {
    if !matches!(error, SshError::UnexpectedAnswer { .. }) {
        return error;
    }
    let said = connection.start(&["--version"], b"").ok().and_then(|mut command| {
        let line = command.line(LONGEST_LINE).ok().flatten()?;
        String::from_utf8(line).ok()?.strip_prefix("holdfast ").map(|version| version.trim().to_owned())
    });
    match said {
        Some(found) if found != env!("CARGO_PKG_VERSION") => SshError::Version {
            host: target.host.name.clone(),
            program: target.program.clone(),
            found,
            ours: env!("CARGO_PKG_VERSION").to_owned(),
        },
        _ => error,
    }
}

/// Starts the agent of a host: in a session of its own, so that it outlives the connection and us.
/// When the start is cancelled, there is none afterwards.
pub(super) fn start(
    target: &Target,
    mut start: AgentStart,
    log: &Path,
    cancelled: &CancellationToken,
) -> Result<AgentReady, SshError> {
    let connection = Connection::open(target)?;
    let too_late = || target.io("start an agent", &io::Error::other("it is not waited for any more"));
    if cancelled.is_cancelled() {
        return Err(too_late());
    }
    // Where we reach the host, the other hosts do.
    start.listen = SocketAddr::new(connection.address(), 0);
    connection.set_timeout(Some(ANSWER_WITHIN));
    let log = log.to_string_lossy();
    let mut command = connection.start(&["node", "agent", &log], &line(target, &start)?)?;
    let ready: AgentReady = answer(target, &mut command, |line| foreign_line(target, line))?;
    if !cancelled.is_cancelled() {
        return Ok(ready);
    }
    end(target, ready.pid, Duration::ZERO)?;
    Err(too_late())
}

/// Ends a process on a host if it is an agent and still there `patience` after now.
pub(super) fn end(target: &Target, pid: u32, patience: Duration) -> Result<(), SshError> {
    let connection = Connection::open(target)?;
    connection.set_timeout(Some(ANSWER_WITHIN));
    let (pid, patience) = (pid.to_string(), patience.as_millis().to_string());
    let mut command = connection.start(&["node", "end", &pid, &patience], b"")?;
    let ended = command.end().map_err(|error| target.io("end an agent", &error))?;
    if ended.code == Some(0) { Ok(()) } else { Err(command.error_for(&ended, "did not end the agent")) }
}

/// Runs a command on a host, its output here: its exit code, as a shell gives it.
///
/// # Errors
/// [`SshError`].
pub fn run_command(target: &Target, what: &NodeCommand) -> Result<u8, SshError> {
    let connection = Connection::open(target)?;
    // How long it may take, whoever asked knows.
    connection.set_timeout(None);
    let mut command = connection.start(&["node", "run"], &line(target, what)?)?;
    let broken = |error: &io::Error| target.io("run a command", error);
    loop {
        match command.line(LONGEST_LINE) {
            Ok(Some(mut line)) => {
                line.push(b'\n');
                // A reader that has seen enough does not end the command.
                let _ = io::stdout().write_all(&line);
            }
            Ok(None) => break,
            Err(error) => return Err(broken(&error)),
        }
    }
    let ended = command.end().map_err(|error| broken(&error))?;
    match ended.code {
        Some(code @ (126 | 127)) if ended.errors.contains(&target.program) => {
            Err(command.error_for(&super::connection::CommandEnd { code: Some(code), ..ended }, "is not there"))
        }
        Some(code) => {
            let _ = writeln!(io::stderr(), "{}", ended.errors);
            Ok(u8::try_from(code).unwrap_or(exit::INTERNAL))
        }
        None => Err(command.error_for(&ended, "was ended by a signal")),
    }
}

/// Sends a message to `holdfast node VERB` on a host, and hands everything that comes back to `receive`: messages, each with
/// as many bytes that follow it as `bytes_behind` says, until `receive` returns false.
///
/// # Errors
/// The host cannot be reached, or the connection broke before.
pub fn follow<T: DeserializeOwned>(
    target: &Target,
    verb: &str,
    message: &impl Serialize,
    bytes_behind: impl Fn(&T) -> usize,
    mut receive: impl FnMut(T, Vec<u8>) -> bool,
) -> Result<(), SshError> {
    let connection = Connection::open(target)?;
    let mut command = connection.start(&["node", verb], &line(target, message)?)?;
    // Ranks compute for hours without a message.
    connection.set_timeout(None);
    let broken = |error: &io::Error| target.io("follow what runs there", error);
    loop {
        let Some(line) = command.line(LONGEST_LINE).map_err(|error| broken(&error))? else {
            let ended = command.end().map_err(|error| broken(&error))?;
            return Err(command.error_for(&ended, "ended too early"));
        };
        let Ok(message) = serde_json::from_slice::<T>(&line) else {
            foreign_line(target, &line);
            continue;
        };
        let bytes = match bytes_behind(&message) {
            0 => Vec::new(),
            count => command.bytes(count.min(LONGEST_LINE as usize)).map_err(|error| broken(&error))?,
        };
        if !receive(message, bytes) {
            return Ok(());
        }
    }
}

/// The user's shell or the site may print something.
fn foreign_line(target: &Target, line: &[u8]) {
    tracing::info!(host = target.host.name, line = %String::from_utf8_lossy(line), "foreign_line");
}

/// One JSON line.
fn line(target: &Target, message: &impl Serialize) -> Result<Vec<u8>, SshError> {
    let mut line = serde_json::to_vec(message).map_err(|error| target.io("write a message", &error.into()))?;
    line.push(b'\n');
    Ok(line)
}

/// The first line that is an answer; others go to `foreign`.
fn answer<T: DeserializeOwned>(target: &Target, command: &mut Command, foreign: impl Fn(&[u8])) -> Result<T, SshError> {
    for _ in 0..FOREIGN_LINES {
        let line = command.line(LONGEST_LINE).map_err(|error| target.io("hear an answer", &error))?;
        let Some(line) = line else { break };
        match serde_json::from_slice(&line) {
            Ok(answer) => return Ok(answer),
            Err(_) => foreign(&line),
        }
    }
    let ended = command.end().map_err(|error| target.io("hear an answer", &error))?;
    Err(command.error_for(&ended, "ended without an answer"))
}
