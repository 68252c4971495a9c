//! Which process is meant by a process id, and threads of a program's own process.

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
}
