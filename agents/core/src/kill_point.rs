//! The instants at which a kill leaves different files behind: the crash tests choose one, in a process of their own.
//!
//! Elsewhere nothing happens here. Tests of other crates need the feature `kill-points`.

#[cfg(not(any(test, feature = "kill-points")))]
pub(crate) fn reach() {}

#[cfg(any(test, feature = "kill-points"))]
pub use armed::{arm, reach};

#[cfg(any(test, feature = "kill-points"))]
mod armed {
    use std::sync::atomic::{AtomicU64, Ordering};

    static LEFT: AtomicU64 = AtomicU64::new(0);

    /// The process dies at the `nth` instant from now, counted from 1.
    pub fn arm(nth: u64) {
        LEFT.store(nth, Ordering::SeqCst);
    }

    /// Such an instant: nothing happens, unless it is the one that was chosen.
    pub fn reach() {
        let left = LEFT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left == Ok(1) {
            // SIGKILL: no destructor runs, no buffer is flushed.
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}
