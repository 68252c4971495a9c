//! Polls a resource manager for the nodes that it reports as down and for the end of the allocation: an administrator
//! may set a node down, or extend a job.
//!
//! If the manager does not answer, the last known values remain.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast_model::NodeName;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// Poll interval. Each poll is two commands, whose answers come from a server for an entire site, or which start an
/// interpreter.
const EVERY: Duration = Duration::from_secs(10);
/// The interval after an answer that the job does not exist.
const AGAIN: Duration = Duration::from_secs(3);

/// Nodes that a manager reports as down, each with its reason.
pub(super) type DownNodes = Vec<(NodeName, String)>;

/// What a manager answers when it is asked for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JobAnswer {
    /// The end of the allocation, if it has one.
    Exists(Option<SystemTime>),
    /// These words deny that the job exists.
    Denied(String),
    /// A manager that does not answer neither confirms nor denies.
    Nothing,
}

impl JobAnswer {
    /// The answer of a query; `denial` returns the words of an error that denies that the job exists.
    pub(super) fn of<E: fmt::Display>(
        queried: Result<Option<SystemTime>, E>,
        denial: impl Fn(&E) -> Option<String>,
    ) -> Self {
        match queried {
            Ok(end) => JobAnswer::Exists(end),
            Err(error) => {
                tracing::info!(%error, "cannot query the end of the allocation");
                denial(&error).map_or(JobAnswer::Nothing, JobAnswer::Denied)
            }
        }
    }
}

/// The down nodes of a query; `None` without an answer.
pub(super) fn down_of<E: fmt::Display>(queried: Result<DownNodes, E>) -> Option<DownNodes> {
    queried.inspect_err(|error| tracing::info!(%error, "cannot query down nodes")).ok()
}

#[derive(Debug, Default)]
struct Status {
    down: DownNodes,
    end: Option<SystemTime>,
    /// Answers in a row that the job does not exist.
    denials: u32,
    /// The words of the last one.
    denial: Option<String>,
}

impl Status {
    fn receive(&mut self, job: JobAnswer, down: Option<DownNodes>) {
        self.down = down.unwrap_or_else(|| std::mem::take(&mut self.down));
        match job {
            JobAnswer::Exists(end) => (self.end, self.denials, self.denial) = (end, 0, None),
            JobAnswer::Denied(words) => {
                (self.denials, self.denial) = (self.denials.saturating_add(1), Some(words));
            }
            JobAnswer::Nothing => {}
        }
    }

    /// The words of the last two answers, if both deny that the job exists.
    fn denial(&self) -> Option<String> {
        self.denial.clone().filter(|_| self.denials > 1)
    }
}

/// The last answers of a manager. Dropping this ends the polling.
#[derive(Debug)]
pub(super) struct Watch {
    status: Arc<Mutex<Status>>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Begins with these answers, and polls from now on.
    pub(super) fn start<P>(
        end: Option<SystemTime>,
        down: DownNodes,
        poll: impl Fn() -> P + Send + Sync + 'static,
    ) -> Self
    where
        P: Future<Output = (JobAnswer, Option<DownNodes>)> + Send,
    {
        let status = Arc::new(Mutex::new(Status { down, end, ..Status::default() }));
        let polled = Arc::clone(&status);
        let task = tokio::spawn(async move {
            loop {
                let is_doubtful = polled.lock().denials == 1;
                tokio::time::sleep(if is_doubtful { AGAIN } else { EVERY }).await;
                let (job, down) = poll().await;
                polled.lock().receive(job, down);
            }
        });
        Watch { status, task }
    }

    pub(super) fn down_nodes(&self) -> DownNodes {
        self.status.lock().down.clone()
    }

    pub(super) fn end(&self) -> Option<SystemTime> {
        self.status.lock().end
    }

    /// The words of the last two answers, if both deny that the job exists.
    pub(super) fn denial(&self) -> Option<String> {
        self.status.lock().denial()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_needs_two_answers_in_a_row_and_silence_is_none() {
        let mut status = Status::default();
        let mut after = |answer| {
            status.receive(answer, None);
            status.denial()
        };
        let denied = || JobAnswer::Denied("unknown job".to_owned());
        assert_eq!(after(denied()), None);
        assert_eq!(after(JobAnswer::Nothing), None);
        assert_eq!(after(denied()).as_deref(), Some("unknown job"));
        assert_eq!(after(JobAnswer::Nothing).as_deref(), Some("unknown job"));
        assert_eq!(after(JobAnswer::Exists(None)), None);
        assert_eq!(after(denied()), None);
    }

    #[test]
    fn the_last_values_remain_without_an_answer() {
        let mut status = Status::default();
        let (end, down) = (Some(SystemTime::UNIX_EPOCH), vec![("n1".into(), "disk".to_owned())]);
        status.receive(JobAnswer::Exists(end), Some(down.clone()));
        status.receive(JobAnswer::Nothing, None);
        assert_eq!((status.end, &status.down), (end, &down));
        status.receive(JobAnswer::Exists(None), Some(Vec::new()));
        assert_eq!((status.end, status.down.len()), (None, 0));
    }
}
