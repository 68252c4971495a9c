//! The remote shell of a launcher that starts daemons of its own: `holdfast remote-shell HOST COMMAND…`.
//!
//! Both families of mpirun start a daemon on each node with a program that they call like rsh. Their own ways through
//! Slurm are of no use here: that of Hydra lets Slurm sort the nodes, and then the ranks stand elsewhere than asked for;
//! that of Open MPI takes the allocation's first nodes, dead ones among them, and waits for them. So they are told that
//! there is no resource manager, and that we are their rsh: we know how each node is reached.
//!
//! How, is written into the generation's directory, and a variable names that file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use holdfast_core::durable;
use holdfast_model::{Generation, NodeName};
use holdfast_wire::environment;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::allocation::RemoteShell;
use crate::host::program;
use crate::launch::LaunchError;

/// Names the file, for the remote shells that mpirun starts.
pub const REACH_FILE: &str = "HOLDFAST_REACH_FILE";
/// The file's name in the generation's directory.
const FILE: &str = "reach.json";
/// Beside it: ways that ended badly, one line each.
const FAILURES: &str = "reach.broken";
/// A link to this program by which it is called, where a launcher's remote shell is a path and nothing else.
pub const CALLED: &str = "holdfast-remote-shell";
/// A list of a hundred thousand nodes stays below this.
const LARGEST_FILE: u64 = 256 << 20;

/// With the path of their program: mpirun may look for it elsewhere, since it changes PATH for its own.
fn found_here(mut words: Vec<String>) -> Vec<String> {
    let path = std::env::var_os("PATH");
    if let Some(program) = words.first_mut()
        && let Ok(found) = program::find(program, Path::new("/"), path.as_deref())
    {
        *program = found.to_string_lossy().into_owned();
    }
    words
}

/// Makes the link by which a launcher calls this program as its remote shell.
pub(super) fn link(directory: &Path, holdfast: &Path) -> Result<PathBuf, LaunchError> {
    let path = directory.join(CALLED);
    match std::os::unix::fs::symlink(holdfast, &path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(LaunchError::file("make", &path)(error)),
        _ => Ok(path),
    }
}

/// How the nodes of a generation are reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteShells {
    job_id: String,
    generation: Generation,
    nodes: BTreeMap<NodeName, NodeShell>,
}

/// How one node is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NodeShell {
    words: Vec<String>,
    inherits: bool,
}

/// A node cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum RemoteShellError {
    /// Started by hand.
    #[error("{REACH_FILE} is not set: mpirun starts this program, told to by `holdfast run`")]
    ByHand,
    /// The arguments are not those of a remote shell.
    #[error("a remote shell is called with a host and a command, and got: {0:?}")]
    Arguments(Vec<String>),
    /// The file cannot be used.
    #[error("cannot read {}, which says how nodes are reached: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The launcher wants a node that is not one of the run's.
    #[error("{host} is no node of this run; does `run.launcher_options` name other hosts?")]
    UnknownHost {
        /// As the launcher said it.
        host: String,
    },
    /// The program that goes there.
    #[error("cannot run {program} to reach {host}: {source}")]
    Start { program: String, host: String, source: io::Error },
}

impl RemoteShells {
    /// The ways to the nodes of a generation.
    pub(super) fn new<'a>(
        job_id: &str,
        generation: Generation,
        nodes: impl Iterator<Item = (&'a NodeName, RemoteShell)>,
    ) -> Self {
        let resolve = |shell: RemoteShell| NodeShell { words: found_here(shell.words), inherits: shell.inherits };
        let nodes = nodes.map(|(node, shell)| (node.clone(), resolve(shell))).collect();
        RemoteShells { job_id: job_id.to_owned(), generation, nodes }
    }

    /// Writes it down for the remote shells: the file's path.
    pub(super) fn write(&self, directory: &Path) -> Result<PathBuf, LaunchError> {
        let path = directory.join(FILE);
        let bytes = serde_json::to_vec(self).map_err(|error| LaunchError::file("write", &path)(error.into()))?;
        durable::replace(&path, &bytes)?;
        Ok(path)
    }

