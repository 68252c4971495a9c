//! The reports of the pollers to the supervisor.
//!
//! Changes and losses are passed on one by one and at once. Answers without changes arrive by the thousand a second,
//! and show only that their agents are alive: they are collected for some milliseconds, and wake the loop of the job
//! once. The same task reports the running time, after the answers that were received before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_model::NodeName;
use holdfast_wire::agent::PollReply;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::MissedTickBehavior;

use super::clock::Clock;
use super::running_time::RunningTime;

/// Answers are collected for one part in this many of the poll interval,
const COLLECTED_FOR: u32 = 10;
/// Upper limit of the delay.
const LONGEST: Duration = Duration::from_millis(20);

/// What a poller reports.
#[derive(Debug)]
pub enum PollReport {
    /// An answer with changes.
    Answered {
        node: NodeName,
        /// The start of the node's agent that was polled.
        start: u64,
        /// When the poll was sent.
        sent: Duration,
        /// The answer, without the events that were received before.
        reply: Box<PollReply>,
    },
    /// Answers without changes, of many agents.
    Unchanged(Vec<UnchangedAnswer>),
    /// The running time, after all answers that were received before.
    PollsRan(Duration),
    /// The agent is lost; the poller has ended.
    Lost {
        node: NodeName,
        /// The start of the node's agent that was polled.
        start: u64,
        reason: String,
    },
}

/// An answer without changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnchangedAnswer {
    pub node: NodeName,
    /// The start of the node's agent that was polled.
    pub start: u64,
    /// When the poll was sent.
    pub sent: Duration,
}

/// The runtime of the pollers and the receiver of their reports. Clones share both.
#[derive(Clone, Debug)]
pub struct PollReports {
    /// The runtime of the pollers.
    pub(super) polls: Handle,
    /// The runtime of all other requests.
    requests: Handle,
    reports: mpsc::UnboundedSender<PollReport>,
    collected: Arc<Collected>,
    polls_elsewhere: Arc<Semaphore>,
    connecting: Arc<Semaphore>,
    /// Milliseconds in which the pollers did not run.
    missing: Arc<AtomicU64>,
}

/// The times of the polls.
#[derive(Clone, Copy, Debug)]
pub struct PollTimes {
    pub clock: Clock,
    /// How long an agent may delay its answer.
    pub interval: Duration,
    /// How often the running time is reported.
    pub report_every: Duration,
}

#[derive(Debug, Default)]
struct Collected {
    answers: Mutex<Vec<UnchangedAnswer>>,
    /// The first answer since the last hand-over has arrived.
    first: Notify,
    /// An answer has arrived that is to be handed over at once.
    urgent: Notify,
}

/// The supervisor has ended, so that reports are not received any more.
#[derive(Debug)]
pub struct Closed;

impl PollReports {
    /// Pollers run on `polls`, report to the channel, and poll at least every `interval`. At most `at_once` connections
    /// are opened at a time, and at most `at_once` polls elsewhere are under way, on the runtime that this is called
    /// in.
    pub fn new(polls: Handle, reports: mpsc::UnboundedSender<PollReport>, times: PollTimes, at_once: usize) -> Self {
        Self::collecting_for((times.interval / COLLECTED_FOR).min(LONGEST), polls, reports, times, at_once)
    }

    fn collecting_for(
        pause: Duration,
        polls: Handle,
        reports: mpsc::UnboundedSender<PollReport>,
        times: PollTimes,
        at_once: usize,
    ) -> Self {
        let (collected, missing) = (Arc::new(Collected::default()), Arc::new(AtomicU64::new(0)));
        polls.spawn(hand_over(Arc::clone(&collected), reports.clone(), pause, times, Arc::clone(&missing)));
        let [polls_elsewhere, connecting] = [(); 2].map(|()| Arc::new(Semaphore::new(at_once)));
        PollReports { polls, requests: Handle::current(), reports, collected, polls_elsewhere, connecting, missing }
    }

