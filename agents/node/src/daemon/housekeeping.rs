//! What an agent does without being asked, every three seconds, on a thread of its own.
//!
//! The cost of an agent without work is mostly that it wakes up, and a timer of the runtime wakes it several times.
//! File work may also hang: only this thread waits for it.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;

use crate::agent::Agent;
use crate::directories::claim::{self, Claim};

const STACK_BYTES: usize = 256 << 10;

/// Starts the thread, which ends with the claim or the agent: reads the halt file again, which SCR's commands change
/// without the agent; looks whether the socket of the ranks was removed; renews the claim.
///
/// # Errors
/// The system refuses the thread.
pub(super) fn start(agent: &Arc<Agent>, claim: &Arc<Claim>) -> io::Result<()> {
    let (agent, claim) = (Arc::downgrade(agent), Arc::downgrade(claim));
    let thread = thread::Builder::new().name("housekeeping".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || work(&agent, &claim)).map(drop)
}

fn work(agent: &Weak<Agent>, claim: &Weak<Claim>) {
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
    }
}
