//! Whether the machine of a silent agent still answers.
//!
//! The kernel of a running machine answers a connection attempt at once, also when the agent is dead: it refuses. A
//! lost machine does not answer.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;

/// A packet can get lost, and the system repeats it only after a second. So there are several attempts.
const ATTEMPTS: u32 = 3;
const BETWEEN: Duration = Duration::from_millis(60);
/// Far more than the round-trip time of a local network.
const WITHIN: Duration = Duration::from_millis(250);
/// A probe that ends so much later than it should was delayed by this process, which is stopped or gets no processor.
const STALL: Duration = Duration::from_millis(50);
/// How often a probe is tried if this process is delayed each time.
const REPEATS: u32 = 4;
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

/// Whether the machine at the address answers. Time in which this process did not run is no silence of the machine.
pub(crate) async fn probe(address: SocketAddr) -> ProbeResult {
    let mut result = ProbeResult::NoAnswer;
    for _ in 0..REPEATS {
        let begun = Instant::now();
        result = try_once(address).await;
        if result != ProbeResult::NoAnswer || begun.elapsed() < WITHIN + STALL {
            break;
        }
    }
    result
}

async fn try_once(address: SocketAddr) -> ProbeResult {
    // All in one task: an answer that is there when the time is up counts.
    let mut attempts: FuturesUnordered<_> = (0..ATTEMPTS)
        .map(async |attempt| {
            tokio::time::sleep(BETWEEN * attempt).await;
            TcpStream::connect(address).await
        })
        .collect();
    let answer = async {
        while let Some(ended) = attempts.next().await {
            match ended {
                Ok(_) => return ProbeResult::Accepted,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return ProbeResult::Refused,
                // The host may be unreachable for a moment: wait for the other attempts.
                Err(_) => {}
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
    #[tokio::test]
    async fn a_delay_of_this_process_is_no_silence_of_the_machine() {
        // The kernel does not answer while a connection that was not accepted takes the only place.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = std::net::TcpStream::connect(address).unwrap();
        assert_eq!(probe(address).await, ProbeResult::NoAnswer);
        let delayed = async {
            std::thread::sleep(2 * WITHIN);
            drop(waiting);
            loop {
                listener.accept().await.unwrap();
            }
        };
        tokio::select! {
            biased;
            result = probe(address) => assert_eq!(result, ProbeResult::Accepted),
            () = delayed => (),
        }
    }
}
