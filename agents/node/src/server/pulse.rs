//! The thread that shows that this process runs, also while its tasks get no answer from elsewhere: see
//! [`holdfast_wire::pulse`].

use std::net::{IpAddr, TcpListener};
use std::thread;
use std::time::Duration;

use holdfast_shm::process;

/// The pause when a connection cannot be accepted: for instance, out of descriptors.
const PAUSE: Duration = Duration::from_millis(50);
const STACK_BYTES: usize = 64 << 10;

/// Starts the thread; returns its port, or `None` where it cannot be had: then a process that is stopped is taken for
/// one that is slow.
pub fn start(address: IpAddr) -> Option<u16> {
    let begun = TcpListener::bind((address, 0)).and_then(|listener| {
        let port = listener.local_addr()?.port();
        let thread = thread::Builder::new().name("pulse".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || close_all(&listener))?;
        Ok(port)
    });
    begun.inspect_err(|error| tracing::warn!(%error, "no_pulse")).ok()
}

fn close_all(listener: &TcpListener) {
    process::run_soon();
    loop {
        match listener.accept() {
            Ok(connection) => drop(connection),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, SocketAddr, TcpStream};

    use super::*;

    #[tokio::test]
    async fn every_connection_is_closed_and_nothing_is_read() {
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let address = SocketAddr::new(here, start(here).unwrap());
        for _ in 0..3 {
            let mut connection = TcpStream::connect(address).unwrap();
            // It may be closed already.
            let _ = connection.write_all(b"GET / HTTP/1.1\r\n\r\n");
            let mut answer = Vec::new();
            let _ = connection.read_to_end(&mut answer);
            assert!(answer.is_empty());
        }
        assert_eq!(holdfast_wire::pulse::look(address).await, holdfast_wire::agent::Pulse::Runs);
    }
}
