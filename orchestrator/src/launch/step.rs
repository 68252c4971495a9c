//! The step supervisor: `holdfast step PLAN`.
//!
//! It is the parent of what a launcher starts, so that the ranks and their exit statuses survive an orchestrator that is
//! killed. How the ranks are started and watched is the launcher's [`Supervision`](super::Supervision); a line is appended to
//! `steps.jsonl` for whatever happens. SIGTERM makes it kill everything. A lock file tells that it lives: unlike a process
//! number, a lock cannot come to belong to another process.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::children::Children;
use super::command::descendants;
use super::plan::{StepEvent, StepPlan};
use super::{LaunchError, registry};
use crate::host::descriptors;

/// A step under supervision: its plan, its processes, and where its events go.
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
        let events = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let events = events.map_err(LaunchError::file("open", &path))?;
        Ok(Step { plan, directory: directory.to_owned(), children: Arc::new(Children::default()), events })
    }

    /// Appends an event. One write a line: a reader never sees two half lines mixed.
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

    /// Kills all processes of the step, and what they have started; nothing is started any more.
    pub(super) fn kill_all(&self) {
        kill_all(&self.children);
    }

    /// Appends events.
    ///
    /// # Errors
    /// [`LaunchError::File`].
    pub fn emit_all(&mut self, events: impl IntoIterator<Item = StepEvent>) -> Result<(), LaunchError> {
        events.into_iter().try_for_each(|event| self.emit(&event))
    }
}

/// Runs the step of a plan to its end.
///
/// # Errors
/// The plan cannot be read, another supervisor has it, or its directory cannot be written to.
pub fn supervise(plan_path: &Path) -> Result<(), LaunchError> {
    let plan = StepPlan::read(plan_path)?;
    let mut supervision = registry::supervision(&plan)?;
    let directory = plan_path.parent().unwrap_or(Path::new(".")).to_owned();
    let _lock = take_lock(&directory)?;
    let mut step = Step::new(plan, &directory)?;
    watch_signals(&step.children)?;
    step.emit(&StepEvent::Supervisor { pid: std::process::id() })?;
    supervision.run(&mut step)?;
    step.emit(&StepEvent::Done)
}

fn kill_all(children: &Children) {
    children.kill_all();
    // A launcher's helpers have process groups of their own.
    descendants::kill();
}

/// SIGTERM kills the ranks. SIGHUP and SIGINT belong to a terminal that is not ours, SIGUSR1 and SIGUSR2 are a resource
/// manager's warning to the orchestrator or the ranks; a handler, unlike an ignored signal, is not inherited by the ranks.
fn watch_signals(children: &Arc<Children>) -> Result<(), LaunchError> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2]).map_err(LaunchError::Supervisor)?;
    let children = Arc::clone(children);
    let watch = move || {
        for signal in signals.forever() {
            if signal == SIGTERM {
                kill_all(&children);
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(watch).map_err(LaunchError::Supervisor)?;
    Ok(())
}

fn take_lock(directory: &Path) -> Result<File, LaunchError> {
    let path = StepPlan::lock_in(directory);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(LaunchError::file("open", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(LaunchError::Running { path: directory.to_owned() }),
        Err(errno) => Err(LaunchError::file("lock", path)(errno.into())),
    }
}

/// True while the supervisor of a generation's directory lives.
pub fn is_supervised(directory: &Path) -> bool {
    let Ok(file) = File::open(StepPlan::lock_in(directory)) else { return false };
    matches!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
}

/// What a launcher command gets as standard input: what the orchestrator was given, unless that is a terminal, which a
/// process in the background must not read. A file begins anew with every generation; from a pipe each takes what is left.
fn standard_input() -> Stdio {
    let own = io::stdin();
    match File::open("/proc/self/fd/0").and_then(|file| Ok((file.metadata()?.file_type(), file))) {
        Ok((kind, file)) if kind.is_file() => Stdio::from(file),
        Ok((kind, _)) if kind.is_fifo() && !own.is_terminal() => Stdio::inherit(),
        _ => Stdio::null(),
    }
}

/// Starts the supervisor of the plan in `directory`, detached from us: it outlives the orchestrator.
///
/// # Errors
/// [`LaunchError::Supervisor`].
pub fn spawn(program: &Path, directory: &Path) -> Result<std::process::Child, LaunchError> {
    let log_path = directory.join("step.log");
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&log_path);
    let child = Command::new(program)
        .arg("step")
        .arg(StepPlan::path_in(directory))
        .stdin(standard_input())
        .stdout(Stdio::null())
        .stderr(log.map_err(LaunchError::file("open", log_path))?)
        .process_group(0)
        .spawn()
        .map_err(LaunchError::Supervisor)?;
    // Ranks may use `select`.
    descriptors::restore_limit(child.id());
    Ok(child)
}
