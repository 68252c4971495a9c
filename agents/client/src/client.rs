//! The calls, and the order in which they are allowed.

mod datasets;

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_model::{CheckpointId, NodeName, Rank, RestartSource};
use holdfast_wire::rank::{Call, LARGEST_CONTRIBUTION, Reply, Restart};

pub use self::datasets::DatasetOptions;
use crate::connection::Connection;
use crate::error::ClientError;
use crate::surroundings::Surroundings;

/// A rank's side of the checkpoint API. One thread at a time uses it; it may move between threads. Dropping it
/// without [`Client::finalize`] only closes the connection: the run counts as not finished.
pub struct Client {
    /// `None`: switched off.
    connection: Option<Connection>,
    surroundings: Surroundings,
    /// Collective calls that were answered.
    calls: u64,
    restart: Restart,
    /// The checkpoint that may still be restarted from.
    offered: Option<CheckpointId>,
    phase: Phase,
    /// Only counted while switched off; otherwise the agents give the ids.
    last: CheckpointId,
    exit_on_halt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Computing,
    Checkpointing(CheckpointId),
    Restarting(CheckpointId),
}

/// How a client is to behave; made by [`Client::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `init` is called"]
pub struct Builder {
    exit_on_halt: bool,
    reconnect: Option<Duration>,
    surroundings: Option<Surroundings>,
}

/// How a checkpoint ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Its id.
    pub checkpoint: CheckpointId,
    /// False if a rank said so or it could not be protected: it is gone, on all ranks, and the program goes on.
    pub kept: bool,
    /// Why the run is to end now, if it is. Only seen with [`Builder::exit_on_halt`]`(false)`.
    pub halt: Option<String>,
}

/// How a restart ended, on all ranks alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartOutcome {
    /// Every rank could read its files.
    Accepted,
    /// Some rank could not: this older checkpoint was loaded instead. Start over with [`Client::start_restart`].
    Older(CheckpointId),
    /// Some rank could not, and nothing older is left: start afresh.
    Nothing,
}

impl RestartOutcome {
    /// True if the program goes on from what it has read.
    pub fn accepted(self) -> bool {
        self == RestartOutcome::Accepted
    }
}

impl Builder {
    /// Whether [`Client::complete_checkpoint`] and `init` end the process (exit code 0) when a halt condition holds, as
    /// SCR does. Default: yes. Without it the condition is returned, and the program should end soon.
    pub fn exit_on_halt(mut self, exit: bool) -> Self {
        self.exit_on_halt = exit;
        self
    }

    /// How long to try to reach an agent that is gone; instead of `HOLDFAST_RECONNECT`, or 60 s.
    pub fn reconnect(mut self, limit: Duration) -> Self {
        self.reconnect = Some(limit);
        self
    }

    /// Who this process is and where its agent is, instead of asking the environment.
    pub fn surroundings(mut self, surroundings: Surroundings) -> Self {
        self.surroundings = Some(surroundings);
        self
    }

    /// Joins the run (`SCR manual §11.4`). Returns when all ranks did, and the files of the checkpoint to restart from
    /// are in place.
    pub fn init(self) -> Result<Client, ClientError> {
        let mut surroundings = match self.surroundings {
            Some(surroundings) => surroundings,
            None => Surroundings::from_environment()?,
        };
        surroundings.reconnect = self.reconnect.unwrap_or(surroundings.reconnect);
        let connection = surroundings.agent.clone().map(|agent| Connection::new(agent, &surroundings));
        let mut client = Client {
            connection,
            surroundings,
            calls: 0,
            restart: fresh(),
            offered: None,
            phase: Phase::Computing,
            last: CheckpointId::NONE,
            exit_on_halt: self.exit_on_halt,
        };
        match client.call(Call::Init)? {
            None => {}
            Some(Reply::Restart(restart)) => client.take_restart(restart),
            Some(other) => return Err(unexpected(&Call::Init, &other)),
        }
        Ok(client)
    }
}

impl Client {
    /// Joins the run with everything as the environment says; see [`Builder::init`].
    pub fn init() -> Result<Client, ClientError> {
        Self::builder().init()
    }

    /// For those who want something else than [`Client::init`].
    pub fn builder() -> Builder {
        Builder { exit_on_halt: true, reconnect: None, surroundings: None }
    }

