//! The messages between a rank and the agent of its node, on the Unix socket in the control directory.
//!
//! A rank sends [`Hello`] first, then calls, one at a time. Every call carries a sequence number that counts the rank's
//! calls; when the connection breaks (the agent was restarted), the rank connects again, sends [`Hello`] and repeats
//! the call with its number, so that the call is carried out once.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::frame::Limit;
use crate::payload::Payload;
use holdfast_model::{
    CheckpointId, Failure, Generation, Level, NodeName, Rank, RestartSource, SnapshotIntervals, VariablesLayout,
};

/// The most bytes that one rank may hand to [`Call::Allgather`].
pub const LARGEST_CONTRIBUTION: usize = 64 << 10;
/// The most bytes that all ranks together may: as many are sent to every rank.
pub const LARGEST_GATHERED: usize = 256 << 20;

/// What an agent accepts from a rank that it serves.
pub const TO_AGENT: Limit = Limit { what: "the call of a rank", bytes: LARGEST_CONTRIBUTION + (64 << 10) };
/// What a rank accepts from its agent: a gathered result, or the names of the rank's files.
pub const TO_RANK: Limit = Limit { what: "the reply to a rank", bytes: LARGEST_GATHERED + (64 << 20) };

/// The first message of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::VERSION`] of the client.
    pub version: u32,
    /// The job id from the environment.
    pub job: String,
    /// The generation from the environment.
    pub generation: Generation,
    pub rank: Rank,
    /// How many ranks the launcher started.
    pub ranks: u32,
    /// The calls that the program makes.
    pub interface: Interface,
}

/// A set of calls; the job's checkpoint source serves one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interface {
    /// The program writes and reads files: SCR's calls.
    Files,
    /// The program names variables in memory: FTI's calls.
    Variables,
}

/// The place of a rank in its group of a redundancy scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPlace {
    /// World rank of the group's first member.
    pub group: u32,
    /// Number of members.
    pub size: u32,
    /// The rank's index in the group, from 0.
    pub index: u32,
}

/// From a rank to its agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent {
    /// First message of every connection.
    Hello(Hello),
    Call {
        /// Counts the rank's calls in this run, from 1; collectives have the same number on all ranks because all
        /// ranks make them in the same order and local calls do not count.
        seq: u64,
        call: Call,
    },
}

