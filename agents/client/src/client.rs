//! The calls, and the order in which they are allowed.

/// Makes a call, and returns what is taken from its reply; `None` if the API is disabled. Returns from the function
/// with an error if the reply is another one.
macro_rules! ask {
    ($client:expr, $call:expr, $($reply:pat => $value:expr),+) => {{
        let call = $call;
        match $client.call(call.clone())? {
            None => None,
            $(Some($reply) => Some($value),)+
            Some(other) => return Err($crate::client::unexpected(&call, &other)),
        }
    }};
}

pub(crate) mod datasets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_model::{CheckpointId, NodeName, Rank};
use holdfast_wire::rank::{Awaited, Call, Interface, LARGEST_CONTRIBUTION, ProgramState, Reply, Restart, RestartFiles};

use crate::connection::{Connection, Interrupter};
use crate::environment::Environment;
use crate::error::ClientError;

/// The connection of a rank to its agent. It can move between threads, but only one thread at a time can use it.
/// Dropping it without [`Client::finalize`] only closes the connection: the run then counts as not finished.
///
/// Only the process that called `init` can make calls. In one that was forked from it, they are
/// [`ClientError::OtherProcess`], and dropping the client has no effect on the run.
pub struct Client {
    /// `None` if the API is disabled.
    connection: Option<Connection>,
    environment: Environment,
    /// Number of collective calls with a reply.
    calls: u64,
    restart: Restart,
    /// The checkpoint that the program can still restart from.
    offered: Option<CheckpointId>,
    phase: Phase,
    /// The last checkpoint id while the API is disabled; otherwise agents assign the ids.
    last: CheckpointId,
    exit_on_halt: bool,
    /// The files that were routed in the open checkpoint: their base names, and the names as given, made absolute.
    routed: BTreeMap<String, PathBuf>,
}

/// Longer reasons are cut.
const LONGEST_REASON: usize = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Computing,
    Checkpointing(CheckpointId),
    Restarting(CheckpointId),
}

/// The options of a client; made by [`Client::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `init` is called"]
pub struct Builder {
    exit_on_halt: bool,
    reconnect: Option<Duration>,
    environment: Option<Environment>,
    interface: Interface,
}

/// The result of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The id that `start_checkpoint` returned.
    pub checkpoint: CheckpointId,
    /// False if a rank reported invalid files, or the checkpoint could not be protected. It is then deleted on all
    /// ranks, and the program continues. Also false if a checkpoint of variables of level 4 could not be flushed: it
    /// stays in cache as one of level 1.
    pub kept: bool,
    /// The halt condition if the run must end now. Only returned with [`Builder::exit_on_halt`]`(false)`.
    pub halt: Option<String>,
}

/// The result of a restart; equal on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartOutcome {
    /// Every rank could read its files.
    Accepted,
    /// A rank could not, and this older checkpoint was loaded instead. Call [`Client::start_restart`] again.
    Older(CheckpointId),
    /// A rank could not, and there is no older checkpoint: start from the beginning.
    Nothing,
}

impl RestartOutcome {
    /// True if the program continues from the checkpoint it has read.
    pub fn accepted(self) -> bool {
        self == RestartOutcome::Accepted
    }
}

impl Builder {
    /// Whether [`Client::complete_checkpoint`] and `init` end the process with exit code 0 when a halt condition holds,
    /// as in SCR. Default: true. Otherwise the condition is returned, and the program should end soon.
    pub fn exit_on_halt(mut self, exit: bool) -> Self {
        self.exit_on_halt = exit;
        self
    }

    /// How long a call tries to reach an agent that ended. Default: `HOLDFAST_RECONNECT`, or 60 s.
    pub fn reconnect(mut self, limit: Duration) -> Self {
        self.reconnect = Some(limit);
        self
    }

    /// The identity of this process and the address of its agent. Default: read from the environment variables.
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// For [`crate::variables::Variables`]. Default: the calls for files.
    #[cfg(feature = "variables")]
    pub(crate) fn interface(mut self, interface: Interface) -> Self {
        self.interface = interface;
        self
    }

