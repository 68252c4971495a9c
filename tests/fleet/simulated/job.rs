//! A complete job with simulated agents and the real driver: `holdfast run` with simulated resource manager and
//! launcher. One node is lost; the costs of the relaunch are counted.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use holdfast::allocation::{Allocation, AllocationPreview, ManagerEntry};
use holdfast::events::{RunReport, Screen, ScreenStyle};
use holdfast::job::{self, Prepared, RunChoices, RunOptions};
use holdfast::launch::LauncherContext;
use holdfast::spec::{Chosen, Environment, JobSpec, KeyFacts, ManagerFacts, ManagerKeys, ManagerVariables, NodeCount};
use parking_lot::Mutex;
use serde_json::Value;

use super::Failure;
use super::allocation::{Agency, Simulated};
use super::launcher::{FirstRankOnly, started, until_removed};

/// The polling interval of the event log.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Silent agents are not lost here: all of them run on this machine.
const DOWN_AFTER: Duration = Duration::from_secs(120);

/// Time limit for the remaining tasks of an ended job.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// The allocations that jobs are about to open: the manager's entry is a constant and cannot contain them.
static NEXT: LazyLock<Mutex<Option<Arc<Simulated>>>> = LazyLock::new(Mutex::default);

static MANAGER: ManagerEntry = ManagerEntry {
    facts: ManagerFacts {
        name: "simulated",
        doc: "",
        title: "simulated",
        chosen: Chosen::Otherwise,
        nodes: NodeCount::Asked,
        variables: ManagerVariables::NONE,
        requeue: None,
        has_topology: false,
        has_remote_shells: false,
        more_nodes: |_| String::new(),
        keys: KeyFacts { takes: &[], without: &[] },
    },
    keys: ManagerKeys::NONE,
    check: || Ok(()),
    preview: |_| Ok(AllocationPreview::default()),
    open: |_| {
        Box::pin(async {
            let opened = NEXT.lock().take().map(|allocation| allocation as Arc<dyn Allocation>);
            opened.ok_or_else(|| holdfast::allocation::AllocationError::UnknownManager {
                manager: "simulated".to_owned(),
            })
        })
    },
    reopen: |_, _, _| {
        Box::pin(async {
            Err(holdfast::allocation::AllocationError::UnknownManager { manager: "simulated".to_owned() })
        })
    },
    is_available: |_| false,
    continues: |_, _| false,
    place: |_| "simulated nodes".to_owned(),
};

/// The size of a job.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Nodes with ranks; there is one more, a spare.
    pub nodes: u32,
    /// Ranks of all nodes.
    pub ranks: u32,
    /// How long an agent may delay an answer.
    pub poll: Duration,
}

pub struct Job {
    running: JoinHandle<Result<RunReport, String>>,
    allocation: Arc<Simulated>,
    log: Log,
    /// The first rank runs until this is removed.
    file: PathBuf,
    /// The first loss of a node that was read.
    down: Option<Value>,
}

