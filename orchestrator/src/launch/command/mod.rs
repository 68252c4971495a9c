//! A launcher command that starts all ranks (`srun`, `mpirun`), supervised by the step supervisor.
//!
//! Its output goes to files, so that it never waits for a reader and is kept when readers end. The ends of single ranks
//! are parsed from its standard error while it runs ([`LauncherMessages`]) and reported in the order that [`rank_ends`]
//! determines; those of all other ranks follow from the exit status of the command.

pub(super) mod abort;
pub(super) mod rank_ends;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_core::state_files;
use holdfast_model::{NodeName, Rank, RankEnd};
use holdfast_process::descendants;
use rank_ends::{LauncherMessages, RankEnds};
use serde::{Deserialize, Serialize};

use super::error::LaunchError;
use super::growing_file::GrowingFile;
use super::obstacle::Obstacle;
use super::plan::{StepEvent, StepPlan};
use super::step::Step;

/// Interval at which the messages and the end of the command are polled.
const POLL_EVERY: Duration = Duration::from_millis(10);
/// The helpers of a launcher that has ended end within this time.
const HELPERS_END_WITHIN: Duration = Duration::from_secs(1);
/// Maximum size of a read of the messages.
const PIECE_BYTES: u64 = 64 << 10;
/// Longer lines are not messages of the launcher.
const LONGEST_LINE: usize = 64 << 10;

/// A command that starts all ranks. The program and its arguments follow the options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LauncherCommand {
    pub(super) program: PathBuf,
    pub(super) options: Vec<String>,
    /// Variables that are removed from its environment.
    pub(super) without: Vec<String>,
    /// The ranks with their nodes.
    pub(super) ranks: BTreeMap<Rank, NodeName>,
}

/// Runs the command to its end. Retries while its messages give a reason.
pub(super) fn supervise(
    step: &mut Step,
    command: &LauncherCommand,
    messages: &mut impl LauncherMessages,
) -> Result<(), LaunchError> {
    // Adopts the processes that it leaves behind, so that they can be killed.
    descendants::adopt();
    let first = command.ranks.keys().next().copied().unwrap_or(Rank(0));
    let mut watch = LauncherWatch::new(command, messages, &step.directory);
    let mut waiting_for = None;
    loop {
        match start(step, command, first) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => {
                let (reason, obstacle) = (error.to_string(), Obstacle::of_error(&error));
                return step.emit(&StepEvent::Refused { rank: first, reason, obstacle });
            }
        }
        let launcher = wait_for_end(step, &mut watch)?;
        let again = if step.children.is_ending() { None } else { watch.retry(launcher) };
        let Some((reason, pause)) = again else {
            let ended = step.emit_all(watch.finish(launcher, &step.directory));
            descendants::terminate(HELPERS_END_WITHIN);
            return ended;
        };
        descendants::terminate(HELPERS_END_WITHIN);
        if waiting_for.as_ref() != Some(&reason) {
            step.emit(&StepEvent::Waiting { reason: reason.clone() })?;
            waiting_for = Some(reason);
        }
        let until = Instant::now() + pause;
        while Instant::now() < until && !step.children.is_ending() {
            std::thread::sleep(POLL_EVERY);
        }
    }
}

/// Waits for the end of the command, and reports the ends of ranks in the meantime.
fn wait_for_end(step: &mut Step, watch: &mut LauncherWatch<'_, impl LauncherMessages>) -> Result<RankEnd, LaunchError> {
    loop {
        if let Some((_, end)) = step.children.reap().pop() {
            return Ok(end);
        }
        let events = watch.poll(&step.directory);
        // Ranks that have started would wait for the others.
        let refused = events.iter().any(|event| matches!(event, StepEvent::Refused { .. }));
        step.emit_all(events)?;
        if refused {
            step.kill_all();
        }
        std::thread::sleep(POLL_EVERY);
    }
}

/// Starts the command, registered under the first rank; false if the step is ending.
fn start(step: &Step, launcher: &LauncherCommand, first: Rank) -> io::Result<bool> {
    let mut command = Command::new(&launcher.program);
    for name in &launcher.without {
        command.env_remove(name);
    }
    command
        .args(&launcher.options)
        .arg(&step.plan.program)
        .args(&step.plan.arguments)
        .current_dir(&step.plan.working_directory)
        .envs(&step.plan.environment)
        // That of the orchestrator; the launcher passes it on.
        .stdin(Stdio::inherit())
        .stdout(state_files::append(&StepPlan::all_output_in(&step.directory))?)
        .stderr(state_files::append(&StepPlan::all_errors_in(&step.directory))?);
    let cannot =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot run {}: {error}", launcher.program.display()));
    step.children.start(first, &mut command).map(|started| started.is_some()).map_err(cannot)
}

