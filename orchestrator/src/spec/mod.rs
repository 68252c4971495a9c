//! The YAML job spec: types, defaults, and diagnostics with line and column.
//!
//! [`JobSpec::load`] reads a file; [`JobSpec::from_command`] makes the spec of `holdfast run -- ./app args`. The result
//! is complete and consistent: every default is filled in, and values are checked against each other, so that no other
//! module has to check them again. [`Settings`] records the origin of each value. `configs/reference.yaml` lists all
//! keys.
//!
//! * `document`: YAML events to nodes with positions, bounded;
//! * `keys`: how a section declares its keys; `value_kinds`: the kinds of single values;
//! * `reading`: nodes to settings, section by section; the declarations of each section are a file of their own;
//! * [`reference`](mod@reference): every key with its default and documentation, from the declarations;
//! * [`Environment`]: environment variables and SCR's parameters, which override the spec or its defaults;
//! * `registered`: what resource managers and launchers declare about themselves;
//! * `step_order`: the order of the steps, from `needs`;
//! * `validation`: checks across sections; `applies`: keys that have no effect with this manager or launcher;
//! * `diagnostics`: mistakes as the user sees them;
//! * [`quantity`]: durations, sizes, points in time.

mod allocation;
mod applies;
mod checkpoint;
mod diagnostics;
mod document;
mod environment;
mod jubatus;
mod keys;
pub mod library_parameters;
mod overrides;
mod pairs;
pub mod quantity;
mod reading;
pub mod reference;
mod registered;
pub mod resolved;
mod run;
mod settings;
mod ssh;
mod step_order;
mod supervision;
mod validation;
mod value_kinds;
mod warnings;

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

pub use allocation::{Allocation, FaultAction, FaultMoment, FaultPhase, InjectedFault, virtual_node};
pub use checkpoint::{Cache, Checkpoint, CheckpointSource, ControlDirectory, DataPlane, Redundancy};
pub use diagnostics::{Diagnostic, Diagnostics, Position};
pub use document::MAX_BYTES;
pub use jubatus::{Jubatus, JubatusServer};
pub use pairs::{ALL_PAIRS, NodeReference, PlacedJob, PlacedPair, Replicated, Replication};
pub use registered::{Chosen, KeyFacts, LauncherFacts, ManagerFacts, NodeCount, Registered};
pub use run::RunSpec;
pub use settings::{Origin, Setting, Settings};
pub use ssh::{SshAccess, SshHost};
pub use supervision::{
    CommandNodes, ExitAction, ExitCodeRule, Halt, Health, Progress, Relaunch, Requeue, SiteCommand, Submission,
};

pub use environment::{Environment, EnvironmentError, GivenIdentity, SYSTEM_FILE};

use document::YamlNode;
use holdfast_core::owned::Access;
use holdfast_model::NodeName;
use keys::{keys, list, section, words};
use reading::Reader;
use serde::{Deserialize, Serialize};
use value_kinds::{Choice, choice, path, text};

/// The variables with the id of the Slurm job.
const SLURM_JOB_ID: [&str; 2] = ["SLURM_JOB_ID", "SLURM_JOBID"];

/// A job: the series of runs and allocations that completes one simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// The job's name; a single path component.
    pub job: String,
    /// The job's directory on the parallel file system.
    pub prefix: PathBuf,
    pub group_access: GroupAccess,
    pub keep_cache: KeepCache,
    pub requeue: Option<Requeue>,
    pub allocation: Allocation,
    /// Commands that run once in an allocation, before the first launch.
    pub before: Vec<SiteCommand>,
    /// Commands that run once in an allocation, after the last launch and before the drain.
    pub after: Vec<SiteCommand>,
    /// The steps, at least one, in the order in which they run: each follows all that it needs. The short form
    /// (top-level `run:`) is one step named after the job. None if the job is [replicated](JobSpec::replicated).
    pub steps: Vec<Step>,
    /// Instead of steps: pairs of main and replica.
    pub replicated: Option<Replicated>,
    pub relaunch: Relaunch,
    pub progress: Progress,
    pub health: Health,
    pub halt: Halt,
    /// User and job id of directory names, where parameters set them.
    pub identity: GivenIdentity,
    /// Every setting and its origin.
    pub settings: Settings,
    /// Settings from outside of the spec that have no effect on this job, or an unexpected one.
    pub warnings: Vec<String>,
}

/// One step of a job: an application with its own checkpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// A single path component.
    pub name: String,
    /// The directory of its checkpoints and index: the job's prefix, or, in a job of several steps, `<prefix>/<name>`.
    pub prefix: PathBuf,
    /// The names of the steps that must have finished before it begins.
    pub needs: Vec<String>,
    pub run: RunSpec,
    pub checkpoint: Checkpoint,
}

