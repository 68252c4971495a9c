//! The step supervisor: `holdfast step PLAN`.
//!
//! It is the parent of the processes of a launcher, so that the ranks and their exit statuses survive an orchestrator
//! that is killed. The launcher's [`Supervision`](super::step::Supervision) starts and supervises the ranks; each event
//! is appended to `steps.jsonl`. On SIGTERM it kills everything. It holds the lock of
//! the generation's directory while it runs.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use holdfast_core::state_files;
use holdfast_process::Children;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::error::LaunchError;
use super::plan::{StepEvent, StepPlan};
use super::ranks::kill_all;
use super::step::Step;
use super::{lock, named_files, registry};
use crate::host::descriptors;

/// Runs the step of a plan to its end.
///
/// # Errors
/// The plan cannot be read, the step has another supervisor, or its directory cannot be written to.
pub fn supervise(plan_path: &Path) -> Result<(), LaunchError> {
    let plan = StepPlan::read(plan_path)?;
    let mut supervision = registry::supervision(&plan)?;
    let directory = plan_path.parent().unwrap_or(Path::new(".")).to_owned();
    let _lock = lock::take_lock(&directory)?;
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
    let log = state_files::append(&directory.join("step.log"))?;
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
