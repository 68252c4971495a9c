//! Checks that the job's prefix directory is the same on this node. A prefix on a local disk, or one that is not
//! mounted here, would otherwise be noticed only at the first flush.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The orchestrator creates this directory, if it is missing, before it starts any agent.
const OWN: &str = ".holdfast";
/// A network file system may cache for some seconds that a name does not exist.
const PATIENCE: Duration = Duration::from_secs(4);
const CHECK_EVERY: Duration = Duration::from_millis(100);

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