impl Job {
    /// Starts a job below `directory`; returns when its first rank runs. `supervisor` is `holdfast`.
    pub fn launch(size: Size, agency: Box<dyn Agency>, directory: &Path, supervisor: &Path) -> Result<Self, Failure> {
        let (prefix, file) = (directory.join("prefix"), directory.join("runs"));
        File::create(&file)?;
        let spec = spec(size, &prefix, &file)?;
        let nodes = spec.allocation.nodes as usize;
        let allocation = Simulated::new(nodes, agency);
        let run = &spec.steps[0].run;
        let context = LauncherContext {
            run,
            manager: &MANAGER.facts,
            allocation: &spec.allocation,
            working_directory: directory,
        };
        let prepared = Prepared {
            manager: &MANAGER,
            launcher: Box::new(FirstRankOnly::new(&context)?),
            program: PathBuf::from(&run.command[0]),
            working_directory: directory.to_owned(),
            supervisor: supervisor.to_owned(),
            interposition: Default::default(),
        };
        *NEXT.lock() = Some(Arc::clone(&allocation));
        let screen = Screen::new(ScreenStyle { quiet: true, document: true, labels: false })?;
        let options = RunOptions { spec, choices: RunChoices::default(), allows_faults: false, screen };
        let running = thread::Builder::new().name("job".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            let report = runtime.block_on(job::run_on(&options, vec![prepared])).map_err(|error| error.to_string());
            runtime.shutdown_timeout(STOP_WITHIN);
            report
        })?;
        let log = Log { path: prefix.join(".holdfast/events.jsonl"), offset: 0, rest: Vec::new() };
        let mut job = Job { running, allocation, log, file, down: None };
        job.until_started(1)?;
        Ok(job)
    }

    /// The ranks of a generation connect to their agents; returns when the leader has reported that all run.
    pub fn ranks_run(&mut self, generation: u64) -> Result<(), Failure> {
        self.allocation.agency().ranks_started(generation)?;
        self.until("restarted")
    }

    /// Loses a node with its agent; returns when the first rank of the next generation runs.
    pub fn lose(&mut self, index: usize, next: u64) -> Result<(), Failure> {
        self.allocation.agency().lose(index)?;
        self.until_started(next)
    }

    /// The application finishes; returns the report at the end of the job.
    pub fn finish(mut self) -> Result<RunReport, Failure> {
        self.allocation.agency().finalize()?;
        self.until("finalized")?;
        fs::remove_file(&self.file)?;
        self.running.join().map_err(|_| "the thread of the job has failed")?.map_err(Into::into)
    }

    /// Waits until the first rank of a generation runs: all state that must be on disk before is on disk.
    fn until_started(&mut self, generation: u64) -> Result<(), Failure> {
        self.until("generation_launched")?;
        while !started(&self.file, generation).exists() {
            if self.running.is_finished() {
                return Err(format!("the job ended before generation {generation}").into());
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Waits for the next event of this name.
    fn until(&mut self, name: &str) -> Result<(), Failure> {
        loop {
            while let Some(event) = self.log.next()? {
                if event["event"] == name {
                    return Ok(());
                }
                if event["event"] == "finished" {
                    let down = self.down.take().unwrap_or_default();
                    return Err(
                        format!("the job ended before {name}: {event}; first node that was down: {down}").into()
                    );
                }
                if event["event"] == "node_down" {
                    self.down.get_or_insert(event);
                }
            }
            if self.running.is_finished() {
                return Err(format!("the job ended before {name}").into());
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

fn spec(size: Size, prefix: &Path, file: &Path) -> Result<JobSpec, Failure> {
    let text = "job: simulated\nrun: {command: [/bin/true]}\n";
    let surroundings = Environment::empty(holdfast::launch::registry::registered());
    let mut spec = JobSpec::parse(text, "job.yaml", &surroundings).map_err(|error| format!("{error:?}"))?;
    spec.prefix = prefix.to_owned();
    spec.allocation.nodes = size.nodes + 1;
    (spec.health.poll, spec.health.down_after) = (size.poll, DOWN_AFTER);
    let step = &mut spec.steps[0];
    step.prefix = prefix.to_owned();
    step.run.command = until_removed(file);
    (step.run.nodes, step.run.ranks) = (size.nodes, size.ranks);
    step.run.ranks_per_node = size.ranks.div_ceil(size.nodes);
    Ok(spec)
}

/// The event log, read while it grows.
struct Log {
    path: PathBuf,
    offset: u64,
    rest: Vec<u8>,
}

impl Log {
    /// The next complete line.
    fn next(&mut self) -> Result<Option<Value>, Failure> {
        if !self.rest.contains(&b'\n')
            && let Ok(mut file) = File::open(&self.path)
        {
            file.seek(SeekFrom::Start(self.offset))?;
            self.offset += file.read_to_end(&mut self.rest)? as u64;
        }
        let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line: Vec<u8> = self.rest.drain(..=end).collect();
        Ok(Some(serde_json::from_slice(&line)?))
    }
}
