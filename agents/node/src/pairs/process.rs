//! The processes of copies: the one that was started for a copy, and the program that registered as it, which may be
//! another one in another group.

use std::io;

use holdfast_model::Side;
use holdfast_process::{ObservedProcess, ProcessId, stat};
use holdfast_shm::CopySlot;

/// What a process belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessOwner {
    /// By the position of the pair in the plan.
    Copy { at: usize, side: Side, incarnation: u64 },
    /// By the position in the plan.
    Job { at: usize },
}

/// The process that registered as a copy.
pub(super) fn registered_id(slot: &CopySlot) -> Option<ProcessId> {
    (slot.pid != 0).then_some(ProcessId { pid: slot.pid, start_time: slot.start_time })
}

/// The program that registered as a copy, if it exists, and is another process than the one started for it.
pub(super) fn registered_program(slot: &CopySlot, started: Option<&ObservedProcess>) -> Option<ObservedProcess> {
    let id = registered_id(slot).filter(|id| started.is_none_or(|started| started.id != *id));
    id.and_then(ObservedProcess::open)
}

/// The threads of the process that registered as a copy, or else of the one that was started for it: this may be a
/// shell script that has started the program. Each with its name and state, as in `/proc/<pid>/stat`.
pub(super) fn copy_threads(slot: &CopySlot, started: Option<&ObservedProcess>) -> Vec<(String, u8)> {
    let registered = registered_id(slot).filter(|id| ProcessId::of(id.pid) == Some(*id));
    let id = registered.or(started.map(|process| process.id));
    let threads = id.map(|id| stat::threads(id.pid)).unwrap_or_default();
    threads.into_iter().map(|thread| (thread.name, thread.state)).collect()
}

/// Why a process could not be started.
pub(super) fn start_failure(program: &str, error: &io::Error) -> String {
    format!("cannot start {program}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::PipeReader;
    use std::process::Command;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::Signal;

    fn shell(script: &str) -> (ObservedProcess, PipeReader) {
        let mut command = Command::new("sh");
        let (ours, theirs) = std::io::pipe().unwrap();
        let process = ObservedProcess::start(command.args(["-c", script]).stdout(theirs)).unwrap();
        (process, ours)
    }

    #[test]
    fn the_threads_of_a_copy_are_those_of_the_program_behind_a_script() {
        use std::io::{BufRead as _, BufReader};
        let (script, output) = shell("sleep 600 & echo $!; wait");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).unwrap();
        let program = ProcessId::of(line.trim().parse().unwrap()).unwrap();
        let slot = CopySlot { pid: program.pid, start_time: program.start_time, ..CopySlot::EMPTY };
        let begun = std::time::Instant::now();
        // It is a copy of the shell at first.
        while copy_threads(&slot, Some(&script)).first().is_none_or(|(name, _)| name != "sleep") {
            assert!(begun.elapsed().as_secs() < 60, "{:?}", copy_threads(&slot, Some(&script)));
        }
        for slot in [CopySlot::EMPTY, CopySlot { start_time: program.start_time + 1, ..slot }] {
            assert!(copy_threads(&slot, Some(&script)).iter().all(|(name, _)| name == "sh"));
        }
        script.signal(Signal::KILL);
        poll(&mut [PollFd::new(&script.ended(), PollFlags::IN)], None).unwrap();
        script.reap();
    }
}
