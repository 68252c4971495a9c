//! Processes of this machine, ended without hitting a stranger that got an old number.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, Instant};

use procfs::process::Process;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};

/// True if a process of ours has this number and has not ended: a zombie has.
pub fn is_alive(pid: u32) -> bool {
    if number(pid).is_none_or(|number| test_kill_process(number).is_err()) {
        return false;
    }
    find(pid).and_then(|process| process.stat().ok()).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// True if the process is this program in the given role (`agent`, `step`): its first argument names it.
pub fn runs_as(pid: u32, role: &str) -> bool {
    arguments(pid).first().is_some_and(|first| first == role)
}

/// True if the process is this program in the given role, and this is the file that it was given.
pub fn runs_as_with(pid: u32, role: &str, file: &Path) -> bool {
    let arguments = arguments(pid);
    arguments.len() >= 2 && arguments[0] == role && Path::new(&arguments[1]) == file
}

/// True if the process was started with this variable in its environment.
pub fn has_variable(pid: u32, name: &str, value: &str) -> bool {
    let environment = find(pid).and_then(|process| process.environ().ok()).unwrap_or_default();
    environment.get(OsStr::new(name)).is_some_and(|found| found == OsStr::new(value))
}

fn find(pid: u32) -> Option<Process> {
    Process::new(number(pid)?.as_raw_nonzero().get()).ok()
}

/// The arguments of a process, without its program.
fn arguments(pid: u32) -> Vec<OsString> {
    let words = find(pid).and_then(|process| process.cmdline().ok()).unwrap_or_default();
    words.into_iter().skip(1).map(OsString::from).collect()
}

/// Kills an agent and waits until it is gone, `patience` at most; a process that is something else is left alone.
pub fn kill_agent(pid: u32, patience: Duration) -> bool {
    if !runs_as(pid, "agent") {
        return true;
    }
    signal(pid, Signal::KILL);
    wait_for_end(pid, patience)
}

/// Kills the process group that a rank leads, unless the number belongs to somebody else by now.
pub fn kill_rank(pid: u32, job_variable: &str, job: &str) -> bool {
    if !has_variable(pid, job_variable, job) {
        return false;
    }
    number(pid).is_some_and(|pid| kill_process_group(pid, Signal::KILL).is_ok())
}

pub fn signal(pid: u32, signal: Signal) -> bool {
    number(pid).is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Waits until a process is gone.
pub fn wait_for_end(pid: u32, patience: Duration) -> bool {
    let begun = Instant::now();
    let mut pause = Duration::from_micros(200);
    while is_alive(pid) {
        if begun.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
    true
}

fn number(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_ended_and_was_not_waited_for_counts_as_gone() {
        let mut child = Command::new("true").spawn().unwrap();
        assert!(wait_for_end(child.id(), Duration::from_secs(10)));
        child.wait().unwrap();
        assert!(!is_alive(child.id()));
    }

    #[test]
    fn a_stranger_with_the_number_of_an_agent_or_rank_is_left_alone() {
        let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(kill_agent(stranger.id(), Duration::ZERO));
        assert!(!kill_rank(stranger.id(), "HOLDFAST_JOB", "1"));
        assert!(is_alive(stranger.id()));
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn numbers_that_address_everybody_are_refused() {
        assert!(!signal(0, Signal::TERM));
        assert!(!signal(1, Signal::TERM));
        assert!(!signal(u32::MAX, Signal::TERM));
    }
}
