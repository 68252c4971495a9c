//! Down nodes and the end of the allocation, looked at every few seconds while we run: an administrator may set a node
//! down, or prolong a job.
//!
//! A controller that does not answer changes nothing: what was known stays.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use holdfast_model::NodeName;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::query::{self, QueryError};
use super::refusal::RetrySchedule;
use crate::allocation::AllocationError;

/// How often. Each look is two requests to a controller that serves a whole site.
const EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct SlurmStatus {
    down: Vec<(NodeName, String)>,
    end: Option<SystemTime>,
    user: Option<String>,
}

/// What Slurm said last. The looking ends with this.
#[derive(Debug)]
pub(super) struct Watch {
    status: Arc<Mutex<SlurmStatus>>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Looks once, and then again and again. A controller that does not answer just now is waited for.
    ///
    /// # Errors
    /// The first look fails, or the job does not run.
    pub(super) async fn start(job_id: &str, nodes: &[NodeName]) -> Result<Self, AllocationError> {
        let mut retries = RetrySchedule::default();
        let (job, down) = loop {
            let (job, down) = tokio::join!(query::job(job_id), query::down(nodes));
            let refusal =
                [job.as_ref().err(), down.as_ref().err()].into_iter().flatten().map(QueryError::refusal).next();
            let Some(pause) = refusal.and_then(|refusal| retries.next_pause(refusal, Instant::now())) else {
                break (job, down);
            };
            tracing::warn!("Slurm's controller does not answer; asked again");
            tokio::time::sleep(pause).await;
        };
        let job = job?;
        // CONFIGURING, SUSPENDED, STOPPED, RESIZING: not now, or not any more.
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
            Err(error) => tracing::info!(%error, "the end of the allocation is not known anew"),
        }
        match down {
            Ok(down) => status.lock().down = down,
            Err(error) => tracing::info!(%error, "down nodes are not known anew"),
        }
    }
}
