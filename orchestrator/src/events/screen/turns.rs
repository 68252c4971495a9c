//! The order in which the output of generations is shown: all of one before anything of the next of the same step.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Turns {
    waiting: Mutex<(u64, VecDeque<Place>)>,
    ended: Notify,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    step: Option<Arc<str>>,
    number: u64,
}

/// A place in the order, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    place: Place,
}

impl Turns {
    /// A place behind all others of the step.
    pub(super) fn take(self: &Arc<Self>, step: Option<Arc<str>>) -> Turn {
        let mut waiting = self.waiting.lock();
        let place = Place { step, number: waiting.0 };
        waiting.0 += 1;
        waiting.1.push_back(place.clone());
        Turn { turns: Arc::clone(self), place }
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
    /// True if no other place of the step is before it.
    pub(super) fn is_first(&self) -> bool {
        let waiting = self.turns.waiting.lock();
        waiting.1.iter().find(|place| place.step == self.place.step) == Some(&self.place)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.waiting.lock().1.retain(|place| *place != self.place);
        self.turns.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_taken_in_the_order_of_their_beginning() {
        let turns = Arc::new(Turns::default());
        let [first, second, third] = [(); 3].map(|()| turns.take(None));
        assert_eq!([&first, &second, &third].map(Turn::is_first), [true, false, false]);
        drop(second);
        assert!(!third.is_first());
        drop(first);
        assert!(third.is_first() && !turns.all_ended());
        drop(third);
        assert!(turns.all_ended());
    }

    #[test]
    fn steps_do_not_wait_for_each_other() {
        let turns = Arc::new(Turns::default());
        let [first, second] = ["a", "b"].map(|step| turns.take(Some(step.into())));
        assert!(first.is_first() && second.is_first());
    }
}
