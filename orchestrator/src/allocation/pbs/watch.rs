//! The state of the job at the start of a run, and what is polled from then on: PBS detects a lost node after some
//! seconds, and `qalter` extends a job.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_model::NodeName;

use super::query::{self, QueryError};
use crate::allocation::error::AllocationError;
use crate::allocation::watch::{JobAnswer, Watch, down_of};

/// Time limit for a server that does not answer the first poll, and the pause before the next attempt.
const SERVER: Duration = Duration::from_secs(5 * 60);
const PAUSE: Duration = Duration::from_secs(2);

/// Polls once, and then periodically. Retries the first poll if the server does not answer.
///
/// # Errors
/// The first poll fails, or the job does not run.
pub(super) async fn start(job_id: &str, nodes: &[NodeName]) -> Result<Watch, AllocationError> {
    let until = Instant::now() + SERVER;
    let (job, down) = loop {
        let polled = async {
            let job = query::job(job_id).await?;
            let down = query::down(&job.vnodes, nodes).await?;
            Ok::<_, QueryError>((job, down))
        };
        match polled.await {
            Err(error) if error.is_silence() && Instant::now() < until => {
                tracing::warn!(%error, "PBS's server does not answer; retrying");
                tokio::time::sleep(PAUSE).await;
            }
            polled => break polled?,
        }
    };
    // Exiting, suspended, held: not running.
    if job.state != "R" {
        let state = format!("in state {}", job.state);
        return Err(AllocationError::NotRunning { job_id: job_id.to_owned(), state });
    }
    let watched = Arc::new((job_id.to_owned(), job.vnodes, nodes.to_vec()));
    Ok(Watch::start(job.end, down, move || {
        let watched = Arc::clone(&watched);
        async move {
            let (job_id, vnodes, nodes) = &*watched;
            let (job, down) = tokio::join!(query::job(job_id), query::down(vnodes, nodes));
            (JobAnswer::of(job.map(|job| job.end), QueryError::denial), down_of(down))
        }
    }))
}
