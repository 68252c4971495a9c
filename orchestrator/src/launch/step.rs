//! The step supervisor: `holdfast step PLAN`.
//!
//! It is the parent of the ranks, or of the one command that starts them all ([`command`]), so that they and their exit statuses survive an orchestrator that is killed. It starts
//! every process of the plan in a process group of its own, appends a line to `steps.jsonl` for whatever happens, and
//! ends with the last process. SIGTERM makes it kill them all. A lock file says that it lives: unlike a process number,
//! a lock cannot come to belong to somebody else.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_model::Rank;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process_group, wait, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::command::{self, Watched};
use super::descendants;
use super::plan::{LauncherCommand, StepEvent, StepPlan, StepProcess};
use super::{LaunchError, plan, remote};
use crate::allocation::slurm::refusal::{Persistence, Refusal};
use holdfast_model::RankEnd;

/// How often it is looked what a launcher says, and whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The children that have not been waited for; their numbers cannot belong to anybody else as long as they are here.
#[derive(Debug, Default)]
struct Children {
    by_pid: BTreeMap<i32, Rank>,
    /// No more children: everything was told to end.
    ending: bool,
}

impl Children {
    fn kill_all(&mut self) {
        self.ending = true;
        for pid in self.by_pid.keys().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        // A launcher's helpers have process groups of their own.
        descendants::kill();
    }
}

/// Runs the step of a plan to its end.
///
/// # Errors
/// The plan cannot be read, another supervisor has it, or its directory cannot be written to.
pub fn supervise(plan_path: &Path) -> Result<(), LaunchError> {
    let plan = StepPlan::read(plan_path)?;
    let directory = plan_path.parent().unwrap_or(Path::new("."));
    let _lock = take_lock(directory)?;
    let events_path = StepPlan::events_in(directory);
    let events = OpenOptions::new().append(true).create(true).mode(0o600).open(&events_path);
    let mut events = events.map_err(LaunchError::file("open", &events_path))?;
    let mut tell = |event: &StepEvent| append(&mut events, event).map_err(LaunchError::file("write to", &events_path));

    let children = Arc::new(Mutex::new(Children::default()));
    watch_signals(&children)?;
    tell(&StepEvent::Supervisor { pid: std::process::id() })?;
    if let Some(launcher) = &plan.launcher {
        supervise_command(&plan, launcher, directory, &children, &mut tell)?;
        return tell(&StepEvent::Done);
    }
    if let Some(remote) = &plan.remote {
        remote::supervise(&plan, remote, directory, || lock(&children).ending, &mut tell)?;
        return tell(&StepEvent::Done);
    }
    for process in &plan.processes {
        let mut held = lock(&children);
        if held.ending {
            break;
        }
        match start(&plan, process, directory) {
            Ok(pid) => {
                held.by_pid.insert(i32::try_from(pid).unwrap_or(i32::MAX), process.rank);
                drop(held);
                tell(&StepEvent::Started { rank: process.rank, node: process.node.clone(), pid })?;
            }
            Err(error) => {
                held.kill_all();
                drop(held);
                tell(&StepEvent::Refused { rank: process.rank, reason: error.to_string() })?;
            }
        }
    }
    while wait_for_one() {
        // Taking children off the table and asking the system about them is one step for whoever kills.
        let mut held = lock(&children);
        let mut ended = Vec::new();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(rank) = held.by_pid.remove(&pid.as_raw_nonzero().get()) {
                ended.push(StepEvent::Exited { rank, end: end_of(status) });
            }
        }
        drop(held);
        for event in &ended {
            tell(event)?;
        }
    }
    tell(&StepEvent::Done)
}