    /// The words that run a launcher's command line on a host.
    fn words(&self, host: &str, line: &str) -> Option<(&NodeName, Vec<String>)> {
        // Some launchers cut a name at its first dot.
        let shell = self.nodes.iter().find(|(node, _)| node.as_str() == host).or_else(|| {
            let mut short = self.nodes.iter().filter(|(node, _)| node.as_str().split('.').next() == Some(host));
            short.next().filter(|_| short.next().is_none())
        });
        let (node, shell) = shell?;
        let line = match shell.inherits {
            true => line.to_owned(),
            // So that the node's agent knows whose daemon this is. The shell is the one for which the line was written.
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

/// What mpirun calls us with: options of rsh, the host, and the words of a command line.
fn parts(arguments: &[String]) -> Option<(&str, String)> {
    let host = arguments.iter().position(|word| !word.starts_with('-'))?;
    let command = arguments.get(host + 1..).filter(|words| !words.is_empty())?;
    Some((&arguments[host], command.join(" ")))
}

/// One word of a shell of either family.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Goes to the host, and waits for what the launcher runs there; the exit code to end with.
///
/// # Errors
/// [`RemoteShellError`].
pub fn run(arguments: &[String], file: Option<OsString>) -> Result<u8, RemoteShellError> {
    let path = PathBuf::from(file.ok_or(RemoteShellError::ByHand)?);
    let (host, line) = parts(arguments).ok_or_else(|| RemoteShellError::Arguments(arguments.to_vec()))?;
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(LARGEST_FILE).read_to_end(&mut bytes));
    let reach = read.and_then(|_| serde_json::from_slice::<RemoteShells>(&bytes).map_err(io::Error::from));
    let reach = reach.map_err(|source| RemoteShellError::File { path: path.clone(), source })?;
    let (node, words) =
        reach.words(host, &line).ok_or_else(|| RemoteShellError::UnknownHost { host: host.to_owned() })?;
    let ended = go(&words, host);
    let problem = match &ended {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("{} ended with {status}", words.first().map_or("", String::as_str))),
        Err(error) => Some(error.to_string()),
    };
    if let Some(problem) = problem {
        // Hydra would wait for its daemon for ever.
        record_failure(&path, node, &problem);
    }
    let status = ended?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255);
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

fn go(words: &[String], host: &str) -> Result<ExitStatus, RemoteShellError> {
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
    // Whoever ends this shell means what it stands for. The number is the child's until it has been waited for, and then
    // this process ends.
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
                let _ = kill_process(pid, signal);
            }
        }
    });
    child.wait().map_err(failed)
}

/// One line, one write.
fn record_failure(file: &Path, node: &NodeName, problem: &str) {
    let line = format!("{node} {}\n", problem.replace('\n', " "));
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(file.with_file_name(FAILURES));
    // If it cannot be written down, mpirun's own words are left.
    let _ = opened.and_then(|mut file| file.write_all(line.as_bytes()));
}

/// The ways that ended badly so far: nodes, and how.
pub(super) fn failures(directory: &Path) -> Vec<(NodeName, String)> {
    let Ok(file) = File::open(directory.join(FAILURES)) else { return Vec::new() };
    let mut text = String::new();
    let _ = file.take(LARGEST_FILE).read_to_string(&mut text);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().filter_map(|line| line.split_once(' '));
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
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn both_launchers_calls_are_understood() {
        let hydra = text(&["-x", "n5", "\"/usr/bin/hydra_pmi_proxy\"", "--proxy-id", "0"]);
        assert_eq!(parts(&hydra), Some(("n5", "\"/usr/bin/hydra_pmi_proxy\" --proxy-id 0".to_owned())));
        let open_mpi = text(&["n5", " PATH=/usr/bin:$PATH ; export PATH ; /usr/bin/orted -mca ess \"env\""]);
        assert_eq!(parts(&open_mpi).map(|(host, _)| host), Some("n5"));
        assert_eq!(parts(&text(&["-x", "n5"])), None);
        assert_eq!(parts(&text(&["-x"])), None);
    }

    #[test]
    fn a_node_that_is_not_the_run_s_is_not_reached() {
        assert_eq!(reach(&["n1", "n2"], true).words("n3", "true"), None);
        assert_eq!(reach(&["n1", "n2"], true).words("n2", "a b").unwrap().1, text(&["go", "n2", "a b"]));
    }

    #[test]
    fn a_short_name_is_enough_where_it_means_one_node() {
        assert_eq!(reach(&["n1.left", "n2.left"], true).words("n2", "x").unwrap().1, text(&["go", "n2.left", "x"]));
        assert_eq!(reach(&["n2.right", "n2.left"], true).words("n2", "x"), None);
    }

    #[test]
    fn where_the_environment_does_not_follow_the_daemon_is_marked() {
        let words = reach(&["n1"], false).words("n1", "echo 'a b'").unwrap().1;
        let expected = r"env HOLDFAST_JOB='17' HOLDFAST_GENERATION=3 $SHELL -c 'echo '\''a b'\'''";
        assert_eq!(words.last().map(String::as_str), Some(expected));
        let output = Command::new("sh").env("SHELL", "/bin/sh").args(["-c", &words[2]]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a b\n");
    }

    #[test]
    fn what_was_written_is_read_again() {
        let base = tempfile::tempdir().unwrap();
        let path = reach(&["n1"], true).write(base.path()).unwrap();
        let read: RemoteShells = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(read, reach(&["n1"], true));
        assert!(matches!(run(&text(&["n1", "x"]), None), Err(RemoteShellError::ByHand)));
    }

    #[test]
    fn a_way_that_ends_badly_is_told_and_one_that_ends_well_is_not() {
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
        let told = failures(base.path());
        assert_eq!(told.len(), 1);
        assert!(told[0].0 == "n2".into() && told[0].1.contains("exit status: 3"), "{told:?}");
    }
}
