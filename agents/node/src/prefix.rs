//! The job's prefix directories on this node.
//!
//! Below them, and nowhere else outside of its control and cache directories, the agent writes what it is requested to:
//! they are in its start message, which only the process that starts it can send. A message from the network cannot
//! name another directory.
//!
//! A check finds out whether a prefix directory is the same on this node: one on a local disk, or one that is not
//! mounted here, would otherwise be noticed only at the first flush.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// The orchestrator creates this directory, if it is missing, before it starts any agent.
const OWN: &str = ".holdfast";
/// A network file system may cache for some seconds that a name does not exist.
const PATIENCE: Duration = Duration::from_secs(4);
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The prefix directories of the job's steps.
#[derive(Clone, Debug)]
pub struct JobPrefixes(Vec<PathBuf>);

/// A directory in which the agent does not read or write datasets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutsidePrefix {
    #[error("{} is not an absolute path without `..`: a checkpoint directory must be", .0.display())]
    NotPlain(PathBuf),
    #[error(
        "{} is not below a prefix directory of this job, as it was started: end the job, and start it again if the \
         spec was changed",
        .0.display()
    )]
    Elsewhere(PathBuf),
    #[error("{} is a symbolic link of user {owner}: it is not followed; remove it", path.display())]
    ForeignLink { path: PathBuf, owner: u32 },
    #[error("cannot examine {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
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

    /// The prefix directory that a directory is below, and the rest of its path; nothing in Holdfast's own directory.
    pub(crate) fn split<'a>(&'a self, directory: &'a Path) -> Option<(&'a Path, &'a Path)> {
        let below = self.0.iter().filter_map(|prefix| Some((prefix.as_path(), directory.strip_prefix(prefix).ok()?)));
        let below = below.max_by_key(|(prefix, _)| prefix.components().count());
        below.filter(|(_, rest)| !rest.as_os_str().is_empty() && rest.components().all(|part| part.as_os_str() != OWN))
    }

    /// Checks that a checkpoint directory is below a prefix directory, and that no link of another user leads out of
    /// it. Blocks.
    ///
    /// # Errors
    /// When it must not be used.
    pub fn check(&self, directory: &Path) -> Result<(), OutsidePrefix> {
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !directory.is_absolute() || !directory.components().all(plain) {
            return Err(OutsidePrefix::NotPlain(directory.to_owned()));
        }
        let (prefix, rest) = self.split(directory).ok_or_else(|| OutsidePrefix::Elsewhere(directory.to_owned()))?;
        let mut path = prefix.to_owned();
        for part in rest.components() {
            path.push(part);
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_symlink() && found.uid() != rustix::process::geteuid().as_raw() => {
                    return Err(OutsidePrefix::ForeignLink { path, owner: found.uid() });
                }
                Ok(_) => {}
                // It will be made.
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(source) => return Err(OutsidePrefix::Unreadable { path, source }),
            }
        }
        Ok(())
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
    check_path(prefix.join(OWN), PATIENCE).await
}

async fn check_path(path: PathBuf, patience: Duration) -> Result<(), NotShared> {
    let begun = Instant::now();
    loop {
        let checked = path.clone();
        let found = tokio::task::spawn_blocking(move || checked.symlink_metadata().map(drop));
        match tokio::time::timeout(patience, found).await {
            Ok(Ok(Err(error))) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return Ok(()),
        }
        if begun.elapsed() >= patience {
            return Err(NotShared { path });
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_below_a_prefix_directory_are_accepted_and_no_links_of_others() {
        let base = tempfile::tempdir().unwrap();
        let (one, two) = (base.path().join("one"), base.path().join("one/two"));
        fs::create_dir_all(&two).unwrap();
        let prefixes = JobPrefixes::new(vec![one.clone(), two.clone()]);
        for good in ["one/scr.3", "one/two/scr.3", "one/a/b"] {
            prefixes.check(&base.path().join(good)).unwrap();
        }
        for bad in ["", "one", "one/two", "onetwo/scr.3", "one/.holdfast", "one/../scr.3", "elsewhere/scr.3"] {
            assert!(prefixes.check(&base.path().join(bad)).is_err(), "{bad}");
        }
        assert!(matches!(prefixes.check(Path::new("one/scr.3")), Err(OutsidePrefix::NotPlain(_))));
        std::os::unix::fs::symlink(base.path(), one.join("link")).unwrap();
        prefixes.check(&one.join("link/scr.3")).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(one.join("link"), Some(65_534), None).unwrap();
            let refused = prefixes.check(&one.join("link/scr.3"));
            assert!(matches!(refused, Err(OutsidePrefix::ForeignLink { owner: 65_534, .. })), "{refused:?}");
        }
        assert!(prefixes.contains(&one) && !prefixes.contains(base.path()));
    }

    #[tokio::test]
    async fn a_prefix_that_is_missing_on_this_node_is_an_error_with_a_remedy_and_a_late_one_is_accepted() {
        let base = tempfile::tempdir().unwrap();
        let own = base.path().join(OWN);
        let error = check_path(own.clone(), Duration::from_millis(500)).await.unwrap_err().to_string();
        assert!(error.contains(".holdfast does not exist on this node") && error.contains("share"), "{error}");
        let late = tokio::spawn(check_path(own.clone(), Duration::from_secs(60)));
        std::fs::create_dir(&own).unwrap();
        late.await.unwrap().unwrap();
        check(base.path()).await.unwrap();
    }
}
