//! The design of the Fault-tolerant Scheme for Multiple Jobs, for comparison: a thread for each pair looks at its
//! heartbeat every millisecond, and another one reads the list of jobs every 50 µs.
//!
//! A thread that compares after each millisecond a counter that grows each millisecond would often see the same value
//! twice. Here it also has three misses.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{sleep, spawn};
use std::time::Duration;

use holdfast_shm::{Registry, Side, SlotState};

use crate::Result;

const BEATS_CHECKED: Duration = Duration::from_millis(1);
const JOBS_READ: Duration = Duration::from_micros(50);
const MISSES: u32 = 3;

/// The registry's path is the argument.
pub fn play() -> Result<()> {
    let path = PathBuf::from(std::env::args().nth(1).ok_or("no registry")?);
    let registry = Arc::new(Registry::open(&path)?);
    for pair in 0..registry.pairs() {
        let registry = registry.clone();
        spawn(move || check(&registry, pair));
    }
    loop {
        for pair in 0..registry.pairs() {
            let main = registry.copy(pair, Side::Main);
            if main.state == SlotState::Asleep {
                registry.wake(pair, Side::Main, main.incarnation);
            }
        }
        sleep(JOBS_READ);
    }
}

fn check(registry: &Registry, pair: u32) {
    let (mut last, mut begun, mut missed) = (0, false, 0);
    loop {
        sleep(BEATS_CHECKED);
        let beats = registry.beats(pair, Side::Main);
        if beats != last {
            begun = last != 0;
            (last, missed) = (beats, 0);
        } else if begun {
            missed += 1;
            if missed == MISSES {
                let replica = registry.copy(pair, Side::Replica);
                registry.wake(pair, Side::Replica, replica.incarnation);
                return;
            }
        }
    }
}