/// What a spec describes.
#[derive(Clone, Copy, PartialEq)]
enum JobKind {
    /// A job that is relaunched on healthy nodes when it loses a node.
    Job,
    /// Pairs of main and replica.
    Replicated,
}

impl Choice for JobKind {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("job", JobKind::Job), ("replicated", JobKind::Replicated)];
}

/// What the group of the prefix directory's state may do with a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupAccess {
    #[default]
    None,
    /// Read what `holdfast status` shows, as far as the umask permits it.
    Status,
}

impl Choice for GroupAccess {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("none", GroupAccess::None), ("status", GroupAccess::Status)];
    const LATER: &'static [&'static str] = &[];
}

impl GroupAccess {
    /// The access of other users to the files that `status` reads.
    pub fn access(self) -> Access {
        match self {
            GroupAccess::None => Access::Private,
            GroupAccess::Status => Access::GroupRead,
        }
    }
}

/// What stays in the nodes' caches and control directories when a run ends and the job is not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepCache {
    /// Everything, for another run in the same allocation.
    #[default]
    All,
    /// Nothing.
    None,
}

impl Choice for KeepCache {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("all", KeepCache::All), ("none", KeepCache::None)];
}

impl JobSpec {
    /// Reads a spec from a file.
    ///
    /// # Errors
    /// The file cannot be read, or holds mistakes: all of them.
    pub fn load(path: &Path, environment: &Environment) -> Result<JobSpec, Diagnostics> {
        let name = path.display().to_string();
        JobSpec::parse(&read_text(path, &name)?, &name, environment)
    }

    /// Reads a spec from text; `file_name` is its name in messages.
    ///
    /// # Errors
    /// All mistakes in it, and in those parameters.
    pub fn parse(text: &str, file_name: &str, environment: &Environment) -> Result<JobSpec, Diagnostics> {
        let root = document::read(text).map_err(|mistake| Diagnostics::new(file_name, text, vec![mistake]))?;
        JobSpec::from_document(&root, environment).map_err(|mistakes| Diagnostics::new(file_name, text, mistakes))
    }

    /// The spec of a command line: `command`, everything else from the environment or the defaults.
    ///
    /// # Errors
    /// The command is empty, or a mistake in the parameters.
    pub fn from_command(command: &[String], environment: &Environment) -> Result<JobSpec, Diagnostics> {
        let root = document::of_command(command);
        let mut spec = JobSpec::from_document(&root, environment).map_err(|mut mistakes| {
            mistakes.iter_mut().for_each(|mistake| mistake.place = None);
            Diagnostics::new("command line", "", mistakes)
        })?;
        spec.settings.mark_command_line();
        Ok(spec)
    }

    /// True if `run` is a top-level key: one step, in the job's own prefix.
    pub fn has_short_form(&self) -> bool {
        matches!(&self.steps[..], [step] if step.prefix == self.prefix)
    }

    fn from_document(root: &YamlNode, environment: &Environment) -> Result<JobSpec, Vec<Diagnostic>> {
        let reader = Reader::new(environment.registered.clone(), environment.overrides.clone());
        let written = <JobSpec as keys::Keys>::read(reader.root(root));
        let manager = environment.manager(written.allocation.manager);
        let allocated_nodes = manager.and_then(|manager| environment.allocated_nodes(manager));
        let allocated = manager.map(|manager| environment.allocated_names(manager)).unwrap_or_default();
        let mut spec = written.completed(manager, allocated_nodes, allocated, &reader);
        validation::check(&spec, manager, &reader);
        step_order::check(&spec, &reader);
        applies::check(&spec, manager, &reader);
        spec.identity = environment.identity.clone();
        let unused = reader.unused_directories();
        let (mistakes, mut settings) = reader.finish();
        settings.retain(|key| applies::is_in_force(&spec, key));
        spec.settings = settings;
        spec.warnings = warnings::of(root, &spec, manager, environment, &unused);
        if let Ok(order) = step_order::order(&spec.steps) {
            spec.steps = order.into_iter().map(|at| spec.steps[at].clone()).collect();
        }
        if mistakes.is_empty() { Ok(spec) } else { Err(mistakes) }
    }
}

/// The spec as written; numbers of nodes and ranks still depend on each other.
struct WrittenJob {
    job: String,
    prefix: PathBuf,
    group_access: GroupAccess,
    keep_cache: KeepCache,
    requeue: Option<Requeue>,
    allocation: allocation::WrittenAllocation,
    before: Vec<SiteCommand>,
    after: Vec<SiteCommand>,
    steps: Vec<WrittenStep>,
    replicated: Option<pairs::WrittenReplicated>,
    relaunch: Relaunch,
    progress: Progress,
    health: Health,
    halt: Halt,
}

