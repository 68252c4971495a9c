//! The step supervisor: `holdfast step PLAN`.
//!
//! It is the parent of the processes of a launcher, so that the ranks and their exit statuses survive an orchestrator
//! that is killed. The launcher's [`Supervision`](super::Supervision) starts and supervises the ranks; each event is
//! appended to `steps.jsonl`. On SIGTERM it kills everything. It keeps a lock file locked while it runs: unlike a
//! process id, a lock cannot be reused by another process.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::children::Children;
use super::plan::{StepEvent, StepPlan};
use super::{LaunchError, named_files, registry};
use crate::host::{descriptors, own_files};
use holdfast_rank::descendants;

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
        let events = own_files::append(&path)?;
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
/// The plan cannot be read, the step has another supervisor, or its directory cannot be written to.
pub fn supervise(plan_path: &Path) -> Result<(), LaunchError> {
    let plan = StepPlan::read(plan_path)?;
    let mut supervision = registry::supervision(&plan)?;
    let directory = plan_path.parent().unwrap_or(Path::new(".")).to_owned();
    let _lock = take_lock(&directory)?;
    let mut step = Step::new(plan, &directory)?;
    watch_signals(&step.children)?;
    step.emit(&StepEvent::Supervisor { pid: std::process::id() })?;
    let ended = supervision.run(&mut step);
    if let Some(private) = &step.plan.private_directory
        && let Err(error) = named_files::remove(private, &step.plan.job_id)
    {
        tracing::warn!(%error, "private_launch_directory_not_removed");
    }
    ended?;
    step.emit(&StepEvent::Done)
}

fn kill_all(children: &Children) {
    children.kill_all();
    // Helpers of a launcher have their own process groups.
    descendants::kill();
}

/// SIGTERM kills the ranks. The other signals have no effect: SIGHUP and SIGINT come from a terminal, SIGUSR1 and
/// SIGUSR2 are warnings of a resource manager for the orchestrator or the ranks. Handlers, unlike ignored signals, are
/// not inherited by the ranks.
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
    let file = own_files::open_or_create(&path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(LaunchError::Running { path: directory.to_owned() }),
        Err(errno) => Err(LaunchError::file("lock", path)(errno.into())),
    }
}

/// True while a generation's directory has a supervisor.
pub fn is_supervised(directory: &Path) -> bool {
    lock_file(directory).is_some_and(|lock| is_held(&lock))
}

/// The lock of a supervisor, also after its end; `None` if there was none, or it cannot be opened.
pub(super) fn lock_file(directory: &Path) -> Option<File> {
    own_files::open(&StepPlan::lock_in(directory)).ok().flatten()
}

/// True while the supervisor has the lock, and if that cannot be known because the file system fails: the ranks of a
/// supervisor that is believed to have ended are killed.
pub(super) fn is_held(lock: &File) -> bool {
    let is_free = flock(lock, FlockOperation::NonBlockingLockShared).is_ok();
    if is_free {
        let _ = flock(lock, FlockOperation::Unlock);
    }
    !is_free
}

/// The standard input of a launcher command: that of the orchestrator, unless it is a terminal, which a background
/// process must not read. A file is read from its beginning in every generation; from a pipe each generation reads what
/// is left.
fn standard_input() -> Stdio {
    let own = io::stdin();
    match File::open("/proc/self/fd/0").and_then(|file| Ok((file.metadata()?.file_type(), file))) {
        Ok((kind, file)) if kind.is_file() => Stdio::from(file),
        Ok((kind, _)) if kind.is_fifo() && !own.is_terminal() => Stdio::inherit(),
        _ => Stdio::null(),
    }
}

/// Starts the supervisor of the plan in `directory`, detached, so that it survives the orchestrator.
///
/// # Errors
/// [`LaunchError::Supervisor`].
pub fn spawn(program: &Path, directory: &Path) -> Result<std::process::Child, LaunchError> {
    let log = own_files::append(&directory.join("step.log"))?;
    let child = Command::new(program)
        .arg("step")
        .arg(StepPlan::path_in(directory))
        .stdin(standard_input())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0)
        .spawn()
        .map_err(LaunchError::Supervisor)?;
    // Ranks may use `select`, which fails with a higher limit.
    descriptors::restore_limit(child.id());
    Ok(child)
}
