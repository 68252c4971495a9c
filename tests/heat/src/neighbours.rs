//! The exchange of edge rows between a rank and its two neighbours, over TCP.
//!
//! Each rank listens at its node's address and sends this address and a random nonce to all ranks by allgather. A rank
//! connects to its neighbour and sends its nonce, and the neighbour replies with its own: a process that has not taken
//! part in the allgather can do neither.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use holdfast_client::{Client, NodeName, Rank};

use crate::error::HeatError;
use crate::field::{from_bytes, to_bytes};
use crate::slab::Slab;

const NONCE_BYTES: usize = 16;
type Nonce = [u8; NONCE_BYTES];
/// Time limit for connecting to a neighbour. Both ranks have completed the allgather, so only a rank that ended needs
/// longer.
const MEETING: Duration = Duration::from_secs(60);
/// Time limit for a connection to send its nonce, so that unauthenticated connections do not block the listener.
const HANDSHAKE: Duration = Duration::from_secs(5);
const LISTEN_PAUSE: Duration = Duration::from_millis(2);

/// The connections to the ranks above and below.
#[derive(Debug)]
pub struct Neighbours {
    rank: Rank,
    above: Option<TcpStream>,
    below: Option<TcpStream>,
    buffer: Vec<u8>,
}

struct Introduction {
    nonce: Nonce,
    address: SocketAddr,
}

impl Introduction {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.nonce.to_vec();
        bytes.extend_from_slice(self.address.to_string().as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Introduction> {
        let (nonce, address) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let address = std::str::from_utf8(address).ok()?.parse().ok()?;
        Some(Introduction { nonce: *nonce, address })
    }
}

/// The address of this node for its neighbours: the given one, 127.0.0.1 on a virtual node, otherwise that of the host
/// name.
pub fn own_address(rank: Rank, given: Option<IpAddr>, virtual_node: Option<&NodeName>) -> Result<IpAddr, HeatError> {
    if let Some(address) = given {
        return Ok(address);
    }
    if virtual_node.is_some() {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let unknown = |problem: String| HeatError::NoAddress { rank, problem };
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").map_err(|error| unknown(error.to_string()))?;
    let name = name.trim();
    let found = (name, 0).to_socket_addrs().map_err(|error| unknown(format!("host name {name}: {error}")))?;
    let mut addresses: Vec<_> = found.map(|address| address.ip()).collect();
    // Prefer addresses that other nodes can reach, and IPv4, since an IPv6 address may be link-local.
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    addresses.first().copied().ok_or_else(|| unknown(format!("host name {name} has no address")))
}

impl Neighbours {
    /// Connects to the neighbours. Collective.
    pub fn meet(client: &mut Client, address: IpAddr) -> Result<Neighbours, HeatError> {
        let (rank, ranks) = (client.rank(), client.ranks());
        let mut met = Neighbours { rank, above: None, below: None, buffer: Vec::new() };
        if ranks == 1 {
            return Ok(met);
        }
        let listening = |source: io::Error| HeatError::NoAddress { rank, problem: format!("{address}: {source}") };
        let listener = TcpListener::bind((address, 0)).map_err(listening)?;
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|error| listening(io::Error::other(error)))?;
        let own = Introduction { nonce, address: listener.local_addr().map_err(listening)? };
        let all = client.allgather(&own.to_bytes())?;
        let introduction = |other: Rank| {
            all.get(other.index()).and_then(|bytes| Introduction::from_bytes(bytes)).ok_or_else(|| {
                let source = io::Error::new(io::ErrorKind::InvalidData, "it sent an invalid introduction");
                HeatError::NeighbourAbsent { rank, neighbour: other, at: String::new(), source }
            })
        };
        // Connect to one neighbour before accepting the other, and read the reply last: this avoids a deadlock.
        let below = if rank.0 + 1 < ranks {
            let neighbour = Rank(rank.0 + 1);
            let theirs = introduction(neighbour)?;
            let failed = move |source| {
                let at = format!(" at {}", theirs.address);
                HeatError::NeighbourAbsent { rank, neighbour, at, source }
            };
            Some((connect(theirs.address, &own.nonce).map_err(&failed)?, theirs.nonce, failed))
        } else {
            None
        };
        if rank.0 > 0 {
            let neighbour = Rank(rank.0 - 1);
            let theirs = introduction(neighbour)?;
            let failed = |source| HeatError::NeighbourAbsent { rank, neighbour, at: String::new(), source };
            met.above = Some(accept(&listener, &theirs.nonce, &own.nonce).map_err(failed)?);
        }
        if let Some((mut stream, nonce, failed)) = below {
            check_reply(&mut stream, &nonce).map_err(failed)?;
            met.below = Some(stream);
        }
        Ok(met)
    }

    /// Exchanges edge rows with the neighbours. In each pair one rank sends while the other receives, so that rows
    /// larger than the socket's buffers cannot block both.
    pub fn exchange(&mut self, slab: &mut Slab) -> Result<(), HeatError> {
        let even = self.rank.0.is_multiple_of(2);
        for below in [even, !even] {
            let stream = if below { &mut self.below } else { &mut self.above };
            let Some(stream) = stream else { continue };
            let (edge, neighbour) =
                if below { (slab.bottom(), Rank(self.rank.0 + 1)) } else { (slab.top(), Rank(self.rank.0 - 1)) };
            let step = slab.step();
            let lost = |source| HeatError::NeighbourLost { rank: self.rank, neighbour, step, source };
            let mut message = step.to_le_bytes().to_vec();
            message.extend_from_slice(&to_bytes(edge));
            self.buffer.resize(message.len(), 0);
            if even {
                stream.write_all(&message).map_err(lost)?;
                stream.read_exact(&mut self.buffer).map_err(lost)?;
            } else {
                stream.read_exact(&mut self.buffer).map_err(lost)?;
                stream.write_all(&message).map_err(lost)?;
            }
            let (theirs, row) = self.buffer.split_at(size_of::<u64>());
            if theirs != step.to_le_bytes() {
                return Err(lost(io::Error::new(io::ErrorKind::InvalidData, "it is at another step")));
            }
            from_bytes(row, if below { slab.below_mut() } else { slab.above_mut() });
        }
        Ok(())
    }
}

fn connect(address: SocketAddr, own: &Nonce) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, MEETING)?;
    stream.set_nodelay(true)?;
    stream.write_all(own)?;
    Ok(stream)
}