struct WrittenStep {
    name: String,
    prefix: PathBuf,
    /// Default: the step before it.
    needs: Option<Vec<String>>,
    run: run::WrittenRun,
    checkpoint: Checkpoint,
}

keys! {
    JobSpec => WrittenJob;
    /// Kind of the spec. `job`: after a node loss the job is relaunched on healthy nodes. `replicated`: `pairs` of main
    /// and replica, see docs/pairs.md; of the other keys only `job`, `prefix`, `group_access`, `requeue`, `allocation`,
    /// `checkpoint.control`, `health` and `halt.before_end` have an effect.
    kind = choice().or(JobKind::Job),
    /// The job's name; becomes part of paths.
    job = text().or("job".to_owned()).scr("SCR_JOB_NAME"),
    /// The job's directory on the parallel file system: index.scr, scr.current, the checkpoints,
    /// .holdfast/events.jsonl. Relative to the working directory.
    prefix = path().or(".".into()).scr("SCR_PREFIX"),
    /// What members of the group of `<prefix>/.holdfast` may do. `status`: run `holdfast status`, if the umask permits
    /// the group to read (027 or 022, for example); they never get the job's key.
    group_access = choice().or(GroupAccess::None),
    /// What stays in the caches and control directories of the nodes when a run ends with exit code 75. `all`: another
    /// `holdfast run` in the same allocation restarts from the caches, and `holdfast drain` removes them; `none`:
    /// nothing. After any other end nothing stays, except files that could not be drained.
    keep_cache = choice().or(KeepCache::All),
    /// What submits the next allocation when a run ends with exit code 75: at the very end, once in an allocation, and
    /// never after another exit code. If it fails, the exit code is 69.
    requeue = section::<Requeue>(),
    /// The nodes of the job.
    allocation = section::<Allocation>(),
    /// Commands that run once in an allocation, before the first launch, one after the other, on nodes whose agents are
    /// up and healthy: `{command: [./stage-in, input.nc]}`. If one fails, nothing is launched. One that succeeded is
    /// not run again in the same allocation; one that failed, or was interrupted, is. Output:
    /// `<prefix>/.holdfast/commands`.
    before = list::<SiteCommand>(),
    /// The application.
    run = section::<RunSpec>().unless("steps"),
    /// The checkpoints of the run.
    checkpoint = section::<Checkpoint>().unless("steps"),
    /// Instead of `run` and `checkpoint`: several steps. They run one after the other in this order, each with its own
    /// checkpoints in `<prefix>/<name>`. They share nodes, agents and control directory. If a step fails, those that
    /// need it are skipped and the others run; the exit code is that of the first one that failed. A step that is
    /// finished is not run again by the next `holdfast run`.
    steps = list::<Step>(),
    /// With `kind: replicated`: the pairs of main and replica.
    pairs = list::<pairs::Pairs>(),
    /// With `kind: replicated`: non-critical jobs, which may be suspended while a replica is awake on their node.
    jobs = list::<pairs::Jobs>(),
    /// With `kind: replicated`: what all pairs have in common.
    replication = section::<pairs::Replication>(),
    /// As `before`, but after the last launch and before the drain, and each time the job ends in an allocation. If one
    /// fails, the others are not run; the exit code of the job does not change.
    after = list::<SiteCommand>(),
    /// When the application is relaunched after it ended without finishing.
    relaunch = section::<Relaunch>(),
    /// What counts as progress besides a newer complete checkpoint, for programs that keep their own state. The limits
    /// `relaunch.no_progress_limit` and `requeue.no_progress_limit` use it: see docs/progress.md.
    progress = section::<Progress>(),
    /// When a node counts as down. A down node is not used again in this allocation.
    health = section::<Health>(),
    /// When the job stops by itself, with a checkpoint, so that another allocation can continue. Conditions can be
    /// changed while the job runs: `holdfast halt`.
    halt = section::<Halt>(),
    |section| {
        if kind == JobKind::Replicated && pairs.as_ref().is_none_or(Vec::is_empty) {
            let help = "write `pairs: [{name: dnn0, main: [./dnn, main, \"0\"], replica: [./dnn, replica, \"0\"]}]`";
            section.mistake("pairs", "`kind: replicated` needs `pairs`", help);
        }
        if steps.as_ref().is_some_and(Vec::is_empty) {
            section.mistake("steps", "the list is empty", "list at least one step, or write `run:` instead");
        }
        let mut steps = steps.unwrap_or_default();
        steps.iter_mut().for_each(|step| step.prefix = prefix.join(&step.name));
        let replicated = (kind == JobKind::Replicated).then(|| pairs::WrittenReplicated {
            pairs: pairs.unwrap_or_default(),
            jobs: jobs.unwrap_or_default(),
            settings: replication,
            control: checkpoint.as_ref().map(|checkpoint| checkpoint.control.clone()),
        });
        if replicated.is_some() {
            steps.clear();
        } else if let (Some(run), Some(checkpoint)) = (run, checkpoint) {
            steps.push(WrittenStep { name: job.clone(), prefix: prefix.clone(), needs: None, run, checkpoint });
        }
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        WrittenJob {
            job,
            prefix,
            group_access,
            keep_cache,
            requeue,
            allocation,
            before,
            after,
            steps,
            replicated,
            relaunch,
            progress,
            health,
            halt,
        }
    }
}

