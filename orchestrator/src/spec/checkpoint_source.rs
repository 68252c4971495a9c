//! What checkpoint sources do with a step that was read: further checks, and what becomes of its keys. The registry of
//! the layer above supplies the entries.

use holdfast_rank::SaverSettings;
use holdfast_wire::run::CheckpointSchedule;

use super::checkpoint::Checkpoint;
use super::reading::Reader;
use super::registered::SourceFacts;
use super::run::RunSpec;
use super::supervision::{Health, Progress};

/// The key below `checkpoint:` with which ranks read the files in the prefix directory itself. Only sources that list
/// it can do that.
pub const FROM_PREFIX: &str = "restart.from_prefix";

/// The key below `checkpoint:` with which a checkpoint of another number of ranks can be used. Only sources that list
/// it can read one.
pub const RESTART_RANKS: &str = "restart.ranks";

/// What produces the checkpoint files of a step.
#[derive(Debug)]
pub struct CheckpointSource {
    pub facts: SourceFacts,
    /// Checks of a step with this source that its keys do not express.
    pub check: fn(&StepCheck<'_>),
    /// What rank processes do to have their program save itself; `None` if there are no rank processes.
    pub saver: fn(&Checkpoint) -> Option<SaverSettings>,
    /// When the checkpoints of rank processes are due.
    pub schedule: fn(&Checkpoint) -> Option<CheckpointSchedule>,
}

impl PartialEq for CheckpointSource {
    fn eq(&self, other: &Self) -> bool {
        self.facts.agent.name == other.facts.agent.name
    }
}

/// A step whose source checks it.
pub struct StepCheck<'a> {
    pub checkpoint: &'a Checkpoint,
    pub run: &'a RunSpec,
    /// `health:` and `progress:` of the job.
    pub health: &'a Health,
    pub progress: &'a Progress,
    /// In front of the paths of the step's keys.
    pub(super) key_path: &'a str,
    pub(super) reader: &'a Reader,
}

impl StepCheck<'_> {
    /// The path of a key of the step's checkpoints.
    pub fn path_of(&self, key: &str) -> String {
        format!("{}checkpoint.{key}", self.key_path)
    }

    /// Adds a mistake at the position of a key of the step's checkpoints.
    pub fn mistake(&self, key: &str, message: impl Into<String>, help: impl Into<String>) {
        self.reader.mistake(&self.path_of(key), message, help);
    }

    /// As [`StepCheck::mistake`], for a key of the step's run.
    pub fn mistake_in_run(&self, key: &str, message: impl Into<String>, help: impl Into<String>) {
        self.reader.mistake(&format!("{}run.{key}", self.key_path), message, help);
    }

    /// As [`StepCheck::mistake`], for a key of the job.
    pub fn mistake_in_job(&self, key: &str, message: impl Into<String>, help: impl Into<String>) {
        self.reader.mistake(key, message, help);
    }

    /// Refuses a key of the step's checkpoints, if the spec sets it to a value that is not its default.
    pub fn refuse(&self, key: &str, message: impl Into<String>, help: impl Into<String>) {
        self.refuse_in_job(&self.path_of(key), message, help);
    }

    /// As [`StepCheck::refuse`], for a key of the job.
    pub fn refuse_in_job(&self, key: &str, message: impl Into<String>, help: impl Into<String>) {
        if self.reader.is_decided(key) {
            self.reader.mistake(key, message, help);
        }
    }
}
