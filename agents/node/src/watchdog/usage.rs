//! The resource usage of processes, from `/proc`.

use std::collections::BTreeSet;
use std::time::Duration;

use procfs::process::Process;

/// The usage of a rank's processes so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, including ended children.
    pub cpu: Duration,
    /// Bytes read and written, from and to files, pipes and sockets.
    pub bytes: u64,
    /// One of them is runnable.
    pub runs: bool,
    pub processes: BTreeSet<u32>,
}

/// The usage of those of these processes that are alive.
pub fn of(pids: impl IntoIterator<Item = u32>) -> Usage {
    let mut usage = Usage::default();
    for pid in pids {
        let Some(process) = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()) else { continue };
        let Some(stat) = process.stat().ok().filter(|stat| !"ZX".contains(stat.state)) else { continue };
        usage.processes.insert(pid);
        usage.runs |= stat.state == 'R';
        let of_children = [stat.cutime, stat.cstime].map(|ticks| u64::try_from(ticks).unwrap_or(0));
        let ticks = [stat.utime, stat.stime].into_iter().chain(of_children).fold(0, u64::saturating_add);
        usage.cpu = usage.cpu.saturating_add(duration(ticks));
        // Not readable if the program is protected from debuggers.
        if let Ok(io) = process.io() {
            usage.bytes = usage.bytes.saturating_add(io.rchar).saturating_add(io.wchar);
        }
    }
    usage
}

fn duration(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_that_are_alive_are_counted() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let own = std::process::id();
        let both = of([own, child.id()]);
        assert_eq!(both.processes, [own, child.id()].into());
        assert!(both.runs || both.bytes > 0);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(of([child.id()]), Usage::default());
    }
}