    /// Joins the run (`SCR manual §11.4`). Returns when all ranks have joined, and the files of the checkpoint to
    /// restart from are in place.
    pub fn init(self) -> Result<Client, ClientError> {
        let mut environment = match self.environment {
            Some(environment) => environment,
            None => Environment::from_environment()?,
        };
        environment.reconnect = self.reconnect.unwrap_or(environment.reconnect);
        let connection = environment.agent.clone().map(|agent| Connection::new(agent, &environment, self.interface));
        let mut client = Client {
            connection,
            environment,
            calls: 0,
            restart: Restart::default(),
            offered: None,
            phase: Phase::Computing,
            last: CheckpointId::NONE,
            exit_on_halt: self.exit_on_halt,
            routed: BTreeMap::new(),
        };
        if let Some(restart) = ask!(client, Call::Init, Reply::Restart(restart) => restart) {
            client.take_restart(restart);
        }
        Ok(client)
    }
}

impl Client {
    /// Joins the run with default options; see [`Builder::init`].
    pub fn init() -> Result<Client, ClientError> {
        Self::builder().init()
    }

    /// A builder for a client with other options.
    pub fn builder() -> Builder {
        Builder { exit_on_halt: true, reconnect: None, environment: None, interface: Interface::Files }
    }

    /// The number of this process among the ranks of the job, from 0.
    pub fn rank(&self) -> Rank {
        self.environment.rank
    }

    /// The number of ranks of the run.
    pub fn ranks(&self) -> u32 {
        self.environment.ranks
    }

    /// The name of the node: from its agent, or from the launcher if the API is disabled.
    pub fn node(&self) -> Option<&NodeName> {
        self.connection.as_ref().and_then(Connection::node).or(self.environment.node.as_ref())
    }

    /// The layout in which the job's variables are written.
    #[cfg(feature = "variables")]
    pub(crate) fn layout(&self) -> holdfast_model::VariablesLayout {
        self.connection.as_ref().map(Connection::layout).unwrap_or_default()
    }

    /// Begins a checkpoint of variables.
    #[cfg(feature = "variables")]
    pub(crate) fn start_level(
        &mut self,
        level: holdfast_model::Level,
        id: u32,
    ) -> Result<Option<holdfast_wire::rank::GroupPlace>, ClientError> {
        self.start_placed(Call::StartLevel { level, id }, "checkpoint").map(|(_, mirrored)| mirrored)
    }

    /// The level of the checkpoint of variables that is due, by these intervals or those of the job.
    #[cfg(feature = "variables")]
    pub(crate) fn snapshot_level(
        &mut self,
        intervals: Option<holdfast_model::SnapshotIntervals>,
    ) -> Result<Option<holdfast_model::Level>, ClientError> {
        Ok(ask!(self, Call::Snapshot { intervals }, Reply::Level(level) => level).flatten())
    }

    /// False if `SCR_ENABLE=0` disables the API.
    pub fn enabled(&self) -> bool {
        self.connection.is_some()
    }

    /// The checkpoint to restart from, as found by `init` or by the last [`Client::complete_restart`] that failed: its
    /// id, its source, and the files of this rank.
    pub fn restart(&self) -> &Restart {
        &self.restart
    }

    /// The id of the checkpoint to restart from, until it is accepted or a new one is started. Equal on all ranks. Its
    /// files can be read until the first [`Client::start_checkpoint`].
    pub fn have_restart(&self) -> Option<CheckpointId> {
        self.offered
    }

    /// Starts reading the restart files: those of [`Client::restart`], with the paths of [`Client::route_file`].
    pub fn start_restart(&mut self) -> Result<CheckpointId, ClientError> {
        self.expect_computing("start_restart")?;
        let checkpoint = self.offered.ok_or(ClientError::NoRestart)?;
        self.phase = Phase::Restarting(checkpoint);
        Ok(checkpoint)
    }

    /// The files of the checkpoint to restart from that [`Client::route_file`] finds: those of this rank, or, if
    /// another number of ranks wrote the checkpoint, those of all ranks. None if the API is disabled. Not collective.
    pub fn restart_files(&mut self) -> Result<RestartFiles, ClientError> {
        let files = ask!(self, Call::RestartFiles, Reply::RestartFiles(files) => files);
        Ok(files.unwrap_or_else(|| RestartFiles { ranks: self.ranks(), files: Vec::new() }))
    }

    /// Ends a restart; `valid` is true if this rank could read its files. If any rank could not, the next older
    /// checkpoint is loaded on all ranks, and [`Client::have_restart`] returns it.
    pub fn complete_restart(&mut self, valid: bool) -> Result<RestartOutcome, ClientError> {
        let Phase::Restarting(_) = self.phase else {
            return Err(ClientError::Outside { call: "complete_restart", start: "start_restart" });
        };
        self.end_restart(Call::CompleteRestart { valid })
    }

