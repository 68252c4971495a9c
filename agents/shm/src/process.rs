//! The clocks, the threads and the program of this process.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::{io, ptr};

use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};
use rustix::mm::{Advice, madvise};
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

/// Gives back the pages of this program's code and constants: they do not count as memory of this process any more.
/// Those that are used again are mapped again, from the page cache where the kernel has kept them there.
///
/// # Errors
/// The mappings cannot be read, or the system refuses it.
pub fn give_back_program() -> io::Result<()> {
    let process = Process::myself().map_err(io::Error::other)?;
    let program = MMapPath::Path(process.exe().map_err(io::Error::other)?);
    for range in ranges_of_code(&process.smaps().map_err(io::Error::other)?.0, &program) {
        // SAFETY: the mapping is one of the program, which exists as long as the process does. It is private, cannot be
        // written, and has no page of its own, in memory or swapped out: every page of it is one of the file, and has
        // the same content when it is mapped again.
        unsafe { madvise(ptr::without_provenance_mut(range.start), range.len(), Advice::LinuxDontNeed)? };
    }
    Ok(())
}

/// The mappings of a program up to its code that have the pages of the file and no others. What follows the code has
/// addresses that the loader has entered.
fn ranges_of_code(mappings: &[MemoryMap], program: &MMapPath) -> Vec<Range<usize>> {
    let of_program: Vec<&MemoryMap> = mappings.iter().filter(|mapping| mapping.pathname == *program).collect();
    let is_code = |mapping: &&MemoryMap| mapping.perms.contains(MMPermissions::EXECUTE);
    let until = of_program.iter().position(is_code).map_or(0, |code| code + 1);
    let is_clean = |mapping: &&&MemoryMap| {
        let has_none = |kind: &str| mapping.extension.map.get(kind) == Some(&0);
        let is_fixed = mapping.perms.contains(MMPermissions::PRIVATE) && !mapping.perms.contains(MMPermissions::WRITE);
        is_fixed && has_none("Anonymous") && has_none("Swap")
    };
    let clean = of_program[..until].iter().filter(is_clean);
    clean.map(|mapping| mapping.address.0 as usize..mapping.address.1 as usize).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use procfs::FromBufRead as _;
    use procfs::process::MemoryMaps;

    use super::*;

    /// The beginning of `/proc/PID/smaps`, with some of its lines.
    fn mappings(of_code: &str) -> String {
        let mapping = |range: &str, protection: &str, content: &str| {
            format!(
                "{range} {protection} 00000000 fe:00 1001 {:>30}\nRss: 5000 kB\n{content}\nVmFlags: rd mr\n",
                "/opt/my program"
            )
        };
        let clean = "Anonymous:             0 kB\nSwap:                  0 kB";
        mapping("1000-3000", "r--p", clean)
            + &mapping("3000-9000", "r-xp", of_code)
            + &mapping("9000-a000", "r--p", clean)
            + &mapping("a000-b000", "rw-p", clean)
            + &mapping("b000-c000", "r-xp", clean).replace("/opt/my program", "/lib/libc.so")
    }

    #[test]
    fn only_code_and_constants_whose_pages_are_those_of_the_file_are_given_back() {
        let ranges_of = |of_code: &str, program: &str| {
            let mappings = MemoryMaps::from_buf_read(mappings(of_code).as_bytes()).unwrap().0;
            let ranges = ranges_of_code(&mappings, &MMapPath::Path(program.into()));
            ranges.into_iter().map(|range| (range.start, range.end)).collect::<Vec<_>>()
        };
        let ranges = |of_code: &str| ranges_of(of_code, "/opt/my program");
        assert_eq!(ranges("Anonymous: 0 kB\nSwap: 0 kB"), [(0x1000, 0x3000), (0x3000, 0x9000)]);
        // A debugger has written to it, and the page may be swapped out; or the kernel does not show it.
        assert_eq!(ranges("Anonymous: 4 kB\nSwap: 0 kB"), [(0x1000, 0x3000)]);
        assert_eq!(ranges("Anonymous: 0 kB\nSwap: 4 kB"), [(0x1000, 0x3000)]);
        assert_eq!(ranges("Anonymous: 0 kB"), [(0x1000, 0x3000)]);
        assert_eq!(ranges_of("Anonymous: 0 kB\nSwap: 0 kB", "/opt/other"), []);
    }

    #[test]
    fn a_program_goes_on_after_its_pages_were_given_back() {
        let resident = || {
            let process = Process::myself().unwrap();
            let program = MMapPath::Path(process.exe().unwrap());
            let mut mappings = process.smaps().unwrap().0.into_iter();
            let is_code = |it: &MemoryMap| it.pathname == program && it.perms.contains(MMPermissions::EXECUTE);
            mappings.find(is_code).unwrap().extension.map["Rss"]
        };
        let before = resident();
        give_back_program().unwrap();
        let after = resident();
        assert!(after < before, "{after} bytes are mapped; before, {before} bytes");
    }

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
