//! The order in which the output of generations is shown: all of one before anything of the next.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Turns {
    waiting: Mutex<(u64, VecDeque<u64>)>,
    ended: Notify,
}

/// A place in the order, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    number: u64,
}

impl Turns {
    /// A place behind all others.
    pub(super) fn take(self: &Arc<Self>) -> Turn {
        let mut waiting = self.waiting.lock();
        let number = waiting.0;
        waiting.0 += 1;
        waiting.1.push_back(number);
        Turn { turns: Arc::clone(self), number }
    }

    pub(super) fn all_ended(&self) -> bool {
        self.waiting.lock().1.is_empty()
    }

    /// Waits until all places are given back. Cancel safe.
    pub(super) async fn wait_for_all(&self) {
        loop {
            let ended = self.ended.notified();
            if self.all_ended() {
                return;
            }
            ended.await;
        }
    }
}

impl Turn {
    /// True if no other place is before it.
    pub(super) fn is_first(&self) -> bool {
        self.turns.waiting.lock().1.front() == Some(&self.number)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.waiting.lock().1.retain(|number| *number != self.number);
        self.turns.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_taken_in_the_order_of_their_beginning() {
        let turns = Arc::new(Turns::default());
        let [first, second, third] = [turns.take(), turns.take(), turns.take()];
        assert_eq!([&first, &second, &third].map(Turn::is_first), [true, false, false]);
        drop(second);
        assert!(!third.is_first());
        drop(first);
        assert!(third.is_first() && !turns.all_ended());
        drop(third);
        assert!(turns.all_ended());
    }
}
