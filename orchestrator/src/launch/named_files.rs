//! The directory of the files that a launcher opens or executes by name: a host file, a remote shell.
//!
//! What was checked before `mpirun` or `srun` opens it could be exchanged until then by a user who may write to a
//! directory above it, for example to the prefix directory of a project. These files are therefore in the generation's
//! directory only if no other user can exchange a component of its path; otherwise they are in a directory of their own
//! in the temporary directory, which the step supervisor removes at the end.

use std::path::{Path, PathBuf};

use holdfast_core::owned::{Access, Base, Marker, OwnedError};

use super::error::LaunchError;

fn marker(job_id: &str) -> Marker<'_> {
    Marker { kind: "launch", job: job_id, prefix: None, allocation: None }
}

/// The directory of such files. A private one is removed with this, until it is in a plan.
#[derive(Debug)]
pub(super) struct NamedFiles<'a> {
    pub path: PathBuf,
    job_id: &'a str,
    pub is_private: bool,
}

impl NamedFiles<'_> {
    /// The directory that must be removed after the step.
    pub(super) fn into_plan(mut self) -> Option<PathBuf> {
        std::mem::take(&mut self.is_private).then(|| self.path.clone())
    }
}

impl Drop for NamedFiles<'_> {
    fn drop(&mut self) {
        if self.is_private
            && let Err(error) = remove(&self.path, self.job_id)
        {
            tracing::warn!(%error, "private_launch_directory_not_removed");
        }
    }
}

/// The directory for the generation whose own directory is `directory`.
///
/// # Errors
/// [`LaunchError::Owned`] if neither it nor the temporary directory can be trusted.
pub(super) fn directory_for<'a>(directory: &Path, job_id: &'a str) -> Result<NamedFiles<'a>, LaunchError> {
    match Base::trusted(directory) {
        Ok(_) => Ok(NamedFiles { path: directory.to_owned(), job_id, is_private: false }),
        Err(reason) => {
            tracing::info!(%reason, "private_launch_directory");
            let temporary = Base::trusted(&std::env::temp_dir())?;
            let made = temporary.new_random_directory("holdfast-launch-", Access::Private, &marker(job_id))?;
            Ok(NamedFiles { path: made.path().to_owned(), job_id, is_private: true })
        }
    }
}

/// Removes a private directory after its step.
///
/// # Errors
/// As [`Base::remove_tree`].
pub(super) fn remove(directory: &Path, job_id: &str) -> Result<(), OwnedError> {
    let (Some(above), Some(name)) = (directory.parent(), directory.file_name()) else { return Ok(()) };
    Base::trusted(above)?.remove_tree(name, Access::Private, &marker(job_id))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_generation_s_directory_serves_unless_others_may_exchange_it() {
        let base = tempfile::tempdir().unwrap();
        let generation = base.path().join("prefix/.holdfast/generations/1");
        fs::create_dir_all(&generation).unwrap();
        let prefix = base.path().join("prefix");
        fs::set_permissions(&prefix, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(base.path(), Permissions::from_mode(0o755)).unwrap();
        let files = directory_for(&generation, "17").unwrap();
        assert_eq!(files.path, generation);
        assert_eq!(files.into_plan(), None);

        fs::set_permissions(&prefix, Permissions::from_mode(0o777)).unwrap();
        let files = directory_for(&generation, "17").unwrap();
        let path = files.into_plan().unwrap();
        assert!(!path.starts_with(base.path()), "{}", path.display());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
        fs::write(path.join("hosts"), "n1\n").unwrap();
        remove(&path, "18").unwrap_err();
        remove(&path, "17").unwrap();
        assert!(!path.exists());

        let files = directory_for(&generation, "17").unwrap();
        let path = files.path.clone();
        assert!(path.exists());
        drop(files);
        assert!(!path.exists(), "it is in no plan");
    }
}
