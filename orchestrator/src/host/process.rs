//! Processes of this machine. Before a process is killed, its role is checked, because its id may have been reused.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, Instant};

use procfs::process::Process;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};

/// True if a process of this user has this id and has not ended. A zombie has ended.
pub fn is_alive(pid: u32) -> bool {
    if number(pid).is_none_or(|number| test_kill_process(number).is_err()) {
        return false;
    }
    find(pid).and_then(|process| process.stat().ok()).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// True if the process is this program in the given role (`agent`, `step`), which is its first argument.
pub fn runs_as(pid: u32, role: &str) -> bool {
    arguments(pid).first().is_some_and(|first| first == role)
}

/// True if the process is this program in the given role, with this file as its argument. One that was spawned just now
/// has to be [executed](await_execution) first.
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

/// The words of a process, of which the first is its program.
fn words(pid: u32) -> Vec<OsString> {
    let words = find(pid).and_then(|process| process.cmdline().ok()).unwrap_or_default();
    words.into_iter().map(OsString::from).collect()
}

/// The arguments of a process, without its program.
fn arguments(pid: u32) -> Vec<OsString> {
    words(pid).into_iter().skip(1).collect()
}

/// True if a process that was spawned just now may not have the words of its program yet: it has those of its parent,
/// which the kernel lets go on before the child has its own memory, and then none.
fn is_being_executed(pid: u32) -> bool {
    let words_now = words(pid);
    let own = std::process::id();
    let is_child = || {
        find(pid).and_then(|process| process.stat().ok()).is_some_and(|stat| number(own) == Pid::from_raw(stat.ppid))
    };
    is_alive(pid) && (words_now.is_empty() || (is_child() && words_now == words(own)))
}

/// Waits up to `patience` until a process that was spawned just now has the words of its program.
pub fn await_execution(pid: u32, patience: Duration) {
    let begun = Instant::now();
    while is_being_executed(pid) && begun.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills an agent and waits up to `patience` for its end; true if it has ended. Any other process is left alone.
pub fn kill_agent(pid: u32, patience: Duration) -> bool {
    await_execution(pid, patience);
    if !runs_as(pid, "agent") {
        return true;
    }
    signal(pid, Signal::KILL);
    wait_for_end(pid, patience)
}

/// Kills the process group that a rank leads, unless the id now belongs to another process.
pub fn kill_rank(pid: u32, job_variable: &str, job: &str) -> bool {
    if !has_variable(pid, job_variable, job) {
        return false;
    }
    number(pid).is_some_and(|pid| kill_process_group(pid, Signal::KILL).is_ok())
}

pub fn signal(pid: u32, signal: Signal) -> bool {
    number(pid).is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Waits up to `patience` for the end of a process; true if it has ended.
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
    fn a_zombie_counts_as_ended() {
        let mut child = Command::new("true").spawn().unwrap();
        assert!(wait_for_end(child.id(), Duration::from_secs(10)));
        child.wait().unwrap();
        assert!(!is_alive(child.id()));
    }

    #[test]
    fn another_process_with_the_id_of_an_agent_or_rank_is_left_alone() {
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(kill_agent(other.id(), Duration::ZERO));
        assert!(!kill_rank(other.id(), "HOLDFAST_JOB", "1"));
        assert!(is_alive(other.id()));
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn refuses_ids_that_address_several_processes() {
        assert!(!signal(0, Signal::TERM));
        assert!(!signal(1, Signal::TERM));
        assert!(!signal(u32::MAX, Signal::TERM));
    }
}