/// Reads the output of the command.
struct LauncherWatch<'a, D> {
    messages: &'a mut D,
    ends: RankEnds,
    errors: GrowingFile,
}

impl<'a, D: LauncherMessages> LauncherWatch<'a, D> {
    fn new(command: &LauncherCommand, messages: &'a mut D, directory: &Path) -> Self {
        let errors = GrowingFile::new(StepPlan::all_errors_in(directory), 0);
        LauncherWatch { messages, ends: RankEnds::new(command.ranks.clone()), errors }
    }

    /// The events since the last poll.
    fn poll(&mut self, directory: &Path) -> Vec<StepEvent> {
        self.read_lines();
        self.ends.release_due(self.messages);
        self.messages.poll(directory, &mut self.ends);
        self.ends.take_events()
    }

    /// Whether to retry the command, which has ended like this: reason and pause.
    fn retry(&mut self, launcher: RankEnd) -> Option<(String, Duration)> {
        self.read_lines();
        self.messages.retry(launcher, &self.ends)
    }

    /// The last events, after the command has ended like this.
    fn finish(&mut self, launcher: RankEnd, directory: &Path) -> Vec<StepEvent> {
        self.read_lines();
        if launcher != RankEnd::SUCCESS {
            // It may have ended at once for a reason that is only in the directory.
            self.messages.poll(directory, &mut self.ends);
        }
        self.ends.release(self.messages, Some(launcher));
        self.messages.finish(launcher, &mut self.ends);
        let end = self.messages.end_of_unreported(launcher, &self.ends);
        self.ends.report_remaining(end);
        self.ends.take_events()
    }

    fn read_lines(&mut self) {
        let labels = self.messages.labels();
        // After a read error, the next poll retries; at the end the exit status suffices.
        while let Ok(read) = self.errors.read(PIECE_BYTES) {
            let complete = self.errors.complete();
            let lines: Vec<u8> = self.errors.rest.drain(..complete).collect();
            for line in lines.split(|byte| *byte == b'\n') {
                let labelled = (labels.read)(line);
                let (rank, text) = labelled.as_ref().map_or((None, line), |(rank, text)| (Some(*rank), text.as_ref()));
                let Ok(text) = std::str::from_utf8(text) else { continue };
                self.ends.read_abort(rank, text);
                self.messages.read_line(rank, text, &mut self.ends);
            }
            if self.errors.rest.len() > LONGEST_LINE {
                self.errors.rest.clear();
            }
            if read < PIECE_BYTES {
                break;
            }
        }
    }
}

/// Fixtures for the tests of launchers.
#[cfg(any(test, fuzzing))]
#[allow(clippy::unwrap_used)]
pub(super) mod fixtures {
    use super::*;

    /// A command with ranks 0, 1 and 2 that has printed a text.
    pub(in crate::launch) struct Watched<D> {
        directory: tempfile::TempDir,
        messages: D,
        ends: Option<(RankEnds, u64)>,
    }

    impl<D: LauncherMessages> Watched<D> {
        pub(in crate::launch) fn new(messages: D, text: &str) -> Self {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(StepPlan::all_errors_in(directory.path()), text).unwrap();
            Watched { directory, messages, ends: None }
        }

        fn with<R>(&mut self, work: impl FnOnce(&mut LauncherWatch<'_, D>, &Path) -> R) -> R {
            let ranks = (0..3).map(|rank| (Rank(rank), NodeName::from("n1"))).collect();
            let (ends, offset) = self.ends.take().unwrap_or_else(|| (RankEnds::new(ranks), 0));
            let errors = GrowingFile::new(StepPlan::all_errors_in(self.directory.path()), offset);
            let mut watch = LauncherWatch { messages: &mut self.messages, ends, errors };
            let result = work(&mut watch, self.directory.path());
            self.ends = Some((watch.ends, watch.errors.offset));
            result
        }

        /// The directory of the step.
        #[cfg(test)]
        pub(in crate::launch) fn directory(&self) -> &Path {
            self.directory.path()
        }

        pub(in crate::launch) fn poll(&mut self) -> Vec<StepEvent> {
            self.with(|watch, directory| watch.poll(directory))
        }

        pub(in crate::launch) fn retry(&mut self, end: RankEnd) -> Option<String> {
            self.with(|watch, _| watch.retry(end)).map(|(reason, _)| reason)
        }

        pub(in crate::launch) fn finish(&mut self, end: RankEnd) -> Vec<StepEvent> {
            self.with(|watch, directory| watch.finish(end, directory))
        }
    }
}