/// The calls of the checkpoint API (`SCR manual §11.4–11.9`), and those of rank processes, which make the calls for
/// a program that does not use the API. All but [`Call::Route`], [`Call::RestartFiles`],
/// [`Call::Workspace`] and [`Call::Leave`] are collective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Join the run; find, rebuild or fetch the checkpoint to start from.
    Init,
    /// Should a checkpoint be taken now?
    Need,
    Start,
    /// Begin a dataset with a name, or one that is more or less than a checkpoint (`SCR_Start_output` of SCR 3). Ended
    /// by [`Call::Complete`] like any other.
    StartOutput {
        /// The application's name for it; the same on all ranks.
        name: Option<String>,
        /// A run can restart from it.
        checkpoint: bool,
        /// It must reach the prefix directory.
        output: bool,
        /// The ranks write into the prefix directory themselves: they share files.
        bypass: bool,
    },
    /// Begin a checkpoint of variables, protected as this level demands. Ended by [`Call::Complete`].
    StartLevel {
        /// The same on all ranks.
        level: Level,
        /// The program's own id of the checkpoint; the same on all ranks.
        id: u32,
    },
    /// Is a checkpoint of variables due by the intervals of the levels?
    Snapshot {
        /// Those of the program; `None`: those of the job.
        intervals: Option<SnapshotIntervals>,
    },
    /// The name of the dataset that there is to restart from.
    RestartName,
    /// The application restarted from the dataset of this name by itself: what it writes from now on is newer.
    Current {
        name: String,
    },
    /// Load what the prefix directory has as current, instead of what was found at init.
    Load,
    /// Forget the dataset of this name in the index; its files stay.
    Drop {
        name: String,
    },
    /// Delete the dataset of this name, from cache and from the prefix directory.
    Delete {
        name: String,
    },
    /// Where to write (inside a checkpoint) or read (before the first one) this file. Local.
    Route {
        /// The application's own name for the file; only the base name is used.
        name: String,
    },
    /// The files that [`Call::Route`] finds in a restart. Local.
    RestartFiles,
    /// End a checkpoint: protect it, flush it when due, look at the halt conditions.
    Complete {
        /// False if this rank could not write its files.
        valid: bool,
    },
    /// The application has read its restart files.
    CompleteRestart {
        /// False if this rank could not read them: the checkpoint is dropped and the next older one loaded.
        valid: bool,
    },
    /// Should the application stop?
    ShouldExit,
    /// Every rank gets the contributions of all ranks.
    Allgather {
        /// This rank's part, [`LARGEST_CONTRIBUTION`] bytes at most.
        data: Payload,
    },
    /// The application is done: the job is finished, unless ranks called this after they were sent SIGTERM.
    Finalize,
    /// The process ends with exit code 0 and has written nothing: another process may be the rank. Local. If none
    /// follows, the rank is finished when its launcher reports exit code 0.
    Leave,
    /// Of a rank process: return when a checkpoint is due, or when the programs of all ranks have ended. While it
    /// waits, a rank can repeat the call with another state.
    Await {
        state: ProgramState,
    },
    /// Of a rank process: end a checkpoint like [`Call::Complete`]; the program's files could not be written.
    NotWritten {
        reason: String,
    },
    /// Of a rank process: end a checkpoint like [`Call::Complete`]; the programs of all ranks have ended meanwhile, so
    /// that there is no state to keep.
    ProgramsEnded,
    /// Of a rank process: end a checkpoint like [`Call::Complete`]; the program of this rank has ended with exit code
    /// 0, which is recorded in place of its files.
    CompleteEnded,
    /// Of a rank process: end a restart like [`Call::CompleteRestart`]; the program could not continue from its files.
    NotRead {
        reason: String,
    },
    /// Of a rank process: an empty directory on this node, in the file system of the checkpoint files. Local.
    Workspace,
}

/// The program for which a rank process makes the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramState {
    Running,
    /// It runs, and has written the files of its next checkpoint.
    Ready,
    /// It has ended with exit code 0.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    /// A checkpoint is due: the next call is [`Call::Start`].
    Checkpoint,
    /// The programs of all ranks have ended: the next call is [`Call::Finalize`]. The job is finished by it only if the
    /// programs have ended by themselves.
    Ended,
}

impl Call {
    /// True for calls that all ranks make together.
    pub fn is_collective(&self) -> bool {
        !matches!(self, Call::Route { .. } | Call::RestartFiles | Call::Workspace | Call::Leave)
    }

    /// The bytes of its payload.
    pub fn payload_bytes(&self) -> usize {
        match self {
            Call::Allgather { data } => data.len(),
            _ => 0,
        }
    }

    /// Replaces the payload by an empty one.
    pub fn drop_payload(&mut self) {
        if let Call::Allgather { data } = self {
            *data = Payload::default();
        }
    }

    /// False for calls that one rank makes alone, and for that of a rank process whose program computes.
    pub fn waits_for_other_ranks(&self) -> bool {
        self.is_collective() && !matches!(self, Call::Await { .. })
    }

    /// The call's name, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Init => "init",
            Call::Need => "need_checkpoint",
            Call::Start => "start_checkpoint",
            Call::StartOutput { .. } => "start_output",
            Call::StartLevel { .. } => "start_checkpoint",
            Call::Snapshot { .. } => "snapshot",
            Call::RestartName => "restart_name",
            Call::Current { .. } => "current",
            Call::Load => "load",
            Call::Drop { .. } => "drop",
            Call::Delete { .. } => "delete",
            Call::Route { .. } => "route_file",
            Call::RestartFiles => "restart_files",
            // To be made together with `Complete` by other ranks.
            Call::Complete { .. } | Call::NotWritten { .. } | Call::ProgramsEnded | Call::CompleteEnded => {
                "complete_checkpoint"
            }
            Call::CompleteRestart { .. } | Call::NotRead { .. } => "complete_restart",
            Call::ShouldExit => "should_exit",
            Call::Allgather { .. } => "allgather",
            Call::Finalize => "finalize",
            Call::Leave => "leave",
            Call::Await { .. } => "await_checkpoint",
            Call::Workspace => "workspace",
        }
    }
}

