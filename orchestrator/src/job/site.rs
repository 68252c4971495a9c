//! Commands of the user and of the site: `before:`, `after:` and the health test. For virtual nodes they run on this
//! machine, with the node's name in the environment.
//!
//! Each is the child of a `holdfast node run` on this machine, which ends it when this process asks for it or has ended
//! itself, however it ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::owned::OwnedError;
use holdfast_core::state_files;
use holdfast_model::NodeName;
use holdfast_wire::environment;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::command_record::{self, CommandRecord};
use crate::allocation::Allocation;
use crate::allocation::ssh::on_node::{NodeCommand, run::TERMINATED_WITHIN};
use crate::events::{CommandKey, LogEvent};
use crate::fleet::fan_out;
use crate::host::descriptors;
use crate::host::log::end_of;
use crate::host::program::{self, ProgramError};
use crate::spec::{CommandNodes, SiteCommand};

/// The part of a failing command's errors of which the last line is shown.
const SHOWN_BYTES: u64 = 4 << 10;
/// Nodes that run a command at a time.
const COMMANDS_AT_ONCE: usize = 64;
/// How often a running command's thread checks whether the command has ended or was cancelled.
const CHECK_EVERY: Duration = Duration::from_millis(20);
/// The time limit for the end of a command that is ended; then its supervisor is killed.
pub(super) const ENDED_WITHIN: Duration = TERMINATED_WITHIN.saturating_add(Duration::from_secs(2));

/// The job of a command, and the directory in which it runs.
#[derive(Clone)]
pub struct CommandContext {
    pub job_id: String,
    /// The value of `HOLDFAST_PREFIX`.
    pub prefix: PathBuf,
    pub directory: PathBuf,
    /// The program that supervises commands: `holdfast` itself.
    pub supervisor: PathBuf,
    pub allocation: Arc<dyn Allocation>,
    /// Every running command has a clone.
    pub running: mpsc::Sender<()>,
}

impl fmt::Debug for CommandContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CommandContext { job_id, prefix, directory, supervisor, allocation, running: _ } = self;
        let manager = allocation.manager();
        f.debug_struct("CommandContext")
            .field("job_id", job_id)
            .field("prefix", prefix)
            .field("directory", directory)
            .field("supervisor", supervisor)
            .field("manager", &manager)
            .finish_non_exhaustive()
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
    /// Its output cannot be written.
    #[error(transparent)]
    Output(#[from] OwnedError),
    /// An error of the system while it ran.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("it did not end within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The job ended, or the node is down.
    #[error("it was ended")]
    Cancelled,
    #[error("{}{}", describe(*.status), after_colon(.last_line))]
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
#[error(
    "the `{key}` command {program} failed on {first}: {failure}; its output is in {}", output.display()
)]
pub struct FailedCommand {
    pub key: CommandKey,
    pub program: String,
    /// All nodes on which it failed.
    pub nodes: Vec<NodeName>,
    /// The first of them.
    pub first: NodeName,
    /// How it failed there.
    pub failure: CommandFailure,
    /// The directory with the output of the commands.
    pub output: PathBuf,
}

