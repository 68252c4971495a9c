//! The remote shell for the daemons of mpirun: `holdfast remote-shell HOST COMMAND…`.
//!
//! Both families of mpirun start a daemon on each node with a program that they call like rsh. Their own support for
//! Slurm cannot be used: Hydra lets Slurm sort the nodes, so that ranks are placed wrongly; Open MPI uses the first
//! nodes of the allocation, including dead ones, and waits for them. So their resource managers are disabled, and this
//! program is their rsh. A file in the generation's directory, named by a variable, has the remote shell of each node.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use holdfast_core::state_files;
use holdfast_model::{Generation, NodeName};
use holdfast_process::end::{self, shell_code};
use holdfast_wire::environment;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::allocation::RemoteShell;
use crate::host::program;
use crate::host::shell::quoted;
use crate::launch::error::LaunchError;

/// The variable with the path of the file, for the remote shells that mpirun starts.
pub const REACH_FILE: &str = "HOLDFAST_REACH_FILE";
/// The name of the file in the generation's directory.
const FILE: &str = "reach.json";
/// The file with the failures, one line each.
pub(super) const FAILURES: &str = "reach.broken";
/// The name of a link to this program, because launchers accept only a path as their remote shell.
pub const CALLED: &str = "holdfast-remote-shell";
/// Maximum size of the files; enough for a hundred thousand nodes.
const LARGEST_FILE: u64 = 256 << 20;

/// Resolves the program to its path, because mpirun changes PATH.
fn with_resolved_program(mut words: Vec<String>) -> Vec<String> {
    let path = std::env::var_os("PATH");
    if let Some(program) = words.first_mut()
        && let Ok(found) = program::find(program, Path::new("/"), path.as_deref())
    {
        *program = found.to_string_lossy().into_owned();
    }
    words
}

/// Creates the link by which a launcher calls this program.
pub(super) fn link(directory: &Path, holdfast: &Path) -> Result<PathBuf, LaunchError> {
    let path = directory.join(CALLED);
    match std::os::unix::fs::symlink(holdfast, &path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(LaunchError::file("make", &path)(error)),
        _ => Ok(path),
    }
}

/// The remote shells of the nodes of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteShells {
    job_id: String,
    generation: Generation,
    nodes: BTreeMap<NodeName, RemoteShell>,
}

/// A node cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum RemoteShellError {
    #[error("{REACH_FILE} is not set; this command is started by mpirun under `holdfast run`, not by hand")]
    ByHand,
    #[error("expected a host and a command, got: {0:?}")]
    Arguments(Vec<String>),
    #[error("cannot read the remote shells of the nodes from {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{host} is not a node of this run; check `run.launcher_options` for other hosts")]
    UnknownHost { host: String },
    #[error("cannot run {program} to reach {host}: {source}")]
    Start { program: String, host: String, source: io::Error },
}

impl RemoteShells {
    pub(super) fn new<'a>(
        job_id: &str,
        generation: Generation,
        nodes: impl Iterator<Item = (&'a NodeName, RemoteShell)>,
    ) -> Self {
        let resolve = |shell: RemoteShell| RemoteShell { words: with_resolved_program(shell.words), ..shell };
        let nodes = nodes.map(|(node, shell)| (node.clone(), resolve(shell))).collect();
        RemoteShells { job_id: job_id.to_owned(), generation, nodes }
    }

    /// Writes the file for the remote shells, and returns its path.
    pub(super) fn write(&self, directory: &Path) -> Result<PathBuf, LaunchError> {
        let path = directory.join(FILE);
        let bytes = serde_json::to_vec(self).map_err(|error| LaunchError::file("write", &path)(error.into()))?;
        state_files::replace(&path, &bytes)?;
        Ok(path)
    }

