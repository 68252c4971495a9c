//! What an agent does without being asked, every three seconds, on a thread of its own.
//!
//! The cost of an agent without work is mostly that it wakes up, and a timer of the runtime wakes it several times.
//! File work may also hang: only this thread waits for it.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use holdfast_shm::process;
use rustix::time::{ClockId, clock_gettime};

use crate::agent::Agent;
use crate::directories::claim::{self, Claim};

/// An agent that uses more processor time between two rounds than this has work; without work it uses a quarter of it.
const WORK: Duration = Duration::from_millis(10);
/// Memory is given back at most once in so many rounds, which is a minute: what is used again is mapped again.
const ROUNDS_BETWEEN: u32 = 20;
const STACK_BYTES: usize = 256 << 10;

/// Starts the thread, which ends with the claim or the agent: reads the halt file again, which SCR's commands change
/// without the agent; looks whether the socket of the ranks was removed; renews the claim; after work, gives memory
/// back.
///
/// # Errors
/// The system refuses the thread.
pub(super) fn start(agent: &Arc<Agent>, claim: &Arc<Claim>) -> io::Result<()> {
    let (agent, claim) = (Arc::downgrade(agent), Arc::downgrade(claim));
    let thread = thread::Builder::new().name("housekeeping".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || work(&agent, &claim)).map(drop)
}

fn work(agent: &Weak<Agent>, claim: &Weak<Claim>) {
    let mut idleness = Idleness::default();
    loop {
        thread::sleep(claim::RENEW_EVERY);
        let Some(agent) = agent.upgrade() else { return };
        agent.halt.refresh();
        let socket = agent.paths.socket().symlink_metadata();
        if socket.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            agent.socket_removed.notify_one();
        }
        let Some(claim) = claim.upgrade() else { return };
        if let Err(error) = claim.renew() {
            tracing::warn!(%error, "claim_not_renewed");
        }
        let used = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
        // The heartbeats of pairs do not wait for pages.
        if idleness.gives_back(used) && !agent.pairs.are_needed() {
            // The code of the start and of the last work: the application has the memory instead.
            if let Err(error) = process::give_back_program() {
                tracing::debug!(%error, "program_not_given_back");
            }
        }
    }
}

/// Whether the agent has work, by its processor time.
#[derive(Debug)]
struct Idleness {
    used: Duration,
    /// Since memory was given back last.
    had_work: bool,
    /// Rounds until memory may be given back.
    pause: u32,
}

impl Default for Idleness {
    /// At the start of the agent, which is work.
    fn default() -> Self {
        Idleness { used: Duration::ZERO, had_work: true, pause: 0 }
    }
}

impl Idleness {
    /// True in a round without work after one with work. `used` is the processor time since the start.
    fn gives_back(&mut self, used: Duration) -> bool {
        let has_work = used.saturating_sub(self.used) > WORK;
        self.used = used;
        self.had_work |= has_work;
        self.pause = self.pause.saturating_sub(1);
        let is_time = self.had_work && !has_work && self.pause == 0;
        if is_time {
            (self.had_work, self.pause) = (false, ROUNDS_BETWEEN);
        }
        is_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_work_and_at_most_once_a_minute() {
        let mut idleness = Idleness::default();
        let mut used = Duration::ZERO;
        let mut round = |more_ms| {
            used += Duration::from_millis(more_ms);
            idleness.gives_back(used)
        };
        // The start, then nothing, then work.
        assert_eq!([20, 2, 2, 40, 2].map(&mut round), [false, true, false, false, false]);
        let idle: Vec<bool> = (0..100).map(|_| round(2)).collect();
        assert_eq!(idle.iter().position(|given_back| *given_back), Some(16));
        assert_eq!(idle.iter().filter(|given_back| **given_back).count(), 1);
    }
}
