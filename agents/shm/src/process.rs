//! Which process is meant by a process id, and the threads of this process.

use std::fs;
use std::mem::MaybeUninit;
use std::ptr;

use rustix::time::{ClockId, clock_gettime};

/// The time at which the process was started, in clock ticks since the machine was booted (field 22 of
/// `/proc/<pid>/stat`). Together with the process id it names one process, also after the id is used again. `None`:
/// there is no such process.
pub fn start_time(pid: u32) -> Option<u64> {
    // The name of the process is in brackets, and may contain any character.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let behind_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(stat.get(behind_name..)?).ok()?;
    // The first field behind the name is field 3.
    fields.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

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

/// The attributes of a thread's scheduling, as the kernel has them (`sched_setattr(2)`).
#[repr(C)]
#[derive(Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Makes this thread run sooner when it wakes up while others have the processors: it asks for shorter slices of time.
/// It needs no privilege, and gives the thread no more time than others. Threads that it starts inherit it.
///
/// Linux before 6.12 accepts it without effect, and it is no error if the system refuses it.
pub fn run_soon() {
    let mut attributes = SchedulingAttributes::default();
    let bytes = size_of::<SchedulingAttributes>();
    // SAFETY: the kernel writes at most `bytes` to the structure, of which every content is valid. 0 is this thread.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, bytes, 0) };
    let ordinary = i64::from(libc::SCHED_OTHER) == i64::from(attributes.policy);
    if read == 0 && ordinary {
        attributes.runtime = SHORT_SLICE_NS;
        // SAFETY: the kernel reads `size` bytes of the structure, as it was told by the call above.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_has_one_start_time_until_it_is_gone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let started = start_time(child.id()).unwrap();
        assert!(started >= start_time(1).unwrap());
        assert_eq!(start_time(child.id()), Some(started));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(start_time(child.id()), None);
    }

    /// The slice of this thread in nanoseconds, where the kernel tells it.
    fn slice() -> Option<u64> {
        let stat = fs::read_to_string("/proc/thread-self/sched").ok()?;
        let line = stat.lines().find(|line| line.starts_with("se.slice"))?;
        line.rsplit(':').next()?.trim().parse().ok()
    }

    #[test]
    fn a_thread_that_is_to_run_soon_has_a_short_slice() {
        std::thread::spawn(|| {
            let before = slice();
            run_soon();
            // An older kernel has no slices of threads, and some do not show them.
            if let (Some(before), Some(after)) = (before, slice()) {
                assert!(after == before || after == SHORT_SLICE_NS, "{before} to {after}");
            }
        })
        .join()
        .unwrap();
    }
}