fn check_reply(stream: &mut TcpStream, expected: &Nonce) -> io::Result<()> {
    stream.set_read_timeout(Some(MEETING))?;
    let mut shown = [0; NONCE_BYTES];
    stream.read_exact(&mut shown)?;
    if shown != *expected {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another process replied at this address"));
    }
    stream.set_read_timeout(None)
}

fn accept(listener: &TcpListener, expected: &Nonce, own: &Nonce) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + MEETING;
    while Instant::now() < deadline {
        match listener.accept() {
            Ok((stream, _)) => match authenticate(stream, expected, own) {
                Ok(stream) => return Ok(stream),
                // An unauthenticated or aborted connection: keep waiting for the neighbour.
                Err(_) => continue,
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LISTEN_PAUSE),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "it did not connect"))
}

fn authenticate(mut stream: TcpStream, expected: &Nonce, own: &Nonce) -> io::Result<TcpStream> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANDSHAKE))?;
    let mut shown = [0; NONCE_BYTES];
    stream.read_exact(&mut shown)?;
    if shown != *expected {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    stream.set_read_timeout(None)?;
    stream.write_all(own)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unauthenticated_connections_do_not_block_the_neighbour() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut other = TcpStream::connect(address).unwrap();
        other.write_all(&[9; NONCE_BYTES]).unwrap();
        drop(TcpStream::connect(address).unwrap());
        let mut neighbour = connect(address, &[1; NONCE_BYTES]).unwrap();
        let mut admitted = accept(&listener, &[1; NONCE_BYTES], &[2; NONCE_BYTES]).unwrap();
        check_reply(&mut neighbour, &[2; NONCE_BYTES]).unwrap();
        admitted.write_all(b"row").unwrap();
        let mut row = [0; 3];
        neighbour.read_exact(&mut row).unwrap();
        assert_eq!(&row, b"row");
        assert_eq!(other.read(&mut row).unwrap_or(0), 0, "an unauthenticated connection receives nothing");
    }

    #[test]
    fn rejects_reply_with_wrong_nonce() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = connect(listener.local_addr().unwrap(), &[1; NONCE_BYTES]).unwrap();
        listener.accept().unwrap().0.write_all(&[3; NONCE_BYTES]).unwrap();
        assert_eq!(
            check_reply(&mut connection, &[2; NONCE_BYTES]).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }

    #[test]
    fn encodes_introduction_and_rejects_invalid_bytes() {
        let own = Introduction { nonce: [7; NONCE_BYTES], address: "[::1]:4711".parse().unwrap() };
        let back = Introduction::from_bytes(&own.to_bytes()).unwrap();
        assert_eq!((back.nonce, back.address), (own.nonce, own.address));
        assert!(Introduction::from_bytes(b"").is_none());
        assert!(Introduction::from_bytes(&[0; 40]).is_none());
    }

    #[test]
    fn address_is_given_one_or_loopback_on_virtual_node() {
        let given = "10.1.2.3".parse().unwrap();
        let node = NodeName::new("virtual1");
        assert_eq!(own_address(Rank(0), Some(given), Some(&node)).unwrap(), given);
        assert_eq!(own_address(Rank(0), None, Some(&node)).unwrap(), IpAddr::from(Ipv4Addr::LOCALHOST));
    }
}