/// How a supervised command ended. Its supervisor reports a signal as shells do.
fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code @ 129..=192), _) => format!("signal {}", code - 128),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("its supervisor was killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

fn after_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Where the output of a command goes.
#[derive(Clone, Debug)]
enum Output {
    /// Only the last errors are kept, for the message.
    Discarded,
    /// Appended to `<path>.out` and `<path>.err`.
    Files(PathBuf),
}

impl Output {
    /// Standard output and standard error.
    fn open(&self) -> Result<(Stdio, File), CommandFailure> {
        match self {
            // A file and not a pipe: a command that prints without end uses disk and not memory, and its children do
            // not delay its end.
            Output::Discarded => Ok((Stdio::null(), tempfile::tempfile()?)),
            Output::Files(path) => {
                let open = |end: &str| state_files::append(&PathBuf::from(format!("{}.{end}", path.display())));
                Ok((open("out")?.into(), open("err")?))
            }
        }
    }
}

/// A command on one node.
#[derive(Clone, Debug)]
struct NodeRun {
    node: NodeName,
    command: Vec<String>,
    within: Option<Duration>,
    output: Output,
    /// On this machine, about the node.
    is_here: bool,
}

impl NodeRun {
    /// Runs it. Dropping the future, or the token, ends its processes.
    async fn run(self, context: CommandContext, cancelled: CancellationToken) -> Result<(), CommandFailure> {
        let cancelled = cancelled.child_token();
        let _guard = cancelled.clone().drop_guard();
        tokio::task::spawn_blocking(move || self.run_here(&context, &cancelled)).await?
    }

    /// On a thread that may block.
    fn run_here(&self, context: &CommandContext, cancelled: &CancellationToken) -> Result<(), CommandFailure> {
        let deadline = self.within.map(|within| (within, Instant::now() + within));
        let check = || match deadline {
            _ if cancelled.is_cancelled() => Err(CommandFailure::Cancelled),
            Some((within, deadline)) if Instant::now() >= deadline => Err(CommandFailure::TimedOut(within)),
            _ => Ok(()),
        };
        let mut words = if self.is_here { Vec::new() } else { context.allocation.command_prefix(&self.node) };
        words.extend(self.command.iter().cloned());
        let Some(first) = words.first_mut() else { return Ok(()) };
        let found = program::find(first, &context.directory, std::env::var_os("PATH").as_deref())?;
        *first = found.to_string_lossy().into_owned();
        let (output, mut errors) = self.output.open()?;
        // Held by all processes of the command: none of an earlier one, whose orchestrator was killed, still runs.
        while let Err(errno) = flock(&errors, FlockOperation::NonBlockingLockExclusive) {
            match errno {
                Errno::WOULDBLOCK => check()?,
                Errno::NOSYS | Errno::OPNOTSUPP => break,
                errno => return Err(io::Error::from(errno).into()),
            }
            std::thread::sleep(CHECK_EVERY);
        }
        let begin = errors.seek(SeekFrom::End(0))?;
        let mut supervisor = Supervisor::start(words, context, &self.node, output, errors.try_clone()?)?;
        let status = loop {
            if let Some(status) = supervisor.0.try_wait()? {
                break status;
            }
            check().inspect_err(|_| supervisor.end())?;
            std::thread::sleep(CHECK_EVERY);
        };
        if status.success() {
            Ok(())
        } else {
            let written = end_of(errors, begin, SHOWN_BYTES)?;
            let last_line = written.lines().last().unwrap_or_default().to_owned();
            Err(CommandFailure::Status { status, last_line })
        }
    }
}

/// The process that supervises a command. It ends the command when its standard input ends.
struct Supervisor(Child);

impl Supervisor {
    fn start(
        words: Vec<String>,
        context: &CommandContext,
        node: &NodeName,
        output: Stdio,
        errors: File,
    ) -> Result<Self, CommandFailure> {
        let variables = [
            (environment::JOB, context.job_id.clone()),
            (environment::NODE, node.to_string()),
            ("HOLDFAST_PREFIX", context.prefix.to_string_lossy().into_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        // The command inherits them too: `holdfast reach` passes them on.
        let environment: BTreeMap<String, String> = variables.into();
        let request = NodeCommand { words, directory: context.directory.clone(), environment };
        let mut line = serde_json::to_vec(&request).map_err(|error| CommandFailure::Start(error.into()))?;
        line.push(b'\n');
        let mut child = Command::new(&context.supervisor)
            .args(["node", "run"])
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            // Ctrl-C on the terminal is for this process, which ends the command.
            .process_group(0)
            .spawn()
            .map_err(CommandFailure::Start)?;
        descriptors::restore_limit(child.id());
        // A supervisor that has ended already reports why by its exit code.
        let _ = child.stdin.as_mut().map(|input| input.write_all(&line));
        Ok(Supervisor(child))
    }

    /// Has the command ended, and waits for that.
    fn end(&mut self) {
        drop(self.0.stdin.take());
        let begun = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) {
            if begun.elapsed() >= ENDED_WITHIN {
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            std::thread::sleep(CHECK_EVERY);
        }
    }
}

/// Cancels commands: all of them, or those on one node.
#[derive(Clone, Debug)]
pub(super) struct CommandCancellation {
    all: CancellationToken,
    nodes: Arc<BTreeMap<NodeName, CancellationToken>>,
}

impl CommandCancellation {
    pub(super) fn new(nodes: &[NodeName]) -> Self {
        let all = CancellationToken::new();
        let nodes = nodes.iter().map(|node| (node.clone(), all.child_token())).collect();
        CommandCancellation { all, nodes: Arc::new(nodes) }
    }

    pub(super) fn cancel(&self) {
        self.all.cancel();
    }

    pub(super) fn cancel_on(&self, node: &NodeName) {
        if let Some(token) = self.nodes.get(node) {
            token.cancel();
        }
    }

    fn of(&self, node: &NodeName) -> CancellationToken {
        self.nodes.get(node).unwrap_or(&self.all).clone()
    }
}

/// The commands of one key of the spec, and where they run.
pub(super) struct SiteCommands {
    pub(super) key: CommandKey,
    pub(super) commands: Vec<SiteCommand>,
    /// Healthy nodes.
    pub(super) nodes: Vec<NodeName>,
    pub(super) context: CommandContext,
    pub(super) cancellation: CommandCancellation,
}

impl SiteCommands {
    /// Runs the commands that did not succeed earlier in this allocation one after the other, until one fails. Each is
    /// reported as events.
    ///
    /// # Errors
    /// Which command failed, where, and how.
    pub(super) async fn run(&self, mut emit: impl FnMut(LogEvent)) -> Result<(), FailedCommand> {
        let SiteCommands { key, commands, nodes, context, cancellation } = self;
        let (key, prefix, allocation) = (*key, context.prefix.clone(), context.allocation.allocation_id());
        let output = command_record::output_directory(&prefix, &allocation);
        let mut record = read_record(prefix.clone(), allocation, output.clone()).await;
        for (number, command) in commands.iter().enumerate() {
            let done = record.as_ref().map(|record| record.done(key, number, command)).unwrap_or_default();
            let on: Vec<NodeName> = match command.on {
                CommandNodes::First if done.is_empty() => nodes.iter().take(1).cloned().collect(),
                CommandNodes::First => Vec::new(),
                CommandNodes::All => nodes.iter().filter(|node| !done.contains(*node)).cloned().collect(),
            };
            if on.is_empty() {
                continue;
            }
            let program = command.command.first().cloned().unwrap_or_default();
            emit(LogEvent::SiteCommandStarted { key, program: program.clone(), nodes: on.clone() });
            let failed = if let Err(error) = &record {
                // Without a place for its output it is not run.
                let failure = CommandFailure::Io(io::Error::other(error.clone()));
                on.first().map(|node| (node.clone(), failure)).into_iter().collect()
            } else {
                let run = |node: NodeName| {
                    let output = Output::Files(output.join(format!("{key}.{}.{node}", number + 1)));
                    (
                        NodeRun {
                            node: node.clone(),
                            command: command.command.clone(),
                            within: command.time_limit,
                            output,
                            is_here: false,
                        },
                        cancellation.of(&node),
                    )
                };
                on_nodes(on.iter().cloned().map(run).collect(), context).await
            };
            if let Ok(record) = &mut record {
                let failed: BTreeSet<&NodeName> = failed.iter().map(|(node, _)| node).collect();
                record.add(key, number, command, on.iter().filter(|node| !failed.contains(node)).cloned().collect());
                write_record(record.clone(), prefix.clone()).await;
            }
            let failure = failed.first().map(|(node, failure)| format!("{node}: {failure}"));
            let kept = Some(output.clone());
            emit(LogEvent::SiteCommand { key: Some(key), program: program.clone(), nodes: on, failure, output: kept });
            let nodes = failed.iter().map(|(node, _)| node.clone()).collect();
            if let Some((first, failure)) = failed.into_iter().next() {
                return Err(FailedCommand { key, program, nodes, first, failure, output });
            }
        }
        Ok(())
    }
}

/// Reads the record of the allocation, and makes the directory for the output.
async fn read_record(prefix: PathBuf, allocation: String, output: PathBuf) -> Result<CommandRecord, String> {
    let read = tokio::task::spawn_blocking(move || {
        state_files::create_directory(&output)?;
        Ok(CommandRecord::read(&prefix, &allocation))
    });
    match read.await {
        Ok(read) => read.map_err(|error: OwnedError| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

async fn write_record(record: CommandRecord, prefix: PathBuf) {
    let written = tokio::task::spawn_blocking(move || record.write(&prefix));
    if let Ok(Err(error)) = written.await {
        tracing::warn!(%error, "a command that succeeded cannot be recorded; another run here repeats it");
    }
}

/// Runs commands on nodes at the same time. Returns those on which they failed.
async fn on_nodes(
    runs: Vec<(NodeRun, CancellationToken)>,
    context: &CommandContext,
) -> Vec<(NodeName, CommandFailure)> {
    let results = fan_out(runs, COMMANDS_AT_ONCE, |(run, cancelled)| async move {
        let node = run.node.clone();
        Some((node, run.run(context.clone(), cancelled).await.err()?))
    });
    results.await.into_iter().flatten().collect()
}

/// Runs the site's health test. Returns the nodes that fail it or do not finish it within the limit, with the reason.
pub async fn health(
    command: &[String],
    nodes: Vec<NodeName>,
    within: Duration,
    context: &CommandContext,
) -> Vec<(NodeName, CommandFailure)> {
    let run = |node| {
        let (command, within) = (command.to_vec(), Some(within));
        (NodeRun { node, command, within, output: Output::Discarded, is_here: false }, CancellationToken::new())
    };
    on_nodes(nodes.into_iter().map(run).collect(), context).await
}

/// Runs a command about a node on this machine. Dropping the future ends its processes.
///
/// # Errors
/// How it failed.
pub async fn about_node(
    command: Vec<String>,
    node: NodeName,
    within: Duration,
    context: CommandContext,
) -> Result<(), CommandFailure> {
    let run = NodeRun { node, command, within: Some(within), output: Output::Discarded, is_here: true };
    run.run(context, CancellationToken::new()).await
}

/// The directory that relative paths of a spec refer to.
pub fn working_directory(of_run: Option<&Path>) -> std::io::Result<PathBuf> {
    let here = std::env::current_dir()?;
    Ok(of_run.map_or_else(|| here.clone(), |directory| here.join(directory)))
}
