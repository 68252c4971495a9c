//! One launcher command that starts all ranks (`srun`, `mpirun`), watched by the step supervisor.
//!
//! Its output goes to files, so that it never waits for a reader and outlives everybody who might read. What it says of
//! single ranks is read from its standard error while it runs ([`LauncherMessages`]); in which order their ends are reported is
//! decided in [`rank_ends`]; when the command ends, the rest follows from its exit status.

pub(super) mod abort;
pub(super) mod descendants;
pub(super) mod rank_ends;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_model::{NodeName, Rank, RankEnd};
use serde::{Deserialize, Serialize};

use super::children::Started;
use super::{LaunchError, LineLabels, Step, StepEvent, StepPlan};
use rank_ends::RankEnds;

/// How often the command's messages are read, and its end is looked for.
const POLL_EVERY: Duration = Duration::from_millis(10);
/// Read of the launcher's messages at once at most.
const PIECE_BYTES: u64 = 64 << 10;
/// A line without end is not the launcher's.
const LONGEST_LINE: usize = 64 << 10;

/// A command that starts all ranks: the program and its arguments follow its own options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LauncherCommand {
    pub(super) program: PathBuf,
    pub(super) options: Vec<String>,
    /// Variables that it must not inherit.
    pub(super) without: Vec<String>,
    /// The ranks that it starts, and where.
    pub(super) ranks: BTreeMap<Rank, NodeName>,
}

/// What a launcher says of its ranks, and what its own end means.
pub(super) trait LauncherMessages {
    /// How it labels the lines of ranks.
    fn labels(&self) -> &'static LineLabels;

    /// A line of standard error, without its label: of a rank, or of the launcher itself.
    fn read_line(&mut self, rank: Option<Rank>, text: &str, ends: &mut RankEnds);

    /// Looks for what the launcher does not say itself.
    fn poll(&mut self, _directory: &Path, _ends: &mut RankEnds) {}

    /// True for a signal by which this launcher ends ranks for the sake of others.
    fn is_own_signal(&self, end: RankEnd) -> bool;

    /// True for an end that is reported only later, when it is known whether another rank's end explains it; it is
    /// most likely this launcher's doing, which its own end will show.
    fn waits_for_launcher(&self, end: RankEnd) -> bool;

    /// The launcher has ended without starting anything, for a reason that passes: the reason, and after which time to
    /// try again.
    fn retry(&mut self, _launcher: RankEnd, _ends: &RankEnds) -> Option<(String, Duration)> {
        None
    }

    /// The launcher has ended, and all its lines are read: reports what follows from that.
    fn finish(&mut self, launcher: RankEnd, ends: &mut RankEnds);

    /// How the ranks ended of which nothing was said, when the launcher has ended so.
    fn end_of_unreported(&self, launcher: RankEnd, ends: &RankEnds) -> RankEnd;
}