    /// The command that runs a launcher's command line on a host.
    fn words(&self, host: &str, line: &str) -> Option<(&NodeName, Vec<String>)> {
        // Some launchers cut names at the first dot.
        let shell = self.nodes.iter().find(|(node, _)| node.as_str() == host).or_else(|| {
            let mut short = self.nodes.iter().filter(|(node, _)| node.as_str().split('.').next() == Some(host));
            short.next().filter(|_| short.next().is_none())
        });
        let (node, shell) = shell?;
        let line = match shell.inherits {
            true => line.to_owned(),
            // The variables mark the daemon for the node's agent. The line is written for the user's login shell.
            false => format!(
                "env {}={} {}={} $SHELL -c {}",
                environment::JOB,
                quoted(&self.job_id),
                environment::GENERATION,
                self.generation,
                quoted(line)
            ),
        };
        Some((node, shell.words.iter().cloned().chain([line]).collect()))
    }
}

/// Splits the arguments of mpirun: options of rsh, the host, and the parts of a command line.
fn parts(arguments: &[String]) -> Option<(&str, String)> {
    let host = arguments.iter().position(|argument| !argument.starts_with('-'))?;
    let command = arguments.get(host + 1..).filter(|words| !words.is_empty())?;
    Some((&arguments[host], command.join(" ")))
}

/// Runs the launcher's command on the host. Returns its exit code.
pub fn run(arguments: &[String], file: Option<OsString>) -> Result<u8, RemoteShellError> {
    let path = PathBuf::from(file.ok_or(RemoteShellError::ByHand)?);
    let (host, line) = parts(arguments).ok_or_else(|| RemoteShellError::Arguments(arguments.to_vec()))?;
    // Its commands are executed: it must be ours.
    let read = state_files::read(&path, LARGEST_FILE).map_err(io::Error::from);
    let read = read.and_then(|read| read.ok_or_else(|| io::ErrorKind::NotFound.into()));
    let reach = read.and_then(|bytes| serde_json::from_slice::<RemoteShells>(&bytes).map_err(io::Error::from));
    let reach = reach.map_err(|source| RemoteShellError::File { path: path.clone(), source })?;
    let (node, words) =
        reach.words(host, &line).ok_or_else(|| RemoteShellError::UnknownHost { host: host.to_owned() })?;
    let ended = execute(&words, host);
    let problem = match &ended {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("{} ended with {status}", words.first().map_or("", String::as_str))),
        Err(error) => Some(error.to_string()),
    };
    if let Some(problem) = problem {
        // Hydra would wait for its daemon forever.
        record_failure(&path, node, &problem);
    }
    Ok(shell_code(end::of(ended?)))
}

fn execute(words: &[String], host: &str) -> Result<ExitStatus, RemoteShellError> {
    let failed = |source| {
        let program = words.first().cloned().unwrap_or_default();
        RemoteShellError::Start { program, host: host.to_owned(), source }
    };
    let Some((program, options)) = words.split_first() else {
        return Err(failed(io::Error::from(io::ErrorKind::NotFound)));
    };
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM]).map_err(failed)?;
    let mut child = Command::new(program).args(options).spawn().map_err(failed)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // Signals are passed on to the child. This process ends after the child was waited for, so its id is not reused.
    let pass_on = move || {
        for signal in signals.forever() {
            if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
                let _ = kill_process(pid, signal);
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("signals".to_owned()).spawn(pass_on) {
        // A child to which no signal is passed on must not stay behind.
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed(error));
    }
    child.wait().map_err(failed)
}

/// Appends a failure, in one write.
fn record_failure(file: &Path, node: &NodeName, problem: &str) {
    let line = format!("{node} {}\n", problem.replace('\n', " "));
    // If this fails, mpirun's own messages remain.
    if let Ok(mut file) = state_files::append(&file.with_file_name(FAILURES)) {
        let _ = file.write_all(line.as_bytes());
    }
}

