//! `<prefix>/.holdfast/job.json`: the state of a job for an orchestrator that takes over and for `status`, `halt` and
//! `drain`; and the lock that one orchestrator at a time holds.
//!
//! While a job runs, changes are in the [`journal`](super::journal) beside the file, and reading the state reads both.
//!
//! The job's certificate, key and token are in a file of their own, `job.secret`, from the beginning of the job to its
//! end.
//!
//! What is in these files is obeyed, and other users may be permitted to write to the prefix directory. They are read
//! only if they and their directory belong to this user, are not links, and cannot be written by others: see
//! [`holdfast_core::owned`]. By default the directory has mode 0700 and the files have mode 0600; with
//! [`GroupAccess::Status`], and if the umask permits it, the group may read what `holdfast status` shows, and never
//! `job.secret`.

use std::fs::File;
use std::path::{Path, PathBuf};

use holdfast_core::durable::Durability;
use holdfast_core::owned::{Access, OwnedDirectory};
use holdfast_core::state_directory::StateDirectory;
use holdfast_core::state_files;
use holdfast_core::temporary;
use holdfast_wire::run::TrustMaterial;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::journal::file::{self as journal_file, Replayed};
use super::state::{JobState, Stage, StateError, VERSION};
use crate::spec::GroupAccess;

/// Attempts to read both files in a consistent state.
const READS: u32 = 20;
/// The state of a job with ten thousand nodes is smaller.
const LARGEST: u64 = 256 << 20;
const LARGEST_SECRET: u64 = 64 << 10;

const STATE_FILE: &str = "job.json";
pub(crate) const SECRET_FILE: &str = "job.secret";
const LOCK_FILE: &str = "lock";

/// The path of the state of a prefix directory.
pub fn path(prefix: &Path) -> PathBuf {
    StateDirectory::below(prefix).join(STATE_FILE)
}

impl JobState {
    /// Reads the state of a prefix directory with its journal; `None` if no job was ever run there.
    ///
    /// # Errors
    /// [`StateError::Owned`] if it is not ours; [`StateError::Content`].
    pub fn read(prefix: &Path) -> Result<Option<Self>, StateError> {
        let Some(own) = StateDirectory::below(prefix).open()? else { return Ok(None) };
        JobState::read_from(&own, |state| state.read_secret(&own))
    }

    /// As [`read`](Self::read), with the directory. If that belongs to another user, who permitted a group of this user
    /// to read it, the state has no key and token: it may be shown, not obeyed.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_to_show(prefix: &Path) -> Result<Option<(Self, OwnedDirectory)>, StateError> {
        let Some(own) = StateDirectory::below(prefix).open_to_show()? else { return Ok(None) };
        let state = JobState::read_from(&own, |state| if own.is_ours() { state.read_secret(&own) } else { Ok(true) })?;
        Ok(state.map(|state| (state, own)))
    }

    /// How the job of a prefix directory ended, if another version of Holdfast ran it: its state is not read.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn end_by_other_version(prefix: &Path) -> Result<Option<String>, StateError> {
        let Some(own) = StateDirectory::below(prefix).open_to_show()? else { return Ok(None) };
        let Some(text) = own.read(STATE_FILE, Access::GroupRead, LARGEST)? else { return Ok(None) };
        let version: Option<Version> = serde_json::from_slice(&text).ok();
        let ended = version.filter(|state| state.version != VERSION && state.stage["stage"] == "finished");
        Ok(ended.map(|state| state.stage["message"].as_str().unwrap_or("it has ended").to_owned()))
    }

    fn read_from(
        own: &OwnedDirectory,
        complete: impl Fn(&mut Self) -> Result<bool, StateError>,
    ) -> Result<Option<Self>, StateError> {
        // The orchestrator may replace the files between the reads.
        for _ in 0..READS {
            let Some(mut state) = JobState::read_file(own)? else { return Ok(None) };
            let replayed = journal_file::replay(own, &mut state)?;
            state.end_if_over();
            if replayed == Replayed::UpToDate && complete(&mut state)? {
                return Ok(Some(state));
            }
        }
        let problem = "it does not fit the journal or the file with the key beside it".to_owned();
        Err(StateError::Content { path: own.path().join(STATE_FILE), problem })
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
        let own = StateDirectory::below(prefix).existing()?;
        if let Some(trust) = self.trust.as_ref().filter(|_| self.stage == Stage::Running) {
            let secret = JobSecretRef { job_id: &self.agents.job_id, trust };
            let text = serde_json::to_vec(&secret)
                .map_err(|error| StateError::file("write", &own.path().join(SECRET_FILE))(error.into()))?;
            own.replace(SECRET_FILE, &text, Access::Private, Durability::Machine)?;
        }
        self.replace_in(&own)?;
        // Its entries are in the state, or belong to another job.
        own.remove_file(journal_file::FILE, Durability::Machine)?;
        Ok(())
    }

    /// Replaces `job.json` and leaves the journal; removes key and token if the job has ended. Returns the size.
    pub(super) fn replace(&self, prefix: &Path) -> Result<u64, StateError> {
        self.replace_in(&StateDirectory::below(prefix).existing()?)
    }

    fn replace_in(&self, own: &OwnedDirectory) -> Result<u64, StateError> {
        let text = serde_json::to_vec(self)
            .map_err(|error| StateError::file("write", &own.path().join(STATE_FILE))(error.into()))?;
        own.replace(STATE_FILE, &text, self.group_access.access(), Durability::Machine)?;
        self.remove_old_secret_in(own)?;
        Ok(text.len() as u64)
    }

    /// Removes key and token that an orchestrator which was killed has left of a job that has ended.
    ///
    /// # Errors
    /// [`StateError::Owned`].
    pub(super) fn remove_old_secret(&self, prefix: &Path) -> Result<(), StateError> {
        self.remove_old_secret_in(&StateDirectory::below(prefix).existing()?)
    }

    fn remove_old_secret_in(&self, own: &OwnedDirectory) -> Result<(), StateError> {
        if self.stage != Stage::Running {
            own.remove_file(SECRET_FILE, Durability::Machine)?;
        }
        Ok(())
    }

    /// Records that the job has ended. A failure is logged: the job has ended anyway.
    pub(super) fn end(&mut self, prefix: &Path, exit_code: u8, message: String) {
        self.stage = Stage::Finished { exit_code, message };
        if let Err(error) = self.write(prefix) {
            tracing::warn!(%error, "the end of the job could not be recorded");
        }
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
    file: File,
}