keys! {
    Step => WrittenStep;
    /// The step's name; a single path component.
    name = text().optional(),
    /// As `run` above.
    run = section::<RunSpec>().described_above(),
    /// As `checkpoint` above.
    checkpoint = section::<Checkpoint>().described_above(),
    /// Names of steps that must have finished before this one begins: `[prepare, simulate]`. Default: the step before
    /// it in the list. `[]`: none.
    needs = words(),
    |section| {
        if name.is_none() {
            section.mistake("name", "the step has no name", "write `name: prepare`");
        }
        let name = name.unwrap_or_default();
        WrittenStep { prefix: PathBuf::new(), name, needs, run, checkpoint }
    }
}

impl WrittenJob {
    /// The complete spec. `allocated_nodes` is the size of the allocation, and `allocated` its nodes, if the
    /// environment defines them.
    fn completed(
        self,
        manager: Option<&'static ManagerFacts>,
        allocated_nodes: Option<u32>,
        allocated: Vec<NodeName>,
        reader: &Reader,
    ) -> JobSpec {
        let WrittenJob {
            job,
            prefix,
            group_access,
            keep_cache,
            requeue,
            allocation,
            before,
            after,
            steps,
            replicated,
            relaunch,
            progress,
            health,
            halt,
        } = self;
        let allocation = allocation.within(allocated_nodes, allocated);
        let mut previous: Option<String> = None;
        let complete = |step: WrittenStep| {
            let WrittenStep { name, prefix, needs, run, checkpoint } = step;
            let needs = needs.unwrap_or_else(|| previous.iter().cloned().collect());
            previous = Some(name.clone());
            Step {
                name,
                prefix,
                needs,
                run: run.within(allocation.usable().map(|usable| usable.max(1)), reader),
                checkpoint,
            }
        };
        let steps: Vec<Step> = steps.into_iter().map(complete).collect();
        let of_pairs = replicated.as_ref().map(pairs::WrittenReplicated::nodes_needed);
        let needed = steps.iter().map(|step| step.run.nodes).chain(of_pairs).max().unwrap_or(1);
        let allocation = match &replicated {
            // Copies are placed by position: an excluded node needs no other one.
            Some(_) => allocation.with_exactly(needed),
            None => allocation.with_nodes(needed),
        };
        let replicated = replicated.map(|replicated| replicated.completed(&allocation, manager, reader));
        JobSpec {
            job,
            prefix,
            group_access,
            keep_cache,
            requeue,
            allocation,
            before,
            after,
            steps,
            replicated,
            relaunch,
            progress,
            health,
            halt,
            identity: GivenIdentity::default(),
            settings: Settings::default(),
            warnings: Vec::new(),
        }
    }
}

/// The text of the spec, which may be missing, too large, a directory, or not UTF-8.
fn read_text(path: &Path, name: &str) -> Result<String, Diagnostics> {
    let unreadable = |error: std::io::Error| {
        let (message, help) = match error.kind() {
            ErrorKind::NotFound => {
                ("there is no such file".to_owned(), "check the path; `holdfast run -- ./app args` needs no spec")
            }
            ErrorKind::PermissionDenied => ("permission denied".to_owned(), "check its owner and mode"),
            ErrorKind::IsADirectory => {
                ("this is a directory, not a file".to_owned(), "give the path of the spec file in it")
            }
            _ => (format!("cannot read the file: {error}"), "check the file and its file system"),
        };
        Diagnostics::of_file(name, message, help)
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("the file is larger than {}", quantity::format_bytes(MAX_BYTES));
        return Err(Diagnostics::of_file(
            name,
            message,
            "check that this is the job spec: a spec is about a page of YAML",
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = format!("the file is not valid UTF-8: invalid byte at offset {at} (line {line})");
        Diagnostics::of_file(name, message, "check that this is the job spec, and save it as UTF-8")
    })
}
