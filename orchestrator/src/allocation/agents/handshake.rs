//! The start handshake of agents, shared by all resource managers.
//!
//! An agent reads its start message ([`AgentStart`]) as one line from standard input, and writes one line to standard
//! output when it is ready ([`AgentReady`]). Other lines are ignored: a site's prologue or the user's shell may print
//! something. The agent must have the same version and be ready within a time limit; otherwise the end of its log
//! explains why.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use holdfast_wire::run::{AgentReady, AgentStart};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

/// Reports are short: longer lines are ignored.
const LONGEST_LINE: usize = 64 << 10;

/// Why an agent is not ready.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error("ended before it was ready")]
    Ended,
    #[error("was not ready within {} s", .0.as_secs())]
    Timeout(Duration),
    /// Another version of Holdfast.
    #[error("has protocol version {found}, and this version of Holdfast has {ours}; install one version on all nodes")]
    Version { found: u32, ours: u32 },
    #[error("could not be started ({0})")]
    Io(#[from] io::Error),
    /// The message of the program that starts agents on nodes.
    #[error("was not started ({0})")]
    Starter(String),
    /// The node is down, or the job is ending.
    #[error("was abandoned: its node is down, or the job is ending")]
    Abandoned,
}

/// Writes the start message. A broken pipe is no error: the agent has ended, which is reported elsewhere.
pub(crate) async fn send(mut input: impl AsyncWrite + Unpin, start: &AgentStart) -> io::Result<()> {
    let mut line = serde_json::to_vec(start)?;
    line.push(b'\n');
    match input.write_all(&line).await {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// The reports of agents that share one standard output.
pub(crate) struct Reports<R> {
    output: BufReader<R>,
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Reports<R> {
    pub(crate) fn new(output: R) -> Self {
        Reports { output: BufReader::new(output), line: Vec::new() }
    }

    /// The report of the next agent that is ready; `None` at the end of the output. Cancel-safe.
    pub(crate) async fn next(&mut self) -> io::Result<Option<AgentReady>> {
        loop {
            let piece = self.output.fill_buf().await?;
            let end = piece.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(piece.len(), |at| at + 1);
            if length == 0 {
                return Ok(None);
            }
            if self.line.len() < LONGEST_LINE {
                self.line.extend_from_slice(&piece[..length]);
            }
            self.output.consume(length);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                match serde_json::from_slice(&line) {
                    Ok(ready) => return Ok(Some(ready)),
                    Err(_) => tracing::info!(line = %String::from_utf8_lossy(&line), "foreign_line"),
                }
            }
        }
    }
}

/// Checks the version of an agent.
///
/// # Errors
/// [`HandshakeError::Version`].
pub(crate) fn check_version(ready: AgentReady) -> Result<AgentReady, HandshakeError> {
    let (found, ours) = (ready.version, holdfast_wire::VERSION);
    if found == ours { Ok(ready) } else { Err(HandshakeError::Version { found, ours }) }
}

/// Starts an agent as a child process and waits until it is ready. `log` becomes its standard error; `started` receives
/// its process id at once, so that the agent can be killed if the job ends in the meantime.
///
/// # Errors
/// [`HandshakeError`]; the child is killed then.
pub(crate) async fn start(
    command: &mut Command,
    message: &AgentStart,
    log: Stdio,
    within: Duration,
    started: impl FnOnce(u32),
) -> Result<AgentReady, HandshakeError> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
    if let Some(pid) = child.id() {
        started(pid);
    }
    let pipes = child.stdin.take().zip(child.stdout.take());
    let handshake = async {
        let (input, output) = pipes.ok_or_else(|| io::Error::other("it has no standard input or output"))?;
        send(input, message).await?;
        check_version(Reports::new(output).next().await?.ok_or(HandshakeError::Ended)?)
    };
    let answer = tokio::time::timeout(within, handshake).await.unwrap_or(Err(HandshakeError::Timeout(within)));
    if answer.is_err() {
        let _ = child.kill().await;
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::agents::logs::StartLog;
    use crate::allocation::agents::template::{AgentSettings, AgentTemplate};

    fn message() -> AgentStart {
        let template = AgentTemplate {
            settings: AgentSettings::of_test_job(),
            trust: holdfast_wire::trust::generate().unwrap(),
            drains_only: false,
        };
        template.for_node(&"n1".into())
    }

    fn report(version: u32) -> String {
        format!(r#"{{"version":{version},"node":"n1","address":"127.0.0.1:7","pid":7,"adopted":null}}"#)
    }

    async fn run(script: &str, within: Duration) -> (Result<AgentReady, HandshakeError>, Option<String>) {
        let base = tempfile::tempdir().unwrap();
        let (log, file) = StartLog::open(base.path().join("log")).unwrap();
        let mut command = Command::new("sh");
        let answer = start(command.args(["-c", script]), &message(), file, within, |pid| assert!(pid > 1)).await;
        (answer, log.last_line())
    }

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn an_agent_that_reads_its_message_and_reports_is_ready_whatever_is_printed_before() {
        let script = format!("grep -q heat && echo Welcome && echo '{}'", report(holdfast_wire::VERSION));
        assert_eq!(run(&script, LONG).await.0.unwrap().pid, 7);
    }

    #[tokio::test]
    async fn refuses_an_agent_of_another_version() {
        let (answer, _) = run(&format!("echo '{}'", report(holdfast_wire::VERSION + 1)), LONG).await;
        assert!(matches!(answer, Err(HandshakeError::Version { .. })), "{answer:?}");
    }

    #[tokio::test]
    async fn an_agent_that_ends_is_explained_by_its_log() {
        let (answer, last_line) = run("echo no directory >&2; exit 69", LONG).await;
        assert!(matches!(answer, Err(HandshakeError::Ended)), "{answer:?}");
        assert_eq!(last_line.as_deref(), Some("no directory"));
    }

    #[tokio::test]
    async fn an_agent_that_never_reports_has_a_time_limit() {
        let (answer, _) = run("sleep 600", Duration::from_millis(300)).await;
        assert!(matches!(answer, Err(HandshakeError::Timeout(_))), "{answer:?}");
    }

    #[tokio::test]
    async fn a_report_is_read_completely_after_an_interruption() {
        let (mut writer, reader) = tokio::io::duplex(64);
        let mut reports = Reports::new(reader);
        let line = report(1);
        writer.write_all(&line.as_bytes()[..20]).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(50), reports.next()).await.is_err());
        let rest = format!("{}\n", &line[20..]);
        let (written, read) = tokio::join!(writer.write_all(rest.as_bytes()), reports.next());
        written.unwrap();
        assert_eq!(read.unwrap().unwrap().pid, 7);
    }
}
