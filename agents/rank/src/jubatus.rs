//! Programs that are Jubatus servers: they save and load models on request, by MessagePack-RPC.
//!
//! The rank process waits until its server answers, and has it load the model of the checkpoint. For a checkpoint it
//! calls `save`, in step with the other ranks, and takes the file that the server wrote. The server continues after a
//! save that failed. A server that could not load is ended: `load` is not atomic.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_formats::jubatus::Engine;
use holdfast_jubatus::model_file::{self, ModelFiles, checkpoint_id, id_of};
use holdfast_jubatus::{JubatusServer, ModelFileError, ServerAddress, ServerError, ServerStatus};
use holdfast_model::{CheckpointId, Rank};

use crate::error::{SaveError, Stage};
use crate::program::Program;
use crate::saver::{Saver, SaverContext};
use crate::settings::{JubatusEndpoint, JubatusServers};
use crate::words::Variables;
use crate::writers::{self, FileIdentity};

/// The port on which the server must listen.
pub const PORT: &str = "HOLDFAST_JUBATUS_PORT";
/// A directory for its models, in the file system of the checkpoint files.
pub const DATA_DIR: &str = "HOLDFAST_JUBATUS_DATA_DIR";

/// Between two attempts to reach a server that starts.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// A server whose connection breaks has ended by then, if it ends.
const ENDED_WITHIN: Duration = Duration::from_secs(2);
/// A connection that is refused or accepted.
const SHORT_CALL: Duration = Duration::from_secs(10);

pub(crate) struct JubatusSaver {
    server: JubatusServer,
    engine: Engine,
    timeout: Duration,
    start_timeout: Duration,
    rank: Rank,
    data_directory: PathBuf,
    /// Of the program that runs.
    running: Option<RunningServer>,
}

struct RunningServer {
    status: ServerStatus,
    config: Vec<u8>,
}

