//! Whether the process of an agent runs that does not answer requests.
//!
//! An agent has a thread that does nothing but accept connections at a port of its own and close them again: it depends
//! neither on the tasks that answer requests nor on a file system, and hardly on a processor. The kernel accepts
//! connections for a process that is stopped, and keeps them open.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// A thread that only waits, and is not served for so long, does not run.
pub const PULSE_WITHIN: Duration = Duration::from_millis(750);

/// True if a connection to the address is accepted, and is then neither closed nor used for as long as
/// [`PULSE_WITHIN`]. False when no connection can be made: that has other causes.
pub async fn has_stopped(address: SocketAddr) -> bool {
    let connecting = tokio::time::timeout(PULSE_WITHIN, TcpStream::connect(address));
    let Ok(Ok(mut connection)) = connecting.await else { return false };
    tokio::time::timeout(PULSE_WITHIN, connection.read(&mut [0])).await.is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_that_never_accepts_has_stopped_and_one_that_closes_or_is_gone_has_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(has_stopped(address).await);
        let closing = std::thread::spawn(move || {
            // That of the look before is the first.
            drop(listener.accept().unwrap());
            drop(listener.accept().unwrap());
        });
        assert!(!has_stopped(address).await);
        closing.join().unwrap();
        assert!(!has_stopped(address).await);
    }
}
