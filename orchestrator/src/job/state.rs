//! The state of a job, for an orchestrator that takes over and for `status`, `halt` and `drain`. Derived information
//! (the explanation that `status` shows) is not stored. [`state_file`](super::state_file) reads and writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use holdfast_core::durable;
use holdfast_core::owned::{Access, OwnedError};
use holdfast_core::state_directory::StateDirectory;
use holdfast_model::{ContainerPolicy, Generation, NodeName};
use holdfast_wire::run::TrustMaterial;
use holdfast_wire::trust::{self, TrustError};
use serde::{Deserialize, Serialize};

use super::restart_choice::RunChoices;
use crate::allocation::{AgentSettings, AgentTemplate, AllocationRecord};
use crate::drain::CopySettings;
use crate::exit;
use crate::fleet::AgentRecord;
use crate::pairs::placement::PairPlace;
use crate::pairs::takeover::InitialSpec;
use crate::relaunch::changes::Unfit;
use crate::relaunch::{Changes, Explanation, Snapshot};
use crate::spec::{GroupAccess, JobSpec, Step};

/// The version of the file.
pub(crate) const VERSION: u32 = 7;

/// The state of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobState {
    /// The version of the file.
    pub version: u32,
    pub job: String,
    /// The prefix directory of the job, in a job of several steps: the state is in that of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_prefix: Option<PathBuf>,
    /// The command that the step runs.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// The checkpoint source of the step.
    #[serde(default)]
    pub source: Option<String>,
    /// The process of its orchestrator.
    pub orchestrator: u32,
    pub stage: Stage,
    pub allocation: AllocationRecord,
    /// The settings of agents.
    pub agents: AgentSettings,
    /// Certificate, key and token, which are in a file of their own; `None` if the job has ended.
    #[serde(skip)]
    pub trust: Option<TrustMaterial>,
    /// Who else may read the files that `status` shows.
    #[serde(default)]
    pub group_access: GroupAccess,
    /// Write the event log.
    #[serde(default = "written")]
    pub event_log: bool,
    /// The last known agents.
    pub running: BTreeMap<NodeName, AgentRecord>,
    /// The halt conditions of the spec were set in the halt files, which is done once.
    pub halt_set: bool,
    /// Compute checksums while draining.
    pub crc: bool,
    /// Size of a copy's buffer, bytes.
    pub copy_bytes: usize,
    /// Files that an agent copies at a time; `None`: as many as suit its processors.
    #[serde(default)]
    pub copy_threads: Option<u32>,
    /// Pack checkpoints into containers while draining.
    #[serde(default)]
    pub container: Option<ContainerPolicy>,
    /// Checkpoints of the job that stay in the prefix directory; 0 is all.
    #[serde(default)]
    pub keep: u32,
    /// Requests to agents that are under way at a time.
    pub requests_at_once: u32,
    /// The state of the relaunch machine.
    pub snapshot: Option<Snapshot>,
    /// The end of the allocation, seconds since the epoch, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_end: Option<i64>,
    /// The drain has ended, and the nodes hold files that another one could save.
    pub keeps_data: bool,
    /// When the application was first launched, milliseconds since the loop began.
    pub first_launch_ms: Option<u64>,
    /// The faults of the spec that were injected, by their numbers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub faults_injected: BTreeSet<usize>,
    /// The last generation of an earlier allocation with the same job id: see [`Config`](crate::relaunch::Config).
    pub finished: Generation,
    /// The number of the last journal entry that is in the state.
    #[serde(default)]
    pub entries: u64,
    /// Directories below the prefix from which the run does not restart: see
    /// [`Settings::ignored`](holdfast_wire::run::Settings::ignored).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ignored: BTreeSet<String>,
    /// What the user chose for the run, also for the steps that begin later.
    #[serde(default, skip_serializing_if = "RunChoices::is_default")]
    pub choices: RunChoices,
    /// Of a job with pairs of main and replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PairsState>,
}

