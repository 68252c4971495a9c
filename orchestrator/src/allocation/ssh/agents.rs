//! Operations on a host over a connection: survey, start and end of an agent, running a command, following ranks. Each
//! blocks, and opens its own connection.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use holdfast_model::Timestamp;
use holdfast_wire::run::{AgentReady, AgentStart};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::connection::{Command, Connection};
use super::error::SshError;
use super::on_node::{HostFacts, NodeCommand, SurveyRequest};
use super::survey_answer::SurveyAnswer;
use super::target::Target;
use crate::exit;

/// Time limit for an answer, also from a busy machine or a slow file system.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Longer lines are not messages.
const LONGEST_LINE: u64 = 1 << 20;
/// Maximum number of lines that the user's shell or the site may print before a message.
const FOREIGN_LINES: usize = 1000;

pub(super) fn survey_host(target: &Target, request: &SurveyRequest) -> Result<SurveyAnswer, SshError> {
    let connection = Connection::open(target)?;
    connection.set_timeout(Some(ANSWER_WITHIN));
    let mut command = connection.start(&["node", "survey"], &line(target, request)?)?;
    let facts = match answer::<HostFacts>(target, &mut command, |_| ()) {
        Err(error) => return Err(version_instead(target, &connection, error)),
        Ok(facts) => facts,
    };
    Ok(SurveyAnswer { facts, address: connection.address, at: Timestamp::from(SystemTime::now()) })
}

/// A program that does not support the request may be another version of Holdfast.
fn version_instead(target: &Target, connection: &Connection, error: SshError) -> SshError {
    if !matches!(error, SshError::UnexpectedAnswer { .. }) {
        return error;
    }
    let version = connection.start(&["--version"], b"").ok().and_then(|mut command| {
        let line = command.line(LONGEST_LINE).ok().flatten()?;
        String::from_utf8(line).ok()?.strip_prefix("holdfast ").map(|version| version.trim().to_owned())
    });
    match version {
        Some(found) if found != env!("CARGO_PKG_VERSION") => SshError::Version {
            host: target.host.name.clone(),
            program: target.program.clone(),
            found,
            ours: env!("CARGO_PKG_VERSION").to_owned(),
        },
        _ => error,
    }
}

/// Starts the agent of a host in its own session, so that it survives the connection and this process. After a
/// cancellation, no agent is left.
pub(super) fn start(
    target: &Target,
    mut start: AgentStart,
    log: &Path,
    cancelled: &CancellationToken,
) -> Result<AgentReady, SshError> {
    let connection = Connection::open(target)?;
    let abandoned = || target.io("start an agent", &io::Error::other("the start was cancelled"));
    if cancelled.is_cancelled() {
        return Err(abandoned());
    }
    // Other hosts reach it at the same address.
    start.listen = SocketAddr::new(connection.address, 0);
    connection.set_timeout(Some(ANSWER_WITHIN));
    let log = log.to_string_lossy();
    let mut command = connection.start(&["node", "agent", &log], &line(target, &start)?)?;
    let ready: AgentReady = answer(target, &mut command, |line| foreign_line(target, line))?;
    if !cancelled.is_cancelled() {
        return Ok(ready);
    }
    end(target, ready.pid, Duration::ZERO)?;
    Err(abandoned())
}

/// Kills a process on a host if it is an agent and still runs after `patience`.
pub(super) fn end(target: &Target, pid: u32, patience: Duration) -> Result<(), SshError> {
    let connection = Connection::open(target)?;
    connection.set_timeout(Some(ANSWER_WITHIN));
    let (pid, patience) = (pid.to_string(), patience.as_millis().to_string());
    let mut command = connection.start(&["node", "end", &pid, &patience], b"")?;
    let ended = command.end().map_err(|error| target.io("end an agent", &error))?;
    if ended.code == Some(0) { Ok(()) } else { Err(command.error_for(&ended, "could not end the agent")) }
}

/// Runs a command on a host and prints its output here. Returns its exit code, in the convention of shells.
pub fn run_command(target: &Target, what: &NodeCommand) -> Result<u8, SshError> {
    let connection = Connection::open(target)?;
    // The caller has a time limit.
    connection.set_timeout(None);
    let mut command = connection.start(&["node", "run"], &line(target, what)?)?;
    let broken = |error: &io::Error| target.io("run a command", error);
    loop {
        match command.line(LONGEST_LINE) {
            Ok(Some(mut line)) => {
                line.push(b'\n');
                // A closed standard output does not end the command.
                let _ = io::stdout().write_all(&line);
            }
            Ok(None) => break,
            Err(error) => return Err(broken(&error)),
        }
    }
    let ended = command.end().map_err(|error| broken(&error))?;
    match ended.code {
        Some(code @ (126 | 127)) if ended.errors.contains(&target.program) => {
            Err(command.error_for(&super::connection::CommandEnd { code: Some(code), ..ended }, "cannot be run"))
        }
        Some(code) => {
            let _ = writeln!(io::stderr(), "{}", ended.errors);
            Ok(u8::try_from(code).unwrap_or(exit::INTERNAL))
        }
        None => Err(command.error_for(&ended, "was killed by a signal")),
    }
}

/// Sends a message to `holdfast node VERB` on a host, and passes its messages to `receive`, each with the bytes that
/// follow it (`bytes_behind`), until `receive` returns false.
///
/// # Errors
/// The host cannot be reached, or the connection was lost before.
pub fn follow<T: DeserializeOwned>(
    target: &Target,
    verb: &str,
    message: &impl Serialize,
    bytes_behind: impl Fn(&T) -> usize,
    mut receive: impl FnMut(T, Vec<u8>) -> bool,
) -> Result<(), SshError> {
    let connection = Connection::open(target)?;
    let mut command = connection.start(&["node", verb], &line(target, message)?)?;
    // Ranks may run for hours without a message.
    connection.set_timeout(None);
    let broken = |error: &io::Error| target.io("follow the ranks", error);
    loop {
        let Some(line) = command.line(LONGEST_LINE).map_err(|error| broken(&error))? else {
            let ended = command.end().map_err(|error| broken(&error))?;
            return Err(command.error_for(&ended, "ended unexpectedly"));
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

/// Logs a line that is not a message, printed by the user's shell or the site.
fn foreign_line(target: &Target, line: &[u8]) {
    tracing::info!(host = target.host.name, line = %String::from_utf8_lossy(line), "foreign_line");
}

/// One JSON line.
fn line(target: &Target, message: &impl Serialize) -> Result<Vec<u8>, SshError> {
    let mut line = serde_json::to_vec(message).map_err(|error| target.io("write a message", &error.into()))?;
    line.push(b'\n');
    Ok(line)
}

/// The first line that is an answer; earlier lines go to `foreign`.
fn answer<T: DeserializeOwned>(target: &Target, command: &mut Command, foreign: impl Fn(&[u8])) -> Result<T, SshError> {
    for _ in 0..FOREIGN_LINES {
        let line = command.line(LONGEST_LINE).map_err(|error| target.io("read the answer", &error))?;
        let Some(line) = line else { break };
        match serde_json::from_slice(&line) {
            Ok(answer) => return Ok(answer),
            Err(_) => foreign(&line),
        }
    }
    let ended = command.end().map_err(|error| target.io("read the answer", &error))?;
    Err(command.error_for(&ended, "ended without an answer"))
}