    /// This process's rank.
    pub fn rank(&self) -> Rank {
        self.surroundings.rank
    }

    /// How many ranks the run has.
    pub fn ranks(&self) -> u32 {
        self.surroundings.ranks
    }

    /// The node, as its agent calls it; as the launcher calls it, if at all, when the API is switched off.
    pub fn node(&self) -> Option<&NodeName> {
        self.connection.as_ref().and_then(Connection::node).or(self.surroundings.node.as_ref())
    }

    /// False if `SCR_ENABLE=0` switched the API off.
    pub fn enabled(&self) -> bool {
        self.connection.is_some()
    }

    /// What `init`, or the last [`Client::complete_restart`] that failed, found to restart from: id, source, this rank's files.
    pub fn restart(&self) -> &Restart {
        &self.restart
    }

    /// The checkpoint to restart from, if there is one that was neither accepted nor given up. The same on all ranks.
    /// Its files may be read until the first [`Client::start_checkpoint`].
    pub fn have_restart(&self) -> Option<CheckpointId> {
        self.offered
    }

    /// Says that this rank now reads its restart files: those of [`Client::restart`], each found by [`Client::route_file`].
    pub fn start_restart(&mut self) -> Result<CheckpointId, ClientError> {
        self.expect_computing("start_restart")?;
        let checkpoint = self.offered.ok_or(ClientError::NoRestart)?;
        self.phase = Phase::Restarting(checkpoint);
        Ok(checkpoint)
    }

    /// Says whether this rank could read its restart files. If any rank could not, the next older checkpoint is loaded,
    /// and [`Client::have_restart`] tells which, on all ranks.
    pub fn complete_restart(&mut self, valid: bool) -> Result<RestartOutcome, ClientError> {
        let Phase::Restarting(_) = self.phase else {
            return Err(ClientError::Outside { call: "complete_restart", start: "start_restart" });
        };
        let call = Call::CompleteRestart { valid };
        let outcome = match self.call(call.clone())? {
            None | Some(Reply::Done) => {
                self.offered = None;
                RestartOutcome::Accepted
            }
            Some(Reply::Restart(restart)) => {
                self.take_restart(restart);
                self.offered.map_or(RestartOutcome::Nothing, RestartOutcome::Older)
            }
            Some(other) => return Err(unexpected(&call, &other)),
        };
        self.phase = Phase::Computing;
        Ok(outcome)
    }

    /// Should a checkpoint be taken now? The same answer on all ranks (`SCR manual §11.5`).
    pub fn need_checkpoint(&mut self) -> Result<bool, ClientError> {
        self.flag(Call::Need)
    }

    /// Begins a checkpoint (`SCR manual §11.6`). Older ones may be deleted from cache now, and the restart files with
    /// them.
    pub fn start_checkpoint(&mut self) -> Result<CheckpointId, ClientError> {
        self.start(Call::Start, "start_checkpoint")
    }

    /// Where the file of this name is to be written (inside a checkpoint, where this also registers it) or read (before
    /// the first one) (`SCR manual §11.7`). Only the last part of `name` counts; the path returned must be used as it
    /// is. Outside a checkpoint it is an error if the file cannot be read. Not collective.
    pub fn route_file(&mut self, name: impl AsRef<Path>) -> Result<PathBuf, ClientError> {
        let name = name.as_ref();
        let bad = || ClientError::BadName { name: name.to_string_lossy().into_owned() };
        name.file_name().ok_or_else(bad)?;
        let text = name.to_str().filter(|text| !text.contains('\0') && !text.ends_with('/')).ok_or_else(bad)?;
        let call = Call::Route { name: text.to_owned() };
        match self.call(call.clone())? {
            None => Ok(name.to_owned()),
            Some(Reply::Path(path)) => Ok(path),
            Some(other) => Err(unexpected(&call, &other)),
        }
    }