/// The part of the state of a job with pairs of main and replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairsState {
    /// Counts the orchestrators of the job: agents refuse requests of an earlier one.
    pub epoch: u64,
    /// The pairs, by their numbers.
    pub places: Vec<PairPlace>,
    #[serde(flatten)]
    pub progress: PairsProgress,
    /// What else must not change while its copies run; `None` in the state of an earlier version.
    #[serde(default)]
    pub initial_spec: Option<InitialSpec>,
}

/// The part of the state that changes while the job runs, without agents and the machine's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// See [`JobState::stage`].
    pub stage: Stage,
    /// See [`JobState::halt_set`].
    pub halt_set: bool,
    /// See [`JobState::allocation_end`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_end: Option<i64>,
    /// See [`JobState::keeps_data`].
    pub keeps_data: bool,
    /// See [`JobState::first_launch_ms`].
    pub first_launch_ms: Option<u64>,
    /// See [`JobState::faults_injected`].
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub faults_injected: BTreeSet<usize>,
    /// Of a job with pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PairsProgress>,
}

/// The part of [`PairsState`] that changes while the job runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairsProgress {
    /// The numbers of pairs that are finished.
    pub finished: BTreeSet<u32>,
    /// The number of the last request of a user that was taken up.
    pub requests_done: u64,
    /// The numbers of pairs on two nodes whose replica is to be awake, as a user requested.
    pub replica_preferred: BTreeSet<u32>,
    /// The numbers of pairs of which a copy has been awake in this run.
    #[serde(default)]
    pub begun: BTreeSet<u32>,
    /// The name of this run's directory of checkpoints, which are saved when it ends.
    #[serde(default)]
    pub save_to: Option<String>,
    /// Those of earlier runs, the newest first.
    #[serde(default)]
    pub restore_from: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateChanges {
    /// The complete progress, if something of it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Agents that were started or changed; `None` for those that ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<(NodeName, Option<AgentRecord>)>,
    /// Changes of the machine's state.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub memory: Changes,
}

impl StateChanges {
    /// True if nothing changed.
    pub fn is_empty(&self) -> bool {
        self.progress.is_none() && self.agents.is_empty() && self.memory.is_empty()
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// The exit code of `holdfast run`, if nothing had been left to drain.
    pub exit_code: u8,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Stage {
    /// An orchestrator runs the job, or died while it did.
    Running,
    /// It has ended, and its nodes still hold files that could not be drained.
    Undrained {
        reason: String,
        /// How the run ended, apart from the drain; `None` if its orchestrator died.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<RunEnd>,
    },
    /// A run has ended, and the job is not finished: the nodes keep control directories and caches for another run in
    /// the same allocation.
    Kept {
        /// The exit code of `holdfast run`.
        exit_code: u8,
        message: String,
    },
    /// It has ended, and only the prefix directory is left.
    Finished {
        /// The exit code of `holdfast run`.
        exit_code: u8,
        message: String,
    },
}

/// Why a state cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("cannot {action} {}: {source}; check the prefix directory and its mode", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    /// A file or directory is missing, cannot be written, or is not used because another user may have made it.
    #[error(transparent)]
    Owned(#[from] OwnedError),
    #[error(
        "{} cannot be used: {problem}; if no process of the job is left, remove it",
        path.display()
    )]
    Content { path: PathBuf, problem: String },
    /// The job was begun by another build.
    #[error(
        "{}: the job was begun by another version of Holdfast (state version {found}, this one reads {VERSION}); \
         end or drain it with the version that began it, or, if no process of the job is left, remove the file",
        path.display()
    )]
    Version { path: PathBuf, found: u32 },
    /// Another orchestrator runs a job here.
    #[error(
        "a job of the prefix directory {} is running{}; `holdfast status` shows it, `holdfast halt set --now` ends it",
        prefix.display(),
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Running { prefix: PathBuf, pid: Option<u32> },
}

