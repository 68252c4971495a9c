//! The job: its sections as written, and the complete spec.

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdfast_core::owned::Access;
use holdfast_core::state_directory::StateDirectory;
use holdfast_model::NodeName;
use serde::{Deserialize, Serialize};

use super::allocation::{self, Allocation};
use super::checkpoint::Checkpoint;
use super::checkpoint_source::{CheckpointSource, FROM_PREFIX};
use super::keys::{Parameter, keys, list, optional_list, scr, section, section_as_above, section_unless, words};
use super::notify::Notification;
use super::pairs::{self, Replicated};
use super::reading::Reader;
use super::registered::ManagerFacts;
use super::registry::Registry;
use super::run::{self, RunSpec};
use super::settings::{Setting, Settings};
use super::step_order;
use super::supervision::{Halt, Health, Metrics, Progress, Relaunch, Requeue, SiteCommand, StepRelaunch};
use super::value_kinds::{Choice, ParameterValue, choice, path, switch, text};

/// A job: the series of runs and allocations that completes one simulation.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// The job's name; a single path component.
    pub job: String,
    /// The job's directory on the parallel file system.
    pub prefix: PathBuf,
    pub group_access: GroupAccess,
    /// Write the event log.
    pub event_log: bool,
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
    pub metrics: Metrics,
    pub notify: Vec<Notification>,
    /// User and job id of directory names, where parameters set them.
    pub identity: GivenIdentity,
    /// Every setting and its origin.
    pub settings: Settings,
    /// Settings that have no effect on this job, or an unexpected one.
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
    /// Its own keys, and those of the job for the others.
    pub relaunch: Relaunch,
    pub run: RunSpec,
    pub checkpoint: Checkpoint,
    /// In front of the paths of its keys in [`JobSpec::settings`]; empty, or with a `.` at its end.
    pub key_path: String,
    /// What [`Checkpoint::source`] names.
    pub source: &'static CheckpointSource,
}

impl Step {
    /// True if the ranks read the checkpoint that they restart from in the prefix directory: the settings ask for it,
    /// and the source and the files permit it.
    pub fn restarts_from_prefix(&self) -> bool {
        let Checkpoint { restart, flush, .. } = &self.checkpoint;
        restart.from_prefix && self.source.facts.keys.takes(FROM_PREFIX) && flush.container.is_none()
    }

    /// True if calls of Holdfast's checkpoint API protect the step: by its program, or by the processes that run it.
    pub fn has_calls(&self) -> bool {
        let source = self.source.facts.agent;
        source.reports_progress && !source.is_library
    }

    /// True if the program has to make these calls.
    pub fn has_calls_of_program(&self) -> bool {
        self.has_calls() && (self.source.saver)(&self.checkpoint).is_none()
    }

    /// The nodes that a launch needs.
    pub fn nodes_needed(&self) -> u32 {
        self.relaunch.min_nodes.map_or(self.run.nodes, |fewest| fewest.min(self.run.nodes))
    }

    /// True if the interval between checkpoints is chosen from their cost (`every: auto`), by the key or by default.
    pub fn is_auto(&self) -> bool {
        self.checkpoint.is_auto((self.source.schedule)(&self.checkpoint))
    }
}

/// The user and the job id of directory names, where parameters set them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenIdentity {
    /// `SCR_USER_NAME`
    pub user: Option<String>,
    /// `SCR_JOB_ID`
    pub job_id: Option<String>,
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
    /// Every setting, with the defaults that depend on the source.
    pub fn settings_in_force(&self) -> impl Iterator<Item = Setting> {
        let defaults = self.steps.iter().filter_map(|step| {
            let every = step.checkpoint.default_frequency((step.source.schedule)(&step.checkpoint))?;
            Some((format!("{}checkpoint.every", step.key_path), every))
        });
        let defaults: BTreeMap<String, String> = defaults.collect();
        self.settings.iter().cloned().map(move |setting| {
            let value = defaults.get(&setting.key).filter(|_| setting.is_default);
            Setting { value: value.cloned().unwrap_or(setting.value), ..setting }
        })
    }

    /// The access of other users to the event log; `None` if there is none.
    pub fn log_access(&self) -> Option<Access> {
        self.event_log.then(|| self.group_access.access())
    }

    /// Two steps of which none needs the other, for which the allocation has nodes at the same time.
    pub fn independent_steps(&self) -> Option<(&Step, &Step)> {
        let needs = |one: &Step, other: &Step| step_order::needs(&self.steps, one).contains(other.name.as_str());
        let fit = |one: &Step, other: &Step| one.run.nodes.saturating_add(other.run.nodes) <= self.allocation.usable;
        let before = |(at, step)| self.steps[..at].iter().map(move |earlier| (earlier, step));
        self.steps
            .iter()
            .enumerate()
            .flat_map(before)
            .find(|(one, other)| fit(one, other) && !needs(one, other) && !needs(other, one))
    }

    /// As [`independent_steps`](Self::independent_steps), where steps run side by side: the commands of `before` and
    /// `after` run around all steps, on all nodes.
    pub fn beside_each_other(&self) -> Option<(&Step, &Step)> {
        self.independent_steps().filter(|_| self.before.is_empty() && self.after.is_empty())
    }

    /// True if `run` is a top-level key: one step, in the job's own prefix.
    pub fn has_short_form(&self) -> bool {
        matches!(&self.steps[..], [step] if step.prefix == self.prefix)
    }
}

