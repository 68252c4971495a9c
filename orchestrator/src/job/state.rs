//! `<prefix>/.holdfast/job.json`: the state of a job for an orchestrator that takes over and for `status`, `halt` and
//! `drain`; and the lock that one orchestrator at a time holds.
//!
//! While a job runs, changes are in the [`journal`] beside the file, and reading the state reads both. Derived
//! information (the explanation that `status` shows) is not stored.
//!
//! The job's certificate, key and token are in a file of their own, `job.secret`, from the beginning of the job to its
//! end.
//!
//! What is in these files is obeyed, and other users may be permitted to write to the prefix directory. They are read
//! only if they and their directory belong to this user, are not links, and cannot be written by others: see
//! [`holdfast_core::owned`]. By default the directory has mode 0700 and the files have mode 0600; with
//! [`GroupAccess::Status`], and if the umask permits it, the group may read what `holdfast status` shows, and never
//! `job.secret`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_core::durable::{self, Durability};
use holdfast_core::owned::{Access, Base, Found, OwnedDirectory, OwnedError};
use holdfast_core::temporary;
use holdfast_model::{ContainerPolicy, Generation, NodeName};
use holdfast_wire::run::TrustMaterial;
use holdfast_wire::trust::{self, TrustError};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::journal::{self, file::Replayed};
use crate::allocation::{AgentSettings, AgentTemplate, AllocationRecord};
use crate::drain::CopySettings;
use crate::exit;
use crate::fleet::AgentRecord;
use crate::host::own_files::{self, OWN};
use crate::pairs::placement::PairPlace;
use crate::pairs::takeover::InitialSpec;
use crate::relaunch::changes::Unfit;
use crate::relaunch::{Changes, Explanation, Snapshot};
use crate::spec::{GroupAccess, JobSpec, Step};

/// The version of the file.
pub(crate) const VERSION: u32 = 6;
/// Attempts to read both files in a consistent state.
const READS: u32 = 20;
/// The state of a job with ten thousand nodes is smaller.
const LARGEST: u64 = 256 << 20;
const LARGEST_SECRET: u64 = 64 << 10;

const STATE_FILE: &str = "job.json";
pub(crate) const SECRET_FILE: &str = "job.secret";
const LOCK_FILE: &str = "lock";

