//! Polls down nodes and the end of the job: PBS detects a lost node after some seconds, and `qalter` extends a job.
//!
//! If the server does not answer, the last known values remain.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use holdfast_model::NodeName;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::query::{self, PbsJob, QueryError};
use crate::allocation::error::AllocationError;

/// Poll interval. Each poll is two requests to a server that serves an entire site.
const EVERY: Duration = Duration::from_secs(10);
/// The interval after an answer that the job does not exist.
const AGAIN: Duration = Duration::from_secs(3);
/// Time limit for a server that does not answer the first poll, and the pause before the next attempt.
const SERVER: Duration = Duration::from_secs(5 * 60);
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct PbsStatus {
    down: Vec<(NodeName, String)>,
    end: Option<SystemTime>,
    /// Answers in a row that the job does not exist.
    denials: u32,
    /// The words of the last one.
    denial: Option<String>,
}

impl PbsStatus {
    fn receive(&mut self, job: Result<PbsJob, QueryError>) {
        let denial = match job {
            Ok(job) => {
                self.end = job.end;
                None
            }
            Err(error) => {
                tracing::info!(%error, "cannot query the end of the job");
                match error.denial() {
                    // A server that does not answer neither confirms nor denies.
                    None => return,
                    denial => denial,
                }
            }
        };
        self.denials = if denial.is_some() { self.denials.saturating_add(1) } else { 0 };
        self.denial = denial;
    }
}

/// The last answers of PBS. Dropping this ends the polling.
#[derive(Debug)]
pub(super) struct Watch {
    status: Arc<Mutex<PbsStatus>>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Polls once, and then periodically. Retries the first poll if the server does not answer.
    ///
    /// # Errors
    /// The first poll fails, or the job does not run.
    pub(super) async fn start(job_id: &str, nodes: &[NodeName]) -> Result<Self, AllocationError> {
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
        let status = Arc::new(Mutex::new(PbsStatus { down, end: job.end, ..PbsStatus::default() }));
        let watched = Watched { job_id: job_id.to_owned(), vnodes: job.vnodes, nodes: nodes.to_vec() };
        let task = tokio::spawn(watch(Arc::clone(&status), watched));
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
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Watched {
    job_id: String,
    vnodes: Vec<String>,
    nodes: Vec<NodeName>,
}

async fn watch(status: Arc<Mutex<PbsStatus>>, watched: Watched) {
    loop {
        let doubtful = status.lock().denials == 1;
        tokio::time::sleep(if doubtful { AGAIN } else { EVERY }).await;
        let (job, down) = tokio::join!(query::job(&watched.job_id), query::down(&watched.vnodes, &watched.nodes));
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

    #[test]
    fn a_denial_needs_two_answers_in_a_row_and_silence_is_none() {
        let failed =
            |message: &str| Err(QueryError::Failed { command: "qstat".to_owned(), message: message.to_owned() });
        let (unknown, silent) = ("qstat: Unknown Job Id 17.head", "qstat: cannot connect to server head (errno=15010)");
        let job = PbsJob { state: "R".to_owned(), end: None, may_be_rerun: true, vnodes: Vec::new() };
        let mut status = PbsStatus::default();
        let mut after = |answer| {
            status.receive(answer);
            status.denials
        };
        assert_eq!(after(failed(unknown)), 1);
        assert_eq!(after(failed(silent)), 1);
        assert_eq!(after(failed(unknown)), 2);
        assert_eq!(after(Ok(job)), 0);
        assert_eq!(after(failed(unknown)), 1);
    }
}
