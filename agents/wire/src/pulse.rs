//! Whether the process of an agent runs that does not answer requests.
//!
//! An agent has a thread that does nothing but accept connections at a port of its own and close them again: it depends
//! neither on the tasks that answer requests nor on a file system, and hardly on a processor. The kernel accepts
//! connections for a process that is stopped, and keeps them open.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;

use crate::agent::Pulse;
use crate::reachable::{self, ProbeResult};

/// A thread that only waits, and is not served for so long, does not run.
pub const PULSE_WITHIN: Duration = Duration::from_millis(750);
/// A machine that several others cannot reach for so long, all at the same time, is lost.
const REACHED_WITHIN: Duration = Duration::from_millis(150);

pub async fn look(address: SocketAddr) -> Pulse {
    match reachable::probe(address, REACHED_WITHIN).await {
        ProbeResult::NoAnswer => Pulse::NoAnswer,
        ProbeResult::Refused => Pulse::Ended,
        ProbeResult::Accepted(mut connection) => {
            match tokio::time::timeout(PULSE_WITHIN, connection.read(&mut [0])).await {
                Ok(_) => Pulse::Runs,
                Err(_) => Pulse::Stopped,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_that_never_accepts_has_stopped_and_one_that_closes_runs() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(look(address).await, Pulse::Stopped);
        let closing = std::thread::spawn(move || {
            // That of the look before is the first.
            drop(listener.accept().unwrap());
            drop(listener.accept().unwrap());
        });
        assert_eq!(look(address).await, Pulse::Runs);
        closing.join().unwrap();
        assert_eq!(look(address).await, Pulse::Ended);
        let (silent, _waiting) = reachable::silent_address().unwrap();
        assert_eq!(look(silent.local_addr().unwrap()).await, Pulse::NoAnswer);
    }
}
