//! `<prefix>/.holdfast/job.json`: the state of a job for an orchestrator that takes over and for `status`, `halt` and
//! `drain`; and the lock that one orchestrator at a time holds.
//!
//! While a job runs, changes are in the [`journal`] beside the file, and reading the state reads both. Derived
//! information (the explanation that `status` shows) is not stored.
//!
//! The file holds the job's key and token: mode 0600, in a directory of mode 0700.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_core::durable::{self, CreationMode, DurableError};
use holdfast_model::{Generation, NodeName};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::journal::{self, file::Replayed};
use crate::allocation::{AgentTemplate, AllocationRecord};
use crate::fleet::AgentRecord;
use crate::relaunch::changes::Unfit;
use crate::relaunch::{Changes, Explanation, Snapshot};

/// The version of the file.
pub(crate) const VERSION: u32 = 4;
/// Attempts to read both files in a consistent state.
const READS: u32 = 20;
/// The state of a job with ten thousand nodes is smaller.
const LARGEST: u64 = 256 << 20;

/// The state of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobState {
    /// The version of the file.
    pub version: u32,
    pub job: String,
    /// The process of its orchestrator.
    pub orchestrator: u32,
    pub stage: Stage,
    pub allocation: AllocationRecord,
    /// The settings of agents, with certificate and token.
    pub agents: AgentTemplate,
    /// The last known agents.
    pub running: BTreeMap<NodeName, AgentRecord>,
    /// The halt conditions of the spec were set in the halt files, which is done once.
    pub halt_set: bool,
    /// Compute checksums while draining.
    pub crc: bool,
    /// Size of a copy's buffer, bytes.
    pub copy_bytes: usize,
    /// Requests to agents that are under way at a time.
    pub requests_at_once: u32,
    /// The state of the relaunch machine.
    pub snapshot: Option<Snapshot>,
    /// The drain has ended, and the nodes hold files that another one could save.
    pub keeps_data: bool,
    /// When the application was first launched, milliseconds since the loop began.
    pub first_launch_ms: Option<u64>,
    /// The number of the last journal entry that is in the state.
    #[serde(default)]
    pub entries: u64,
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
    /// It could not be written.
    #[error(transparent)]
    Durable(#[from] DurableError),
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
    /// True if something could not be written, or the file system not be used, whatever the files contain.
    pub fn prevents_writing(&self) -> bool {
        match self {
            StateError::Durable(_) => true,
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
    prefix.join(".holdfast")
}

/// The path of the state of a prefix directory.
pub fn path(prefix: &Path) -> PathBuf {
    directory(prefix).join("job.json")
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
            orchestrator: std::process::id(),
            stage: Stage::Running,
            allocation,
            agents,
            running: BTreeMap::new(),
            halt_set: false,
            crc: true,
            copy_bytes: 1 << 20,
            requests_at_once: 64,
            snapshot: None,
            keeps_data: false,
            first_launch_ms: None,
            entries: 0,
        }
    }

    /// Reads the state of a prefix directory with its journal; `None` if no job was ever run there.
    ///
    /// # Errors
    /// [`StateError::File`], [`StateError::Content`].
    pub fn read(prefix: &Path) -> Result<Option<Self>, StateError> {
        // The orchestrator may replace both files between the two reads.
        for _ in 0..READS {
            let Some(mut state) = JobState::read_file(prefix)? else { return Ok(None) };
            if journal::replay(prefix, &mut state)? == Replayed::UpToDate {
                return Ok(Some(state));
            }
        }
        let problem = "it is older than the journal beside it".to_owned();
        Err(StateError::Content { path: path(prefix), problem })
    }

    /// Reads `job.json` alone.
    fn read_file(prefix: &Path) -> Result<Option<Self>, StateError> {
        let path = path(prefix);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateError::file("open", &path)(error)),
        };
        let mut text = Vec::new();
        file.take(LARGEST).read_to_end(&mut text).map_err(StateError::file("read", &path))?;
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

    /// Replaces the state, and removes the journal.
    ///
    /// # Errors
    /// [`StateError::Durable`]; the old state is then kept.
    pub fn write(&self, prefix: &Path) -> Result<(), StateError> {
        self.replace(prefix)?;
        // Its entries are in the state, or belong to another job.
        durable::remove(&journal::file::path(prefix))?;
        Ok(())
    }

    /// Replaces `job.json` and leaves the journal. Returns the size.
    pub(super) fn replace(&self, prefix: &Path) -> Result<u64, StateError> {
        let path = path(prefix);
        let text = serde_json::to_vec(self).map_err(|error| StateError::file("write", &path)(error.into()))?;
        durable::replace(&path, CreationMode::Private, &text)?;
        Ok(text.len() as u64)
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

    /// True if the nodes of this job still exist, so that another orchestrator can take over.
    pub fn has_nodes(&self) -> bool {
        self.allocation.is_available()
    }
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
    /// Takes the lock.
    ///
    /// # Errors
    /// [`StateError::Running`] if another orchestrator holds it.
    pub fn take(prefix: &Path) -> Result<Self, StateError> {
        let own = directory(prefix);
        durable::create_directory(&own, CreationMode::Private)?;
        let path = own.join("lock");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(StateError::file("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Some parallel file systems are mounted without locks: refusing to run there would be worse.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP) => Ok(JobLock { _file: file }),
            Err(Errno::WOULDBLOCK) => {
                let pid = JobState::read(prefix).ok().flatten().map(|state| state.orchestrator);
                Err(StateError::Running { prefix: prefix.to_owned(), pid })
            }
            Err(errno) => Err(StateError::file("lock", &path)(errno.into())),
        }
    }

    /// True if an orchestrator runs a job of this prefix directory.
    pub fn is_held(prefix: &Path) -> bool {
        let Ok(file) = File::open(directory(prefix).join("lock")) else { return false };
        matches!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::AllocatedNodes as _;
    use crate::allocation::local::Local;
    use std::os::unix::fs::PermissionsExt as _;

    fn state() -> JobState {
        let base = tempfile::tempdir().unwrap();
        let roots = base.path();
        let local = Local::over_roots("17".into(), "user1".into(), vec!["node0".into()], roots.into(), roots.into());
        let allocation = local.unwrap().record();
        let agents = AgentTemplate {
            job: "heat".to_owned(),
            job_id: "17".to_owned(),
            user: "user1".to_owned(),
            prefixes: Vec::new(),
            control_base: "/tmp".to_owned(),
            control_bytes: None,
            cache_bases: BTreeMap::new(),
            trust: holdfast_wire::trust::generate().unwrap(),
        };
        JobState::new("heat".to_owned(), allocation, agents)
    }

    #[test]
    fn a_state_is_read_as_it_was_written_and_only_its_owner_may_read_it() {
        let base = tempfile::tempdir().unwrap();
        assert!(JobState::read(base.path()).unwrap().is_none());
        let _lock = JobLock::take(base.path()).unwrap();
        state().write(base.path()).unwrap();
        let read = JobState::read(base.path()).unwrap().unwrap();
        assert_eq!(read.stage, Stage::Running);
        assert_eq!(read.agents.job_id, "17");
        assert!(!read.has_nodes());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path(base.path())), 0o600);
        assert_eq!(mode(&directory(base.path())), 0o700);
    }

    #[test]
    fn refuses_a_job_that_another_build_began_with_both_versions() {
        let base = tempfile::tempdir().unwrap();
        durable::create_directory(&directory(base.path()), CreationMode::Private).unwrap();
        for (begun, found) in [(r#"{"version":1,"stage":{"stage":"running"}}"#, 1), (r#"{"version":99}"#, 99)] {
            std::fs::write(path(base.path()), begun).unwrap();
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
        durable::create_directory(&directory(base.path()), CreationMode::Private).unwrap();
        let old = r#"{"version":1,"stage":{"stage":"finished","exit_code":0,"message":"done"}}"#;
        std::fs::write(path(base.path()), old).unwrap();
        assert!(JobState::read(base.path()).unwrap().is_none());
    }

    #[test]
    fn a_second_orchestrator_is_refused_while_the_first_runs() {
        let base = tempfile::tempdir().unwrap();
        let lock = JobLock::take(base.path()).unwrap();
        assert!(JobLock::is_held(base.path()));
        assert!(matches!(JobLock::take(base.path()), Err(StateError::Running { .. })));
        drop(lock);
        assert!(!JobLock::is_held(base.path()));
        JobLock::take(base.path()).unwrap();
    }
}
