//! Future events by time; events of the same time in the order in which they were added.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Microseconds since the job began.
pub type Time = u64;

pub const MS: Time = 1000;

/// Future events. The heap has small keys only; the events are stored beside it.
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<(Time, u64, u32)>>,
    events: Vec<Option<E>>,
    free: Vec<u32>,
    entered: u64,
}

impl<E> Queue<E> {
    pub fn new() -> Self {
        Queue { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), entered: 0 }
    }

    pub fn enter(&mut self, at: Time, event: E) {
        let place = match self.free.pop() {
            Some(place) => {
                self.events[place as usize] = Some(event);
                place
            }
            None => {
                self.events.push(Some(event));
                self.events.len() as u32 - 1
            }
        };
        self.entered += 1;
        self.heap.push(Reverse((at, self.entered, place)));
    }

    /// When the next event is due.
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub fn take(&mut self) -> Option<(Time, E)> {
        let Reverse((at, _, place)) = self.heap.pop()?;
        self.free.push(place);
        let event = self.events[place as usize].take()?;
        Some((at, event))
    }
}
