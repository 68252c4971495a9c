//! Whether the machine of an agent still answers.
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
/// This part of the time lies between the beginnings of two attempts.
const BETWEEN_ATTEMPTS: u32 = 4;
/// A probe that ends so much later than it should was delayed by this process, which is stopped or gets no processor.
const STALL: Duration = Duration::from_millis(50);
/// How often a probe is tried if this process is delayed each time.
const REPEATS: u32 = 4;

#[derive(Debug)]
pub enum ProbeResult {
    /// A process listens at the address, or the kernel accepts connections for it.
    Accepted(TcpStream),
    /// The machine answers, and no process listens.
    Refused,
    /// No answer, or the network reports the host as unreachable.
    NoAnswer,
}

/// Whether the machine at the address answers within this time, which is far more than the round-trip time of its
/// network. Time in which this process did not run is no silence of the machine.
pub async fn probe(address: SocketAddr, within: Duration) -> ProbeResult {
    let mut result = ProbeResult::NoAnswer;
    for _ in 0..REPEATS {
        let begun = Instant::now();
        result = try_once(address, within).await;
        if !matches!(result, ProbeResult::NoAnswer) || begun.elapsed() < within + STALL {
            break;
        }
    }
    result
}

async fn try_once(address: SocketAddr, within: Duration) -> ProbeResult {
    let between = within / BETWEEN_ATTEMPTS;
    // All in one task: an answer that is there when the time is up counts.
    let mut attempts: FuturesUnordered<_> = (0..ATTEMPTS)
        .map(async |attempt| {
            tokio::time::sleep(between * attempt).await;
            TcpStream::connect(address).await
        })
        .collect();
    let answer = async {
        while let Some(ended) = attempts.next().await {
            match ended {
                Ok(connection) => return ProbeResult::Accepted(connection),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return ProbeResult::Refused,
                // The host may be unreachable for a moment: wait for the other attempts.
                Err(_) => {}
            }
        }
        ProbeResult::NoAnswer
    };
    tokio::time::timeout(within, answer).await.unwrap_or(ProbeResult::NoAnswer)
}

/// A listener whose kernel does not answer, as that of a machine that is lost, while the connection is kept.
#[cfg(any(test, feature = "fixtures"))]
pub fn silent_address() -> io::Result<(tokio::net::TcpListener, std::net::TcpStream)> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    // A connection that is not accepted takes the only place.
    let listener = socket.listen(0)?;
    let waiting = std::net::TcpStream::connect(listener.local_addr()?)?;
    Ok((listener, waiting))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_millis(250);

    #[tokio::test]
    async fn a_machine_that_accepts_or_refuses_answers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(matches!(probe(address, WITHIN).await, ProbeResult::Accepted(_)));
        drop(listener);
        assert!(matches!(probe(address, WITHIN).await, ProbeResult::Refused));
    }

    #[tokio::test]
    async fn a_delay_of_this_process_is_no_silence_of_the_machine() {
        let (listener, waiting) = silent_address().unwrap();
        let address = listener.local_addr().unwrap();
        assert!(matches!(probe(address, WITHIN).await, ProbeResult::NoAnswer));
        let delayed = async {
            std::thread::sleep(2 * WITHIN);
            drop(waiting);
            loop {
                listener.accept().await.unwrap();
            }
        };
        tokio::select! {
            biased;
            result = probe(address, WITHIN) => assert!(matches!(result, ProbeResult::Accepted(_))),
            () = delayed => (),
        }
    }
}