    /// Milliseconds in which the pollers did not run. They are those of the last report of the running time.
    pub(super) fn missing(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.missing)
    }

    /// Reports a change or a loss.
    pub(super) fn send(&self, report: PollReport) -> Result<(), Closed> {
        self.reports.send(report).map_err(|_| Closed)
    }

    /// Reports an answer without changes; an urgent one is handed over at once.
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

    /// Waits until a poll may be sent over another connection to an agent that does not answer.
    pub(super) async fn permit_poll_elsewhere(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.polls_elsewhere).acquire_owned().await.ok()
    }

    /// Waits until another connection may be opened. If thousands were opened at a time, the work of this machine for
    /// all of them would delay each, and agents would be considered lost.
    pub(super) async fn permit_to_connect(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.connecting).acquire_owned().await.ok()
    }

    /// Sends a request through the connection pool of all other requests. `None` when the program ends.
    pub(super) async fn request<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.requests.spawn(request).await.ok()
    }
}

async fn hand_over(
    collected: Arc<Collected>,
    reports: mpsc::UnboundedSender<PollReport>,
    pause: Duration,
    times: PollTimes,
    missing: Arc<AtomicU64>,
) {
    let mut running = RunningTime::begin(times.clock.now(), times.report_every);
    let mut report = tokio::time::interval(times.report_every);
    report.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_report = tokio::select! {
            () = collected.first.notified() => false,
            _ = report.tick() => true,
            () = reports.closed() => return,
        };
        let is_report = is_report
            || tokio::select! {
                () = collected.urgent.notified() => false,
                _ = report.tick() => true,
                () = tokio::time::sleep(pause) => false,
            };
        let answers = std::mem::take(&mut *collected.answers.lock());
        // Empty if an urgent answer was handed over before its own notification was received.
        if !answers.is_empty() && reports.send(PollReport::Unchanged(answers)).is_err() {
            return;
        }
        if is_report {
            let ran = running.wake(times.clock.now());
            missing.store(u64::try_from(running.missing().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
            if reports.send(PollReport::PollsRan(ran)).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(node: &str) -> UnchangedAnswer {
        UnchangedAnswer { node: node.into(), start: 1, sent: Duration::from_secs(1) }
    }

    /// The running time is hardly ever reported.
    fn times() -> PollTimes {
        let hours = Duration::from_secs(3600);
        PollTimes { clock: Clock::since(0), interval: Duration::from_millis(100), report_every: hours }
    }

    async fn next(receiver: &mut mpsc::UnboundedReceiver<PollReport>) -> Vec<String> {
        let mut report = receiver.recv().await;
        if matches!(report, Some(PollReport::PollsRan(_))) {
            report = receiver.recv().await;
        }
        match report {
            Some(PollReport::Unchanged(answers)) => answers.iter().map(|answer| answer.node.to_string()).collect(),
            other => panic!("not a batch of answers: {other:?}"),
        }
    }

    #[tokio::test]
    async fn answers_without_changes_are_handed_over_together() {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let reports = PollReports::new(Handle::current(), sender, times(), 1);
        reports.unchanged(answer("a"), false);
        reports.unchanged(answer("b"), false);
        assert_eq!(next(&mut receiver).await, ["a", "b"]);
        reports.unchanged(answer("c"), false);
        assert_eq!(next(&mut receiver).await, ["c"]);
    }

    #[tokio::test]
    async fn an_urgent_answer_is_handed_over_at_once_with_those_that_wait() {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let reports = PollReports::collecting_for(Duration::from_secs(3600), Handle::current(), sender, times(), 1);
        reports.unchanged(answer("a"), false);
        reports.unchanged(answer("b"), true);
        assert_eq!(next(&mut receiver).await, ["a", "b"]);
        reports.unchanged(answer("c"), true);
        assert_eq!(next(&mut receiver).await, ["c"]);
    }
}