/// Runs the command to its end; again, while its messages give a reason to retry.
pub(super) fn supervise(
    step: &mut Step,
    command: &LauncherCommand,
    messages: &mut impl LauncherMessages,
) -> Result<(), LaunchError> {
    // What it starts and leaves behind comes to us, so that we can end it.
    descendants::adopt();
    let first = command.ranks.keys().next().copied().unwrap_or(Rank(0));
    let mut watch = LauncherWatch::new(command, messages);
    let mut waiting_for = None;
    loop {
        match start(step, command, first) {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(error) => return step.emit(&StepEvent::Refused { rank: first, reason: error.to_string() }),
        }
        let launcher = wait_for_end(step, &mut watch)?;
        let again = if step.children.is_ending() { None } else { watch.retry(&step.directory, launcher) };
        let Some((reason, pause)) = again else {
            let ended = step.emit_all(watch.finish(&step.directory, launcher));
            descendants::terminate();
            return ended;
        };
        descendants::terminate();
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

/// Waits for the end of the command, and reports the ends of ranks meanwhile.
fn wait_for_end(step: &mut Step, watch: &mut LauncherWatch<'_, impl LauncherMessages>) -> Result<RankEnd, LaunchError> {
    loop {
        if let Some((_, end)) = step.children.reap().pop() {
            return Ok(end);
        }
        let events = watch.poll(&step.directory);
        // Some ranks may have begun, and would wait for those that cannot.
        let refused = events.iter().any(|event| matches!(event, StepEvent::Refused { .. }));
        step.emit_all(events)?;
        if refused {
            step.kill_all();
        }
        std::thread::sleep(POLL_EVERY);
    }
}

/// Starts the command in the name of the first rank; `None` if the step is ending.
fn start(step: &Step, launcher: &LauncherCommand, first: Rank) -> io::Result<Option<Started>> {
    let open = |path| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
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
        // What the orchestrator was given, if it was anything: the launcher hands it on.
        .stdin(Stdio::inherit())
        .stdout(open(StepPlan::all_output_in(&step.directory))?)
        .stderr(open(StepPlan::all_errors_in(&step.directory))?);
    let cannot =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot run {}: {error}", launcher.program.display()));
    step.children.start(first, &mut command).map_err(cannot)
}

/// Reads what the command says, in the words of its messages.
struct LauncherWatch<'a, D> {
    messages: &'a mut D,
    ends: RankEnds,
    errors: Option<File>,
    offset: u64,
    partial: Vec<u8>,
}

impl<'a, D: LauncherMessages> LauncherWatch<'a, D> {
    fn new(command: &LauncherCommand, messages: &'a mut D) -> Self {
        let ends = RankEnds::new(command.ranks.clone());
        LauncherWatch { messages, ends, errors: None, offset: 0, partial: Vec::new() }
    }

    /// What has become known since the last look.
    fn poll(&mut self, directory: &Path) -> Vec<StepEvent> {
        self.read_lines(directory);
        self.ends.release_due(self.messages);
        self.messages.poll(directory, &mut self.ends);
        self.ends.take_events()
    }

    /// Whether the command, which has ended with this, is to be tried again, with this same watch.
    fn retry(&mut self, directory: &Path, launcher: RankEnd) -> Option<(String, Duration)> {
        self.read_lines(directory);
        self.messages.retry(launcher, &self.ends)
    }

    /// The command has ended with this: so have all ranks of which it said nothing.
    fn finish(&mut self, directory: &Path, launcher: RankEnd) -> Vec<StepEvent> {
        self.read_lines(directory);
        self.ends.release(self.messages, Some(launcher));
        self.messages.finish(launcher, &mut self.ends);
        let end = self.messages.end_of_unreported(launcher, &self.ends);
        self.ends.report_remaining(end);
        self.ends.take_events()
    }

    fn read_lines(&mut self, directory: &Path) {
        let labels = self.messages.labels();
        // A file that cannot be read now is read the next time; at the end the exit status says enough.
        while let Ok(read) = self.read(directory) {
            let whole = self.partial.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines: Vec<u8> = self.partial.drain(..whole).collect();
            for line in lines.split(|byte| *byte == b'\n') {
                let labelled = (labels.read)(line);
                let (rank, text) = labelled.as_ref().map_or((None, line), |(rank, text)| (Some(*rank), text.as_ref()));
                let Ok(text) = std::str::from_utf8(text) else { continue };
                self.ends.read_abort(rank, text);
                self.messages.read_line(rank, text, &mut self.ends);
            }
            if self.partial.len() > LONGEST_LINE {
                self.partial.clear();
            }
            if read < PIECE_BYTES {
                break;
            }
        }
    }

    fn read(&mut self, directory: &Path) -> io::Result<u64> {
        let file = match &mut self.errors {
            Some(file) => file,
            None => self.errors.insert(File::open(StepPlan::all_errors_in(directory))?),
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let read = file.take(PIECE_BYTES).read_to_end(&mut self.partial)? as u64;
        self.offset += read;
        Ok(read)
    }
}

/// What the tests of its users have in common.
#[cfg(test)]
pub(super) mod fixtures {
    use super::*;

    /// The ranks 0, 1 and 2 of a command that wrote this, watched by its messages.
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
            let mut watch =
                LauncherWatch { messages: &mut self.messages, ends, errors: None, offset, partial: Vec::new() };
            let result = work(&mut watch, self.directory.path());
            self.ends = Some((watch.ends, watch.offset));
            result
        }

        pub(in crate::launch) fn poll(&mut self) -> Vec<StepEvent> {
            self.with(|watch, directory| watch.poll(directory))
        }

        pub(in crate::launch) fn retry(&mut self, end: RankEnd) -> Option<String> {
            self.with(|watch, directory| watch.retry(directory, end)).map(|(reason, _)| reason)
        }

        pub(in crate::launch) fn finish(&mut self, end: RankEnd) -> Vec<StepEvent> {
            self.with(|watch, directory| watch.finish(directory, end))
        }
    }
}