impl RunningServer {
    fn files(&self) -> ModelFiles<'_> {
        ModelFiles { status: &self.status, config: &self.config }
    }
}

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
enum JubatusError {
    #[error("`checkpoint.jubatus`: rank {0} has no server")]
    NoServer(Rank),
    #[error("`checkpoint.jubatus`: there are no servers of type {0:?}")]
    UnknownType(String),
    #[error("`checkpoint.jubatus`: the name of this node is unknown: write an address as `host`")]
    UnknownNode,
    #[error(
        "a process listens on {0} before the server of this rank was started: end it, or write another port \
         (`checkpoint.jubatus.port`)"
    )]
    PortInUse(ServerAddress),
    #[error("the server was not ready within {} (`checkpoint.jubatus.start_timeout`): {last}", seconds(*.limit))]
    NotReady { limit: Duration, last: ServerError },
    #[error("the checkpoint has {0} files of this server, expected 1")]
    Files(usize),
    #[error("the server was not started")]
    NotStarted,
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    File(#[from] ModelFileError),
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

impl<E: Into<JubatusError>> From<E> for SaveError {
    fn from(error: E) -> SaveError {
        SaveError::Other(Box::new(error.into()))
    }
}

impl JubatusSaver {
    /// # Errors
    /// The rank has no server, its type is unknown, or the data directory cannot be made.
    pub(crate) fn new(
        servers: &JubatusServers,
        timeout: Duration,
        start_timeout: Duration,
        context: SaverContext,
    ) -> Result<JubatusSaver, SaveError> {
        let SaverContext { rank, node, directory: data_directory, .. } = context;
        let JubatusEndpoint { engine: type_name, host, port, name } =
            servers.of_rank(rank).ok_or(JubatusError::NoServer(rank))?;
        let engine = Engine::from_name(type_name.as_bytes()).ok_or(JubatusError::UnknownType(type_name))?;
        let host =
            if host == JubatusEndpoint::NODE { node.ok_or(JubatusError::UnknownNode)?.to_string() } else { host };
        fs::create_dir_all(&data_directory).map_err(SaveError::io("make", &data_directory))?;
        let server = JubatusServer::new(ServerAddress { host, port }, name);
        Ok(JubatusSaver { server, engine, timeout, start_timeout, rank, data_directory, running: None })
    }

    /// Waits until the server answers, and returns its properties.
    fn wait_until_ready(&mut self, begun: Instant, program: &Program) -> Result<ServerStatus, SaveError> {
        let limit = self.start_timeout;
        loop {
            let left = limit.saturating_sub(begun.elapsed()).max(POLL_EVERY);
            let last = match self.server.status(left) {
                Ok(status) => return Ok(status),
                Err(error) => error,
            };
            if let Some(end) = program.wait(POLL_EVERY) {
                return Err(Stage::Start.ended(end));
            }
            // It does not listen yet. Every other error is final.
            if !last.is_unreachable() && !last.is_timeout() {
                return Err(last.into());
            }
            if begun.elapsed() >= limit {
                return Err(JubatusError::NotReady { limit, last }.into());
            }
        }
    }
}

/// Why a call has failed: the server has ended, or it or the connection reported an error.
fn failed(error: ServerError, program: &Program, stage: Stage) -> SaveError {
    // The connection breaks before the end of the process is known.
    let within = if error.is_broken() { ENDED_WITHIN } else { Duration::ZERO };
    match program.wait(within) {
        Some(end) if !error.is_answer() => stage.ended(end),
        _ => error.into(),
    }
}

impl Saver for JubatusSaver {
    fn variables(&self) -> Variables {
        let data_directory = self.data_directory.to_string_lossy().into_owned();
        Variables::from([(PORT, self.server.address().port.to_string()), (DATA_DIR, data_directory)])
    }

    fn before_start(&mut self) -> Result<(), SaveError> {
        self.running = None;
        // Another server at the address would be sent `load`. One of the last generation may still be ending.
        let begun = Instant::now();
        let left = || self.start_timeout.saturating_sub(begun.elapsed()).max(POLL_EVERY);
        while self.server.is_listening(SHORT_CALL.min(left())) {
            if begun.elapsed() >= self.start_timeout {
                return Err(JubatusError::PortInUse(self.server.address().clone()).into());
            }
            std::thread::sleep(POLL_EVERY);
        }
        Ok(())
    }

    fn started(&mut self, program: &Program) -> Result<(), SaveError> {
        let begun = Instant::now();
        let status = self.wait_until_ready(begun, program)?;
        if status.engine != self.engine {
            let (address, found, expected) = (self.server.address().clone(), status.engine, self.engine);
            return Err(ServerError::OtherType { address, found, expected }.into());
        }
        let limit = self.start_timeout;
        let left = limit.saturating_sub(begun.elapsed()).max(POLL_EVERY);
        let config = self.server.config(left).map_err(|last| match program.wait(POLL_EVERY) {
            Some(end) => Stage::Start.ended(end),
            None if begun.elapsed() >= limit => JubatusError::NotReady { limit, last }.into(),
            None => last.into(),
        })?;
        let server = RunningServer { status, config };
        server.files().remove_old()?;
        self.running = Some(server);
        Ok(())
    }

    fn restore(&mut self, program: &Program, directory: &Path) -> Result<(), SaveError> {
        // The directory has one file.
        let server = self.running.as_ref().ok_or(JubatusError::NotStarted)?;
        let entries = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.map_err(SaveError::io("read", directory))?;
        let paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        let [path] = paths.as_slice() else { return Err(JubatusError::Files(paths.len()).into()) };
        let id = id_of(path)?;
        let put = server.files().put(path, &id)?;
        let loaded = self.server.load(&id, self.timeout).map_err(|error| failed(error, program, Stage::Load));
        model_file::remove_if_present(&put)?;
        loaded
    }

    fn save(&mut self, program: &Program, checkpoint: CheckpointId, directory: &Path) -> Result<(), SaveError> {
        let server = self.running.as_ref().ok_or(JubatusError::NotStarted)?;
        let files = server.files();
        files.remove_old()?;
        let id = checkpoint_id(checkpoint.0, self.rank.0).map_err(ModelFileError::from)?;
        let saved = self.server.save(&server.status, &id, self.timeout);
        let reported = saved.map_err(|error| failed(error, program, Stage::Save))?;
        let to = directory.join(files.name(&id));
        files.take(&id, reported.as_deref(), &to)?;
        // What a server writes after its answer is part of the file that is verified.
        let file = FileIdentity::at(&to).map_err(SaveError::io("read", &to))?;
        writers::wait_until_closed(&[file]).map_err(SaveError::StillOpen)?;
        Ok(files.verify(&to, &id).inspect_err(|_| drop(fs::remove_file(&to)))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use holdfast_client::Interrupter;
    use holdfast_model::NodeName;

    fn saver(host: &str, engine: &str, node: Option<&str>) -> Result<JubatusSaver, String> {
        let directory = tempfile::tempdir().unwrap();
        let context = SaverContext {
            rank: Rank(2),
            node: node.map(NodeName::new),
            interrupter: Interrupter::default(),
            directory: directory.path().join("saver"),
            variables: Variables::new(),
        };
        let (engine, host) = (engine.to_owned(), host.to_owned());
        let first = JubatusEndpoint { engine, host, port: 9199, name: String::new() };
        let (limit, servers) = (Duration::from_secs(1), JubatusServers::From(first));
        JubatusSaver::new(&servers, limit, limit, context).map_err(|error| error.to_string())
    }

    #[test]
    fn the_server_is_reached_at_its_address_or_at_the_name_of_the_node() {
        let address = |saver: JubatusSaver| saver.server.address().to_string();
        assert_eq!(address(saver("10.0.0.7", "stat", None).unwrap()), "10.0.0.7:9201");
        assert_eq!(address(saver("node", "stat", Some("n7")).unwrap()), "n7:9201");
        assert!(saver("node", "stat", None).err().unwrap().contains("the name of this node is unknown"));
        assert!(saver("node", "status", None).err().unwrap().contains("no servers of type \"status\""));
        let saver = saver("node", "stat", Some("n7")).unwrap();
        assert_eq!(saver.variables().get(PORT).map(String::as_str), Some("9201"));
    }
}
