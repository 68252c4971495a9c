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
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_core::durable;
use holdfast_core::ids::{Generation, NodeName};
use holdfast_wire::environment;
use serde::{Deserialize, Serialize};

use super::LaunchError;
use crate::allocation::RemoteShell;

/// Names the file, for the remote shells that mpirun starts.
pub const REACH_FILE: &str = "HOLDFAST_REACH_FILE";
/// The file's name in the generation's directory.
const FILE: &str = "reach.json";
/// A list of a hundred thousand nodes stays below this.
const LARGEST_FILE: u64 = 256 << 20;

/// How the nodes of a generation are reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    job_id: String,
    generation: Generation,
    nodes: BTreeMap<NodeName, Way>,
}

/// The way to one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Way {
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
    File {
        /// It.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The launcher wants a node that is not one of the run's.
    #[error("{host} is no node of this run; does `run.launcher_options` name other hosts?")]
    Stranger {
        /// As the launcher said it.
        host: String,
    },
    /// The program that goes there.
    #[error("cannot run {program} to reach {host}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The host.
        host: String,
        /// What the system said.
        source: io::Error,
    },
}

impl Reach {
    /// The ways to the nodes of a generation.
    pub(super) fn new<'a>(
        job_id: &str,
        generation: Generation,
        nodes: impl Iterator<Item = (&'a NodeName, RemoteShell)>,
    ) -> Self {
        let way = |shell: RemoteShell| Way { words: shell.words, inherits: shell.inherits };
        let nodes = nodes.map(|(node, shell)| (node.clone(), way(shell))).collect();
        Reach { job_id: job_id.to_owned(), generation, nodes }
    }

    /// Writes it down for the remote shells: the file's path.
    pub(super) fn write(&self, directory: &Path) -> Result<PathBuf, LaunchError> {
        let path = directory.join(FILE);
        let bytes = serde_json::to_vec(self).map_err(|error| LaunchError::file("write", &path)(error.into()))?;
        durable::replace(&path, &bytes)?;
        Ok(path)
    }

    /// The words that run a launcher's command line on a host.
    fn words(&self, host: &str, line: &str) -> Option<Vec<String>> {
        // Some launchers cut a name at its first dot.
        let way = self.nodes.iter().find(|(node, _)| node.as_str() == host).or_else(|| {
            let mut short = self.nodes.iter().filter(|(node, _)| node.as_str().split('.').next() == Some(host));
            short.next().filter(|_| short.next().is_none())
        });
        let (_, way) = way?;
        let line = match way.inherits {
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
        Some(way.words.iter().cloned().chain([line]).collect())
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

/// Becomes the program that goes to the host; returns only if it cannot.
///
/// # Errors
/// [`RemoteShellError`].
pub fn become_it(arguments: &[String], file: Option<OsString>) -> RemoteShellError {
    let path = match file {
        Some(path) => PathBuf::from(path),
        None => return RemoteShellError::ByHand,
    };
    let Some((host, line)) = parts(arguments) else { return RemoteShellError::Arguments(arguments.to_vec()) };
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(LARGEST_FILE).read_to_end(&mut bytes));
    let reach = read.and_then(|_| serde_json::from_slice::<Reach>(&bytes).map_err(io::Error::from));
    let reach = match reach {
        Ok(reach) => reach,
        Err(source) => return RemoteShellError::File { path, source },
    };
    let Some(words) = reach.words(host, &line) else { return RemoteShellError::Stranger { host: host.to_owned() } };
    let Some((program, options)) = words.split_first() else {
        return RemoteShellError::Stranger { host: host.to_owned() };
    };
    let source = Command::new(program).args(options).exec();
    RemoteShellError::Start { program: program.clone(), host: host.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(names: &[&str], inherits: bool) -> Reach {
        let names: Vec<NodeName> = names.iter().map(|name| (*name).into()).collect();
        let shell = |name: &NodeName| RemoteShell { words: vec!["go".to_owned(), name.to_string()], inherits };
        Reach::new("17", Generation(3), names.iter().map(|name| (name, shell(name))))
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
        assert_eq!(reach(&["n1", "n2"], true).words("n2", "a b"), Some(text(&["go", "n2", "a b"])));
    }

    #[test]
    fn a_short_name_is_enough_where_it_means_one_node() {
        assert_eq!(reach(&["n1.left", "n2.left"], true).words("n2", "x"), Some(text(&["go", "n2.left", "x"])));
        assert_eq!(reach(&["n2.right", "n2.left"], true).words("n2", "x"), None);
    }

    #[test]
    fn where_the_environment_does_not_follow_the_daemon_is_marked() {
        let words = reach(&["n1"], false).words("n1", "echo 'a b'").unwrap();
        let expected = r"env HOLDFAST_JOB='17' HOLDFAST_GENERATION=3 $SHELL -c 'echo '\''a b'\'''";
        assert_eq!(words.last().map(String::as_str), Some(expected));
        let output = Command::new("sh").env("SHELL", "/bin/sh").args(["-c", &words[2]]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a b\n");
    }

    #[test]
    fn what_was_written_is_read_again() {
        let base = tempfile::tempdir().unwrap();
        let path = reach(&["n1"], true).write(base.path()).unwrap();
        let read: Reach = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(read, reach(&["n1"], true));
        assert!(matches!(become_it(&text(&["n1", "x"]), None), RemoteShellError::ByHand));
    }
}
