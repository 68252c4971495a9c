//! The thread that does for the watcher what may block: saves the state, starts processes, reports events.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast_process::{ObservedProcess, ProcessId};
use holdfast_shm::Registry;
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::environment;
use holdfast_wire::pairs::PairsSettings;
use rustix::fs::OFlags;

use super::freezer;
use super::mirror::Mirror;
use super::process::{ProcessOwner, start_failure};
use super::registry_file;
use super::requests::{Request, Requests};
use super::state::{self, JobState, State, StateChange};
use crate::report::events::EventLog;

/// How long the end of the thread waits for the ends of the last jobs' processes, whose control groups it removes.
const GROUPS_REMOVED_WITHIN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Start {
    pub owner: ProcessOwner,
    pub command: Vec<String>,
    /// In addition to the variables of all.
    pub environment: Vec<(&'static str, String)>,
    /// The name of its output file.
    pub output: String,
}

#[derive(Debug)]
pub(super) enum Work {
    /// Saved before what follows is started.
    Save(Box<StateChange>),
    Start(Start),
    Report(AgentEvent),
    /// Checkpoints are sent to this peer from now on.
    Mirror(Arc<Mirror>, SocketAddr),
}

#[derive(Debug)]
pub(super) struct Directories {
    /// Of the registry and the state file.
    pub pairs: PathBuf,
    /// What copies and jobs print.
    pub output: PathBuf,
}

/// Starts the thread; it ends when the sender is dropped.
pub(super) fn spawn(
    directories: Directories,
    registry: Arc<Registry>,
    state: State,
    requests: Requests,
    events: Arc<EventLog>,
) -> io::Result<(Sender<Work>, JoinHandle<()>)> {
    let (sender, work) = channel();
    let thread = std::thread::Builder::new()
        .name("pairs-start".to_owned())
        .spawn(move || run((&directories, &registry), state, &work, &requests, &events))?;
    Ok((sender, thread))
}

fn run(
    (directories, registry): (&Directories, &Registry),
    mut state: State,
    work: &Receiver<Work>,
    requests: &Requests,
    events: &EventLog,
) {
    let save = |state: &State| {
        if let Err(error) = state::write(&directories.pairs, state) {
            // The registry has what an agent that follows needs most.
            tracing::error!(directory = %directories.pairs.display(), %error, "pairs_state_not_written");
        }
    };
    // Processes of jobs that the watcher may not know yet. Without them in the state, an agent that follows would start
    // the jobs once more.
    let mut running = BTreeMap::new();
    while let Ok(first) = work.recv() {
        // Only the newest state counts, and it is on disk before what it lists is started.
        let (mut changed, mut starts, mut reports) = (false, Vec::new(), Vec::new());
        for each in std::iter::once(first).chain(work.try_iter()) {
            match each {
                Work::Save(change) => {
                    let jobs = change.jobs.is_some();
                    state.change(*change);
                    if jobs {
                        keep_running(&mut state.jobs, &mut running);
                    }
                    changed = true;
                }
                Work::Start(start) => starts.push(start),
                Work::Report(event) => reports.push(event),
                Work::Mirror(mirror, peer) => mirror.begin(peer),
            }
        }
        if changed {
            save(&state);
        }
        reports.into_iter().for_each(|event| events.add(event));
        if starts.iter().any(|start| matches!(start.owner, ProcessOwner::Copy { .. })) {
            repair(registry, &directories.pairs.join(registry_file::NAME));
        }
        for start in starts {
            let owner = start.owner;
            let program = start.command.first().cloned().unwrap_or_default();
            let process = started(&directories.output, &state.plan.settings, start)
                .map_err(|error| start_failure(&program, &error));
            if let (ProcessOwner::Job { at }, Ok(process)) = (owner, &process)
                && let Some(name) = state.plan.jobs.get(at).map(|job| job.name.clone())
            {
                running.insert(name.clone(), process.id);
                state.jobs.entry(name).or_default().process = Some(process.id);
                save(&state);
            }
            requests.send(Request::Started { owner, process });
        }
    }
    // The watcher has ended: those of the last jobs.
    let begun = Instant::now();
    while !freezer::remove_left() && begun.elapsed() < GROUPS_REMOVED_WITHIN {
        std::thread::sleep(LOOK);
    }
}

/// A program that overwrote the beginning of the registry must not keep all copies from being started again.
fn repair(registry: &Registry, path: &Path) {
    match registry.repair(path) {
        Ok(false) => {}
        Ok(true) => tracing::warn!(path = %path.display(), "registry_repaired"),
        Err(error) => tracing::error!(%error, "registry_not_repaired"),
    }
}

/// Adds the processes of jobs that run to what the watcher knows, until it knows them, or they have ended.
fn keep_running(jobs: &mut BTreeMap<String, JobState>, running: &mut BTreeMap<String, ProcessId>) {
    running.retain(|name, id| {
        let Some(job) = jobs.get_mut(name).filter(|job| job.process.is_none()) else { return false };
        job.process = Some(*id).filter(|id| ObservedProcess::open(*id).is_some());
        job.process.is_some()
    });
}

fn started(output_directory: &Path, settings: &PairsSettings, start: Start) -> io::Result<ObservedProcess> {
    let Start { owner, command, environment, output } = start;
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let output = open_output(&output_directory.join(output))?;
    let program = program_path(&settings.directory, program);
    let group = matches!(owner, ProcessOwner::Job { .. }).then(freezer::new_group).flatten();
    let mut command = group.as_ref().map_or_else(|| Command::new(&program), |group| group.command(&program));
    command
        .args(arguments)
        // Generations of ranks are not theirs.
        .env_remove(environment::GENERATION)
        .envs(&settings.environment)
        .envs(environment)
        .current_dir(&settings.directory)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    ObservedProcess::start(&mut command)
}

/// A relative path is relative to the working directory of the process; a name alone is looked for in `PATH`.
fn program_path(directory: &Path, program: &str) -> PathBuf {
    match program.contains('/') {
        true => directory.join(program),
        false => Path::new(OsStr::new(program)).to_owned(),
    }
}

/// Opens an output file for appending. Only a regular file of this user: no link is followed, no pipe waited for.
fn open_output(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened =
        OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other(format!("{} is not a regular file: remove it", path.display())));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("{} belongs to user {}: remove it", path.display(), found.uid())));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeSet;
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::{chown, symlink};
    use std::os::unix::net::UnixListener;

    use holdfast_model::pair::{JobConfig, RestartBackOff};
    use holdfast_shm::Layout;
    use holdfast_wire::pairs::PairsPlan;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::Signal;

    use crate::state::state_file;

    const RESTART: RestartBackOff =
        RestartBackOff { first: Duration::from_secs(1), most: Duration::from_secs(1), attempts: None };

    #[test]
    fn a_job_is_in_the_state_before_the_watcher_knows_its_process() {
        let root = tempfile::tempdir().unwrap();
        let job = |name: &str| JobConfig { name: name.to_owned(), command: Vec::new(), order: 1, restart: RESTART };
        let (lease, directory) = (Duration::from_secs(2), root.path().to_owned());
        let settings = PairsSettings { lease, directory, ..PairsSettings::default() };
        let plan = PairsPlan {
            epoch: 1,
            pairs: Vec::new(),
            jobs: vec![job("app"), job("none")],
            settings,
            finished: BTreeSet::new(),
        };
        let (requests, inbox) = super::super::requests::requests().unwrap();
        let directories = Directories { pairs: root.path().to_owned(), output: root.path().to_owned() };
        let events = Arc::new(EventLog::default());
        let layout = Layout { pairs: 1, checkpoint_bytes: vec![8], ring: 2 };
        let registry = Registry::create(&root.path().join(registry_file::NAME), &layout, "job").unwrap();
        let (work, thread) = spawn(directories, registry.into(), State::of(plan), requests, events).unwrap();
        let start = |at, output: &str| {
            let command = ["sleep", "600"].map(str::to_owned).to_vec();
            let output = output.to_owned();
            let start = Start { owner: ProcessOwner::Job { at }, command, environment: Vec::new(), output };
            work.send(Work::Start(start)).unwrap();
            poll(&mut [PollFd::new(&inbox.readable(), PollFlags::IN)], None).unwrap();
            inbox.clear();
            match inbox.next() {
                Some(Request::Started { process, .. }) => process,
                other => panic!("{other:?}"),
            }
        };
        let unknown = || {
            let jobs = BTreeMap::from(["app", "none"].map(|name| (name.to_owned(), JobState::default())));
            work.send(Work::Save(Box::new(StateChange { jobs: Some(jobs), ..StateChange::default() }))).unwrap();
        };
        let saved = || state_file::read::<State>(&root.path().join("state")).unwrap().unwrap().jobs["app"].process;
        unknown();
        let process = start(0, "app.log").unwrap();
        assert_eq!(saved(), Some(process.id));
        // The watcher saves another change meanwhile.
        unknown();
        start(1, "nowhere/none.log").unwrap_err();
        assert_eq!(saved(), Some(process.id));
        process.signal(Signal::KILL);
        poll(&mut [PollFd::new(&process.ended(), PollFlags::IN)], None).unwrap();
        process.reap();
        unknown();
        drop(work);
        thread.join().unwrap();
        assert_eq!(saved(), None);
    }

    #[test]
    fn output_is_appended_only_to_a_regular_file_of_this_user() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for text in ["a", "b"] {
            open_output(&path("new.log")).unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(path("new.log")).unwrap(), "ab");
        assert_eq!(fs::metadata(path("new.log")).unwrap().mode() & 0o777, 0o600);
        symlink(path("new.log"), path("link.log")).unwrap();
        let _listener = UnixListener::bind(path("socket.log")).unwrap();
        for name in ["link.log", "socket.log"] {
            let error = open_output(&path(name)).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        if rustix::process::geteuid().is_root() {
            chown(path("new.log"), Some(12345), None).unwrap();
            let error = open_output(&path("new.log")).unwrap_err().to_string();
            assert!(error.contains("belongs to user 12345"), "{error}");
        }
    }
}
