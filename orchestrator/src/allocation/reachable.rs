//! Is there a machine behind an agent that went silent?
//!
//! A machine that is alive answers the attempt to connect at once, also when the agent is dead: its kernel refuses. From
//! one that is gone nothing comes at all.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A packet can get lost, and the system repeats it only after a second: so several attempts, each with its own packet.
const ATTEMPTS: u32 = 3;
const BETWEEN: Duration = Duration::from_millis(60);
/// A network inside a machine room answers in far less than a millisecond.
const WITHIN: Duration = Duration::from_millis(250);
/// So many looks in a row that find nothing are a verdict.
const UNANSWERED_PROBES: u32 = 2;
/// While something is there, it is looked again after this.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// Somebody listens there, or at least the kernel takes connections for him.
    Accepted,
    /// The machine is alive, and nobody listens.
    Refused,
    /// Nothing, or the network says that there is no way.
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
                // No way to the host: the other attempts will hear the same, or better news.
                _ => {}
            }
        }
        ProbeResult::NoAnswer
    };
    tokio::time::timeout(WITHIN, answer).await.unwrap_or(ProbeResult::NoAnswer)
}

/// Ends when the machine at the address is gone. A process that dies with its machine is missed a moment before the
/// machine is.
pub(crate) async fn wait_until_unreachable(address: SocketAddr) {
    let mut unanswered = 0;
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
    async fn a_machine_that_refuses_is_there_and_one_that_accepts_too() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(probe(address).await, ProbeResult::Accepted);
        drop(listener);
        assert_eq!(probe(address).await, ProbeResult::Refused);
    }
}