/// The failures so far: nodes and problems.
pub(super) fn failures(directory: &Path) -> Vec<(NodeName, String)> {
    let Ok(Some(bytes)) = state_files::read(&directory.join(FAILURES), LARGEST_FILE) else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes);
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = complete.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(node, problem)| (node.into(), problem.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(names: &[&str], inherits: bool) -> RemoteShells {
        let names: Vec<NodeName> = names.iter().map(|name| (*name).into()).collect();
        let shell = |name: &NodeName| RemoteShell { words: vec!["go".to_owned(), name.to_string()], inherits };
        RemoteShells::new("17", Generation(3), names.iter().map(|name| (name, shell(name))))
    }

    fn text(words: &[&str]) -> Vec<String> {
        words.iter().map(|option| (*option).to_owned()).collect()
    }

    #[test]
    fn parses_the_arguments_of_both_families() {
        let hydra = text(&["-x", "n5", "\"/usr/bin/hydra_pmi_proxy\"", "--proxy-id", "0"]);
        assert_eq!(parts(&hydra), Some(("n5", "\"/usr/bin/hydra_pmi_proxy\" --proxy-id 0".to_owned())));
        let open_mpi = text(&["n5", " PATH=/usr/bin:$PATH ; export PATH ; /usr/bin/orted -mca ess \"env\""]);
        assert_eq!(parts(&open_mpi).map(|(host, _)| host), Some("n5"));
        assert_eq!(parts(&text(&["-x", "n5"])), None);
        assert_eq!(parts(&text(&["-x"])), None);
    }

    #[test]
    fn hosts_outside_the_run_are_refused() {
        assert_eq!(reach(&["n1", "n2"], true).words("n3", "true"), None);
        assert_eq!(reach(&["n1", "n2"], true).words("n2", "a b").unwrap().1, text(&["go", "n2", "a b"]));
    }

    #[test]
    fn an_unambiguous_short_name_is_accepted() {
        assert_eq!(reach(&["n1.left", "n2.left"], true).words("n2", "x").unwrap().1, text(&["go", "n2.left", "x"]));
        assert_eq!(reach(&["n2.right", "n2.left"], true).words("n2", "x"), None);
    }

    #[test]
    fn without_inherited_environment_the_daemon_is_marked() {
        let words = reach(&["n1"], false).words("n1", "echo 'a b'").unwrap().1;
        let expected = r"env HOLDFAST_JOB=17 HOLDFAST_GENERATION=3 $SHELL -c 'echo '\''a b'\'''";
        assert_eq!(words.last().map(String::as_str), Some(expected));
        let output = Command::new("sh").env("SHELL", "/bin/sh").args(["-c", &words[2]]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a b\n");
    }

    #[test]
    fn the_file_is_read_back() {
        let base = tempfile::tempdir().unwrap();
        let path = reach(&["n1"], true).write(base.path()).unwrap();
        let read: RemoteShells = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(read, reach(&["n1"], true));
        assert!(matches!(run(&text(&["n1", "x"]), None), Err(RemoteShellError::ByHand)));
    }

    #[test]
    fn only_failures_are_recorded() {
        let base = tempfile::tempdir().unwrap();
        let shell = |code: &str| {
            let words = ["sh", "-c", &format!("exit {code}; # $0")].map(str::to_owned).to_vec();
            RemoteShell { words, inherits: true }
        };
        let nodes = [("n1".into(), shell("0")), ("n2".into(), shell("3"))];
        let reach = RemoteShells::new("17", Generation(1), nodes.iter().map(|(node, shell)| (node, shell.clone())));
        let path = reach.write(base.path()).unwrap();
        assert_eq!(run(&text(&["n1", "x"]), Some(path.clone().into())).unwrap(), 0);
        assert_eq!(failures(base.path()), []);
        assert_eq!(run(&text(&["-x", "n2", "x"]), Some(path.into())).unwrap(), 3);
        let failed = failures(base.path());
        assert_eq!(failed.len(), 1);
        assert!(failed[0].0 == "n2".into() && failed[0].1.contains("exit status: 3"), "{failed:?}");
    }
}