impl StateError {
    /// The exit code: see [`crate::exit`].
    pub fn exit_code(&self) -> u8 {
        if self.is_refusal() { exit::CONFIGURATION } else { exit::UNAVAILABLE }
    }

    /// True if a file or directory was refused because another user may have made it.
    pub fn is_refusal(&self) -> bool {
        matches!(self, StateError::Owned(error) if error.is_refusal())
    }

    /// True if something could not be written, or the file system not be used, whatever the files contain.
    pub fn prevents_writing(&self) -> bool {
        match self {
            StateError::Owned(error) => error.system().is_some_and(durable::prevents_writing),
            StateError::File { source, .. } => durable::prevents_writing(source),
            StateError::Content { .. } | StateError::Version { .. } | StateError::Running { .. } => false,
        }
    }

    pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| StateError::File { action, path, source }
    }
}

/// The directory of a generation's files.
pub fn generation_directory(prefix: &Path, generation: Generation) -> PathBuf {
    StateDirectory::below(prefix).join("generations").join(generation.to_string())
}

/// The event log of a state that an older version wrote.
fn written() -> bool {
    true
}

impl JobState {
    /// The access of other users to the event log; `None` if there is none.
    pub fn log_access(&self) -> Option<Access> {
        self.event_log.then(|| self.group_access.access())
    }

    /// The state of a job that begins.
    pub fn new(job: String, allocation: AllocationRecord, agents: AgentTemplate) -> Self {
        JobState {
            version: VERSION,
            job,
            job_prefix: None,
            command: None,
            source: None,
            orchestrator: std::process::id(),
            stage: Stage::Running,
            allocation,
            agents: agents.settings,
            trust: Some(agents.trust),
            group_access: GroupAccess::default(),
            event_log: true,
            running: BTreeMap::new(),
            halt_set: false,
            crc: true,
            copy_bytes: 1 << 20,
            copy_threads: None,
            container: None,
            keep: 0,
            requests_at_once: 64,
            snapshot: None,
            allocation_end: None,
            keeps_data: false,
            first_launch_ms: None,
            faults_injected: BTreeSet::new(),
            finished: Generation::NONE,
            entries: 0,
            ignored: BTreeSet::new(),
            choices: RunChoices::default(),
            pairs: None,
        }
    }

    /// The state of a job for tests. The root of its only node is in this directory.
    #[cfg(test)]
    pub(super) fn of_test(job_id: &str, roots: &Path) -> Self {
        use crate::allocation::{Allocation as _, local::Local};
        let (user, nodes) = ("user1".to_owned(), vec!["node0".into()]);
        let local = Local::over_roots(job_id.to_owned(), user, nodes, roots.to_owned(), roots.to_owned()).unwrap();
        let settings = AgentSettings { job_id: job_id.to_owned(), ..AgentSettings::of_test_job() };
        let agents = AgentTemplate { settings, trust: trust::generate().unwrap(), drains_only: false };
        JobState::new("heat".to_owned(), local.record(), agents)
    }

    /// How a drain copies files.
    pub(super) fn copies(&self) -> CopySettings {
        CopySettings {
            crc: self.crc,
            buffer_bytes: self.copy_bytes,
            threads: self.copy_threads,
            container: self.container,
            keep: self.keep,
        }
    }

    /// The orchestrator was killed after it had released the nodes, before it recorded the end: the outcome, which it
    /// had recorded before, holds.
    pub(super) fn end_if_over(&mut self) {
        if self.stage == Stage::Running
            && !self.keeps_data
            && let Some(outcome) = self.snapshot.as_ref().and_then(Snapshot::outcome)
            && !self.has_nodes()
        {
            self.stage = Stage::Finished { exit_code: outcome.exit_code(), message: outcome.to_string() };
        }
    }

    /// The settings of agents with certificate, key and token: those of the job if it runs, otherwise new ones, because
    /// its agents have ended.
    pub fn template(&self) -> Result<AgentTemplate, TrustError> {
        let trust = self.trust.clone().map_or_else(trust::generate, Ok)?;
        Ok(AgentTemplate { settings: self.agents.clone(), trust, drains_only: false })
    }

