//! What the orchestrator is told: numbered events, kept until they are old, and the work under way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_model::{CheckpointId, Progress, Task};
use holdfast_wire::agent::{AgentEvent, NumberedEvent};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// How many events are kept. The orchestrator polls several times a second; what it has not fetched after this many
/// is lost to it, never the agent's memory.
const KEPT: usize = 10_000;

/// The events of this agent, oldest first.
#[derive(Debug, Default)]
pub struct EventLog {
    kept: Mutex<Kept>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    events: VecDeque<NumberedEvent>,
    /// How often held polls were released.
    releases: u64,
}

impl EventLog {
    /// Adds an event and wakes who waits for news.
    pub fn add(&self, event: AgentEvent) {
        tracing::info!(?event, "event");
        let mut kept = self.kept.lock();
        kept.last += 1;
        let number = kept.last;
        kept.events.push_back(NumberedEvent { number, event });
        if kept.events.len() > KEPT {
            kept.events.pop_front();
        }
        drop(kept);
        self.news.notify_waiters();
    }

    /// The events after `after`, oldest first.
    pub fn since(&self, after: u64) -> Vec<NumberedEvent> {
        let kept = self.kept.lock();
        // Newest at the back; a poll usually wants the last few.
        let start = kept.events.iter().rposition(|event| event.number <= after).map_or(0, |at| at + 1);
        kept.events.iter().skip(start).cloned().collect()
    }

    /// Has all polls that are held back answered now: the orchestrator asks again, and learns that this node has carried
    /// out what it asked for.
    pub fn release_polls(&self) {
        self.kept.lock().releases += 1;
        self.news.notify_waiters();
    }

    /// Returns when there is an event after `after`, or when polls are released.
    pub async fn wait_for_news(&self, after: u64) {
        let releases = self.kept.lock().releases;
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // Registered before looking, so that an event in between is not missed.
            news.as_mut().enable();
            let (last, now) = {
                let kept = self.kept.lock();
                (kept.last, kept.releases)
            };
            if last > after || now != releases {
                return;
            }
            news.await;
        }
    }
}

/// The long work under way.
#[derive(Debug, Default)]
pub struct ProgressBoard {
    tasks: Mutex<Vec<Arc<Work>>>,
}

#[derive(Debug)]
struct Work {
    task: Task,
    checkpoint: CheckpointId,
    total: u64,
    done: AtomicU64,
}

impl ProgressBoard {
    /// Begins a piece of work of `total` bytes; it is on the board until the guard is dropped.
    pub fn begin(self: &Arc<Self>, task: Task, checkpoint: CheckpointId, total: u64) -> Working {
        let work = Arc::new(Work { task, checkpoint, total, done: AtomicU64::new(0) });
        self.tasks.lock().push(work.clone());
        Working { board: self.clone(), work }
    }

    /// What is under way, the same work on the same dataset added up.
    pub fn snapshot(&self) -> Vec<Progress> {
        let mut all: Vec<Progress> = Vec::new();
        for work in self.tasks.lock().iter() {
            let done = work.done.load(Ordering::Relaxed).min(work.total);
            match all.iter_mut().find(|known| known.task == work.task && known.checkpoint == work.checkpoint) {
                Some(known) => {
                    known.done += done;
                    known.total += work.total;
                }
                None => all.push(Progress { task: work.task, checkpoint: work.checkpoint, done, total: work.total }),
            }
        }
        all
    }
}

/// A piece of work on the board.
#[derive(Debug)]
pub struct Working {
    board: Arc<ProgressBoard>,
    work: Arc<Work>,
}

impl Working {
    /// `bytes` more are done.
    pub fn advance(&self, bytes: u64) {
        self.work.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.board.tasks.lock().retain(|work| !Arc::ptr_eq(work, &self.work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(text: &str) -> AgentEvent {
        AgentEvent::Notice { message: text.to_owned() }
    }

    #[test]
    fn a_poll_gets_what_came_after_what_it_has_seen() {
        let log = EventLog::default();
        log.add(notice("a"));
        log.add(notice("b"));
        assert_eq!(log.since(0).len(), 2);
        assert_eq!(log.since(1).iter().map(|event| event.number).collect::<Vec<_>>(), [2]);
        assert!(log.since(2).is_empty());
    }

    #[test]
    fn old_events_are_let_go() {
        let log = EventLog::default();
        for _ in 0..KEPT + 5 {
            log.add(notice("x"));
        }
        assert_eq!(log.since(0).len(), KEPT);
        assert_eq!(log.since(0)[0].number, 6);
    }

    #[tokio::test]
    async fn who_waits_is_woken_by_the_next_event() {
        let log = Arc::new(EventLog::default());
        log.add(notice("seen"));
        let waiting = tokio::spawn({
            let log = log.clone();
            async move { log.wait_for_news(1).await }
        });
        log.add(notice("new"));
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn polls_that_wait_are_released_and_later_ones_wait_again() {
        let log = EventLog::default();
        let waiting = log.wait_for_news(0);
        tokio::pin!(waiting);
        assert!(futures_ready(waiting.as_mut()).await.is_none());
        log.release_polls();
        waiting.await;
        let later = log.wait_for_news(0);
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
    fn the_board_adds_up_ranks_and_forgets_finished_work() {
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