    /// Ends a restart whose files this rank could not use, as [`Client::complete_restart`]`(false)`, with the reason
    /// for the event log.
    pub fn refuse_restart(&mut self, reason: &str) -> Result<RestartOutcome, ClientError> {
        let Phase::Restarting(_) = self.phase else {
            return Err(ClientError::Outside { call: "refuse_restart", start: "start_restart" });
        };
        self.end_restart(Call::NotRead { reason: reason.chars().take(LONGEST_REASON).collect() })
    }

    fn end_restart(&mut self, call: Call) -> Result<RestartOutcome, ClientError> {
        let next = ask!(self, call, Reply::Done => None, Reply::Restart(restart) => Some(restart)).flatten();
        let outcome = match next {
            None => {
                self.offered = None;
                RestartOutcome::Accepted
            }
            Some(restart) => {
                self.take_restart(restart);
                self.offered.map_or(RestartOutcome::Nothing, RestartOutcome::Older)
            }
        };
        self.phase = Phase::Computing;
        Ok(outcome)
    }

    /// True if a checkpoint is due. Equal on all ranks (`SCR manual §11.5`).
    pub fn need_checkpoint(&mut self) -> Result<bool, ClientError> {
        self.flag(Call::Need)
    }

    /// Starts a checkpoint (`SCR manual §11.6`). Older checkpoints, including the restart files, may now be deleted
    /// from the cache.
    pub fn start_checkpoint(&mut self) -> Result<CheckpointId, ClientError> {
        self.start(Call::Start, "start_checkpoint")
    }

    /// The path to write the file of this name to (inside a checkpoint; this also registers the file), or to read it
    /// from (before the first checkpoint; `SCR manual §11.7`). Only the last component of `name` is used, except for
    /// output ([`DatasetOptions::output`](crate::DatasetOptions::output)), whose files lie there below the prefix
    /// directory. Outside of a checkpoint, a file that cannot be read is an error. Not collective.
    ///
    /// Inside a checkpoint, a name is refused that no checkpoint can contain: one that is longer than 251 bytes, that
    /// SCR or Holdfast use for their own files (`*.scr`, redundancy files and others), or whose last component is that
    /// of another file which this rank has routed. The checkpoint can be continued with another name.
    pub fn route_file(&mut self, name: impl AsRef<Path>) -> Result<PathBuf, ClientError> {
        let name = name.as_ref();
        let bad = || ClientError::BadName { name: name.to_string_lossy().into_owned() };
        name.file_name().ok_or_else(bad)?;
        let text = name.to_str().filter(|text| !text.contains('\0') && !text.ends_with('/')).ok_or_else(bad)?;
        let distinct = self.distinct_file(name, text)?;
        let path = ask!(self, Call::Route { name: text.to_owned() }, Reply::Path(path) => path);
        self.routed.extend(distinct);
        Ok(path.unwrap_or_else(|| name.to_owned()))
    }

    /// Base name and absolute name of a file that is routed in a checkpoint; `None` if it need not be compared. All
    /// files of a checkpoint lie in one directory, so that one of two files with the same base name would be lost.
    fn distinct_file(&self, name: &Path, text: &str) -> Result<Option<(String, PathBuf)>, ClientError> {
        let (Phase::Checkpointing(_), true) = (self.phase, self.enabled()) else { return Ok(None) };
        let base = text.rsplit('/').next().unwrap_or_default().to_owned();
        // Without a working directory, names are compared as they are given.
        let full = std::path::absolute(name).unwrap_or_else(|_| name.to_owned());
        match self.routed.get(&base) {
            Some(known) if *known != full => {
                Err(ClientError::SameBaseName { name: text.to_owned(), known: known.clone() })
            }
            _ => Ok(Some((base, full))),
        }
    }

    /// Ends a checkpoint (`SCR manual §11.8`); `valid` is true if this rank wrote its files successfully. Afterwards
    /// the files belong to the agent. Ends the process with exit code 0 when a halt condition holds, unless built with
    /// [`Builder::exit_on_halt`]`(false)`.
    pub fn complete_checkpoint(&mut self, valid: bool) -> Result<Completed, ClientError> {
        self.complete(Call::Complete { valid }, valid)
    }

