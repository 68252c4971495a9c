//! Polls down nodes and the end of the allocation: an administrator may set a node down, or extend a job.
//!
//! If the controller does not answer, the last known values remain.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use holdfast_model::NodeName;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::query::{self, QueryError};
use super::refusal::RetrySchedule;
use crate::allocation::error::AllocationError;

/// Poll interval. Each poll is two requests to a controller that serves an entire site.
const EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct SlurmStatus {
    down: Vec<(NodeName, String)>,
    end: Option<SystemTime>,
    user: Option<String>,
}

/// The last answers of Slurm. Dropping this ends the polling.
#[derive(Debug)]
pub(super) struct Watch {
    status: Arc<Mutex<SlurmStatus>>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Polls once, and then periodically. Retries the first poll if the controller does not answer.
    ///
    /// # Errors
    /// The first poll fails, or the job does not run.
    pub(super) async fn start(job_id: &str, nodes: &[NodeName]) -> Result<Self, AllocationError> {
        let mut retries = RetrySchedule::default();
        let (job, down) = loop {
            let (job, down) = tokio::join!(query::job(job_id), query::down(nodes));
            let refusal =
                [job.as_ref().err(), down.as_ref().err()].into_iter().flatten().map(QueryError::refusal).next();
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
        let status = Arc::new(Mutex::new(SlurmStatus { down: down?, end: job.end, user: Some(job.user) }));
        let task = tokio::spawn(watch(Arc::clone(&status), job_id.to_owned(), nodes.to_vec()));
        Ok(Watch { status, task })
    }

    pub(super) fn down_nodes(&self) -> Vec<(NodeName, String)> {
        self.status.lock().down.clone()
    }

    pub(super) fn end(&self) -> Option<SystemTime> {
        self.status.lock().end
    }

    pub(super) fn user(&self) -> Option<String> {
        self.status.lock().user.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(status: Arc<Mutex<SlurmStatus>>, job_id: String, nodes: Vec<NodeName>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let (job, down) = tokio::join!(query::job(&job_id), query::down(&nodes));
        match job {
            Ok(job) => status.lock().end = job.end,
            Err(error) => tracing::info!(%error, "cannot query the end of the allocation"),
        }
        match down {
            Ok(down) => status.lock().down = down,
            Err(error) => tracing::info!(%error, "cannot query down nodes"),
        }
    }
}
