//! Is the job's prefix directory the same on this node? One that lies on a local disk, or is not mounted here, would be
//! missed only when the first checkpoint is flushed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The orchestrator makes this directory, or finds it, before it starts any agent.
const OWN: &str = ".holdfast";
/// A network file system may remember for some seconds that something was not there.
const PATIENCE: Duration = Duration::from_secs(4);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The prefix directory is not there.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} does not exist on this node; give a `prefix` on a file system that all nodes share, and check that it is mounted here",
    path.display()
)]
pub struct NotShared {
    path: PathBuf,
}

/// Looks for the orchestrator's own directory below the prefix.
///
/// # Errors
/// It is not there. A file system that does not answer, or answers otherwise, is no reason to refuse a run: whoever writes
/// to it will say more.
pub async fn look(prefix: &Path) -> Result<(), NotShared> {
    look_for(prefix.join(OWN), PATIENCE).await
}

async fn look_for(path: PathBuf, patience: Duration) -> Result<(), NotShared> {
    let begun = Instant::now();
    loop {
        let looked_at = path.clone();
        let look = tokio::task::spawn_blocking(move || looked_at.symlink_metadata().map(drop));
        match tokio::time::timeout(patience, look).await {
            Ok(Ok(Err(error))) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return Ok(()),
        }
        if begun.elapsed() >= patience {
            return Err(NotShared { path });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_prefix_that_is_not_on_this_node_is_told_with_what_to_do_and_one_that_comes_late_is_fine() {
        let base = tempfile::tempdir().unwrap();
        let own = base.path().join(OWN);
        let error = look_for(own.clone(), Duration::from_millis(500)).await.unwrap_err().to_string();
        assert!(error.contains(".holdfast does not exist on this node") && error.contains("share"), "{error}");
        let late = tokio::spawn(look_for(own.clone(), Duration::from_secs(60)));
        std::fs::create_dir(&own).unwrap();
        late.await.unwrap().unwrap();
        look(base.path()).await.unwrap();
    }
}
