//! What the pollers report, on its way to the supervisor.
//!
//! News and losses go one by one and at once. Answers that nothing changed come by the thousand a second, and prove only
//! that their agents live: they are collected for some milliseconds, and wake the loop of the job once.

use std::sync::Arc;
use std::time::Duration;

use holdfast_model::NodeName;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use super::PollReport;

/// Answers are collected for this part of the poll interval,
const COLLECTED_FOR: u32 = 10;
/// but no longer than this.
const LONGEST: Duration = Duration::from_millis(20);

/// An answer that nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnchangedAnswer {
    pub node: NodeName,
    /// Which start of the node's agent was asked.
    pub start: u64,
    /// When the question was sent.
    pub sent: Duration,
}

/// Where pollers run, and where they report; clones are the same place.
#[derive(Clone, Debug)]
pub struct PollReports {
    /// Of the pollers.
    polls: Handle,
    /// Of everything else.
    requests: Handle,
    reports: mpsc::UnboundedSender<PollReport>,
    collected: Arc<Collected>,
    beside: Arc<Semaphore>,
    connecting: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Collected {
    answers: Mutex<Vec<UnchangedAnswer>>,
    /// The first answer since the last ones were handed over has come.
    first: Notify,
    /// One is waited for.
    urgent: Notify,
}

/// The supervisor has ended.
#[derive(Debug)]
pub struct Closed;

impl PollReports {
    /// Pollers run on `polls`, and report to the channel. Agents are asked at least every `interval`. So many agents may be
    /// connected to at a time, and so many questions be asked beside those that are held back, on the runtime that this is
    /// called in.
    pub fn new(polls: Handle, reports: mpsc::UnboundedSender<PollReport>, interval: Duration, beside: usize) -> Self {
        Self::collecting_for((interval / COLLECTED_FOR).min(LONGEST), polls, reports, beside)
    }

    fn collecting_for(
        pause: Duration,
        polls: Handle,
        reports: mpsc::UnboundedSender<PollReport>,
        beside: usize,
    ) -> Self {
        let collected = Arc::new(Collected::default());
        polls.spawn(hand_over(Arc::clone(&collected), reports.clone(), pause));
        let (beside, connecting) = (Arc::new(Semaphore::new(beside)), Arc::new(Semaphore::new(beside)));
        PollReports { polls, requests: Handle::current(), reports, collected, beside, connecting }
    }

    /// Where pollers run.
    pub(super) fn runtime(&self) -> &Handle {
        &self.polls
    }

    /// Reports news or a loss.
    ///
    /// # Errors
    /// [`Closed`].
    pub(super) fn send(&self, report: PollReport) -> Result<(), Closed> {
        self.reports.send(report).map_err(|_| Closed)
    }

    /// Reports an answer without news; an urgent one is handed over at once.
    pub(super) fn unchanged(&self, answer: UnchangedAnswer, urgent: bool) {
        let mut answers = self.collected.answers.lock();
        answers.push(answer);
        let first = answers.len() == 1;
        drop(answers);
        if first {
            self.collected.first.notify_one();
        }
        if urgent {
            self.collected.urgent.notify_one();
        }
    }

    /// Waits until a question may be asked beside one that is held back: each takes a connection of its own.
    pub(super) async fn permit_extra_poll(&self) -> Option<OwnedSemaphorePermit> {
        // Never closed.
        Arc::clone(&self.beside).acquire_owned().await.ok()
    }

    /// Waits until another agent may be connected to. Thousands at a time would all take too long, because this machine has
    /// the work of each, and would be taken for lost.
    pub(super) async fn permit_to_connect(&self) -> Option<OwnedSemaphorePermit> {
        // Never closed.
        Arc::clone(&self.connecting).acquire_owned().await.ok()
    }

    /// Sends a request as everything but polls is sent: its connection serves others too, and may outlive the pollers.
    /// `None` when the program ends.
    pub(super) async fn request<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.requests.spawn(request).await.ok()
    }
}

async fn hand_over(collected: Arc<Collected>, reports: mpsc::UnboundedSender<PollReport>, pause: Duration) {
    loop {
        tokio::select! {
            () = collected.first.notified() => {}
            () = reports.closed() => return,
        }
        tokio::select! {
            () = collected.urgent.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
        let answers = std::mem::take(&mut *collected.answers.lock());
        // None if an urgent answer was handed over before its own notification was seen.
        if !answers.is_empty() && reports.send(PollReport::Unchanged(answers)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(node: &str) -> UnchangedAnswer {
        UnchangedAnswer { node: node.into(), start: 1, sent: Duration::from_secs(1) }
    }

    fn nodes(report: Option<PollReport>) -> Vec<String> {
        match report {
            Some(PollReport::Unchanged(answers)) => answers.iter().map(|answer| answer.node.to_string()).collect(),
            other => panic!("not a batch of answers: {other:?}"),
        }
    }

    #[tokio::test]
    async fn answers_without_news_are_handed_over_together() {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let reports = PollReports::new(Handle::current(), sender, Duration::from_millis(100), 1);
        reports.unchanged(answer("a"), false);
        reports.unchanged(answer("b"), false);
        assert_eq!(nodes(receiver.recv().await), ["a", "b"]);
        reports.unchanged(answer("c"), false);
        assert_eq!(nodes(receiver.recv().await), ["c"]);
    }

    #[tokio::test]
    async fn an_urgent_answer_is_handed_over_at_once_with_those_that_wait() {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let reports = PollReports::collecting_for(Duration::MAX, Handle::current(), sender, 1);
        reports.unchanged(answer("a"), false);
        reports.unchanged(answer("b"), true);
        assert_eq!(nodes(receiver.recv().await), ["a", "b"]);
        reports.unchanged(answer("c"), true);
        assert_eq!(nodes(receiver.recv().await), ["c"]);
    }
}
