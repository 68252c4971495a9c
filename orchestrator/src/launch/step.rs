//! A step as the supervision of a launcher sees it: the plan, the processes, and the events, each of which is appended
//! to `steps.jsonl`.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::state_files;
use holdfast_process::Children;

use super::error::LaunchError;
use super::labels::LineLabels;
use super::plan::{StepEvent, StepPlan};
use super::ranks;

/// Starts the ranks of a plan and supervises them.
pub trait Supervision {
    /// Runs until the last rank has ended. Emits events with [`Step::emit`].
    ///
    /// # Errors
    /// The generation's directory cannot be written to.
    fn run(&mut self, step: &mut Step) -> Result<(), LaunchError>;

    /// The labels of lines in a file of all ranks; `None` if each rank has its own files.
    fn labels(&self) -> Option<&'static LineLabels> {
        None
    }
}

/// A supervised step: its plan, its processes and its events.
#[derive(Debug)]
pub struct Step {
    pub plan: StepPlan,
    pub directory: PathBuf,
    pub(super) children: Arc<Children>,
    events: File,
}

impl Step {
    /// A step without processes, whose events are appended to the file in its directory.
    pub(super) fn new(plan: StepPlan, directory: &Path) -> Result<Self, LaunchError> {
        let path = StepPlan::events_in(directory);
        let events = state_files::append(&path)?;
        Ok(Step { plan, directory: directory.to_owned(), children: Arc::new(Children::default()), events })
    }

    /// Appends an event, one write a line.
    ///
    /// # Errors
    /// [`LaunchError::File`].
    pub fn emit(&mut self, event: &StepEvent) -> Result<(), LaunchError> {
        let written = serde_json::to_vec(event).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.events.write_all(&line)
        });
        written.map_err(|source| LaunchError::file("write to", StepPlan::events_in(&self.directory))(source))
    }

    /// Kills all processes of the step and their descendants. Nothing is started afterwards.
    pub(super) fn kill_all(&self) {
        ranks::kill_all(&self.children);
    }

    /// Appends events.
    ///
    /// # Errors
    /// [`LaunchError::File`].
    pub fn emit_all(&mut self, events: impl IntoIterator<Item = StepEvent>) -> Result<(), LaunchError> {
        events.into_iter().try_for_each(|event| self.emit(&event))
    }
}
