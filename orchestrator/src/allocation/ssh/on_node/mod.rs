//! What runs on a host at the other end of an ssh connection: `holdfast node …`, started by the orchestrator of another
//! machine, never by hand.
//!
//! | verb | what it does |
//! |---|---|
//! | `survey` | says what this machine is, and which directories it does not see as the asker does |
//! | `agent` | starts the agent in a session of its own, and ends when it is up |
//! | `end` | ends an agent |
//! | `run` | runs one command |
//! | `ranks` | runs the ranks of this node: the launcher's part ([`crate::launch::ssh`]) |
//!
//! Each reads one JSON line from standard input: nothing but numbers and paths is on a command line. Standard input stays
//! open as long as the connection does; its end ends commands and ranks, because their ends can be reported to nobody any
//! more.

pub mod agent;
pub mod run;
pub mod survey;

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _};
use std::path::PathBuf;

use holdfast_model::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::allocation::agents::handshake::HandshakeError;
use crate::host::program::ProgramError;

/// A message is one line, shorter than this.
const LONGEST_LINE: u64 = 64 << 20;

/// What a host is asked before anything is started there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SurveyRequest {
    /// Directories that must be there.
    pub directories: Vec<PathBuf>,
    /// Files that must be there and executable.
    pub programs: Vec<PathBuf>,
    /// A file below the first of the directories, and what is in it: that the directory exists does not make it the same.
    pub mark: Option<(PathBuf, String)>,
}

/// What a host says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostFacts {
    /// Its version of Holdfast.
    pub version: String,
    /// The version of what agents and orchestrators say to each other.
    pub wire: u32,
    pub clock: Timestamp,
    pub host_name: String,
    /// What the kernel calls this boot; machines in containers share it.
    pub boot_id: String,
    /// What is not as it should be: the path, and what is wrong with it.
    pub problems: Vec<(PathBuf, String)>,
}

/// A command for a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeCommand {
    /// The program and its arguments.
    pub words: Vec<String>,
    pub directory: PathBuf,
    /// Variables that it gets beside those of the sign-in.
    pub environment: BTreeMap<String, String>,
}

/// A verb that could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Standard input.
    #[error("the message on standard input cannot be read: {0}; this is started by `holdfast run`, not by hand")]
    Message(io::Error),
    /// A file or a process.
    #[error("cannot {action} {what}: {source}")]
    Io { action: &'static str, what: String, source: io::Error },
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The agent did not come up.
    #[error("the agent {problem}{}; see {log}", log_line.as_ref().map(|line| format!(": {line}")).unwrap_or_default())]
    Agent {
        problem: Box<HandshakeError>,
        /// The last line of its log.
        log_line: Option<String>,
        log: String,
    },
}

impl NodeError {
    pub(crate) fn io(action: &'static str, what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| NodeError::Io { action, what, source }
    }
}

/// Reads the line that says what to do.
///
/// # Errors
/// [`NodeError::Message`].
pub fn message<T: DeserializeOwned>(input: &mut impl BufRead) -> Result<T, NodeError> {
    serde_json::from_slice(&line(input)?).map_err(|error| NodeError::Message(error.into()))
}

pub(crate) fn line(input: &mut impl BufRead) -> Result<Vec<u8>, NodeError> {
    let mut line = Vec::new();
    input.take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(NodeError::Message)?;
    Ok(line)
}

/// Calls `then` when standard input ends: the connection is gone.
pub(crate) fn when_connection_ends(then: impl FnOnce() + Send + 'static) -> Result<(), NodeError> {
    let wait = move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        then();
    };
    let thread = std::thread::Builder::new().name("listener".to_owned()).spawn(wait);
    thread.map(drop).map_err(NodeError::io("start", "a thread"))
}
