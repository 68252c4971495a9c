//! The descendants of this process: helpers of a launcher (srun, ssh) have their own process groups, and survive an
//! mpirun that is killed; a command of the user may leave processes behind.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use crate::stat::{self, ProcessStat};

const POLL_EVERY: Duration = Duration::from_millis(10);
/// Descendants may start others while they are being killed.
const ROUNDS: usize = 5;

/// From now on, orphaned descendants become our children.
pub fn adopt() {
    if let Err(error) = set_child_subreaper(Some(getpid())) {
        tracing::warn!(%error, "cannot adopt processes that a child leaves behind");
    }
}

/// Kills all descendants, without waiting for their end.
pub fn kill() {
    for _ in 0..ROUNDS {
        let found = all();
        if found.is_empty() {
            return;
        }
        for pid in found {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Kills all descendants, also those that they start meanwhile; returns when there are none, or after `limit`. Reaps
/// every child.
pub fn kill_all(limit: Duration) {
    let begun = Instant::now();
    loop {
        let found = all();
        for pid in &found {
            let _ = kill_process(*pid, Signal::KILL);
        }
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        if found.is_empty() || begun.elapsed() >= limit {
            return;
        }
        std::thread::sleep(POLL_EVERY);
    }
}

/// Kills all processes with this variable in their environment, also those that they start meanwhile; returns when
/// there are none, or after `limit`. They need not be descendants: their parents may have been killed.
pub fn kill_marked(variable: &str, value: &str, limit: Duration) {
    let begun = Instant::now();
    let mark = format!("{variable}={value}");
    let is_marked = |pid: i32| {
        // Empty when the process has ended, unreadable for another user's.
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
    };
    loop {
        let found = stat::all_pids().filter_map(|pid| i32::try_from(pid).ok()).filter(|pid| is_marked(*pid));
        let found: Vec<Pid> = found.filter_map(Pid::from_raw).collect();
        for pid in &found {
            let _ = kill_process(*pid, Signal::KILL);
        }
        if found.is_empty() || begun.elapsed() >= limit {
            return;
        }
        std::thread::sleep(POLL_EVERY);
    }
}

/// The names of all descendants that run, each with its process id.
pub fn names() -> Vec<String> {
    let name = |pid: Pid| {
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        Some(format!("{} ({pid})", ProcessStat::of(pid)?.name))
    };
    all().into_iter().filter_map(name).collect()
}

/// Waits up to `patience` for descendants to end, and kills the others. Reaps every child.
pub fn terminate(patience: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        if all().is_empty() {
            return;
        }
        std::thread::sleep(POLL_EVERY);
    }
    kill();
}

/// The process ids of all descendants that run.
pub fn pids() -> Vec<i32> {
    all().into_iter().map(|pid| pid.as_raw_nonzero().get()).collect()
}

/// Children, their children and so on; without zombies.
fn all() -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for pid in stat::all_pids() {
        // Processes that have ended meanwhile have no status.
        if let (Some(stat), Ok(pid)) = (ProcessStat::of(pid), i32::try_from(pid))
            && !stat.has_ended()
        {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = children.remove(&getpid().as_raw_nonzero().get()).unwrap_or_default();
    let mut at = 0;
    while let Some(pid) = found.get(at) {
        found.extend(children.remove(pid).unwrap_or_default());
        at += 1;
    }
    found.into_iter().filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_with_a_mark_are_killed_whoever_is_their_parent() {
        let (variable, value) = ("HOLDFAST_TEST_MARK", std::process::id().to_string());
        let start = |mark: &str| {
            let mut command = std::process::Command::new("sh");
            // The process that reads the pipe has lost its parent.
            let script = "(setsid sh -c 'echo started; exec sleep 600' &)";
            command.args(["-c", script]).env(variable, mark).stdout(std::process::Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
            std::io::BufRead::read_line(&mut output, &mut String::new()).unwrap();
            child.wait().unwrap();
            output
        };
        let (mut marked, other) = (start(&value), start(&format!("{value}.1")));
        kill_marked(variable, &value, Duration::from_secs(30));
        let mut rest = String::new();
        // The pipe is closed.
        std::io::Read::read_to_string(&mut marked, &mut rest).unwrap();
        let flags = rustix::fs::fcntl_getfl(other.get_ref()).unwrap();
        rustix::fs::fcntl_setfl(other.get_ref(), flags | rustix::fs::OFlags::NONBLOCK).unwrap();
        let mut other = other;
        let still_open = std::io::Read::read(&mut other, &mut [0]).unwrap_err();
        assert_eq!(still_open.kind(), std::io::ErrorKind::WouldBlock, "another mark");
        kill_marked(variable, &format!("{value}.1"), Duration::from_secs(30));
    }

    #[test]
    fn grandchildren_are_found() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 600 & wait"]).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let begun = Instant::now();
        let grandchild = loop {
            let parent = |pid: &Pid| Some(ProcessStat::of(pid.as_raw_nonzero().get().unsigned_abs())?.parent);
            if let Some(found) = all().into_iter().find(|found| parent(found) == Some(pid)) {
                break found;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "the grandchild is not found");
            std::thread::sleep(POLL_EVERY);
        };
        kill_process(grandchild, Signal::KILL).unwrap();
        child.wait().unwrap();
    }
}