type CompleteJob = dyn FnOnce(Allocation, Vec<Step>, Option<Replicated>) -> JobSpec;

/// The spec as written; numbers of nodes and ranks still depend on each other.
pub struct WrittenJob {
    pub(super) allocation: allocation::WrittenAllocation,
    steps: Vec<WrittenStep>,
    relaunch: Relaunch,
    replicated: Option<pairs::WrittenReplicated>,
    /// The spec with these, when they are complete.
    complete: Box<CompleteJob>,
}

pub struct WrittenStep {
    name: String,
    prefix: Option<PathBuf>,
    /// Default: the step before it.
    needs: Option<Vec<String>>,
    relaunch: StepRelaunch,
    run: run::WrittenRun,
    checkpoint: Checkpoint,
}

/// Relative paths are relative to the working directory: the parameter belongs to the environment, not to a spec file.
const PREFIX: Parameter = Parameter {
    value: Some(ParameterValue::Text),
    default: Some(""),
    effect: "key {key}; a warning if the spec names another directory",
    ..scr("SCR_PREFIX")
};

keys! {
    JobSpec => WrittenJob;
    /// Kind of the spec. `job`: after a node loss the job is relaunched on healthy nodes. `replicated`: `pairs` of main
    /// and replica, see docs/pairs.md; of the other keys only `job`, `prefix`, `group_access`, `event_log`, `requeue`,
    /// `allocation`, `checkpoint.control`, `health` and `halt.before_end` have an effect.
    kind = choice().or(JobKind::Job),
    /// The job's name; becomes part of paths.
    job = text().or("job".to_owned()).scr(scr("SCR_JOB_NAME").default("")),
    /// The job's directory on the parallel file system: index.scr, scr.current, the checkpoints,
    /// .holdfast/events.jsonl. Relative to the directory of the spec file; SCR_PREFIX, and a run without a spec, to the
    /// working directory.
    prefix = path().or(".".into()).scr(PREFIX),
    /// What members of the group of `<prefix>/.holdfast` may do. `status`: run `holdfast status`, if the umask permits
    /// the group to read (027 or 022, for example); they never get the job's key.
    group_access = choice().or(GroupAccess::None),
    /// Write the event log, `<prefix>/.holdfast/events.jsonl`. Without it `holdfast status` shows no history.
    event_log = switch().or(true).scr("SCR_LOG_ENABLE"),
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
    run = section_unless::<RunSpec>("steps"),
    /// The checkpoints of the run.
    checkpoint = section_unless::<Checkpoint>("steps"),
    /// Instead of `run` and `checkpoint`: several steps, each with its own checkpoints in `<prefix>/<name>`. A step
    /// begins when those that it needs have finished. Steps of which none needs the other run side by side where the
    /// allocation has nodes for both (see docs/steps.md); otherwise one after the other, in this order. If a step
    /// fails, those that need it are skipped and the others run; the exit code is that of the first one that failed. A
    /// step that is finished is not run again by the next `holdfast run`.
    steps = optional_list::<Step>(),
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
    /// Figures of the job for monitoring. See docs/metrics.md.
    metrics = section::<Metrics>(),
    /// Programs and addresses that get events of the job, such as lost nodes and the end. See docs/notify.md.
    notify = list::<Notification>(),
    |section| {
        if kind == JobKind::Replicated && pairs.is_empty() {
            let help = "write `pairs: [{name: dnn0, main: [./dnn, main, \"0\"], replica: [./dnn, replica, \"0\"]}]`";
            section.mistake("pairs", "`kind: replicated` needs `pairs`", help);
        }
        if steps.as_ref().is_some_and(Vec::is_empty) {
            section.mistake("steps", "the list is empty", "list at least one step, or write `run:` instead");
        }
        let prefix = beside_spec(section.reader(), prefix);
        let mut steps = steps.unwrap_or_default();
        for step in &mut steps {
            let below = step.prefix.take().unwrap_or_else(|| PathBuf::from(&step.name));
            step.prefix = Some(prefix.join(below));
        }
        let replicated = (kind == JobKind::Replicated).then(|| pairs::WrittenReplicated {
            pairs,
            jobs,
            settings: replication,
            control: checkpoint.as_ref().map(|checkpoint| checkpoint.control.clone()),
        });
        if replicated.is_some() {
            steps.clear();
        } else if let (Some(run), Some(checkpoint)) = (run, checkpoint) {
            let (name, prefix, relaunch) = (job.clone(), Some(prefix.clone()), StepRelaunch::default());
            steps.push(WrittenStep { name, prefix, needs: None, relaunch, run, checkpoint });
        }
        let beside = |key: &str, file: Option<PathBuf>| file.map(|file| section.reader().absolute(key, file));
        let metrics = Metrics {
            file: beside("metrics.file", metrics.file),
            token_file: beside("metrics.token_file", metrics.token_file),
            ..metrics
        };
        let notify: Vec<_> = notify.into_iter().flatten().collect();
        let relaunch_of_job = relaunch.clone();
        let complete = move |allocation, steps, replicated| JobSpec {
            job,
            prefix,
            group_access,
            event_log,
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
            metrics,
            notify,
            identity: GivenIdentity::default(),
            settings: Settings::default(),
            warnings: Vec::new(),
        };
        WrittenJob { allocation, steps, relaunch: relaunch_of_job, replicated, complete: Box::new(complete) }
    }
}

