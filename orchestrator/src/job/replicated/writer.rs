//! Writes the state of the job. The loop hands over the newest state and never waits for the prefix directory. Nothing
//! is written when another orchestrator has claimed the job: the state is its own then.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::claim::Claim;
use crate::job::state::{JobState, StateError};

/// The end of the job is not recorded in a prefix directory that does not answer for so long.
const ENDED_WITHIN: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(super) struct StateWriter {
    newest: watch::Sender<JobState>,
    task: JoinHandle<()>,
}

impl StateWriter {
    /// The writer of a state that is on disk.
    pub(super) fn start(prefix: PathBuf, state: JobState, claim: Claim) -> Self {
        let (newest, mut changes) = watch::channel(state);
        let task = tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                let state = changes.borrow_and_update().clone();
                let (prefix, claim) = (prefix.clone(), claim.clone());
                let write = move || if claim.is_newest(&prefix)? { state.write(&prefix) } else { Ok(()) };
                let written = tokio::task::spawn_blocking(write).await;
                if let Ok(Err(error)) = written {
                    tracing::warn!(%error, "the state of the job is not written");
                }
            }
        });
        StateWriter { newest, task }
    }

    /// Writes the state soon; an older one that waits is not written.
    pub(super) fn write(&self, state: &JobState) {
        self.newest.send_replace(state.clone());
    }

    /// Waits until the newest state is on disk, for a limited time, or until `interrupted`.
    pub(super) async fn finish(self, interrupted: impl Future<Output = ()>) {
        drop(self.newest);
        tokio::select! {
            biased;
            _ = self.task => {}
            () = interrupted => tracing::warn!("interrupted: the end of the job may not be recorded"),
            () = tokio::time::sleep(ENDED_WITHIN) => {
                tracing::warn!("the prefix directory does not answer; the end of the job is not recorded there");
            }
        }
    }
}

/// Writes a state before anything that depends on it is done.
pub(super) async fn write_now(prefix: PathBuf, state: JobState) -> Result<(), StateError> {
    let path = prefix.clone();
    let written = tokio::task::spawn_blocking(move || state.write(&path)).await;
    written.unwrap_or_else(|error| Err(StateError::file("write", &prefix)(std::io::Error::other(error))))
}
