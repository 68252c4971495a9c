//! The job's prefix directories on this node.
//!
//! Below them, and nowhere else outside of its control and cache directories, the agent writes what it is requested to:
//! they are in its start message, which only the process that starts it can send. A message from the network cannot
//! name another directory.
//!
//! A check finds out whether a prefix directory is the same on this node: one on a local disk, or one that is not
//! mounted here, would otherwise be noticed only at the first flush.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::owned::{MissingDirectories, OwnedError, SharedDirectory};
use holdfast_core::state_directory::StateDirectory;
use holdfast_core::store::{self, DatasetAccess, DirectoryName, OpenDataset, PrefixError};

/// A network file system may cache for some seconds that a name does not exist.
const VISIBLE_WITHIN: Duration = Duration::from_secs(4);
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The prefix directories of the job's steps.
#[derive(Clone, Debug)]
pub struct JobPrefixes(Vec<PathBuf>);

/// Why a directory that a request or an order names is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetAccessError {
    #[error("{} is not an absolute path without `..`: a checkpoint directory must be", .0.display())]
    NotPlain(PathBuf),
    #[error(
        "{} is not below a prefix directory of this job, as it was started: end the job, and start it again if the \
         spec was changed",
        .0.display()
    )]
    Elsewhere(PathBuf),
    /// It cannot be opened, or another user may have a hand in it.
    #[error(transparent)]
    Store(#[from] PrefixError),
    #[error(transparent)]
    Owned(#[from] OwnedError),
}

impl DatasetAccessError {
    /// True if the directory cannot be used, whatever the request was. A link may lead out of the prefix directory: a
    /// request that names one is wrong.
    pub fn prevents_writing(&self) -> bool {
        match self {
            DatasetAccessError::Store(PrefixError::Owned(error)) | DatasetAccessError::Owned(error) => !error.is_link(),
            DatasetAccessError::Store(_) => true,
            DatasetAccessError::NotPlain(_) | DatasetAccessError::Elsewhere(_) => false,
        }
    }
}

impl JobPrefixes {
    pub fn new(prefixes: Vec<PathBuf>) -> Self {
        JobPrefixes(prefixes)
    }

    /// True if this is the prefix directory of a step.
    pub fn contains(&self, prefix: &Path) -> bool {
        self.0.iter().any(|known| known == prefix)
    }

    /// True if a directory is below the prefix directory of a step, or in Holdfast's own directory there.
    pub(crate) fn is_above(&self, directory: &Path) -> bool {
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        directory.components().all(plain) && self.0.iter().any(|prefix| directory.starts_with(prefix))
    }

    /// The prefix directory that a directory is below, and the rest of its path; nothing in the directory of the job's
    /// state.
    fn split<'a>(&'a self, directory: &'a Path) -> Result<(&'a Path, &'a Path), DatasetAccessError> {
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !directory.is_absolute() || !directory.components().all(plain) {
            return Err(DatasetAccessError::NotPlain(directory.to_owned()));
        }
        let below = self.0.iter().filter_map(|prefix| Some((prefix.as_path(), directory.strip_prefix(prefix).ok()?)));
        let below = below.max_by_key(|(prefix, _)| prefix.components().count());
        below
            .filter(|(_, rest)| !rest.as_os_str().is_empty() && !StateDirectory::is_in(rest))
            .ok_or_else(|| DatasetAccessError::Elsewhere(directory.to_owned()))
    }

    /// Checks that a directory may be used, if it exists. Blocks.
    ///
    /// # Errors
    /// When it must not be used.
    pub fn check(&self, directory: &Path) -> Result<(), DatasetAccessError> {
        match self.open(directory, DatasetAccess::Read) {
            Err(DatasetAccessError::Store(error)) if error.is_missing() => Ok(()),
            opened => opened.map(drop),
        }
    }

    /// Opens the dataset in a directory below a prefix directory. Blocks.
    ///
    /// # Errors
    /// When it must not be used, or cannot be opened.
    pub fn open(&self, directory: &Path, access: DatasetAccess) -> Result<Arc<dyn OpenDataset>, DatasetAccessError> {
        let (prefix, name) = self.split(directory)?;
        let name = name.to_str().and_then(|name| DirectoryName::new(name).ok());
        let name = name.ok_or_else(|| DatasetAccessError::Elsewhere(directory.to_owned()))?;
        Ok(store::open(prefix)?.open(&name, access)?)
    }

    /// Opens any directory below a prefix directory for writing: LLNL's library copies to the path that it chose.
    /// Blocks.
    ///
    /// # Errors
    /// When it must not be used, or cannot be opened.
    pub fn open_directory(&self, directory: &Path) -> Result<SharedDirectory, DatasetAccessError> {
        let (prefix, rest) = self.split(directory)?;
        let opened = SharedDirectory::open(prefix, rest.iter(), MissingDirectories::Fail)?;
        opened.check_owner()?;
        Ok(opened)
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "{} does not exist on this node; give a `prefix` on a file system that all nodes share, and check that it is \
     mounted here",
    path.display()
)]
pub struct NotShared {
    path: PathBuf,
}