/// The state of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobState {
    /// The version of the file.
    pub version: u32,
    pub job: String,
    /// The command that the step runs.
    #[serde(default)]
    pub command: Option<Vec<String>>,
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
    /// Requests to agents that are under way at a time.
    pub requests_at_once: u32,
    /// The state of the relaunch machine.
    pub snapshot: Option<Snapshot>,
    /// The drain has ended, and the nodes hold files that another one could save.
    pub keeps_data: bool,
    /// When the application was first launched, milliseconds since the loop began.
    pub first_launch_ms: Option<u64>,
    /// The last generation of an earlier allocation with the same job id: see [`Config`](crate::relaunch::Config).
    pub finished: Generation,
    /// The number of the last journal entry that is in the state.
    #[serde(default)]
    pub entries: u64,
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
    /// The numbers of those that are finished.
    pub finished: BTreeSet<u32>,
    /// The number of the last request of a user that was taken up.
    #[serde(default)]
    pub requests_done: u64,
    /// The numbers of pairs on two nodes whose replica is to be awake, as a user requested.
    #[serde(default)]
    pub replica_preferred: BTreeSet<u32>,
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
    /// See [`JobState::keeps_data`].
    pub keeps_data: bool,
    /// See [`JobState::first_launch_ms`].
    pub first_launch_ms: Option<u64>,
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Stage {
    /// An orchestrator runs the job, or died while it did.
    Running,
    /// It has ended, and its nodes still hold files that could not be drained.
    Undrained { reason: String },
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

/// `<prefix>/.holdfast`.
pub fn directory(prefix: &Path) -> PathBuf {
    prefix.join(OWN)
}

/// Opens `<prefix>/.holdfast`, which must be ours; `None` if it does not exist.
///
/// # Errors
/// [`StateError::Owned`].
pub fn open_directory(prefix: &Path) -> Result<Option<OwnedDirectory>, StateError> {
    match Base::shared(prefix) {
        Ok(base) => Ok(base.open_directory(OWN, Access::Readable)?),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// As [`open_directory`]; also that of another user who permitted a group of this user to read it.
pub(super) fn open_directory_to_show(prefix: &Path) -> Result<Option<OwnedDirectory>, StateError> {
    match open_directory(prefix) {
        Err(StateError::Owned(error)) if matches!(error.found(), Some(Found::OtherOwner { .. })) => {
            Ok(Base::shared(prefix)?.open_of_group_member(OWN)?)
        }
        opened => opened,
    }
}

fn opened(prefix: &Path) -> Result<OwnedDirectory, StateError> {
    open_directory(prefix)?.ok_or_else(|| StateError::file("open", &directory(prefix))(io::ErrorKind::NotFound.into()))
}

/// The path of the state of a prefix directory.
pub fn path(prefix: &Path) -> PathBuf {
    directory(prefix).join(STATE_FILE)
}

/// The directory of a generation's files.
pub fn generation_directory(prefix: &Path, generation: Generation) -> PathBuf {
    directory(prefix).join("generations").join(generation.to_string())
}

impl JobState {
    /// The state of a job that begins.
    pub fn new(job: String, allocation: AllocationRecord, agents: AgentTemplate) -> Self {
        JobState {
            version: VERSION,
            job,
            command: None,
            orchestrator: std::process::id(),
            stage: Stage::Running,
            allocation,
            agents: agents.settings,
            trust: Some(agents.trust),
            group_access: GroupAccess::default(),
            running: BTreeMap::new(),
            halt_set: false,
            crc: true,
            copy_bytes: 1 << 20,
            copy_threads: None,
            container: None,
            requests_at_once: 64,
            snapshot: None,
            keeps_data: false,
            first_launch_ms: None,
            finished: Generation::NONE,
            entries: 0,
            pairs: None,
        }
    }

    /// How a drain copies files.
    pub(super) fn copies(&self) -> CopySettings {
        CopySettings {
            crc: self.crc,
            buffer_bytes: self.copy_bytes,
            threads: self.copy_threads,
            container: self.container,
        }
    }

    /// Reads the state of a prefix directory with its journal; `None` if no job was ever run there.
    ///
    /// # Errors
    /// [`StateError::Owned`] if it is not ours; [`StateError::Content`].
    pub fn read(prefix: &Path) -> Result<Option<Self>, StateError> {
        let Some(own) = open_directory(prefix)? else { return Ok(None) };
        JobState::read_from(&own, |state| state.read_secret(&own))
    }

    /// As [`read`](Self::read), with the directory. If that belongs to another user, who permitted a group of this user
    /// to read it, the state has no key and token: it may be shown, not obeyed.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_to_show(prefix: &Path) -> Result<Option<(Self, OwnedDirectory)>, StateError> {
        let Some(own) = open_directory_to_show(prefix)? else { return Ok(None) };
        let state = JobState::read_from(&own, |state| if own.is_ours() { state.read_secret(&own) } else { Ok(true) })?;
        Ok(state.map(|state| (state, own)))
    }

    fn read_from(
        own: &OwnedDirectory,
        complete: impl Fn(&mut Self) -> Result<bool, StateError>,
    ) -> Result<Option<Self>, StateError> {
        // The orchestrator may replace the files between the reads.
        for _ in 0..READS {
            let Some(mut state) = JobState::read_file(own)? else { return Ok(None) };
            let replayed = journal::replay(own, &mut state)?;
            state.end_if_over();
            if replayed == Replayed::UpToDate && complete(&mut state)? {
                return Ok(Some(state));
            }
        }
        let problem = "it does not fit the journal or the file with the key beside it".to_owned();
        Err(StateError::Content { path: own.path().join(STATE_FILE), problem })
    }

    /// The orchestrator was killed after it had released the nodes, before it recorded the end: the outcome, which it
    /// had recorded before, holds.
    fn end_if_over(&mut self) {
        if self.stage == Stage::Running
            && !self.keeps_data
            && let Some(outcome) = self.snapshot.as_ref().and_then(Snapshot::outcome)
            && !self.has_nodes()
        {
            self.stage = Stage::Finished { exit_code: outcome.exit_code(), message: outcome.to_string() };
        }
    }

    /// Reads key and token, if the job runs; returns false if they are missing or those of another job.
    fn read_secret(&mut self, own: &OwnedDirectory) -> Result<bool, StateError> {
        if self.stage != Stage::Running {
            return Ok(true);
        }
        let Some(text) = own.read(SECRET_FILE, Access::Private, LARGEST_SECRET)? else { return Ok(false) };
        let path = own.path().join(SECRET_FILE);
        let secret: JobSecret =
            serde_json::from_slice(&text).map_err(|error| StateError::Content { path, problem: error.to_string() })?;
        let is_ours = secret.job_id == self.agents.job_id;
        self.trust = is_ours.then_some(secret.trust);
        Ok(is_ours)
    }

    /// Reads `job.json` alone.
    fn read_file(own: &OwnedDirectory) -> Result<Option<Self>, StateError> {
        let Some(text) = own.read(STATE_FILE, Access::GroupRead, LARGEST)? else { return Ok(None) };
        let path = own.path().join(STATE_FILE);
        let bad = |problem: String| StateError::Content { path: path.clone(), problem };
        let version: Version = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        if version.version != VERSION {
            // A finished job cannot be taken over or drained, whichever build ran it.
            if version.stage["stage"] == "finished" {
                return Ok(None);
            }
            return Err(StateError::Version { path, found: version.version });
        }
        serde_json::from_slice(&text).map(Some).map_err(|error| bad(error.to_string()))
    }

    /// Replaces the state, and removes the journal. Key and token are written if the job runs, and otherwise removed.
    ///
    /// # Errors
    /// [`StateError::Owned`]; the old state is then kept.
    pub fn write(&self, prefix: &Path) -> Result<(), StateError> {
        let own = opened(prefix)?;
        if let Some(trust) = self.trust.as_ref().filter(|_| self.stage == Stage::Running) {
            let secret = JobSecretRef { job_id: &self.agents.job_id, trust };
            let text = serde_json::to_vec(&secret)
                .map_err(|error| StateError::file("write", &own.path().join(SECRET_FILE))(error.into()))?;
            own.replace(SECRET_FILE, &text, Access::Private, Durability::Machine)?;
        }
        self.replace_in(&own)?;
        // Its entries are in the state, or belong to another job.
        own.remove_file(journal::file::FILE, Durability::Machine)?;
        Ok(())
    }

    /// Replaces `job.json` and leaves the journal; removes key and token if the job has ended. Returns the size.
    pub(super) fn replace(&self, prefix: &Path) -> Result<u64, StateError> {
        self.replace_in(&opened(prefix)?)
    }

    fn replace_in(&self, own: &OwnedDirectory) -> Result<u64, StateError> {
        let text = serde_json::to_vec(self)
            .map_err(|error| StateError::file("write", &own.path().join(STATE_FILE))(error.into()))?;
        own.replace(STATE_FILE, &text, self.group_access.access(), Durability::Machine)?;
        if self.stage != Stage::Running {
            own.remove_file(SECRET_FILE, Durability::Machine)?;
        }
        Ok(text.len() as u64)
    }

    /// Records that the job has ended. A failure is logged: the job has ended anyway.
    pub(super) fn end(&mut self, prefix: &Path, exit_code: u8, message: String) {
        self.stage = Stage::Finished { exit_code, message };
        if let Err(error) = self.write(prefix) {
            tracing::warn!(%error, "the end of the job could not be recorded");
        }
    }

    /// The settings of agents with certificate, key and token: those of the job if it runs, otherwise new ones, because
    /// its agents have ended.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn template(&self) -> Result<AgentTemplate, TrustError> {
        let trust = self.trust.clone().map_or_else(trust::generate, Ok)?;
        Ok(AgentTemplate { settings: self.agents.clone(), trust })
    }

    /// True if both are of the same job: the certificate is unique to a job.
    pub fn is_same_job(&self, other: &Self) -> bool {
        let certificate = |state: &Self| state.trust.as_ref().map(|trust| trust.certificate.0.clone());
        self.agents.job_id == other.agents.job_id
            && certificate(self).is_some_and(|ours| certificate(other) == Some(ours))
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
        if let Some(Progress { stage, halt_set, keeps_data, first_launch_ms }) = progress {
            (self.stage, self.halt_set) = (stage, halt_set);
            (self.keeps_data, self.first_launch_ms) = (keeps_data, first_launch_ms);
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
            keeps_data: self.keeps_data,
            first_launch_ms: self.first_launch_ms,
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
        let finished = self.snapshot.as_ref()?.finished_steps();
        (finished > Generation::NONE).then_some(finished)
    }

    /// True if the job runs pairs of main and replica, and has not ended.
    pub fn has_pairs(&self) -> bool {
        self.pairs.is_some() && !matches!(self.stage, Stage::Finished { .. })
    }

    /// True if the nodes of this job still exist, so that another orchestrator can take over.
    pub fn has_nodes(&self) -> bool {
        self.allocation.is_available()
    }
}

/// `job.secret`.
#[derive(Deserialize)]
struct JobSecret {
    job_id: String,
    trust: TrustMaterial,
}

/// As [`JobSecret`], to be written.
#[derive(Serialize)]
struct JobSecretRef<'a> {
    job_id: &'a str,
    trust: &'a TrustMaterial,
}

/// The fields that every version of the file has.
#[derive(Deserialize)]
struct Version {
    version: u32,
    #[serde(default)]
    stage: serde_json::Value,
}

/// The lock of a prefix directory, held until dropped; the kernel frees it when a process dies, however it dies.
#[derive(Debug)]
pub struct JobLock {
    _file: File,
}

impl JobLock {
    /// Takes the lock, and gives `.holdfast` and the lock the modes for this access of the group. Makes `.holdfast` if
    /// it does not exist.
    ///
    /// # Errors
    /// [`StateError::Running`] if another orchestrator holds it; [`StateError::Owned`] if `.holdfast` is not ours.
    pub fn take(prefix: &Path, group_access: GroupAccess) -> Result<Self, StateError> {
        let own = match open_directory(prefix)? {
            Some(own) => own,
            None => Base::shared(prefix)?.create_directory(OWN, Access::Private)?,
        };
        let path = own.path().join(LOCK_FILE);
        let file = own.open_or_create(LOCK_FILE, Access::GroupRead)?;
        let access = group_access.access();
        own_files::permit_directory(&own, access).map_err(StateError::file("change the mode of", own.path()))?;
        own_files::permit_file(&file, access).map_err(StateError::file("change the mode of", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Some parallel file systems are mounted without locks: refusing to run there would be worse.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP) => {
                // Left by processes that were killed. No reader uses them: a failure must not prevent the job.
                let _ = temporary::remove_abandoned_below(own.path());
                Ok(JobLock { _file: file })
            }
            Err(Errno::WOULDBLOCK) => {
                let pid = JobState::read(prefix).ok().flatten().map(|state| state.orchestrator);
                Err(StateError::Running { prefix: prefix.to_owned(), pid })
            }
            Err(errno) => Err(StateError::file("lock", &path)(errno.into())),
        }
    }

    /// Takes the lock with the access of the group that the last job has.
    ///
    /// # Errors
    /// As [`take`](Self::take), and those of [`JobState::read`].
    pub fn take_of_last_job(prefix: &Path) -> Result<Self, StateError> {
        let group_access = JobState::read(prefix)?.map(|state| state.group_access).unwrap_or_default();
        JobLock::take(prefix, group_access)
    }

    /// True if an orchestrator runs a job of this prefix directory.
    pub fn is_held(prefix: &Path) -> bool {
        let Ok(Some(own)) = open_directory_to_show(prefix) else { return false };
        let Ok(Some(file)) = own.open_file(LOCK_FILE, Access::GroupRead) else { return false };
        matches!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::AllocatedNodes as _;
    use crate::allocation::local::Local;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    fn state() -> JobState {
        let base = tempfile::tempdir().unwrap();
        let roots = base.path();
        let local = Local::over_roots("17".into(), "user1".into(), vec!["node0".into()], roots.into(), roots.into());
        let allocation = local.unwrap().record();
        let settings = AgentSettings {
            job: "heat".to_owned(),
            job_id: "17".to_owned(),
            user: "user1".to_owned(),
            prefixes: Vec::new(),
            control_base: "/tmp".to_owned(),
            control_bytes: None,
            cache_bases: BTreeMap::new(),
            disk_timeout: Duration::from_secs(30),
        };
        let agents = AgentTemplate { settings, trust: trust::generate().unwrap() };
        JobState::new("heat".to_owned(), allocation, agents)
    }

    fn write(prefix: &Path, text: &str) {
        let own = open_directory(prefix).unwrap().unwrap();
        own.replace(STATE_FILE, text.as_bytes(), Access::Private, Durability::Process).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_state_is_read_as_it_was_written_and_only_its_owner_may_read_it() {
        let base = tempfile::tempdir().unwrap();
        assert!(JobState::read(base.path()).unwrap().is_none());
        let _lock = JobLock::take(base.path(), GroupAccess::None).unwrap();
        state().write(base.path()).unwrap();
        let read = JobState::read(base.path()).unwrap().unwrap();
        assert_eq!(read.stage, Stage::Running);
        assert_eq!(read.agents.job_id, "17");
        assert!(!read.has_nodes());
        assert_eq!(mode(&path(base.path())), 0o600);
        assert_eq!(mode(&directory(base.path())), 0o700);
    }

    #[test]
    fn key_and_token_are_in_a_file_of_their_own_until_the_job_ends() {
        let base = tempfile::tempdir().unwrap();
        let _lock = JobLock::take(base.path(), GroupAccess::Status).unwrap();
        let mut state = JobState { group_access: GroupAccess::Status, ..state() };
        state.write(base.path()).unwrap();
        let secret = directory(base.path()).join(SECRET_FILE);
        assert_eq!(mode(&secret), 0o600);
        let token = serde_json::to_value(state.trust.as_ref().unwrap()).unwrap()["token"].as_str().unwrap().to_owned();
        assert!(std::fs::read_to_string(&secret).unwrap().contains(&token));
        assert!(!std::fs::read_to_string(path(base.path())).unwrap().contains(&token));
        assert!(JobState::read(base.path()).unwrap().unwrap().is_same_job(&state));
        let ended =
            [Stage::Finished { exit_code: 0, message: String::new() }, Stage::Undrained { reason: String::new() }];
        for stage in ended {
            state.stage = Stage::Running;
            state.write(base.path()).unwrap();
            state.stage = stage;
            state.replace(base.path()).unwrap();
            assert!(!secret.exists());
            let read = JobState::read(base.path()).unwrap().unwrap();
            assert!(read.trust.is_none() && !read.is_same_job(&state));
            assert_ne!(read.template().unwrap().trust.token.0, state.trust.clone().unwrap().token.0);
        }
    }

    #[test]
    fn a_state_that_others_may_write_to_is_refused_with_the_file_and_a_remedy() {
        let base = tempfile::tempdir().unwrap();
        let lock = JobLock::take(base.path(), GroupAccess::None).unwrap();
        state().write(base.path()).unwrap();
        drop(lock);
        for (place, mode, good) in [(path(base.path()), 0o666, 0o600), (directory(base.path()), 0o777, 0o700)] {
            std::fs::set_permissions(&place, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = JobState::read(base.path()).unwrap_err();
            assert_eq!(error.exit_code(), exit::CONFIGURATION);
            let text = error.to_string();
            assert!(text.contains(&place.display().to_string()) && text.contains("written by other users"), "{text}");
            std::fs::set_permissions(&place, std::fs::Permissions::from_mode(good)).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", base.path().join("link")).unwrap();
        std::fs::rename(base.path().join("link"), path(base.path())).unwrap();
        assert!(JobState::read(base.path()).unwrap_err().to_string().contains("symbolic link"));
    }

    #[test]
    fn refuses_a_job_that_another_build_began_with_both_versions() {
        let base = tempfile::tempdir().unwrap();
        let _lock = JobLock::take(base.path(), GroupAccess::None).unwrap();
        for (begun, found) in [(r#"{"version":1,"stage":{"stage":"running"}}"#, 1), (r#"{"version":99}"#, 99)] {
            write(base.path(), begun);
            let error = JobState::read(base.path()).unwrap_err();
            assert!(matches!(error, StateError::Version { found: version, .. } if version == found), "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("version {found}, this one reads {VERSION}")), "{text}");
            assert!(text.contains("job.json") && text.contains("with the version that began it"), "{text}");
        }
    }

    #[test]
    fn a_finished_job_of_another_build_is_ignored() {
        let base = tempfile::tempdir().unwrap();
        let _lock = JobLock::take(base.path(), GroupAccess::None).unwrap();
        let old = r#"{"version":1,"stage":{"stage":"finished","exit_code":0,"message":"done"}}"#;
        write(base.path(), old);
        assert!(JobState::read(base.path()).unwrap().is_none());
    }

    #[test]
    fn a_second_orchestrator_is_refused_while_the_first_runs() {
        let base = tempfile::tempdir().unwrap();
        let lock = JobLock::take(base.path(), GroupAccess::None).unwrap();
        assert!(JobLock::is_held(base.path()));
        assert!(matches!(JobLock::take(base.path(), GroupAccess::None), Err(StateError::Running { .. })));
        drop(lock);
        assert!(!JobLock::is_held(base.path()));
        JobLock::take(base.path(), GroupAccess::None).unwrap();
    }
}
