//! The state of the job at the start of a run, and what is polled from then on.

use std::sync::Arc;
use std::time::Instant;

use holdfast_model::NodeName;

use super::query::{self, QueryError};
use super::refusal::RetrySchedule;
use crate::allocation::error::AllocationError;
use crate::allocation::watch::{JobAnswer, Watch, down_of};

/// A job that is polled.
pub(super) struct Watched {
    pub(super) watch: Watch,
    /// The user that runs it.
    pub(super) user: String,
    /// When the allocation began, as Slurm writes it.
    pub(super) started: Option<String>,
}

/// Polls once, and then periodically. Retries the first poll if the controller does not answer.
///
/// # Errors
/// The first poll fails, or the job does not run.
pub(super) async fn start(job_id: &str, nodes: &[NodeName]) -> Result<Watched, AllocationError> {
    let mut retries = RetrySchedule::default();
    let (job, down) = loop {
        let (job, down) = tokio::join!(query::job(job_id), query::down(nodes));
        let refusal = [job.as_ref().err(), down.as_ref().err()].into_iter().flatten().map(QueryError::refusal).next();
        let Some(pause) = refusal.and_then(|refusal| retries.next_pause(refusal, Instant::now())) else {
            break (job, down);
        };
        tracing::warn!("Slurm's controller does not answer; retrying");
        tokio::time::sleep(pause).await;
    };
    let job = job?;
    // CONFIGURING, SUSPENDED, STOPPED, RESIZING: not running.
    if job.state != "RUNNING" {
        return Err(AllocationError::NotRunning { job_id: job_id.to_owned(), state: job.state });
    }
    let watched = Arc::new((job_id.to_owned(), nodes.to_vec()));
    let watch = Watch::start(job.end, down?, move || {
        let watched = Arc::clone(&watched);
        async move {
            let (job_id, nodes) = &*watched;
            let (job, down) = tokio::join!(query::job(job_id), query::down(nodes));
            (JobAnswer::of(job.map(|job| job.end), QueryError::denial), down_of(down))
        }
    });
    Ok(Watched { watch, user: job.user, started: job.started })
}
