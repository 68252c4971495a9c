//! Which orchestrator is the newest one of a job: `<prefix>/.holdfast/orchestrator.json`.
//!
//! The lock of the job excludes two orchestrators. It does not where a file system has no locks, or where a server has
//! released that of an orchestrator which was cut off or stopped, and goes on later. Such an orchestrator finds the
//! claim of another one here, and ends. Only an orchestrator that takes the job over writes the file: the state of the
//! job could be written late by an earlier one.

use std::path::Path;

use holdfast_core::durable::Durability;
use holdfast_core::owned::{Access, OwnedDirectory};
use holdfast_core::state_directory::StateDirectory;
use serde::{Deserialize, Serialize};

use super::state::StateError;
use crate::fleet::clock::unix_millis;
use crate::host;

const VERSION: u32 = 1;
const FILE: &str = "orchestrator.json";
/// A claim has less than a tenth of this.
const LARGEST: u64 = 64 << 10;

/// The claim of one orchestrator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    version: u32,
    job_id: String,
    /// Higher than that of every earlier orchestrator of the job.
    pub(super) epoch: u64,
    /// The process: no two orchestrators have the same three.
    boot: String,
    pid: u32,
    began_ms: u64,
}

impl Claim {
    /// Makes this process the orchestrator of the job; its epoch is at least `epoch`. Blocks.
    ///
    /// # Errors
    /// [`StateError::Owned`] if the file is not ours; [`StateError::Content`].
    pub(super) fn make(prefix: &Path, job_id: &str, epoch: u64) -> Result<Claim, StateError> {
        let own = StateDirectory::below(prefix).existing()?;
        let known = read(&own)?.filter(|known| known.job_id == job_id).map_or(0, |known| known.epoch);
        let claim = Claim {
            version: VERSION,
            job_id: job_id.to_owned(),
            epoch: epoch.max(known.saturating_add(1)),
            boot: host::boot_id(),
            pid: std::process::id(),
            began_ms: unix_millis(),
        };
        let failed = |error: serde_json::Error| StateError::file("write", &own.path().join(FILE))(error.into());
        own.replace(FILE, &serde_json::to_vec(&claim).map_err(failed)?, Access::GroupRead, Durability::Machine)?;
        Ok(claim)
    }

    /// True if no other orchestrator has claimed the job since. Blocks.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub(super) fn is_newest(&self, prefix: &Path) -> Result<bool, StateError> {
        let own = StateDirectory::below(prefix).existing()?;
        match read(&own)? {
            Some(newest) => Ok(newest == *self),
            None => Err(missing(&own.path().join(FILE))),
        }
    }
}

fn missing(path: &Path) -> StateError {
    StateError::file("open", path)(std::io::ErrorKind::NotFound.into())
}

fn read(own: &OwnedDirectory) -> Result<Option<Claim>, StateError> {
    let Some(text) = own.read(FILE, Access::GroupRead, LARGEST)? else { return Ok(None) };
    let content = |problem: String| StateError::Content { path: own.path().join(FILE), problem };
    let claim: Claim = serde_json::from_slice(&text).map_err(|error| content(error.to_string()))?;
    match claim.version {
        VERSION => Ok(Some(claim)),
        version => Err(content(format!("its version is {version}, this one reads {VERSION}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use holdfast_core::crash::{ALL_ERRORS, Subject};

    use super::*;
    use crate::job::state_file::JobLock;
    use crate::spec::GroupAccess;

    #[test]
    fn later_claim_replaces_an_earlier_one_and_has_a_higher_epoch() {
        let prefix = tempfile::tempdir().unwrap();
        let _lock = JobLock::take(prefix.path(), GroupAccess::None).unwrap();
        let first = Claim::make(prefix.path(), "17", 1).unwrap();
        assert_eq!((first.epoch, first.is_newest(prefix.path()).unwrap()), (1, true));
        // The state of the job, from which the epoch is taken, may be an older one.
        let second = Claim::make(prefix.path(), "17", 1).unwrap();
        assert_eq!(second.epoch, 2);
        let newest = [&first, &second].map(|claim| claim.is_newest(prefix.path()).unwrap());
        assert_eq!(newest, [false, true]);
        assert_eq!(Claim::make(prefix.path(), "18", 1).unwrap().epoch, 1);
    }

    /// Each orchestrator that takes the job over has a higher epoch than those before it, and the lock is free after
    /// the death of one.
    #[test]
    fn crash_an_orchestrator_that_takes_the_job_over() {
        let known = Cell::new(0);
        let prepare = |prefix: &Path| {
            fs::create_dir(prefix).unwrap();
            let _lock = JobLock::take(prefix, GroupAccess::None).unwrap();
            known.set(Claim::make(prefix, "17", 1).unwrap().epoch);
        };
        let epoch = |prefix: &Path| -> Result<u64, String> {
            let own = StateDirectory::below(prefix).existing().map_err(|error| error.to_string())?;
            Ok(read(&own).map_err(|error| error.to_string())?.ok_or("the claim is gone")?.epoch)
        };
        let work = |prefix: &Path| {
            let _lock = JobLock::take(prefix, GroupAccess::None).map_err(|error| error.to_string())?;
            let before = epoch(prefix)?;
            let claim = Claim::make(prefix, "17", 1).map_err(|error| error.to_string())?;
            let is_newest = claim.is_newest(prefix).map_err(|error| error.to_string())?;
            assert!(claim.epoch > before && is_newest, "{claim:?} after {before}");
            Ok(())
        };
        let check = |prefix: &Path| {
            let found = epoch(prefix)?;
            (found >= known.get() && !JobLock::is_held(prefix)).then_some(()).ok_or(format!("epoch {found}"))
        };
        // The epoch counts the interruptions.
        let result = |prefix: &Path| format!("{:?}", holdfast_testkit::files_below(prefix));
        let (prepare, work, check, result): (&dyn Fn(&Path), _, _, _) = (&prepare, &work, &check, &result);
        let (name, power, errors) = ("take over", true, ALL_ERRORS);
        let tried = Subject { name, prepare, work, check, result, power, errors }.interrupt();
        assert!(tried.losses > 3 && tried.errors > 40, "{tried:?}");
    }

    #[test]
    fn damaged_claim_is_an_error_that_names_the_file() {
        let prefix = tempfile::tempdir().unwrap();
        let _lock = JobLock::take(prefix.path(), GroupAccess::None).unwrap();
        let claim = Claim::make(prefix.path(), "17", 1).unwrap();
        std::fs::write(prefix.path().join(".holdfast").join(FILE), "{").unwrap();
        let error = claim.is_newest(prefix.path()).unwrap_err().to_string();
        assert!(error.contains(FILE), "{error}");
        std::fs::remove_file(prefix.path().join(".holdfast").join(FILE)).unwrap();
        assert!(claim.is_newest(prefix.path()).is_err());
    }
}
