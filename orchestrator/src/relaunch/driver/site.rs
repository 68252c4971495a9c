//! Commands of the user and of the site: `before:`, `after:` and the health test. On virtual nodes they run on this
//! machine and learn the node's name from the environment.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::ids::NodeName;
use holdfast_wire::environment;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::allocation::Allocation;
use crate::events::{Entry, OwnEvent};
use crate::fleet::fan_out;
use crate::launch::program;
use crate::spec::{CommandNodes, SiteCommand};

/// Kept of what a failing command prints.
const KEPT_BYTES: u64 = 4 << 10;
/// A health test that takes longer has failed.
const TEST_WITHIN: Duration = Duration::from_secs(60);

/// Where and for which job a command runs.
#[derive(Clone)]
pub struct Surroundings {
    /// The job id.
    pub job_id: String,
    /// The prefix directory.
    pub prefix: PathBuf,
    /// The working directory.
    pub directory: PathBuf,
    /// Knows the way to the nodes.
    pub allocation: Arc<dyn Allocation>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Surroundings { job_id, prefix, directory, allocation } = self;
        let manager = allocation.manager();
        f.debug_struct("Surroundings")
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
    surroundings: Surroundings,
    within: Option<Duration>,
) -> Result<(), String> {
    if command.is_empty() {
        return Ok(());
    }
    let words: Vec<String> = surroundings.allocation.reach(&node).into_iter().chain(command).collect();
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let program = program::find(program, &surroundings.directory, std::env::var_os("PATH").as_deref())
        .map_err(|error| error.to_string())?;
    let run = async {
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(&surroundings.directory)
            .env(environment::JOB, &surroundings.job_id)
            .env(environment::NODE, node.as_str())
            .env("HOLDFAST_PREFIX", &surroundings.prefix)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("it cannot be started: {error}"))?;
        let mut text = Vec::new();
        if let Some(mut errors) = child.stderr.take() {
            // The rest is read too, or the command would wait for a reader.
            let _ = (&mut errors).take(KEPT_BYTES).read_to_end(&mut text).await;
            let _ = tokio::io::copy(&mut errors, &mut tokio::io::sink()).await;
        }
        let status = child.wait().await.map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&text);
        Err(format!("{status}: {}", text.lines().last().unwrap_or_default()))
    };
    match within {
        None => run.await,
        Some(within) => match tokio::time::timeout(within, run).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("it did not end within {} s", within.as_secs())),
        },
    }
}

/// Runs commands one after the other; an error of one ends the list. Each is told as an event.
///
/// # Errors
/// Which command failed, where, and how.
pub async fn run_all(
    commands: &[SiteCommand],
    nodes: &[NodeName],
    surroundings: &Surroundings,
    mut tell: impl FnMut(Entry),
) -> Result<(), String> {
    for command in commands {
        let on: Vec<NodeName> = match command.on {
            CommandNodes::First => nodes.iter().take(1).cloned().collect(),
            CommandNodes::All => nodes.to_vec(),
        };
        let failures = test(&command.command, on.clone(), surroundings, None).await;
        let failure = failures.into_iter().next().map(|(node, reason)| format!("{node}: {reason}"));
        let program = command.command.first().cloned().unwrap_or_default();
        tell(Entry::Own(OwnEvent::SiteCommand { program: program.clone(), nodes: on, failure: failure.clone() }));
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
    surroundings: &Surroundings,
    within: Option<Duration>,
) -> Vec<(NodeName, String)> {
    let (command, surroundings) = (command.to_vec(), surroundings.clone());
    let results = fan_out(nodes, move |node| {
        let (command, surroundings) = (command.clone(), surroundings.clone());
        async move {
            let outcome = run_on(node.clone(), command, surroundings, within).await;
            outcome.err().map(|reason| (node, reason))
        }
    });
    results.await.into_iter().flatten().collect()
}

/// Runs the site's health test: nodes that fail it, with the reason.
pub async fn health(command: &[String], nodes: Vec<NodeName>, surroundings: &Surroundings) -> Vec<(NodeName, String)> {
    test(command, nodes, surroundings, Some(TEST_WITHIN)).await
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

    fn surroundings() -> Surroundings {
        let roots = std::env::temp_dir();
        let allocation = Local::over_roots("17".into(), "user1".into(), Vec::new(), roots.clone(), roots).unwrap();
        let allocation = Arc::new(allocation);
        Surroundings { job_id: "17".to_owned(), prefix: "/".into(), directory: "/".into(), allocation }
    }

    #[tokio::test]
    async fn a_health_test_fails_the_nodes_on_which_it_fails() {
        let command = ["/bin/sh", "-c", "test $HOLDFAST_NODE = node0 || { echo broken >&2; exit 3; }"];
        let command: Vec<String> = command.map(str::to_owned).to_vec();
        let failed = health(&command, vec!["node0".into(), "node1".into()], &surroundings()).await;
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].0, "node1".into());
        assert!(failed[0].1.contains("broken"), "{}", failed[0].1);
    }

    #[tokio::test]
    async fn the_first_command_that_fails_ends_the_list() {
        let command = |program: &str| SiteCommand { command: vec![program.to_owned()], on: CommandNodes::First };
        let commands = [command("true"), command("false"), command("true")];
        let mut told = Vec::new();
        let outcome = run_all(&commands, &["node0".into()], &surroundings(), |entry| told.push(entry)).await;
        assert!(outcome.unwrap_err().starts_with("false failed on node0"));
        assert_eq!(told.len(), 2);
    }
}