    /// True if both are of the same job: the certificate is unique to a job.
    pub fn is_same_job(&self, other: &Self) -> bool {
        let certificate = |state: &Self| state.trust.as_ref().map(|trust| trust.certificate.0.clone());
        self.agents.job_id == other.agents.job_id
            && certificate(self).is_some_and(|ours| certificate(other) == Some(ours))
    }

    /// True if both are in the same nodes: of steps of one job, in one run or in several.
    pub fn has_same_nodes(&self, other: &Self) -> bool {
        self.allocation.identity == other.allocation.identity
    }

    /// True if this step was finished. With another command, it is another step.
    pub(super) fn is_finished(&self, spec: &JobSpec, step: &Step) -> bool {
        matches!(self.stage, Stage::Finished { exit_code: exit::FINISHED, .. })
            && self.job == spec.job
            && self.command.as_ref().is_none_or(|command| *command == step.run.command)
    }

    /// Applies changes.
    ///
    /// # Errors
    /// The changes belong to another state.
    pub fn apply(&mut self, changes: StateChanges) -> Result<(), Unfit> {
        let StateChanges { progress, agents, memory } = changes;
        if let Some(progress) = progress {
            (self.stage, self.halt_set) = (progress.stage, progress.halt_set);
            self.allocation_end = progress.allocation_end;
            (self.keeps_data, self.first_launch_ms) = (progress.keeps_data, progress.first_launch_ms);
            self.faults_injected = progress.faults_injected;
            if let (Some(state), Some(progress)) = (&mut self.pairs, progress.pairs) {
                state.progress = progress;
            }
        }
        for (node, record) in agents {
            match record {
                Some(record) => drop(self.running.insert(node, record)),
                None => drop(self.running.remove(&node)),
            }
        }
        match &mut self.snapshot {
            _ if memory.is_empty() => Ok(()),
            Some(snapshot) => snapshot.apply(&memory),
            None => Err(Unfit),
        }
    }

    /// The part of the state that changes while the job runs.
    pub fn progress(&self) -> Progress {
        Progress {
            stage: self.stage.clone(),
            halt_set: self.halt_set,
            allocation_end: self.allocation_end,
            keeps_data: self.keeps_data,
            first_launch_ms: self.first_launch_ms,
            faults_injected: self.faults_injected.clone(),
            pairs: self.pairs.as_ref().map(|pairs| pairs.progress.clone()),
        }
    }

    /// The generation that is prepared, under way, or was last in this step.
    pub fn generation(&self) -> Generation {
        let generation = self.snapshot.as_ref().map_or(Generation::NONE, Snapshot::generation);
        if self.finished_steps() == Some(generation) { Generation::NONE } else { generation }
    }

    /// The decisions of the loop so far, with their reasons; `None` before it began.
    pub fn explain(&self) -> Option<Explanation> {
        self.snapshot.as_ref().map(Snapshot::explain)
    }

    /// The last generation of the job's steps before this one; `None` in the first.
    pub fn finished_steps(&self) -> Option<Generation> {
        let finished = self.snapshot.as_ref()?.finished_steps;
        (finished > Generation::NONE).then_some(finished)
    }

    /// True if the job runs pairs of main and replica, and has not ended.
    pub fn has_pairs(&self) -> bool {
        self.pairs.is_some() && !matches!(self.stage, Stage::Finished { .. })
    }

    /// True if the directories that restarts superseded are recorded: see [`Snapshot::knows_superseded`].
    pub(super) fn knows_superseded(&self) -> bool {
        self.snapshot.as_ref().is_none_or(Snapshot::knows_superseded)
    }

    /// True if the nodes of this job still exist, so that another orchestrator can take over.
    pub fn has_nodes(&self) -> bool {
        self.allocation.is_available()
    }
}
