//! Commands of the user and of the site: `before:`, `after:` and the health test. For virtual nodes they run on this
//! machine, with the node's name in the environment.

use std::fmt;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_model::NodeName;
use holdfast_wire::environment;
use tokio_util::sync::CancellationToken;

use crate::allocation::Allocation;
use crate::events::{CommandKey, LogEvent};
use crate::fleet::fan_out;
use crate::host::program::{self, ProgramError};
use crate::spec::{CommandNodes, SiteCommand};

/// The part of a failing command's errors that is kept.
const KEPT_BYTES: u64 = 4 << 10;
/// A health test that takes longer has failed.
const TEST_WITHIN: Duration = Duration::from_secs(60);
/// Nodes that run a command at a time.
const COMMANDS_AT_ONCE: usize = 64;
/// How often a running command's thread checks whether the command was cancelled.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The job of a command, and the directory in which it runs.
#[derive(Clone)]
pub struct CommandContext {
    pub job_id: String,
    pub prefix: PathBuf,
    pub directory: PathBuf,
    /// Reaches the nodes.
    pub allocation: Arc<dyn Allocation>,
}

impl fmt::Debug for CommandContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CommandContext { job_id, prefix, directory, allocation } = self;
        let manager = allocation.manager();
        f.debug_struct("CommandContext")
            .field("job_id", job_id)
            .field("prefix", prefix)
            .field("directory", directory)
            .field("manager", &manager)
            .finish()
    }
}

/// Why a command failed on a node.
#[derive(Debug, thiserror::Error)]
pub enum CommandFailure {
    /// There is no such program.
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("it cannot be started: {0}")]
    Start(std::io::Error),
    /// An error of the system while it ran.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("it did not end within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The future that waited for it was dropped.
    #[error("it was ended with the job")]
    Cancelled,
    #[error("{status}: {last_line}")]
    Status {
        status: ExitStatus,
        /// The last line that it printed to its standard error.
        last_line: String,
    },
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}

/// A command of a list failed; those after it were not run.
#[derive(Debug, thiserror::Error)]
#[error("the `{key}` command {program} failed on {node}: {failure}")]
pub struct FailedCommand {
    pub key: CommandKey,
    pub program: String,
    /// The first node on which it failed.
    pub node: NodeName,
    pub failure: CommandFailure,
}

/// Runs one command on one node. Dropping the future ends the command.
async fn run_on(
    node: NodeName,
    command: Vec<String>,
    context: CommandContext,
    within: Option<Duration>,
) -> Result<(), CommandFailure> {
    let cancelled = CancellationToken::new();
    let _guard = cancelled.clone().drop_guard();
    tokio::task::spawn_blocking(move || run_here(&node, &command, &context, within, &cancelled)).await?
}

/// The command itself, on a thread that may block.
fn run_here(
    node: &NodeName,
    command: &[String],
    context: &CommandContext,
    within: Option<Duration>,
    cancelled: &CancellationToken,
) -> Result<(), CommandFailure> {
    if command.is_empty() {
        return Ok(());
    }
    let words: Vec<String> = context.allocation.command_prefix(node).into_iter().chain(command.to_vec()).collect();
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let program = program::find(program, &context.directory, std::env::var_os("PATH").as_deref())?;
    // A file and not a pipe: a command that prints without end uses disk and not memory, and its children do not delay
    // its end.
    let mut errors = tempfile::tempfile()?;
    let handle = duct::cmd(program, arguments)
        .dir(&context.directory)
        .env(environment::JOB, &context.job_id)
        .env(environment::NODE, node.as_str())
        .env("HOLDFAST_PREFIX", &context.prefix)
        .stdin_null()
        .stdout_null()
        .stderr_file(errors.try_clone()?)
        .unchecked()
        .start()
        .map_err(CommandFailure::Start)?;
    let deadline = within.map(|within| (within, Instant::now() + within));
    let status = loop {
        if let Some(output) = handle.wait_timeout(CHECK_EVERY)? {
            break output.status;
        }
        let failure = match deadline {
            _ if cancelled.is_cancelled() => CommandFailure::Cancelled,
            Some((within, deadline)) if Instant::now() >= deadline => CommandFailure::TimedOut(within),
            _ => continue,
        };
        handle.kill()?;
        return Err(failure);
    };
    if status.success() {
        return Ok(());
    }
    let size = errors.seek(SeekFrom::End(0))?;
    errors.seek(SeekFrom::Start(size.saturating_sub(KEPT_BYTES)))?;
    let mut last = Vec::new();
    errors.read_to_end(&mut last)?;
    let last_line = String::from_utf8_lossy(&last).lines().last().unwrap_or_default().to_owned();
    Err(CommandFailure::Status { status, last_line })
}