/// The absolute prefix directory. Former versions took the working directory as its base: a job whose state is there,
/// and not at the new place, would begin again from nothing.
fn beside_spec(reader: &Reader, written: PathBuf) -> PathBuf {
    let prefix = reader.absolute("prefix", written.clone());
    let former = std::path::absolute(&written).unwrap_or(written);
    let has_state = |prefix: &PathBuf| StateDirectory::below(prefix).path().is_dir();
    if former != prefix && has_state(&former) && !has_state(&prefix) {
        let message = format!(
            "a job was run in {}, below the working directory; `prefix` is relative to the directory of the spec: {}, \
             where no job was run",
            former.display(),
            prefix.display()
        );
        let help =
            format!("to continue it write `prefix: {}`; for another job write an absolute path", former.display());
        reader.mistake("prefix", message, help);
    }
    // The job's state and logs are text.
    if prefix.to_str().is_none() {
        let message = format!("the path is not UTF-8: {}", prefix.display());
        reader.mistake("prefix", message, "write a path of which each character is UTF-8");
    }
    prefix
}

keys! {
    Step => WrittenStep;
    /// The step's name; a single path component.
    name = text().optional(),
    /// As `run` above.
    run = section_as_above::<RunSpec>(),
    /// As `checkpoint` above.
    checkpoint = section_as_above::<Checkpoint>(),
    /// Names of steps that must have finished before this one begins: `[prepare, simulate]`. Default: the step before
    /// it in the list. `[]`: none. The name of a step with `each` means all its elements.
    needs = words(),
    /// An array of steps: one for each of these values, with the name `<name>-<value>`. `{each}` in the step is its
    /// value: `{name: member, each: [1, 2], run: {command: [./app, "{each}"]}}`.
    each = words(),
    /// Its prefix directory, relative to that of the job. Default: its name.
    prefix = path().optional(),
    /// Instead of those of the job: its own limits of relaunches.
    relaunch = section::<StepRelaunch>(),
    |section| {
        if name.is_none() {
            section.mistake("name", "the step has no name", "write `name: prepare`");
        }
        // It has been replaced by its elements: see `each`.
        let _: Option<Vec<String>> = each;
        WrittenStep { prefix, name: name.unwrap_or_default(), needs, relaunch, run, checkpoint }
    }
}

impl WrittenJob {
    /// The complete spec. `allocated_nodes` is the size of the allocation, and `allocated` its nodes, if the
    /// environment defines them.
    pub(super) fn completed(
        self,
        manager: Option<&'static ManagerFacts>,
        allocated_nodes: Option<u32>,
        allocated: Vec<NodeName>,
        registry: &Registry,
        reader: &Reader,
    ) -> JobSpec {
        let WrittenJob { allocation, steps, relaunch, replicated, complete } = self;
        let allocation = allocation.within(allocated_nodes, allocated);
        let mut previous: Option<String> = None;
        let complete_step = |step: WrittenStep| {
            let WrittenStep { name, prefix, needs, relaunch: own, run, checkpoint } = step;
            let needs = needs.unwrap_or_else(|| previous.iter().cloned().collect());
            previous = Some(name.clone());
            // The name was read as that of a source.
            Some(Step {
                name,
                prefix: prefix.unwrap_or_default(),
                needs,
                relaunch: own.over(&relaunch),
                key_path: String::new(),
                run: run.within(allocation.usable().map(|usable| usable.max(1)), reader),
                source: registry.source(checkpoint.source)?,
                checkpoint,
            })
        };
        let steps: Vec<Step> = steps.into_iter().filter_map(complete_step).collect();
        let of_pairs = replicated.as_ref().map(pairs::WrittenReplicated::nodes_needed);
        let needed = steps.iter().map(|step| step.run.nodes).chain(of_pairs).max().unwrap_or(1);
        let allocation = match &replicated {
            // Copies are placed by position: an excluded node needs no other one.
            Some(_) => allocation.with_exactly(needed),
            None => allocation.with_nodes(needed),
        };
        let replicated = replicated.map(|replicated| replicated.completed(&allocation, manager, reader));
        complete(allocation, steps, replicated)
    }
}
