//! The ranks of a running generation: a thread follows the events of their supervisor and their output.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast_model::{Generation, Rank};
use holdfast_wire::environment;
use rustix::process::Signal;
use tokio::sync::mpsc;

use crate::events::OutputTurn;
use crate::host::process;
use crate::launch::follow::{Followed, Follower};
use crate::launch::output::{OutputLine, OutputTail};
use crate::launch::{StepEvent, StepPlan, registry};

/// How often the events are read.
const CHECK_EVERY: Duration = Duration::from_millis(10);
/// The output is read once in this many reads of the events.
const CHECKS_AN_OUTPUT: u32 = 5;
/// A supervisor that has not killed its ranks within this after the request is killed; it is awaited as long if it is
/// not executed yet.
const CANCEL_WITHIN: Duration = Duration::from_secs(2);

/// A report of the thread.
#[derive(Debug)]
pub struct StepUpdate {
    pub generation: Generation,
    pub report: StepReport,
}

#[derive(Debug)]
pub enum StepReport {
    /// An event of the supervisor.
    Event(StepEvent),
    /// The supervisor ended without recording the end of the step.
    Orphaned,
    /// The events cannot be read.
    Unreadable(String),
    Printed,
}

/// The ranks of a generation, which a thread follows.
#[derive(Debug)]
pub struct RunningStep {
    pub generation: Generation,
    job_id: String,
    directory: PathBuf,
    processes: StepProcesses,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RunningStep {
    /// Follows the ranks in a generation's directory. `child` is their supervisor if this process started it; otherwise
    /// an earlier orchestrator has shown the output so far.
    pub fn follow(
        generation: Generation,
        job_id: &str,
        directory: &Path,
        ranks: Vec<Rank>,
        child: Option<Child>,
        updates: mpsc::Sender<StepUpdate>,
        turn: OutputTurn,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, place) = (Arc::clone(&stop), directory.to_owned());
        // Known before the supervisor's own event, because the step may have to be ended while it begins.
        let processes = StepProcesses { supervisor: child.as_ref().map(Child::id), ..StepProcesses::default() };
        let thread = std::thread::Builder::new()
            .name("step".to_owned())
            .spawn(move || watch(generation, &place, ranks, child, &updates, &stopped, turn))?;
        Ok(RunningStep {
            generation,
            job_id: job_id.to_owned(),
            directory: directory.to_owned(),
            processes,
            stop,
            thread: Some(thread),
        })
    }

    /// Records an event of the supervisor.
    pub fn receive(&mut self, event: &StepEvent) {
        self.processes.receive(event);
    }

    /// True if no process of the step is left.
    pub fn has_ended(&self) -> bool {
        self.processes.ended
    }

    /// Ends the step: sends the supervisor SIGTERM, upon which it kills its ranks; without a supervisor, kills the
    /// ranks. Blocks for at most two seconds, and as long before if the supervisor is not executed yet: in a thread of
    /// its own.
    pub fn canceller(&self) -> impl FnOnce() + Send + 'static {
        let (directory, job_id) = (self.directory.clone(), self.job_id.clone());
        let (supervisor, pids) = (self.processes.supervisor, self.processes.pids());
        move || cancel(&directory, supervisor, pids, &job_id)
    }
}

/// The supervisor of a step and its ranks that have not ended, as far as they are known.
#[derive(Debug, Default)]
struct StepProcesses {
    supervisor: Option<u32>,
    ranks: BTreeMap<Rank, u32>,
    ended: bool,
}

impl StepProcesses {
    fn receive(&mut self, event: &StepEvent) {
        match event {
            StepEvent::Supervisor { pid } => self.supervisor = Some(*pid),
            StepEvent::Started { rank, pid, .. } => drop(self.ranks.insert(*rank, *pid)),
            StepEvent::Exited { rank, .. } => drop(self.ranks.remove(rank)),
            StepEvent::Printed { .. }
            | StepEvent::Refused { .. }
            | StepEvent::Failed { .. }
            | StepEvent::Waiting { .. } => {}
            StepEvent::Done => self.ended = true,
        }
    }

    /// The ranks.
    fn pids(&self) -> Vec<u32> {
        self.ranks.values().copied().collect()
    }

    /// From the events in the file.
    fn recorded(directory: &Path) -> Self {
        let mut processes = StepProcesses::default();
        let mut follower = Follower::new(directory, true);
        while let Ok(Followed::Events(events)) = follower.poll()
            && !events.is_empty()
        {
            events.iter().for_each(|event| processes.receive(event));
        }
        processes
    }
}

impl Drop for RunningStep {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.is_finished()
        {
            let _ = thread.join();
        }
    }
}

/// Ends a step whose supervisor and ranks are these, if they are known: see [`RunningStep::canceller`]. Events in the
/// file that were not handled yet count too: a step may have to be ended while it begins, or right after a take-over.
pub(crate) fn cancel(directory: &Path, supervisor: Option<u32>, mut ranks: Vec<u32>, job_id: &str) {
    // Before the file is read, which waits if its file system hangs.
    if supervisor.is_some_and(|pid| end_supervisor(directory, pid)) {
        return;
    }
    let recorded = StepProcesses::recorded(directory);
    ranks.extend(recorded.pids());
    if recorded.supervisor.filter(|_| supervisor.is_none()).is_some_and(|pid| end_supervisor(directory, pid)) {
        return;
    }
    for pid in ranks {
        process::kill_rank(pid, environment::JOB, job_id);
    }
}

