//! Whether the machine of a silent agent still answers.
//!
//! The kernel of a running machine answers a connection attempt at once, also when the agent is dead: it refuses. A
//! lost machine does not answer.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A packet can get lost, and the system repeats it only after a second. So there are several attempts.
const ATTEMPTS: u32 = 3;
const BETWEEN: Duration = Duration::from_millis(60);
/// Far more than the round-trip time of a local network.
const WITHIN: Duration = Duration::from_millis(250);
/// A machine is lost after this many probes in a row without an answer.
const UNANSWERED_PROBES: u32 = 2;
/// Interval between probes that are answered.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// A process listens at the address, or the kernel accepts connections for it.
    Accepted,
    /// The machine answers, and no process listens.
    Refused,
    /// No answer, or the network reports the host as unreachable.
    NoAnswer,
}

pub(crate) async fn probe(address: SocketAddr) -> ProbeResult {
    let mut attempts = JoinSet::new();
    for attempt in 0..ATTEMPTS {
        attempts.spawn(async move {
            tokio::time::sleep(BETWEEN * attempt).await;
            TcpStream::connect(address).await
        });
    }
    let answer = async {
        while let Some(ended) = attempts.join_next().await {
            match ended {
                Ok(Ok(_)) => return ProbeResult::Accepted,
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => return ProbeResult::Refused,
                // The host may be unreachable for a moment: wait for the other attempts.
                _ => {}
            }
        }
        ProbeResult::NoAnswer
    };
    tokio::time::timeout(WITHIN, answer).await.unwrap_or(ProbeResult::NoAnswer)
}

/// Returns when the machine at the address does not answer any more. `last` is the result of the probe before.
pub(crate) async fn wait_until_unreachable(address: SocketAddr, last: ProbeResult) {
    let mut unanswered = u32::from(last == ProbeResult::NoAnswer);
    while unanswered < UNANSWERED_PROBES {
        if probe(address).await == ProbeResult::NoAnswer {
            unanswered += 1;
        } else {
            unanswered = 0;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_that_accepts_or_refuses_answers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(probe(address).await, ProbeResult::Accepted);
        drop(listener);
        assert_eq!(probe(address).await, ProbeResult::Refused);
    }
}
