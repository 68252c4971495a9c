//! Finds the nodes on which something is due without visiting all nodes.

use std::collections::BTreeSet;
use std::time::Duration;

/// At most one time for each node. It may be too early, because the node has answered since: then it is set again when
/// it has passed, so that an answered poll costs nothing here.
#[derive(Clone, Debug)]
pub(super) struct Timers {
    times: BTreeSet<(Duration, u32)>,
    of: Vec<Option<Duration>>,
}

impl Timers {
    pub fn new(nodes: usize) -> Self {
        Timers { times: BTreeSet::new(), of: vec![None; nodes] }
    }

    /// Sets the time of a node, unless it has an earlier one.
    pub fn set(&mut self, position: u32, time: Duration) {
        let of = &mut self.of[position as usize];
        if of.is_none_or(|known| time < known) {
            if let Some(known) = of.replace(time) {
                self.times.remove(&(known, position));
            }
            self.times.insert((time, position));
        }
    }

    /// Removes and returns the nodes whose time has passed, ascending.
    pub fn take_passed(&mut self, now: Duration) -> Vec<u32> {
        let mut passed = Vec::new();
        while let Some((time, position)) = self.times.first().copied().filter(|(time, _)| *time <= now) {
            self.times.remove(&(time, position));
            self.of[position as usize] = None;
            passed.push(position);
        }
        passed.sort_unstable();
        passed
    }

    /// The earliest time of all nodes.
    pub fn first(&self) -> Option<Duration> {
        self.times.first().map(|(time, _)| *time)
    }

    /// Removes all times.
    pub fn clear(&mut self) {
        self.times.clear();
        self.of.fill(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_node_keeps_its_earliest_time_until_it_has_passed() {
        let mut timers = Timers::new(3);
        timers.set(2, ms(50));
        timers.set(0, ms(40));
        timers.set(2, ms(30));
        timers.set(2, ms(60));
        assert_eq!(timers.first(), Some(ms(30)));
        assert_eq!(timers.take_passed(ms(29)), [0_u32; 0]);
        assert_eq!(timers.take_passed(ms(45)), [0, 2]);
        assert_eq!(timers.first(), None);
        timers.set(1, ms(7));
        timers.clear();
        assert_eq!(timers.first(), None);
    }
}