    /// Ends a checkpoint (`SCR manual §11.8`): `valid` says whether this rank wrote its files well. When it returns, the
    /// files belong to the agent. Exits the process with code 0 when a halt condition holds, unless built with
    /// [`Builder::exit_on_halt`]`(false)`.
    pub fn complete_checkpoint(&mut self, valid: bool) -> Result<Completed, ClientError> {
        let Phase::Checkpointing(checkpoint) = self.phase else {
            return Err(ClientError::Outside { call: "complete_checkpoint", start: "start_checkpoint" });
        };
        let call = Call::Complete { valid };
        let answer = match self.call(call.clone()) {
            // The agent says that it is over, whatever became of it.
            Err(ClientError::Failed { call, source }) => {
                self.phase = Phase::Computing;
                return Err(ClientError::Failed { call, source });
            }
            other => other?,
        };
        let completed = match answer {
            None => Completed { checkpoint, kept: valid, halt: None },
            Some(Reply::Completed { checkpoint, kept, halt }) => Completed { checkpoint, kept, halt },
            Some(other) => return Err(unexpected(&call, &other)),
        };
        self.phase = Phase::Computing;
        self.exit_if(completed.halt.as_deref());
        Ok(completed)
    }

    /// Does a halt condition hold? The same answer on all ranks; for programs that end in their own way.
    pub fn should_exit(&mut self) -> Result<bool, ClientError> {
        self.flag(Call::ShouldExit)
    }

    /// Every rank gets what every rank gave, by rank. For addresses and sums: [`LARGEST_CONTRIBUTION`] bytes a rank, and
    /// [`LARGEST_GATHERED`](crate::LARGEST_GATHERED) of all ranks together.
    pub fn allgather(&mut self, data: &[u8]) -> Result<Vec<Vec<u8>>, ClientError> {
        if data.len() > LARGEST_CONTRIBUTION {
            return Err(ClientError::TooLarge { size: data.len() });
        }
        let call = Call::Allgather { data: data.into() };
        match self.call(call.clone())? {
            None if self.ranks() == 1 => Ok(vec![data.to_vec()]),
            None => Err(ClientError::Disabled { call: call.name() }),
            Some(Reply::Gathered(parts)) if parts.len() == self.ranks() as usize => {
                Ok(parts.iter().map(|part| part.as_slice().to_vec()).collect())
            }
            Some(Reply::Gathered(parts)) => {
                let answer = format!("with {} parts for {} ranks", parts.len(), self.ranks());
                Err(ClientError::Unexpected { call: call.name(), answer })
            }
            Some(other) => Err(unexpected(&call, &other)),
        }
    }

    /// The program is done (`SCR manual §11.9`): the job is finished and not launched again.
    pub fn finalize(mut self) -> Result<(), ClientError> {
        match self.call(Call::Finalize)? {
            None | Some(Reply::Done) => Ok(()),
            Some(other) => Err(unexpected(&Call::Finalize, &other)),
        }
    }

    fn flag(&mut self, call: Call) -> Result<bool, ClientError> {
        match self.call(call.clone())? {
            None => Ok(false),
            Some(Reply::Flag(flag)) => Ok(flag),
            Some(other) => Err(unexpected(&call, &other)),
        }
    }

    /// `None` if the API is switched off. A collective counts once it was answered: one that could not be delivered
    /// keeps its number, and may be repeated.
    fn call(&mut self, call: Call) -> Result<Option<Reply>, ClientError> {
        let Some(connection) = &mut self.connection else {
            return Ok(None);
        };
        let seq = if call.is_collective() { self.calls + 1 } else { self.calls };
        let result = connection.call(seq, &call)?;
        self.calls = seq;
        result.map(Some).map_err(|source| ClientError::Failed { call: call.name(), source })
    }

    fn expect_computing(&self, call: &'static str) -> Result<(), ClientError> {
        match self.phase {
            Phase::Computing => Ok(()),
            Phase::Checkpointing(checkpoint) | Phase::Restarting(checkpoint) => {
                Err(ClientError::Inside { call, checkpoint })
            }
        }
    }

    fn take_restart(&mut self, restart: Restart) {
        self.offered = restart.checkpoint;
        self.restart = restart;
        self.exit_if(self.restart.halt.as_deref());
    }

    fn exit_if(&self, halt: Option<&str>) {
        if halt.is_some() && self.exit_on_halt {
            std::process::exit(0);
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("rank", &self.rank())
            .field("ranks", &self.ranks())
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

fn fresh() -> Restart {
    Restart { checkpoint: None, source: RestartSource::Fresh, directory: None, files: Vec::new(), halt: None }
}

fn unexpected(call: &Call, answer: &Reply) -> ClientError {
    let answer = format!("{answer:?}").chars().take(200).collect();
    ClientError::Unexpected { call: call.name(), answer }
}
