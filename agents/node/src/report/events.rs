//! What is reported to the orchestrator: numbered events, of which the newest are kept, and progress of the work under
//! way.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_model::{CheckpointId, Progress, Task};
use holdfast_wire::agent::{AgentEvent, NumberedEvent};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

/// How many events are kept. The orchestrator polls several times a second; older events that it has not fetched are
/// lost.
const KEPT: usize = 10_000;

/// The events of this agent, oldest first.
#[derive(Debug, Default)]
pub struct EventLog {
    kept: Mutex<EventQueue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct EventQueue {
    last: u64,
    events: VecDeque<NumberedEvent>,
    /// How often held polls were released.
    releases: u64,
}

impl EventLog {
    /// Adds an event and wakes the polls that wait for one.
    pub fn add(&self, event: AgentEvent) {
        tracing::info!("{}", Line(&event));
        let mut kept = self.kept.lock();
        kept.last += 1;
        let number = kept.last;
        kept.events.push_back(NumberedEvent { number, event });
        if kept.events.len() > KEPT {
            kept.events.pop_front();
        }
        drop(kept);
        self.changed.notify_waiters();
    }

    /// The events after `after`, oldest first.
    pub fn since(&self, after: u64) -> Vec<NumberedEvent> {
        let kept = self.kept.lock();
        // The newest are at the back; a poll usually needs only the last few.
        let start = kept.events.iter().rposition(|event| event.number <= after).map_or(0, |at| at + 1);
        kept.events.iter().skip(start).cloned().collect()
    }

    /// Has all held polls answered now, so that the orchestrator polls again and gets the present state.
    pub fn release_polls(&self) {
        self.kept.lock().releases += 1;
        self.changed.notify_waiters();
    }

    /// Returns when there is an event after `after`, or when polls are released.
    pub async fn wait_for_event(&self, after: u64) {
        let releases = self.kept.lock().releases;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the check, so that no event in between is missed.
            changed.as_mut().enable();
            let (last, now) = {
                let kept = self.kept.lock();
                (kept.last, kept.releases)
            };
            if last > after || now != releases {
                return;
            }
            changed.await;
        }
    }
}

/// The field with the name of an event.
const NAME: &str = "event";

/// An event as a line of the agent's log: its name, and its fields as `name=value`.
struct Line<'a>(&'a AgentEvent);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(Value::Object(fields)) = serde_json::to_value(self.0) else { return f.write_str(NAME) };
        f.write_str(fields.get(NAME).and_then(Value::as_str).unwrap_or(NAME))?;
        fields.iter().filter(|(name, _)| *name != NAME).try_for_each(|(name, value)| match value {
            Value::Null => Ok(()),
            Value::String(text) if !text.contains([' ', '"', '=']) => write!(f, " {name}={text}"),
            value => write!(f, " {name}={value}"),
        })
    }
}

/// The sum of sizes, which come from files and messages: as large as can be shown if it is larger.
pub(crate) fn total_bytes(sizes: impl IntoIterator<Item = u64>) -> u64 {
    sizes.into_iter().fold(0, u64::saturating_add)
}

#[derive(Debug, Default)]
pub struct ProgressBoard {
    tasks: Mutex<Vec<Arc<TaskProgress>>>,
}

#[derive(Debug)]
struct TaskProgress {
    task: Task,
    checkpoint: CheckpointId,
    total: u64,
    done: AtomicU64,
}

impl ProgressBoard {
    /// Begins work of `total` bytes; it is listed until the guard is dropped.
    pub fn begin(self: &Arc<Self>, task: Task, checkpoint: CheckpointId, total: u64) -> ProgressGuard {
        let work = Arc::new(TaskProgress { task, checkpoint, total, done: AtomicU64::new(0) });
        self.tasks.lock().push(work.clone());
        ProgressGuard { board: self.clone(), work }
    }

    /// The work under way; the same task on the same dataset is added up.
    pub fn snapshot(&self) -> Vec<Progress> {
        let mut all: Vec<Progress> = Vec::new();
        for work in self.tasks.lock().iter() {
            let done = work.done.load(Ordering::Relaxed).min(work.total);
            match all.iter_mut().find(|known| known.task == work.task && known.checkpoint == work.checkpoint) {
                Some(known) => {
                    known.done = known.done.saturating_add(done);
                    known.total = known.total.saturating_add(work.total);
                }
                None => all.push(Progress { task: work.task, checkpoint: work.checkpoint, done, total: work.total }),
            }
        }
        all
    }
}

/// Work under way; it has ended when this is dropped.
#[derive(Debug)]
pub struct ProgressGuard {
    board: Arc<ProgressBoard>,
    work: Arc<TaskProgress>,
}

impl ProgressGuard {
    /// `bytes` more are done.
    pub fn advance(&self, bytes: u64) {
        self.work.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.board.tasks.lock().retain(|work| !Arc::ptr_eq(work, &self.work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use holdfast_model::{Generation, Rank};

    fn notice(text: &str) -> AgentEvent {
        AgentEvent::Notice { message: text.to_owned() }
    }

    #[test]
    fn an_event_is_a_plain_line_of_the_log() {
        let gone = AgentEvent::RankGone { generation: Generation(2), rank: Rank(3), pid: 41 };
        assert_eq!(Line(&gone).to_string(), "rank_gone generation=2 rank=3 pid=41");
        assert_eq!(Line(&notice("the disk is full")).to_string(), "notice message=\"the disk is full\"");
    }

    #[test]
    fn a_poll_gets_only_newer_events() {
        let log = EventLog::default();
        log.add(notice("a"));
        log.add(notice("b"));
        assert_eq!(log.since(0).len(), 2);
        assert_eq!(log.since(1).iter().map(|event| event.number).collect::<Vec<_>>(), [2]);
        assert!(log.since(2).is_empty());
    }

    #[test]
    fn only_the_newest_events_are_kept() {
        let log = EventLog::default();
        for _ in 0..KEPT + 5 {
            log.add(notice("x"));
        }
        assert_eq!(log.since(0).len(), KEPT);
        assert_eq!(log.since(0)[0].number, 6);
    }

    #[tokio::test]
    async fn a_waiting_poll_is_woken_by_the_next_event() {
        let log = Arc::new(EventLog::default());
        log.add(notice("seen"));
        let waiting = tokio::spawn({
            let log = log.clone();
            async move { log.wait_for_event(1).await }
        });
        log.add(notice("new"));
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn polls_that_wait_are_released_and_later_ones_wait_again() {
        let log = EventLog::default();
        let waiting = log.wait_for_event(0);
        tokio::pin!(waiting);
        assert!(futures_ready(waiting.as_mut()).await.is_none());
        log.release_polls();
        waiting.await;
        let later = log.wait_for_event(0);
        tokio::pin!(later);
        assert!(futures_ready(later.as_mut()).await.is_none());
    }

    /// The result of a future that is ready at once.
    async fn futures_ready<F: Future + Unpin>(future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            result = future => Some(result),
            () = std::future::ready(()) => None,
        }
    }

    #[test]
    fn progress_of_ranks_is_added_up_and_ended_work_is_not_listed() {
        let board = Arc::new(ProgressBoard::default());
        let first = board.begin(Task::Encode, CheckpointId(3), 100);
        let second = board.begin(Task::Encode, CheckpointId(3), 50);
        first.advance(40);
        second.advance(50);
        let snapshot = board.snapshot();
        assert_eq!((snapshot.len(), snapshot[0].done, snapshot[0].total), (1, 90, 150));
        drop(first);
        drop(second);
        assert!(board.snapshot().is_empty());
    }
}