    fn complete(&mut self, call: Call, valid: bool) -> Result<Completed, ClientError> {
        let Phase::Checkpointing(checkpoint) = self.phase else {
            return Err(ClientError::Outside { call: "complete_checkpoint", start: "start_checkpoint" });
        };
        let answer = match self.call(call.clone()) {
            // The agent has ended the checkpoint, with an error.
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

    /// True if a halt condition holds. Equal on all ranks; for programs that end themselves.
    pub fn should_exit(&mut self) -> Result<bool, ClientError> {
        self.flag(Call::ShouldExit)
    }

    /// Returns the data of all ranks, by rank, to every rank. For small data such as addresses and sums: at most
    /// [`LARGEST_CONTRIBUTION`] bytes per rank, and [`LARGEST_GATHERED`](crate::LARGEST_GATHERED) bytes in total.
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

    /// Ends the run (`SCR manual §11.9`): the job is finished and not launched again.
    pub fn finalize(mut self) -> Result<(), ClientError> {
        self.done(Call::Finalize)
    }

    /// Leaves the run without ending it, for a process that has written nothing: another process may be the rank.
    pub fn leave(mut self) -> Result<(), ClientError> {
        self.done(Call::Leave)
    }

    /// Ends a checkpoint whose files could not be written, as [`Client::complete_checkpoint`]`(false)`, with the reason
    /// for the event log.
    pub fn drop_checkpoint(&mut self, reason: &str) -> Result<Completed, ClientError> {
        let reason = reason.chars().take(LONGEST_REASON).collect();
        self.complete(Call::NotWritten { reason }, false)
    }

    /// For processes that make the calls for a program: ends a checkpoint during which the programs of all ranks have
    /// ended. It is not kept, and does not count as one that was lost.
    pub fn end_checkpoint(&mut self) -> Result<Completed, ClientError> {
        self.complete(Call::ProgramsEnded, false)
    }

    /// For processes that make the calls for a program: ends a checkpoint as [`Client::complete_checkpoint`]`(true)`.
    /// The program has ended with exit code 0, and the files of this rank only record that.
    pub fn complete_with_end(&mut self) -> Result<Completed, ClientError> {
        self.complete(Call::CompleteEnded, true)
    }

    /// For processes that make the calls for a program: waits until a checkpoint is due, or the programs of all ranks
    /// have ended. `None` after [`Interrupter::interrupt`]: call again, with the state that the program has now.
    pub fn await_checkpoint(&mut self, state: ProgramState) -> Result<Option<Awaited>, ClientError> {
        let call = Call::Await { state };
        let seq = self.calls + 1;
        let Some(connection) = &mut self.connection else {
            return Err(ClientError::Disabled { call: call.name() });
        };
        let Some(result) = connection.call_interruptibly(seq, &call)? else { return Ok(None) };
        self.calls = seq;
        match result.map_err(|source| ClientError::Failed { call: call.name(), source })? {
            Reply::Awaited(awaited) => Ok(Some(awaited)),
            other => Err(unexpected(&call, &other)),
        }
    }

    /// Ends [`Client::await_checkpoint`] from another thread.
    pub fn interrupter(&self) -> Interrupter {
        self.connection.as_ref().map(Connection::interrupter).unwrap_or_default()
    }

    /// An empty directory for files of this process, in the file system of the checkpoint files. It is removed when the
    /// next generation begins. Not collective.
    pub fn workspace(&mut self) -> Result<PathBuf, ClientError> {
        let path = ask!(self, Call::Workspace, Reply::Path(path) => path);
        path.ok_or(ClientError::Disabled { call: Call::Workspace.name() })
    }

    fn flag(&mut self, call: Call) -> Result<bool, ClientError> {
        Ok(ask!(self, call, Reply::Flag(flag) => flag).unwrap_or(false))
    }

    /// Makes a call; `None` if the API is disabled. A collective call is counted when its reply arrives: one that could
    /// not be delivered keeps its number and can be repeated.
    fn call(&mut self, call: Call) -> Result<Option<Reply>, ClientError> {
        let Some(connection) = &mut self.connection else {
            return Ok(None);
        };
        let seq = if call.is_collective() { self.calls + 1 } else { self.calls };
        let result = connection.call(seq, &call)?;
        self.calls = seq;
        result.map(Some).map_err(|source| ClientError::Failed { call: call.name(), source })
    }

    /// Fails in a process that was forked from the one that joined the run, for calls that do more than to ask the
    /// agent.
    #[cfg(feature = "variables")]
    pub(crate) fn check_process(&self, call: &'static str) -> Result<(), ClientError> {
        self.connection.as_ref().map_or(Ok(()), |connection| connection.check_process(call))
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

fn unexpected(call: &Call, answer: &Reply) -> ClientError {
    let answer = format!("{answer:?}").chars().take(200).collect();
    ClientError::Unexpected { call: call.name(), answer }
}
