//! Checkpoint sources: who produces the files of a checkpoint, and who reads them back.
//!
//! Behind every source all files take the same way: filemap, redundancy, flush, drain, index. A new source is one file
//! here and one line in [`REGISTRY`]; the names there are the values that `checkpoint.source` of a job spec may have.
//!
//! * [`files`]: the files of one rank on this node, as sources work with them;
//! * [`scr`]: the application, through the checkpoint API.

pub mod files;
pub mod scr;

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{CheckpointId, Dataset};
use holdfast_wire::run::{Settings, SourceName};

use self::files::{FileError, RankFiles};

/// A source for one generation: every node asks it for the files of its own ranks.
pub trait CheckpointSource: Debug + Send + Sync {
    /// When checkpoints are due, and what counts as one: for the run's leader.
    fn policy(&self) -> Box<dyn SourcePolicy>;

    /// Makes a checkpoint's file: where the rank's file of this base name is to be written. The file is recorded before
    /// it may exist. Blocks.
    ///
    /// # Errors
    /// When the file is another rank's, or cannot be recorded.
    fn make(&self, files: &RankFiles<'_>, checkpoint: CheckpointId, name: &str) -> Result<PathBuf, FileError>;

    /// Puts a checkpoint back: where the rank finds its files, and their base names. Blocks.
    ///
    /// # Errors
    /// When this node does not have the checkpoint.
    fn put_back(&self, files: &RankFiles<'_>, checkpoint: CheckpointId) -> Result<PutBack, FileError>;
}

/// When checkpoints of a source are due. The leader asks it; times are counted from any fixed instant, by the caller.
pub trait SourcePolicy: Debug + Send {
    /// The ranks begin to compute: from here on a checkpoint can become due.
    fn computing_begins(&mut self, now: Duration);

    /// True if a checkpoint is due. `halting`: a halt condition holds, so that the next checkpoint is the last.
    fn is_due(&mut self, now: Duration, halting: bool) -> bool;

    /// A checkpoint begins; from here on it costs time.
    fn checkpoint_begins(&mut self, now: Duration);

    /// The checkpoint is complete.
    fn checkpoint_complete(&mut self, now: Duration);

    /// True if this dataset is progress once it is complete: the job can go on from it, so that a generation that wrote
    /// it was not in vain.
    fn is_progress(&self, dataset: &Dataset) -> bool;
}

/// The files that a rank restarts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutBack {
    /// Their directory.
    pub directory: PathBuf,
    /// Their base names, in the order in which they were made.
    pub files: Vec<String>,
}

/// A source's line in the [`REGISTRY`].
#[derive(Debug)]
pub struct SourceEntry {
    /// Its name in a job spec.
    pub name: &'static str,
    /// The source for one generation.
    pub open: fn(&Settings) -> Arc<dyn CheckpointSource>,
}

/// All sources.
pub const REGISTRY: &[SourceEntry] = &[scr::ENTRY];

/// No source of this name exists.
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
    fn every_source_is_found_by_its_name_and_no_other_name_is_accepted() {
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
