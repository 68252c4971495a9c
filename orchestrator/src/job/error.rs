//! Errors before a job begins.

use std::path::PathBuf;

use holdfast_core::durable::DurableError;
use holdfast_core::state_files;
use holdfast_core::store::PrefixError;
use holdfast_model::CheckpointId;
use holdfast_wire::trust::TrustError;

use super::metrics::MetricsError;
use super::notify::NotifyError;
use super::requeue::RequeueError;
use super::standalone_error::StandaloneError;
use super::state::StateError;
use crate::allocation::AllocationError;
use crate::exit;
use crate::fleet::FleetError;
use crate::host::external_command::ExternalCommandError;
use crate::host::program::ProgramError;
use crate::launch::LaunchError;
use crate::pairs::PlacementError;
use crate::relaunch::snapshot::RestoreError;

/// Why a job could not be begun.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The command or its directory.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    #[error(transparent)]
    Notify(#[from] NotifyError),
    #[error(transparent)]
    State(#[from] StateError),
    /// The state does not fit the spec.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("the prefix directory cannot be used: {0}; make it, or give another `prefix`")]
    Prefix(#[from] DurableError),
    /// In a dry run, which makes no directory.
    #[error("the prefix directory cannot be used: {}: {source}; make it, or give another `prefix`", path.display())]
    PrefixUnusable { path: PathBuf, source: std::io::Error },
    #[error("cannot {action}: {source}")]
    Io { action: &'static str, source: std::io::Error },
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// The allocation is too small.
    #[error(
        "the allocation has {have} nodes{}, but the run needs {needed}",
        if *excluded > 0 { format!(" that are not excluded ({excluded} are)") } else { String::new() }
    )]
    TooFewNodes { have: usize, excluded: usize, needed: u32 },
    /// The caller did not allow it.
    #[error(
        "the spec injects faults (`allocation.faults`) on machines of `manager: {manager}`; nothing was started; allow \
         it with `holdfast run --allow-faults`, or write `manager: local` for virtual nodes"
    )]
    FaultsNotAllowed { manager: &'static str },
    /// A node of a pair or job.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error(
        "a job of `kind: {running}` was begun in the prefix directory {}, and its orchestrator ended: run it with its \
         own spec, which takes it over, and end it (`holdfast halt set --immediate`), or give another `prefix`",
        prefix.display()
    )]
    OtherKind { prefix: PathBuf, running: &'static str },
    #[error(
        "the job of the prefix directory {} was begun with another spec, and its copies may still run: {change}; \
         restore that and run it again, which takes the job over. To run the new spec, end the job before: `holdfast \
         halt set --now`, then `holdfast run` with the old spec, which ends its copies",
        prefix.display()
    )]
    OtherPairs { prefix: PathBuf, change: String },
    /// A run would restart from a checkpoint of another number of ranks.
    #[error(
        "checkpoint {checkpoint} of `{step}` was written by {written} ranks, and this run has {running}; nothing was \
         started or changed. It is in {place}. Correct `run.nodes`, `run.ranks_per_node` or `run.ranks`, write \
         `checkpoint: {{restart: {{ranks: any}}}}` if the program can read it with another number of ranks, or run \
         with `--checkpoint NAME` to restart from another checkpoint (`holdfast index list` shows them), or with \
         `--from-beginning` to start without one; all checkpoints are kept"
    )]
    OtherRanks { step: String, checkpoint: CheckpointId, place: String, written: u32, running: u32 },
    /// A run would restart from a checkpoint of another source.
    #[error(
        "checkpoint {checkpoint} of `{step}` was written with `source: {written}`, and programs of `source: {running}` \
         cannot read it; nothing was started or changed. It is in {place}. Correct `checkpoint.source`, or run with \
         `--from-beginning` to start without a checkpoint; all checkpoints are kept"
    )]
    OtherSource { step: String, checkpoint: CheckpointId, place: String, written: String, running: &'static str },
    /// Of `--checkpoint`.
    #[error(
        "`--checkpoint {name}`: the index of {} lists no complete checkpoint of this name; nothing was started. \
         `holdfast index list` shows those that there are",
        prefixes.iter().map(|prefix| prefix.display().to_string()).collect::<Vec<_>>().join(", or of ")
    )]
    NoSuchCheckpoint {
        name: String,
        /// Those of all steps.
        prefixes: Vec<PathBuf>,
    },
    #[error(
        "`--checkpoint {name}`: it is a checkpoint of `{step}`, which was finished in an earlier run and is not run \
         again; nothing was started. `--again` repeats it"
    )]
    OfFinishedStep { name: String, step: String },
    /// Of `--checkpoint` and `--from-beginning`, and of a run with another number of ranks.
    #[error(
        "a run of the prefix directory {} is under way, and its orchestrator ended: nothing was started. `holdfast \
         drain` saves its newest checkpoint and ends it; then run again. `holdfast run` takes it over with as many \
         ranks and without `--checkpoint` and `--from-beginning`",
        prefix.display()
    )]
    UnderWay { prefix: PathBuf },
    /// What the user chose to restart from cannot be recorded.
    #[error(transparent)]
    Index(#[from] PrefixError),
    /// The records of the checkpoints that a run would restart from cannot be read.
    #[error(
        "the prefix directory cannot be used for a restart: {0}; correct this, then run the job again. `holdfast index \
         add` enters checkpoint directories in a new index. Nothing was started"
    )]
    CannotRestart(PrefixError),
    /// The job was ended while it was being prepared.
    #[error("ended by {0} before anything was launched")]
    Signal(&'static str),
    /// A checkpoint of an earlier job could not be drained, and still cannot.
    #[error("an earlier job of this prefix directory left a checkpoint on its nodes that cannot be drained: {reason}")]
    Undrained {
        reason: String,
        /// It could not be written to the prefix directory.
        unwritable: bool,
    },
    /// `requeue:` cannot be used.
    #[error(transparent)]
    Requeue(#[from] RequeueError),
    #[error("{ended}; the next allocation was not submitted: {error}")]
    NotRequeued { ended: Box<RunError>, error: RequeueError },
    /// The drain of an earlier job failed.
    #[error(transparent)]
    Standalone(#[from] Box<StandaloneError>),
}

impl RunError {
    /// The exit code: see [`crate::exit`].
    pub fn exit_code(&self) -> u8 {
        match self {
            RunError::Launch(
                LaunchError::Program(ProgramError::Missing { .. } | ProgramError::NotExecutable { .. })
                | LaunchError::NoDirectory { .. }
                | LaunchError::Unsuitable { .. }
                | LaunchError::NotPlain,
            )
            | RunError::TooFewNodes { .. }
            | RunError::FaultsNotAllowed { .. }
            | RunError::Placement(_)
            | RunError::OtherRanks { .. }
            | RunError::OtherSource { .. }
            | RunError::NoSuchCheckpoint { .. }
            | RunError::OfFinishedStep { .. }
            | RunError::UnderWay { .. }
            | RunError::OtherKind { .. }
            | RunError::OtherPairs { .. }
            | RunError::Preflight(
                PreflightError::Command { .. }
                | PreflightError::OtherSource { .. }
                | PreflightError::LaterScr { .. }
                | PreflightError::OtherMpi { .. },
            ) => exit::CONFIGURATION,
            RunError::Allocation(error) if error.is_configuration() => exit::CONFIGURATION,
            RunError::Undrained { unwritable: true, .. } => exit::CANNOT_WRITE,
            RunError::Undrained { unwritable: false, .. } => exit::DAMAGED_DATA,
            RunError::Requeue(error) if error.is_configuration() => exit::CONFIGURATION,
            RunError::NotRequeued { error, .. } => error.exit_code(),
            RunError::Signal(_) => exit::NOT_FINISHED,
            RunError::Fleet(_) | RunError::Trust(_) => exit::INTERNAL,
            RunError::Standalone(error) => error.exit_code(),
            RunError::State(error) => error.exit_code(),
            RunError::Io { source, .. } if state_files::is_refusal(source) => exit::CONFIGURATION,
            _ => exit::UNAVAILABLE,
        }
    }

    pub(super) fn io(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| RunError::Io { action, source }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    #[error("{0}; try it by hand")]
    ExternalCommand(#[from] ExternalCommandError),
    #[error(
        "{} needs {}, which cannot be found; load the modules that it was built with, or set LD_LIBRARY_PATH under \
         `run.env`",
        program.display(),
        missing.join(", ")
    )]
    Libraries { program: PathBuf, missing: Vec<String> },
    #[error(
        "{} makes its checkpoints with {}, which `checkpoint: {{source: {found}}}` does not serve; write `source: \
         {needed}`", program.display(), library.display()
    )]
    OtherSource { program: PathBuf, library: PathBuf, found: &'static str, needed: &'static str },
    #[error(
        "{} makes its checkpoints with {}, a later SCR than v1.1-8: Holdfast does not read its files, and could not \
         save them; link the program with Holdfast's libscr (docs/libscr.md)",
        program.display(), library.display()
    )]
    LaterScr { program: PathBuf, library: PathBuf },
    #[error(
        "{}: {how} ({mpi}), and the launcher would start each rank as a program of its own; {remedy}",
        program.display()
    )]
    OtherMpi { program: PathBuf, how: String, mpi: &'static str, remedy: String },
    /// The library of `checkpoint.interpose`.
    #[error(
        "`checkpoint.interpose.files` needs libscr_interpose, which is not in {}; install it there, or write its path \
         under `checkpoint.interpose.library`",
        searched.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoInterposition { searched: Vec<PathBuf> },
    #[error(
        "libscr_interpose cannot be loaded from {}: the path has a blank or a colon, which LD_PRELOAD separates paths \
         by; install it elsewhere",
        path.display()
    )]
    InterpositionPath { path: PathBuf },
    /// Of a program that does not use the API.
    #[error("`{key}`: {program:?} does not exist or is not executable; check its path and mode")]
    Command { key: &'static str, program: String },
}