/// Runs commands one after the other, until one fails. Each is reported as an event.
///
/// # Errors
/// Which command failed, where, and how.
pub async fn run_all(
    key: CommandKey,
    commands: &[SiteCommand],
    nodes: &[NodeName],
    context: &CommandContext,
    mut emit: impl FnMut(LogEvent),
) -> Result<(), FailedCommand> {
    for command in commands {
        let on: Vec<NodeName> = match command.on {
            CommandNodes::First => nodes.iter().take(1).cloned().collect(),
            CommandNodes::All => nodes.to_vec(),
        };
        let first = test(&command.command, on.clone(), context, None).await.into_iter().next();
        let program = command.command.first().cloned().unwrap_or_default();
        let failure = first.as_ref().map(|(node, failure)| format!("{node}: {failure}"));
        emit(LogEvent::SiteCommand { key: Some(key), program: program.clone(), nodes: on, failure });
        if let Some((node, failure)) = first {
            return Err(FailedCommand { key, program, node, failure });
        }
    }
    Ok(())
}

/// Runs a command on nodes at the same time. Returns those on which it failed.
async fn test(
    command: &[String],
    nodes: Vec<NodeName>,
    context: &CommandContext,
    within: Option<Duration>,
) -> Vec<(NodeName, CommandFailure)> {
    let results = fan_out(nodes, COMMANDS_AT_ONCE, |node| async move {
        let outcome = run_on(node.clone(), command.to_vec(), context.clone(), within).await;
        outcome.err().map(|failure| (node, failure))
    });
    results.await.into_iter().flatten().collect()
}

/// Runs the site's health test. Returns the nodes that fail it, with the reason.
pub async fn health(
    command: &[String],
    nodes: Vec<NodeName>,
    context: &CommandContext,
) -> Vec<(NodeName, CommandFailure)> {
    test(command, nodes, context, Some(TEST_WITHIN)).await
}

/// The directory that relative paths of a spec refer to.
pub fn working_directory(of_run: Option<&Path>) -> std::io::Result<PathBuf> {
    let here = std::env::current_dir()?;
    Ok(of_run.map_or_else(|| here.clone(), |directory| here.join(directory)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::local::Local;

    fn context() -> CommandContext {
        let base = tempfile::tempdir().unwrap();
        let (roots, logs) = (base.path().to_owned(), base.path().join("logs"));
        let allocation = Local::over_roots("17".into(), "user1".into(), Vec::new(), roots, logs).unwrap();
        let allocation = Arc::new(allocation);
        CommandContext { job_id: "17".to_owned(), prefix: "/".into(), directory: "/".into(), allocation }
    }

    #[tokio::test]
    async fn a_health_test_returns_the_nodes_on_which_it_fails() {
        let command = ["/bin/sh", "-c", "test $HOLDFAST_NODE = node0 || { echo broken >&2; exit 3; }"];
        let command: Vec<String> = command.map(str::to_owned).to_vec();
        let failed = health(&command, vec!["node0".into(), "node1".into()], &context()).await;
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].0, "node1".into());
        assert!(failed[0].1.to_string().contains("broken"), "{}", failed[0].1);
    }

    #[tokio::test]
    async fn the_first_command_that_fails_ends_the_list() {
        let command = |program: &str| SiteCommand { command: vec![program.to_owned()], on: CommandNodes::First };
        let commands = [command("true"), command("false"), command("true")];
        let mut emitted = Vec::new();
        let outcome =
            run_all(CommandKey::Before, &commands, &["node0".into()], &context(), |event| emitted.push(event)).await;
        assert!(outcome.unwrap_err().to_string().starts_with("the `before` command false failed on node0"));
        assert_eq!(emitted.len(), 2);
    }
}
