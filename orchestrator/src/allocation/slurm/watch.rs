//! Polls down nodes and the end of the allocation: an administrator may set a node down, or extend a job.
//!
//! If the controller does not answer, the last known values remain.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use holdfast_model::NodeName;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::query::{self, QueryError, SlurmJob};
use super::refusal::RetrySchedule;
use crate::allocation::error::AllocationError;

/// Poll interval. Each poll is two requests to a controller that serves an entire site.
const EVERY: Duration = Duration::from_secs(10);
/// The interval after an answer that the job does not exist.
const AGAIN: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
struct SlurmStatus {
    down: Vec<(NodeName, String)>,
    end: Option<SystemTime>,
    user: Option<String>,
    started: Option<String>,
    /// Answers in a row that the job does not exist.
    denials: u32,
    /// The words of the last one.
    denial: Option<String>,
}

impl SlurmStatus {
    fn receive(&mut self, job: Result<SlurmJob, QueryError>) {
        let denial = match job {
            Ok(job) => {
                self.end = job.end;
                None
            }
            Err(error) => {
                tracing::info!(%error, "cannot query the end of the allocation");
                match error.denial() {
                    // A controller that does not answer neither confirms nor denies.
                    None => return,
                    denial => denial,
                }
            }
        };
        self.denials = if denial.is_some() { self.denials.saturating_add(1) } else { 0 };
        self.denial = denial;
    }
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
        let status = Arc::new(Mutex::new(SlurmStatus {
            down: down?,
            end: job.end,
            user: Some(job.user),
            started: job.started,
            ..SlurmStatus::default()
        }));
        let task = tokio::spawn(watch(Arc::clone(&status), job_id.to_owned(), nodes.to_vec()));
        Ok(Watch { status, task })
    }

    pub(super) fn down_nodes(&self) -> Vec<(NodeName, String)> {
        self.status.lock().down.clone()
    }

    pub(super) fn end(&self) -> Option<SystemTime> {
        self.status.lock().end
    }

    /// The words of the last two answers, if both deny that the job exists.
    pub(super) fn denial(&self) -> Option<String> {
        let status = self.status.lock();
        status.denial.clone().filter(|_| status.denials > 1)
    }

    /// When the allocation began, as Slurm tells it.
    pub(super) fn started(&self) -> Option<String> {
        self.status.lock().started.clone()
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
        let doubtful = status.lock().denials == 1;
        tokio::time::sleep(if doubtful { AGAIN } else { EVERY }).await;
        let (job, down) = tokio::join!(query::job(&job_id), query::down(&nodes));
        status.lock().receive(job);
        match down {
            Ok(down) => status.lock().down = down,
            Err(error) => tracing::info!(%error, "cannot query down nodes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(message: &str) -> Result<SlurmJob, QueryError> {
        Err(QueryError::Failed { command: "squeue", message: message.to_owned() })
    }

    #[test]
    fn a_denial_needs_two_answers_in_a_row_and_silence_is_none() {
        let watch = Watch { status: Arc::default(), task: tokio::runtime::Runtime::new().unwrap().spawn(async {}) };
        let denied = "slurm_load_jobs error: Invalid job id specified";
        let silent = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)";
        let known = || query::read_job("RUNNING|user1|NONE").ok_or_else(|| QueryError::unparsable("squeue", ""));
        let after = |answer| {
            watch.status.lock().receive(answer);
            watch.denial()
        };
        assert_eq!(after(unknown(denied)), None);
        assert_eq!(after(unknown(silent)), None);
        assert_eq!(after(unknown(denied)).as_deref(), Some(denied));
        assert_eq!(after(unknown(silent)).as_deref(), Some(denied));
        assert_eq!(after(known()), None);
        assert_eq!(after(unknown(denied)), None);
    }
}