/// Checks that the orchestrator's own directory below the prefix exists here.
///
/// # Errors
/// When it does not. A file system that does not answer, or any other error, does not refuse the run: the first access
/// that needs the prefix reports it with more detail.
pub async fn check(prefix: &Path) -> Result<(), NotShared> {
    check_path(StateDirectory::below(prefix).path().to_owned(), VISIBLE_WITHIN).await
}

async fn check_path(path: PathBuf, limit: Duration) -> Result<(), NotShared> {
    let begun = Instant::now();
    loop {
        let checked = path.clone();
        let found = tokio::task::spawn_blocking(move || checked.symlink_metadata().map(drop));
        match tokio::time::timeout(limit, found).await {
            Ok(Ok(Err(error))) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return Ok(()),
        }
        if begun.elapsed() >= limit {
            return Err(NotShared { path });
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn only_directories_below_a_prefix_directory_are_opened() {
        let base = tempfile::tempdir().unwrap();
        let (one, two) = (base.path().join("one"), base.path().join("one/two"));
        fs::create_dir_all(&two).unwrap();
        fs::create_dir_all(one.join(".holdfast")).unwrap();
        let prefixes = JobPrefixes::new(vec![one.clone(), two.clone()]);
        for good in ["one/scr.3", "one/two/scr.3"] {
            let directory = base.path().join(good);
            assert!(prefixes.open(&directory, DatasetAccess::Write).is_err());
            prefixes.open(&directory, DatasetAccess::Create).unwrap();
            prefixes.open(&directory, DatasetAccess::Write).unwrap();
            prefixes.open_directory(&directory).unwrap();
        }
        for bad in ["", "one", "one/two", "onetwo/scr.3", "one/.holdfast", "one/../scr.3", "elsewhere/scr.3", "one/a/b"]
        {
            assert!(prefixes.open(&base.path().join(bad), DatasetAccess::Create).is_err(), "{bad}");
        }
        let relative = prefixes.open(Path::new("one/scr.3"), DatasetAccess::Read);
        assert!(matches!(relative, Err(DatasetAccessError::NotPlain(_))));
        // A link of this user: where others may write, they can rename it, and exchange what it leads to.
        symlink(base.path(), one.join("link")).unwrap();
        let refused = prefixes.open(&one.join("link"), DatasetAccess::Read).unwrap_err().to_string();
        assert!(refused.contains("is a symbolic link"), "{refused}");
        fs::create_dir_all(one.join("a/b")).unwrap();
        prefixes.open_directory(&one.join("a/b")).unwrap();
        assert!(prefixes.contains(&one) && !prefixes.contains(base.path()));
    }

    #[test]
    fn directories_of_others_are_only_read_and_their_links_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let (directory, link) = (base.path().join("scr.1"), base.path().join("scr.2"));
        fs::create_dir(&directory).unwrap();
        symlink(base.path(), &link).unwrap();
        if !rustix::process::geteuid().is_root() {
            // The suite of complete jobs reports its own tests of other users as ignored.
            return;
        }
        for path in [&directory, &link] {
            lchown(path, Some(65_534), Some(65_534)).unwrap();
        }
        let prefixes = JobPrefixes::new(vec![base.path().to_owned()]);
        let refused = prefixes.open(&directory, DatasetAccess::Write).unwrap_err().to_string();
        assert!(refused.contains("belongs to user id 65534"), "{refused}");
        assert!(prefixes.open_directory(&directory).is_err());
        prefixes.open(&directory, DatasetAccess::Read).unwrap();
        let refused = prefixes.open(&link, DatasetAccess::Read).unwrap_err().to_string();
        assert!(refused.contains("symbolic link (of user id 65534)"), "{refused}");
    }

    #[tokio::test]
    async fn a_prefix_that_is_missing_on_this_node_is_an_error_with_a_remedy_and_a_late_one_is_accepted() {
        let base = tempfile::tempdir().unwrap();
        let own = StateDirectory::below(base.path()).path().to_owned();
        let error = check_path(own.clone(), Duration::from_millis(500)).await.unwrap_err().to_string();
        assert!(error.contains(".holdfast does not exist on this node") && error.contains("share"), "{error}");
        let late = tokio::spawn(check_path(own.clone(), Duration::from_secs(60)));
        std::fs::create_dir(&own).unwrap();
        late.await.unwrap().unwrap();
        check(base.path()).await.unwrap();
    }
}
