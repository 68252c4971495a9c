//! Connections that have not presented the token yet. Their number is limited, and the oldest is evicted for the
//! newest, because an authorised client presents the token at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Enough for all peers of a large run that connect to their leader at once.
const MAXIMUM: usize = 2048;

#[derive(Debug, Default)]
pub(super) struct PendingConnections {
    /// Oldest first.
    waiting: Mutex<VecDeque<Weak<PendingConnection>>>,
}

#[derive(Debug)]
pub(super) struct PendingConnection {
    pub(super) since: Instant,
    authenticated: AtomicBool,
    evicted: Notify,
}

impl PendingConnections {
    /// Adds a connection; of too many, the oldest is evicted.
    pub(super) fn add(&self) -> Arc<PendingConnection> {
        let added = Arc::new(PendingConnection {
            since: Instant::now(),
            authenticated: AtomicBool::new(false),
            evicted: Notify::new(),
        });
        let mut waiting = self.waiting.lock();
        waiting.push_back(Arc::downgrade(&added));
        if waiting.len() > MAXIMUM {
            waiting.retain(|other| other.upgrade().is_some_and(|other| !other.is_authenticated()));
        }
        if waiting.len() > MAXIMUM
            && let Some(oldest) = waiting.pop_front().and_then(|oldest| oldest.upgrade())
        {
            oldest.evicted.notify_one();
        }
        added
    }
}

impl PendingConnection {
    /// It is not evicted any more.
    pub(super) fn set_authenticated(&self) {
        self.authenticated.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }

    /// Returns when it is evicted.
    pub(super) async fn evicted(&self) {
        loop {
            self.evicted.notified().await;
            // It may have presented the token at the same moment.
            if !self.is_authenticated() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_pending_connection_is_evicted_and_an_authenticated_one_is_not() {
        let pending = PendingConnections::default();
        let authenticated = pending.add();
        authenticated.set_authenticated();
        let oldest = pending.add();
        let others: Vec<_> = (0..MAXIMUM).map(|_| pending.add()).collect();
        oldest.evicted().await;
        assert!(pending.waiting.lock().len() <= MAXIMUM);
        drop(others);
        let is_authenticated =
            |other: &Weak<PendingConnection>| other.upgrade().is_some_and(|it| it.is_authenticated());
        assert!(!pending.waiting.lock().iter().any(is_authenticated));
    }
}
