//! Connections that have not shown the token yet: so many and no more, and the oldest gives way to the newest, because
//! whoever knows the token has shown it after a moment.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Enough for all peers of a large run that greet their leader at once.
const MOST: usize = 2048;

/// All of them, oldest first.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    waiting: Mutex<VecDeque<Weak<Newcomer>>>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Newcomer {
    /// When it connected.
    pub(super) since: Instant,
    known: AtomicBool,
    away: Notify,
}

impl Newcomers {
    /// Takes one in; of too many, the oldest is turned away.
    pub(super) fn admit(&self) -> Arc<Newcomer> {
        let newcomer = Arc::new(Newcomer { since: Instant::now(), known: AtomicBool::new(false), away: Notify::new() });
        let mut waiting = self.waiting.lock();
        waiting.push_back(Arc::downgrade(&newcomer));
        if waiting.len() > MOST {
            waiting.retain(|other| other.upgrade().is_some_and(|other| !other.known()));
        }
        if waiting.len() > MOST
            && let Some(oldest) = waiting.pop_front().and_then(|oldest| oldest.upgrade())
        {
            oldest.away.notify_one();
        }
        newcomer
    }
}

impl Newcomer {
    /// It showed the token, or answers to somebody else who will ask.
    pub(super) fn is_known(&self) {
        self.known.store(true, Ordering::Relaxed);
    }

    /// Has it?
    pub(super) fn known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// Returns when it has to give way.
    pub(super) async fn turned_away(&self) {
        loop {
            self.away.notified().await;
            // It may have shown the token in the same moment.
            if !self.known() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_silent_connection_gives_way_and_a_known_one_does_not() {
        let newcomers = Newcomers::default();
        let known = newcomers.admit();
        known.is_known();
        let oldest = newcomers.admit();
        let others: Vec<_> = (0..MOST).map(|_| newcomers.admit()).collect();
        oldest.turned_away().await;
        assert!(newcomers.waiting.lock().len() <= MOST);
        drop(others);
        assert!(!newcomers.waiting.lock().iter().any(|other| other.upgrade().is_some_and(|other| other.known())));
    }
}