/// Ends a supervisor, which kills its ranks. True if it ended in time; otherwise it is killed.
fn end_supervisor(directory: &Path, pid: u32) -> bool {
    // Identified by its plan and not by its lock, which it has not taken yet while it begins.
    process::await_execution(pid, CANCEL_WITHIN);
    if !process::runs_as_with(pid, "step", &StepPlan::path_in(directory)) {
        return false;
    }
    process::signal(pid, Signal::TERM);
    let ended = process::wait_for_end(pid, CANCEL_WITHIN);
    if !ended {
        process::signal(pid, Signal::KILL);
    }
    ended
}

fn watch(
    generation: Generation,
    directory: &Path,
    ranks: Vec<Rank>,
    mut child: Option<Child>,
    updates: &mpsc::Sender<StepUpdate>,
    stop: &AtomicBool,
    turn: OutputTurn,
) {
    let send = |report| updates.blocking_send(StepUpdate { generation, report });
    let mut follower = Follower::new(directory, child.is_none());
    let plan = StepPlan::read(&StepPlan::path_in(directory)).ok();
    let labels = plan.and_then(|plan| registry::supervision(&plan).ok()?.labels());
    let mut tail = OutputTail::new(directory, ranks.into_iter(), labels, child.is_none());
    let (mut checks, mut stopped, mut more) = (0_u32, None, false);
    let last = loop {
        checks = checks.wrapping_add(1);
        match follower.poll() {
            Ok(Followed::Events(events)) => {
                for event in &events {
                    match event {
                        StepEvent::Started { rank, .. } | StepEvent::Printed { rank } => tail.started(*rank),
                        StepEvent::Done => tail.all_started(),
                        _ => {}
                    }
                }
                // The output of a rank is shown before its end, unless the screen accepts nothing.
                let done = events.contains(&StepEvent::Done);
                if more || !events.is_empty() || checks.is_multiple_of(CHECKS_AN_OUTPUT) {
                    let shown = show_output(&mut tail, &turn, done);
                    more = shown.more;
                    if shown.printed {
                        let _ = send(StepReport::Printed);
                    }
                }
                for event in events {
                    let done = event == StepEvent::Done;
                    if send(StepReport::Event(event)).is_err() || done {
                        break;
                    }
                }
            }
            Ok(Followed::Orphaned) => break Some(StepReport::Orphaned),
            Err(error) => break Some(StepReport::Unreadable(error.to_string())),
        }
        if follower.done {
            break None;
        }
        // The next generation may begin before the supervisor of this one has ended: its last lines are shown too.
        if stop.load(Ordering::Relaxed) && stopped.get_or_insert_with(Instant::now).elapsed() > CANCEL_WITHIN {
            break None;
        }
        if !more {
            std::thread::sleep(CHECK_EVERY);
        }
    };
    if let Some(last) = last {
        tail.all_started();
        show_output(&mut tail, &turn, true);
        let _ = send(last);
    }
    show_rest(&mut tail, turn);
    if let Some(child) = &mut child {
        // Reaps the supervisor if it ends soon; one that goes on is left for the next orchestrator.
        for _ in 0..100 {
            if !matches!(child.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(CHECK_EVERY);
        }
    }
}

/// What [`show_output`] did.
#[derive(Clone, Copy, Debug, Default)]
struct ShownOutput {
    printed: bool,
    /// There is more, and the screen accepts it.
    more: bool,
}

/// Shows as much output of ranks as the screen accepts now, a piece of each file; the rest stays in its files. With
/// `all`, the ranks have ended, and their files are read to the end.
fn show_output(tail: &mut OutputTail, turn: &OutputTurn, all: bool) -> ShownOutput {
    let mut shown = ShownOutput::default();
    while turn.has_room() {
        let (lines, more) = read(tail, turn);
        shown = ShownOutput { printed: shown.printed || !lines.is_empty(), more };
        turn.show(&lines);
        if !(all && more) {
            return shown;
        }
    }
    ShownOutput { printed: tail.has_grown() || shown.printed, more: false }
}

/// Shows the output that is left after the end of a step, as soon as the screen accepts it. The end of the process
/// waits for this as long as there is progress.
fn show_rest(tail: &mut OutputTail, turn: OutputTurn) {
    loop {
        while !turn.has_room() {
            std::thread::sleep(CHECK_EVERY);
        }
        let (mut lines, more) = read(tail, &turn);
        if !more {
            tail.finish(&mut lines);
            turn.hide(tail.take_hidden());
        }
        turn.show(&lines);
        if !more {
            return turn.complete();
        }
    }
}

/// Lines from a piece of each rank's output, and whether there may be more.
fn read(tail: &mut OutputTail, turn: &OutputTurn) -> (Vec<OutputLine>, bool) {
    let mut lines = Vec::new();
    let more = tail.pass_on(&mut lines);
    turn.hide(tail.take_hidden());
    (lines, more)
}
