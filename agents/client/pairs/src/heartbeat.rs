//! The thread that increments the copy's counter each period.
//!
//! It sleeps to multiples of the period, so that the periods do not drift, and without the timer slack of 50 µs that
//! ordinary threads have. All copies of a machine thus beat at the same time: one interrupt of a timer wakes all of
//! them that run on a processor, which costs much less than an interrupt for each. A beat that comes too late is not
//! made up for.
//!
//! It also ends the process when the agent has ended this copy, and when the pair's lease has run out; for the latter
//! it runs, without beating, in programs that beat themselves.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use holdfast_shm::Seat;
use holdfast_shm::process::{run_soon, with_signals_blocked};
use holdfast_shm::schedule::{BEAT_THREAD, next_beat};
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack, set_name};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// A stack for a loop of two calls; the usual one would count against the program's memory limits.
const STACK_BYTES: usize = 64 << 10;
/// A thread that must end looks at least this often whether it must.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// Under a lease, the thread looks at least this often whether it has run out. No other copy is permitted to wake in
/// the tenth of the lease that follows, 10 ms at least.
const LONGEST_SLEEP_UNDER_LEASE: Duration = Duration::from_millis(5);

/// A running heartbeat. It ends when this is dropped.
#[derive(Debug)]
pub struct Heartbeat {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Orders {
    ends: AtomicBool,
    beats: AtomicBool,
}

impl Heartbeat {
    /// Starts the thread; it looks at the lease only, unless `beats`.
    ///
    /// # Errors
    /// The system permits no further thread.
    pub fn start(seat: Arc<Seat>, period: Duration, beats: bool) -> io::Result<Self> {
        let orders = Arc::new(Orders { ends: AtomicBool::new(false), beats: AtomicBool::new(beats) });
        let builder = thread::Builder::new().name("holdfast-lease".to_owned()).stack_size(STACK_BYTES);
        let run = {
            let orders = Arc::clone(&orders);
            move || run(&seat, period, &orders)
        };
        let thread = with_signals_blocked(|| builder.spawn(run))?;
        Ok(Heartbeat { orders, thread: Some(thread) })
    }

    /// The thread also beats.
    pub fn beat_from_now(&self) {
        self.orders.beats.store(true, Ordering::Relaxed);
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.orders.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}

fn run(seat: &Seat, period: Duration, orders: &Orders) {
    // Refused by some sandboxes: beats are then up to 50 µs late.
    let _ = set_current_timer_slack(NonZero::new(1));
    run_soon();
    let mut next = next_beat(period, now());
    let mut is_named = false;
    while !orders.ends.load(Ordering::Relaxed) {
        let longest = if seat.has_lease() { LONGEST_SLEEP_UNDER_LEASE } else { LONGEST_SLEEP };
        let until = next.min(now() + longest);
        if let Ok(until) = Timespec::try_from(until) {
            // Interrupted by a signal: the time is compared below.
            let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
        }
        seat.obey_lease();
        seat.obey_fence();
        let now = now();
        if now >= next {
            if orders.beats.load(Ordering::Relaxed) {
                seat.beat();
                if !is_named {
                    // Without its name, the agent excuses no late beats.
                    is_named = set_name(BEAT_THREAD).is_ok();
                }
            }
            next = next_beat(period, now);
        }
    }
}

fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