/// From an agent to a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToRank {
    /// The agent serves the rank.
    Welcome {
        node: NodeName,
        /// The layout of files of variables.
        #[serde(default)]
        layout: VariablesLayout,
    },
    /// The agent does not serve this rank: wrong version, job, generation or rank.
    Refused {
        /// Why, and what to do.
        failure: Failure,
    },
    /// The answer to a call.
    Reply { seq: u64, result: Result<Reply, Failure> },
}

/// What a call returned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To [`Call::Init`] and [`Call::Load`], and to [`Call::CompleteRestart`] when another checkpoint had to be loaded.
    Restart(Restart),
    /// To [`Call::Need`] and [`Call::ShouldExit`].
    Flag(bool),
    /// To [`Call::Snapshot`].
    Level(Option<Level>),
    /// To [`Call::Start`], [`Call::StartLevel`] and [`Call::StartOutput`].
    Started {
        checkpoint: CheckpointId,
        /// Where its files go on this node.
        directory: PathBuf,
        /// Where the rank stands in its group, if a neighbour keeps a copy of its files.
        mirrored: Option<GroupPlace>,
    },
    /// To [`Call::RestartName`]: `None` for a dataset without a name.
    Name(Option<String>),
    /// To [`Call::Route`] and [`Call::Workspace`].
    Path(PathBuf),
    /// To [`Call::RestartFiles`].
    RestartFiles(RestartFiles),
    /// To [`Call::Complete`], [`Call::NotWritten`], [`Call::ProgramsEnded`] and [`Call::CompleteEnded`].
    Completed {
        checkpoint: CheckpointId,
        /// False if a rank reported its files as invalid, or if the checkpoint could not be protected: it was deleted
        /// everywhere.
        kept: bool,
        /// Set if the run is to end here.
        halt: Option<String>,
    },
    /// To [`Call::Allgather`]: one entry a rank.
    Gathered(Vec<Payload>),
    /// To [`Call::Await`].
    Awaited(Awaited),
    /// To [`Call::Finalize`], [`Call::Current`], [`Call::Drop`], [`Call::Delete`] and to a good
    /// [`Call::CompleteRestart`].
    Done,
}

/// The files of the checkpoint that there is to restart from, as far as this rank can read them: its own, or, if
/// another number of ranks wrote them, all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartFiles {
    /// The number of ranks that wrote the checkpoint.
    pub ranks: u32,
    /// By rank, and of each rank in the order in which it routed them.
    pub files: Vec<RestartFile>,
}

/// A file of the checkpoint that there is to restart from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartFile {
    /// The name by which [`Call::Route`] finds it: its base name, or the path below the prefix of a file of an output.
    pub name: String,
    /// The rank that wrote it.
    pub rank: Rank,
}

/// What there is to restart from; by default, nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// The checkpoint, or `None`: start afresh.
    pub checkpoint: Option<CheckpointId>,
    pub source: RestartSource,
    /// How many ranks wrote it, if that is another number than that of the run: [`Call::RestartFiles`] lists the files
    /// of all of them.
    pub written_by: Option<u32>,
    /// The directory that holds this rank's files.
    pub directory: Option<PathBuf>,
    /// This rank's files, base names in the order in which it once routed them. None of another number of ranks.
    pub files: Vec<String>,
    /// The level of a checkpoint of variables.
    pub level: Option<Level>,
    /// Set if a halt condition already holds: the application should stop.
    pub halt: Option<String>,
}
