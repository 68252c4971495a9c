//! What a checkpoint source is: what it declares about itself, what agents do for it, and when its checkpoints are due.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::{CheckpointId, Dataset, Level, SnapshotIntervals};
use holdfast_wire::rank::Interface;
use holdfast_wire::run::Settings;

use super::files::{FileError, PutBack, RankFiles};

/// The source of one generation, on every node for the files of its own ranks.
#[derive(Debug)]
pub struct CheckpointSource {
    pub(super) entry: &'static SourceEntry,
    pub(super) settings: Settings,
}

impl CheckpointSource {
    /// What the source declares about itself.
    pub fn entry(&self) -> &'static SourceEntry {
        self.entry
    }

    /// When checkpoints are due, and what counts as one: for the run's leader.
    pub fn policy(&self) -> Box<dyn SourcePolicy> {
        (self.entry.policy)(&self.settings)
    }

    /// The path at which the rank is to write the file that it named. The file is recorded before it may exist.
    /// Blocks.
    ///
    /// # Errors
    /// When the file is another rank's, or cannot be recorded.
    pub fn make(&self, files: &RankFiles<'_>, checkpoint: CheckpointId, name: &str) -> Result<PathBuf, FileError> {
        self.entry.refuses_calls.map_or_else(|| files.add(checkpoint, name), |refused| Err(refused()))
    }

    /// The directory and the base names of the files from which the rank restarts. Blocks.
    ///
    /// # Errors
    /// When this node does not have the checkpoint.
    pub fn put_back(&self, files: &RankFiles<'_>, checkpoint: CheckpointId) -> Result<PutBack, FileError> {
        self.entry.refuses_calls.map_or_else(|| files.written(checkpoint), |refused| Err(refused()))
    }
}

/// When checkpoints of a source are due, for the leader. Times are counted from a fixed instant, which the caller
/// chooses.
pub trait SourcePolicy: Debug + Send {
    /// True if the leader finds and rebuilds the checkpoint that the ranks restart from. Otherwise it must not touch
    /// what is in cache: the ranks do not restart, or another library restarts them.
    fn restarts_ranks(&self) -> bool {
        true
    }

    /// The ranks begin to compute: from here on a checkpoint can become due.
    fn computing_begins(&mut self, _now: Duration) {}

    /// True if a checkpoint is due. `halting`: a halt condition holds, so that the next checkpoint is the last.
    fn is_due(&mut self, now: Duration, halting: bool) -> bool;

    /// Why checkpoints cannot be requested; `None` if a request makes the next one due.
    fn refuses_requests(&self) -> Option<&'static str> {
        None
    }

    /// A checkpoint begins; from here on it costs time.
    fn checkpoint_begins(&mut self, _now: Duration) {}

    fn checkpoint_complete(&mut self, _now: Duration) {}

    /// The ranks go on after a dataset, after its flush if they wait for that.
    fn ranks_go_on(&mut self, _now: Duration) {}

    /// The checkpoint that has begun was dropped on all ranks.
    fn checkpoint_dropped(&mut self, _now: Duration) {}

    /// True if a checkpoint is due for rank processes that wait for it. `ready`: every program that has not ended has
    /// written the files of its next checkpoint.
    fn is_due_for_waiting(&mut self, now: Duration, halting: bool, _ready: bool) -> bool {
        self.is_due(now, halting)
    }

    /// From when on a checkpoint is due without any further event; `None` if that is not known.
    fn due_at(&self, _halting: bool) -> Option<Duration> {
        None
    }

    /// The level of the checkpoint of variables that is due, by these intervals or those of the job.
    fn due_level(&mut self, _now: Duration, _halting: bool, _own: Option<SnapshotIntervals>) -> Option<Level> {
        None
    }

    /// A checkpoint of this level is complete.
    fn level_complete(&mut self, _now: Duration, _level: Level) {}

    /// A checkpoint of level 4 could not be flushed: it serves level 1 only.
    fn flush_failed(&mut self, _now: Duration) {}

    /// True if a generation that completes this dataset has made progress: the job can continue from it.
    fn is_progress(&self, dataset: &Dataset) -> bool {
        dataset.checkpoint
    }
}

/// What a source declares about itself. All else asks this declaration.
#[derive(Debug)]
pub struct SourceEntry {
    /// Its name in a job spec.
    pub name: &'static str,
    /// Another library writes checkpoints, control files and caches, and has its settings as SCR_* variables: the
    /// agents only follow it, and ranks cannot call the API.
    pub is_library: bool,
    /// The ranks are rank processes (`holdfast rank`), which make the calls for the programs beside them.
    pub has_rank_processes: bool,
    /// The calls that programs of this source make; a program that makes others is refused.
    pub interface: Interface,
    /// Complete checkpoints are reported, and show that a generation has made progress. Otherwise nothing does, unless
    /// the job spec has `progress`.
    pub reports_progress: bool,
    /// Why ranks cannot make or read files through the API, if they cannot.
    pub refuses_calls: Option<fn() -> FileError>,
    /// When its checkpoints are due, for one generation.
    pub policy: fn(&Settings) -> Box<dyn SourcePolicy>,
}
