//! The host's end of an ssh connection: `holdfast node …`, started by the orchestrator on another machine.
//!
//! | verb | what it does |
//! |---|---|
//! | `survey` | reports version, clock and identity of this machine, and which directories and programs differ |
//! | `agent` | starts the agent in its own session, and ends when it is ready |
//! | `end` | ends an agent |
//! | `run` | runs a command |
//! | `ranks` | runs the ranks of this node, the launcher's part ([`crate::launch::ssh`]) |
//!
//! Each reads one JSON line from standard input; the command line has only numbers and paths. Standard input stays open
//! as long as the connection. When it ends, commands and ranks are killed, because their results cannot be reported any
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
use crate::allocation::agents::start_error::after_colon;
use crate::host::program::ProgramError;

/// Maximum length of a message, which is one line.
const LONGEST_LINE: u64 = 64 << 20;

/// What the survey checks on a host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SurveyRequest {
    /// Directories that must exist.
    pub directories: Vec<PathBuf>,
    /// Files that must exist and be executable.
    pub programs: Vec<PathBuf>,
    /// A file below the first directory with its contents, to verify that this is the same directory on all hosts.
    pub mark: Option<(PathBuf, String)>,
}

/// What a host reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostFacts {
    /// Its version of Holdfast.
    pub version: String,
    /// The version of the protocol between agents and orchestrators.
    pub wire: u32,
    pub clock: Timestamp,
    pub host_name: String,
    /// The kernel's id of this boot; containers on one machine share it.
    pub boot_id: String,
    /// Failed checks: path and problem.
    pub problems: Vec<(PathBuf, String)>,
}

/// A command for a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeCommand {
    /// The program and its arguments.
    pub words: Vec<String>,
    pub directory: PathBuf,
    /// Variables in addition to those of the ssh session.
    pub environment: BTreeMap<String, String>,
}

/// A verb that could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Standard input.
    #[error("cannot read the message on standard input: {0}; this command is started by `holdfast run`, not by hand")]
    Message(io::Error),
    /// A file or a process.
    #[error("cannot {action} {what}: {source}")]
    Io { action: &'static str, what: String, source: io::Error },
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The agent is not ready.
    #[error("the agent {problem}{}; see {log}", after_colon(log_line.as_deref()))]
    Agent {
        problem: Box<HandshakeError>,
        /// The last line of the log.
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

/// Reads the request.
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

/// Calls `then` when standard input ends, because the connection was lost.
pub(crate) fn when_connection_ends(then: impl FnOnce() + Send + 'static) -> Result<(), NodeError> {
    let wait = move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        then();
    };
    let thread = std::thread::Builder::new().name("listener".to_owned()).spawn(wait);
    thread.map(drop).map_err(NodeError::io("start", "a thread"))
}
