//! Commands of the user and of the site: `before:`, `after:` and the health test. On virtual nodes they run on this
//! machine and learn the node's name from the environment.

use std::fmt;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_model::NodeName;
use holdfast_wire::environment;

use crate::allocation::Allocation;
use crate::events::LogEvent;
use crate::fleet::fan_out;
use crate::host::program;
use crate::spec::{CommandNodes, SiteCommand};

/// Kept of what a failing command prints.
const KEPT_BYTES: u64 = 4 << 10;
/// A health test that takes longer has failed.
const TEST_WITHIN: Duration = Duration::from_secs(60);
/// How often a running command's thread looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// Where and for which job a command runs.
#[derive(Clone)]
pub struct CommandContext {
    /// The job id.
    pub job_id: String,
    /// The prefix directory.
    pub prefix: PathBuf,
    /// The working directory.
    pub directory: PathBuf,
    /// Knows the way to the nodes.
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

/// Runs one command on one node: what went wrong, if anything.
async fn run_on(
    node: NodeName,
    command: Vec<String>,
    context: CommandContext,
    within: Option<Duration>,
) -> Result<(), String> {
    let ended = Ended::default();
    // Dropped with this future: whoever gives up waiting ends the command too.
    let _guard = ended.clone().on_drop();
    let running = tokio::task::spawn_blocking(move || run_here(&node, &command, &context, within, &ended));
    running.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// The command itself, on a thread that may block.
fn run_here(
    node: &NodeName,
    command: &[String],
    context: &CommandContext,
    within: Option<Duration>,
    ended: &Ended,
) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    if command.is_empty() {
        return Ok(());
    }
    let words: Vec<String> = context.allocation.command_prefix(node).into_iter().chain(command.to_vec()).collect();
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let program = program::find(program, &context.directory, std::env::var_os("PATH").as_deref())
        .map_err(|error| error.to_string())?;
    // A file, not a pipe: a command that prints without end costs disk, not memory, and its children keep nobody waiting.
    let mut errors = tempfile::tempfile().map_err(text)?;
    let handle = duct::cmd(program, arguments)
        .dir(&context.directory)
        .env(environment::JOB, &context.job_id)
        .env(environment::NODE, node.as_str())
        .env("HOLDFAST_PREFIX", &context.prefix)
        .stdin_null()
        .stdout_null()
        .stderr_file(errors.try_clone().map_err(text)?)
        .unchecked()
        .start()
        .map_err(|error| format!("it cannot be started: {error}"))?;
    let deadline = within.map(|within| Instant::now() + within);
    let status = loop {
        if let Some(output) = handle.wait_timeout(LOOK).map_err(text)? {
            break output.status;
        }
        if ended.is_set() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            handle.kill().map_err(text)?;
            return Err(format!("it did not end within {} s", within.unwrap_or_default().as_secs()));
        }
    };
    if status.success() {
        return Ok(());
    }
    let size = errors.seek(SeekFrom::End(0)).map_err(text)?;
    errors.seek(SeekFrom::Start(size.saturating_sub(KEPT_BYTES))).map_err(text)?;
    let mut last = Vec::new();
    errors.read_to_end(&mut last).map_err(text)?;
    Err(format!("{status}: {}", String::from_utf8_lossy(&last).lines().last().unwrap_or_default()))
}

/// Tells a command's thread that nobody waits for it any more.
#[derive(Clone, Debug, Default)]
struct Ended(Arc<AtomicBool>);

impl Ended {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn on_drop(self) -> EndedOnDrop {
        EndedOnDrop(self)
    }
}

struct EndedOnDrop(Ended);

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Runs commands one after the other; an error of one ends the list. Each is told as an event.
///
/// # Errors
/// Which command failed, where, and how.
pub async fn run_all(
    commands: &[SiteCommand],
    nodes: &[NodeName],
    context: &CommandContext,
    mut tell: impl FnMut(LogEvent),
) -> Result<(), String> {
    for command in commands {
        let on: Vec<NodeName> = match command.on {
            CommandNodes::First => nodes.iter().take(1).cloned().collect(),
            CommandNodes::All => nodes.to_vec(),
        };
        let failures = test(&command.command, on.clone(), context, None).await;
        let failure = failures.into_iter().next().map(|(node, reason)| format!("{node}: {reason}"));
        let program = command.command.first().cloned().unwrap_or_default();
        tell(LogEvent::SiteCommand { program: program.clone(), nodes: on, failure: failure.clone() });
        if let Some(failure) = failure {
            return Err(format!("{program} failed on {failure}"));
        }
    }
    Ok(())
}

/// Runs a command on nodes at the same time: those on which it failed.
async fn test(
    command: &[String],
    nodes: Vec<NodeName>,
    context: &CommandContext,
    within: Option<Duration>,
) -> Vec<(NodeName, String)> {
    let (command, context) = (command.to_vec(), context.clone());
    let results = fan_out(nodes, move |node| {
        let (command, context) = (command.clone(), context.clone());
        async move {
            let outcome = run_on(node.clone(), command, context, within).await;
            outcome.err().map(|reason| (node, reason))
        }
    });
    results.await.into_iter().flatten().collect()
}

/// Runs the site's health test: nodes that fail it, with the reason.
pub async fn health(command: &[String], nodes: Vec<NodeName>, context: &CommandContext) -> Vec<(NodeName, String)> {
    test(command, nodes, context, Some(TEST_WITHIN)).await
}

/// The directory that relative paths of a spec are seen from.
pub fn working_directory(of_run: Option<&Path>) -> std::io::Result<PathBuf> {
    let here = std::env::current_dir()?;
    Ok(of_run.map_or_else(|| here.clone(), |directory| here.join(directory)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::local::Local;

    fn context() -> CommandContext {
        let roots = std::env::temp_dir();
        let allocation = Local::over_roots("17".into(), "user1".into(), Vec::new(), roots.clone(), roots).unwrap();
        let allocation = Arc::new(allocation);
        CommandContext { job_id: "17".to_owned(), prefix: "/".into(), directory: "/".into(), allocation }
    }

    #[tokio::test]
    async fn a_health_test_fails_the_nodes_on_which_it_fails() {
        let command = ["/bin/sh", "-c", "test $HOLDFAST_NODE = node0 || { echo broken >&2; exit 3; }"];
        let command: Vec<String> = command.map(str::to_owned).to_vec();
        let failed = health(&command, vec!["node0".into(), "node1".into()], &context()).await;
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].0, "node1".into());
        assert!(failed[0].1.contains("broken"), "{}", failed[0].1);
    }

    #[tokio::test]
    async fn the_first_command_that_fails_ends_the_list() {
        let command = |program: &str| SiteCommand { command: vec![program.to_owned()], on: CommandNodes::First };
        let commands = [command("true"), command("false"), command("true")];
        let mut told = Vec::new();
        let outcome = run_all(&commands, &["node0".into()], &context(), |entry| told.push(entry)).await;
        assert!(outcome.unwrap_err().starts_with("false failed on node0"));
        assert_eq!(told.len(), 2);
    }
}