/// Runs the command that starts all ranks to its end; again and again, while the resource manager has a reason to refuse
/// it that passes.
fn supervise_command(
    plan: &StepPlan,
    launcher: &LauncherCommand,
    directory: &Path,
    children: &Arc<Mutex<Children>>,
    tell: &mut impl FnMut(&StepEvent) -> Result<(), LaunchError>,
) -> Result<(), LaunchError> {
    // What it starts and leaves behind comes to us, so that we can end it.
    descendants::adopt();
    let first = launcher.ranks.keys().next().copied().unwrap_or(Rank(0));
    let (mut watched, mut persistence) = (Watched::new(launcher), Persistence::default());
    let mut told = None;
    loop {
        let mut held = lock(children);
        if held.ending {
            return Ok(());
        }
        let started = command::start(plan, launcher, directory);
        if let Ok(pid) = &started {
            held.by_pid.insert(i32::try_from(*pid).unwrap_or(i32::MAX), first);
        }
        drop(held);
        if let Err(error) = started {
            return tell(&StepEvent::Refused { rank: first, reason: error.to_string() });
        }
        let end = watch_command(directory, children, &mut watched, tell)?;
        let reason = watched.refused(directory, end).filter(|_| !lock(children).ending).map(str::to_owned);
        let again = reason.as_deref().and_then(|said| persistence.again(Refusal::of(said), Instant::now()));
        let (Some(pause), Some(reason)) = (again, reason) else {
            let told = watched.finish(directory, end).iter().try_for_each(tell);
            descendants::see_off();
            return told;
        };
        descendants::see_off();
        if told.as_ref() != Some(&reason) {
            tell(&StepEvent::Waiting { reason: reason.clone() })?;
            told = Some(reason);
        }
        watched.begin_again();
        let until = Instant::now() + pause;
        while Instant::now() < until && !lock(children).ending {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Waits for the end of the command, and tells what it says of its ranks meanwhile.
fn watch_command(
    directory: &Path,
    children: &Arc<Mutex<Children>>,
    watched: &mut Watched,
    tell: &mut impl FnMut(&StepEvent) -> Result<(), LaunchError>,
) -> Result<RankEnd, LaunchError> {
    loop {
        let mut held = lock(children);
        let ended = match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => held.by_pid.remove(&pid.as_raw_nonzero().get()).map(|_| end_of(status)),
            Ok(None) => None,
            Err(_) => Some(RankEnd::Unknown),
        };
        drop(held);
        match ended {
            Some(end) => return Ok(end),
            None => {
                let events = watched.look(directory);
                events.iter().try_for_each(&mut *tell)?;
                // Some ranks may have begun, and would wait for those that cannot.
                if events.iter().any(|event| matches!(event, StepEvent::Refused { .. })) {
                    lock(children).kill_all();
                }
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Starts one process; the child is waited for by number, not through the handle.
fn start(plan: &StepPlan, process: &StepProcess, directory: &Path) -> io::Result<u32> {
    let open = |path| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let output = open(plan::StepPlan::output_in(directory, process.rank))?;
    let errors = open(plan::StepPlan::errors_in(directory, process.rank))?;
    let child = Command::new(&plan.program)
        .args(&plan.arguments)
        .current_dir(&plan.working_directory)
        .envs(&plan.environment)
        .envs(&process.environment)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0)
        .spawn();
    let cannot = |error: io::Error| {
        let message = format!("cannot start {} for rank {}: {error}", plan.program.display(), process.rank);
        io::Error::new(error.kind(), message)
    };
    Ok(child.map_err(cannot)?.id())
}

/// Blocks until some child has ended, without taking it off the system's table; false if there is none.
fn wait_for_one() -> bool {
    loop {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn end_of(status: WaitStatus) -> RankEnd {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => RankEnd::Code(code),
        (None, Some(signal)) => RankEnd::Signal(signal),
        (None, None) => RankEnd::Unknown,
    }
}

/// SIGTERM kills the ranks. SIGHUP and SIGINT belong to a terminal that we do not, SIGUSR1 and SIGUSR2 are a resource
/// manager's warning to the orchestrator or the ranks; a handler, unlike an ignored signal, is not inherited by the ranks.
fn watch_signals(children: &Arc<Mutex<Children>>) -> Result<(), LaunchError> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2]).map_err(LaunchError::Supervisor)?;
    let children = Arc::clone(children);
    let watch = move || {
        for signal in signals.forever() {
            if signal == SIGTERM {
                lock(&children).kill_all();
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
    Command::new(program)
        .arg("step")
        .arg(StepPlan::path_in(directory))
        .stdin(standard_input())
        .stdout(Stdio::null())
        .stderr(log.map_err(LaunchError::file("open", log_path))?)
        .process_group(0)
        .spawn()
        .map_err(LaunchError::Supervisor)
}

/// One write a line: a reader never sees two half lines mixed.
fn append(file: &mut File, event: &StepEvent) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    file.write_all(&line)
}

fn lock(children: &Mutex<Children>) -> MutexGuard<'_, Children> {
    children.lock().unwrap_or_else(PoisonError::into_inner)
}
