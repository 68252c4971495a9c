//! Checkpoint sources: what produces the files of a checkpoint, and reads them back.
//!
//! The files of all sources are treated alike: filemap, redundancy, flush, drain, index. A new source is one file
//! here and one line in [`REGISTRY`]; the names there are the values that `checkpoint.source` of a job spec may have.
//!
//! * [`files`]: access of sources to the files of one rank on this node;
//! * [`scr`]: the application, through the checkpoint API;
//! * [`scr_files`]: LLNL's library;
//! * [`command`]: a program that does not use the API, through its rank process ([`schedule`]: when its checkpoints are
//!   due);
//! * [`jubatus`]: Jubatus servers, through rank processes;
//! * [`variables`]: the application, through the variables API;
//! * [`none`]: a program without checkpoints.

pub mod command;
pub mod files;
pub mod jubatus;
pub mod none;
pub mod schedule;
pub mod scr;
pub mod scr_files;
pub mod variables;

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{CheckpointId, Dataset, Level, SnapshotIntervals};
use holdfast_wire::rank::Interface;
use holdfast_wire::run::{Settings, SourceName};

use self::files::{FileError, RankFiles};

/// A source for one generation, on every node for the files of its own ranks.
pub trait CheckpointSource: Debug + Send + Sync {
    /// True if another library writes checkpoints, control files and caches: the agent only follows them, and
    /// ranks cannot call the API.
    fn is_library(&self) -> bool {
        false
    }

    /// True if the ranks are rank processes (`holdfast rank`), which make the calls for the programs beside them.
    fn has_rank_processes(&self) -> bool {
        false
    }

    /// The calls that programs of this source make; a program that makes others is refused.
    fn interface(&self) -> Interface {
        Interface::Files
    }

    /// When checkpoints are due, and what counts as one: for the run's leader.
    fn policy(&self) -> Box<dyn SourcePolicy>;

    /// The path at which the rank is to write the file that it named. The file is recorded before it may exist.
    /// Blocks.
    ///
    /// # Errors
    /// When the file is another rank's, or cannot be recorded.
    fn make(&self, files: &RankFiles<'_>, checkpoint: CheckpointId, name: &str) -> Result<PathBuf, FileError> {
        files.add(checkpoint, name)
    }

    /// The directory and the base names of the files from which the rank restarts. Blocks.
    ///
    /// # Errors
    /// When this node does not have the checkpoint.
    fn put_back(&self, files: &RankFiles<'_>, checkpoint: CheckpointId) -> Result<PutBack, FileError> {
        files.written(checkpoint)
    }
}

/// When checkpoints of a source are due, for the leader. Times are counted from a fixed instant, which the caller
/// chooses.
pub trait SourcePolicy: Debug + Send {
    /// The ranks begin to compute: from here on a checkpoint can become due.
    fn computing_begins(&mut self, _now: Duration) {}

    /// True if a checkpoint is due. `halting`: a halt condition holds, so that the next checkpoint is the last.
    fn is_due(&mut self, now: Duration, halting: bool) -> bool;

    /// Why checkpoints cannot be requested; `None` if a request makes the next one due.
    fn refuses_requests(&self) -> Option<&'static str>;

    /// A checkpoint begins; from here on it costs time.
    fn checkpoint_begins(&mut self, _now: Duration) {}

    fn checkpoint_complete(&mut self, _now: Duration) {}

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

/// The files that a rank restarts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutBack {
    pub directory: PathBuf,
    /// Their base names, in the order in which they were made.
    pub files: Vec<String>,
}

#[derive(Debug)]
pub struct SourceEntry {
    /// Its name in a job spec.
    pub name: &'static str,
    /// Complete checkpoints are reported, and show that a generation has made progress. Otherwise nothing does, unless
    /// the job spec has `progress`.
    pub reports_progress: bool,
    /// The source for one generation.
    pub open: fn(&Settings) -> Arc<dyn CheckpointSource>,
}

pub const REGISTRY: &[SourceEntry] =
    &[scr::ENTRY, scr_files::ENTRY, command::ENTRY, jubatus::ENTRY, variables::ENTRY, none::ENTRY];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the checkpoint source {0} does not exist in this version")]
pub struct UnknownSource(pub SourceName);

/// The source that a run's settings name.
///
/// # Errors
/// When there is none of this name.
pub fn open(settings: &Settings) -> Result<Arc<dyn CheckpointSource>, UnknownSource> {
    let entry = REGISTRY.iter().find(|entry| entry.name == settings.source.0);
    entry.map(|entry| (entry.open)(settings)).ok_or_else(|| UnknownSource(settings.source.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    use holdfast_model::Generation;

    use crate::store::fixture_node::fixture_plan;

    #[test]
    fn finds_every_source_by_its_name_and_refuses_other_names() {
        let mut settings = fixture_plan(Generation(1), "node1", &[1]).settings;
        for entry in REGISTRY {
            settings.source = SourceName(entry.name.to_owned());
            open(&settings).unwrap();
        }
        settings.source = SourceName("server".to_owned());
        assert_eq!(
            open(&settings).unwrap_err().to_string(),
            "the checkpoint source server does not exist in this version"
        );
    }
}