impl JobLock {
    /// Takes the lock, and gives `.holdfast` and the lock the modes for this access of the group. Makes `.holdfast` if
    /// it does not exist.
    ///
    /// # Errors
    /// [`StateError::Running`] if another orchestrator holds it; [`StateError::Owned`] if `.holdfast` is not ours.
    pub fn take(prefix: &Path, group_access: GroupAccess) -> Result<Self, StateError> {
        let own = StateDirectory::below(prefix).create()?;
        let path = own.path().join(LOCK_FILE);
        let file = own.open_or_create(LOCK_FILE, Access::GroupRead)?;
        let access = group_access.access();
        state_files::permit_directory(&own, access).map_err(StateError::file("change the mode of", own.path()))?;
        state_files::permit_file(&own, &file, access).map_err(StateError::file("change the mode of", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Some parallel file systems are mounted without locks: refusing to run there would be worse.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP) => {
                // Left by processes that were killed. No reader uses them: a failure must not prevent the job.
                let _ = temporary::remove_abandoned_below(own.path());
                Ok(JobLock { file })
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
        let Ok(Some(own)) = StateDirectory::below(prefix).open_to_show() else { return false };
        let Ok(Some(file)) = own.open_file(LOCK_FILE, Access::GroupRead) else { return false };
        let taken = flock(&file, FlockOperation::NonBlockingLockShared);
        if taken.is_ok() {
            unlock(&file);
        }
        matches!(taken, Err(Errno::WOULDBLOCK))
    }
}

impl Drop for JobLock {
    fn drop(&mut self) {
        unlock(&self.file);
    }
}

/// To close the file is not enough: a process that another thread is just starting has its descriptor until it executes
/// its program.
fn unlock(file: &File) {
    // It can fail where there are no locks only.
    let _ = flock(file, FlockOperation::Unlock);
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::exit;
    use std::os::unix::fs::PermissionsExt as _;

    fn state() -> JobState {
        JobState::of_test("17", tempfile::tempdir().unwrap().path())
    }

    fn write(prefix: &Path, text: &str) {
        let own = StateDirectory::below(prefix).open().unwrap().unwrap();
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
        assert_eq!(mode(StateDirectory::below(base.path()).path()), 0o700);
    }

    #[test]
    fn key_and_token_are_in_a_file_of_their_own_until_the_job_ends() {
        let base = tempfile::tempdir().unwrap();
        let _lock = JobLock::take(base.path(), GroupAccess::Status).unwrap();
        let mut state = JobState { group_access: GroupAccess::Status, ..state() };
        state.write(base.path()).unwrap();
        let secret = StateDirectory::below(base.path()).join(SECRET_FILE);
        assert_eq!(mode(&secret), 0o600);
        let token = serde_json::to_value(state.trust.as_ref().unwrap()).unwrap()["token"].as_str().unwrap().to_owned();
        assert!(std::fs::read_to_string(&secret).unwrap().contains(&token));
        assert!(!std::fs::read_to_string(path(base.path())).unwrap().contains(&token));
        assert!(JobState::read(base.path()).unwrap().unwrap().is_same_job(&state));
        let ended = [
            Stage::Finished { exit_code: 0, message: String::new() },
            Stage::Undrained { reason: String::new(), ended: None },
        ];
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
        for (place, mode, good) in
            [(path(base.path()), 0o666, 0o600), (StateDirectory::below(base.path()).path().to_owned(), 0o777, 0o700)]
        {
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
        // As a process that is just being started has it.
        let _inherited = lock.file.try_clone().unwrap();
        drop(lock);
        assert!(!JobLock::is_held(base.path()));
        JobLock::take(base.path(), GroupAccess::None).unwrap();
    }
}
