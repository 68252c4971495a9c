//! The clocks and the threads of this process.

use std::mem::MaybeUninit;
use std::ptr;

use rustix::time::{ClockId, clock_gettime};

/// The time of a clock.
pub(crate) fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec.unsigned_abs().saturating_mul(1_000_000_000) + now.tv_nsec.unsigned_abs()
}

/// Runs `start` with all signals blocked in this thread. A thread that it starts never runs the program's handlers,
/// which may need a larger stack, or be written for another thread.
pub fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigfillset` initialises its set, and `pthread_sigmask` reads it and writes the other one. It changes the
    // mask of this thread only, and cannot fail with these arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = start();
    // SAFETY: the set that the call above has written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    result
}

/// The slice that [`run_soon`] asks for: the shortest that the kernel grants.
const SHORT_SLICE_NS: u64 = 100_000;

/// Makes this thread run sooner when it wakes up while others have the processors: it asks for shorter slices of time.
/// It needs no privilege, and gives the thread no more time than others. Threads that it starts inherit it.
///
/// Linux before 6.12 accepts it without effect, and it is no error if the system refuses it.
pub fn run_soon() {
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    let bytes = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `bytes` to the structure, of which every content is valid. 0 is this thread.
    let mut attributes = unsafe {
        if libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), bytes, 0) != 0 {
            return;
        }
        attributes.assume_init()
    };
    if i64::from(attributes.sched_policy) == i64::from(libc::SCHED_OTHER) {
        attributes.sched_runtime = SHORT_SLICE_NS;
        // SAFETY: the kernel reads `size` bytes of the structure, which the call above has set.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The slice of this thread in nanoseconds, where the kernel shows it.
    fn slice() -> Option<u64> {
        let stat = fs::read_to_string("/proc/thread-self/sched").ok()?;
        let line = stat.lines().find(|line| line.starts_with("se.slice"))?;
        line.rsplit(':').next()?.trim().parse().ok()
    }

    /// True if threads have slices of their own: Linux 6.12 and later.
    fn has_slices() -> bool {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers = release.split(|digit: char| !digit.is_ascii_digit()).map_while(|it| it.parse::<u32>().ok());
        (numbers.next(), numbers.next()) >= (Some(6), Some(12))
    }

    #[test]
    fn a_thread_that_is_to_run_soon_has_a_short_slice() {
        let change = || {
            run_soon();
            slice()
        };
        if let Some(slice) = std::thread::spawn(change).join().unwrap().filter(|_| has_slices()) {
            assert_eq!(slice, SHORT_SLICE_NS);
        }
    }
}
