//! The instants at which a kill leaves different files behind: before each call that changes something
//! ([`crate::calls`]). The crash tests choose one, in a process of their own.

use std::sync::atomic::{AtomicU64, Ordering};

static LEFT: AtomicU64 = AtomicU64::new(0);

/// The process dies at the `nth` instant from now, counted from 1.
pub fn arm(nth: u64) {
    LEFT.store(nth, Ordering::SeqCst);
}

/// Such an instant: nothing happens, unless it is the one that was chosen.
pub(crate) fn reach() {
    let left = LEFT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    if left == Ok(1) {
        // SIGKILL: no destructor runs, no buffer is flushed.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
