//! Connections without the token: they cost little memory, few descriptors and little time, and do not lock others out.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdfast_model::Generation;
use holdfast_wire::agent::{PEERS, POLL, PeersUpdate, PollRequest};
use holdfast_wire::channel::ALPN_CHANNEL;
use holdfast_wire::peer::Purpose;
use holdfast_wire::{ALPN_HTTP, ALPN_PEER, frame};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::agent::AgentProcess;
use crate::client::{self, is_closed};
use crate::examples;

/// What all connections without token together may cost.
const MEMORY: u64 = 64 << 20;
/// The most connections without token, of one address and in total.
const OF_ADDRESS: usize = 256;
const IN_TOTAL: usize = 1024;
/// Descriptors that a poll and the agent's other work need meanwhile.
const OTHERS: usize = 40;

fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn a_hello_of_64_mib_from_many_connections_costs_little_memory_and_legitimate_requests_are_answered() {
    let agent = AgentProcess::start();
    agent.poll();
    let before = agent.memory();
    agent.forget_peak();
    let megabyte = vec![b' '; 1 << 20];
    let attack = || {
        // In one frame, in many, and as a request without end.
        for (protocol, first, each) in [
            (ALPN_PEER, client::frame(64 << 20, b""), megabyte.clone()),
            (ALPN_PEER, Vec::new(), client::frame(1 << 10 | 1 << 31, &megabyte[..1 << 10])),
            (ALPN_CHANNEL, client::frame(64 << 20, b""), megabyte.clone()),
            (
                ALPN_HTTP,
                b"POST /v1/run HTTP/1.1\r\nhost: x\r\ncontent-length: 67108864\r\nx: ".to_vec(),
                megabyte.clone(),
            ),
        ] {
            let Ok(mut stream) = client::tls(&agent, protocol) else { continue };
            let mut sent = stream.write_all(&first);
            for _ in 0..64 {
                sent = sent.and_then(|()| stream.write_all(&each));
            }
            // Either it could not be sent, or nothing of it is answered but a refusal.
            assert!(sent.is_err() || is_closed(&mut stream), "{:?}", agent.log());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..8).for_each(|_| attack()));
        }
        for _ in 0..20 {
            agent.poll();
        }
    });
    let used = agent.peak_memory().saturating_sub(before);
    assert!(used < MEMORY, "{used} bytes");
    assert!(agent.poll().health.unauthenticated >= 150);
}

#[test]
fn open_connections_without_token_are_bounded_and_hold_little_memory_and_peers_get_in() {
    raise_descriptor_limit();
    let agent = AgentProcess::start();
    agent.poll();
    let (memory, descriptors) = (agent.memory(), agent.descriptors());
    agent.forget_peak();
    // Each holds as much as it can without being refused: half a hello, half a head, half a handshake.
    let mut open = Vec::new();
    for number in 0..OF_ADDRESS / 2 {
        let Ok(mut peer) = client::tls(&agent, ALPN_PEER) else { continue };
        let _ = peer.write_all(&client::frame(8 << 10, &[b' '; 8000]));
        let Ok(mut http) = client::tls(&agent, ALPN_HTTP) else { continue };
        let _ = http.write_all(format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(6000)).as_bytes());
        let mut half = client::tcp(&agent);
        // A handshake message of 64 KiB, of which a part arrives.
        let _ = half.write_all(&[&[0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff][..], &[0; 16 << 10]].concat());
        open.push((peer, http, half));
        if number % 32 == 0 {
            agent.poll();
        }
    }
    assert!(open.len() > OF_ADDRESS / 4, "the attack itself failed");
    let kept = || agent.descriptors().saturating_sub(descriptors);
    agent.wait("the surplus is closed", || (kept() <= OF_ADDRESS + OTHERS).then_some(()));
    // A peer with the token gets in at once, and is not evicted by what follows.
    let mut legitimate = client::tls(&agent, ALPN_PEER).unwrap();
    let hello = examples::peer_hello(&agent.trust.token.0, Generation(0), Purpose::Link);
    frame::send(&mut legitimate, &hello, frame::HELLO).unwrap();
    let _: holdfast_wire::peer::PeerWelcome = frame::receive(&mut legitimate, frame::HELLO).unwrap();

    // From many addresses, as many connections as the machine allows.
    let mut silent = Vec::new();
    for number in 0..2 * IN_TOTAL {
        let from = Ipv4Addr::new(127, 0, 1 + (number % 8) as u8, 1);
        match connect_from(from.into(), agent.address) {
            Ok(socket) => silent.push(socket),
            // The test's own descriptors are used up: what is open suffices only if it is more than the bound.
            Err(error) => {
                assert!(number > IN_TOTAL, "{error}");
                break;
            }
        }
    }
    agent.wait("the surplus is closed", || (kept() <= IN_TOTAL + OTHERS).then_some(()));
    agent.poll();
    let used = agent.peak_memory().saturating_sub(memory);
    assert!(used < MEMORY, "{used} bytes");
    drop((open, silent, legitimate));
    agent.wait("all are closed", || (kept() <= OTHERS / 4).then_some(()));
    agent.poll();
}

#[test]
fn nodes_get_in_at_once_while_200_addresses_of_their_network_flood_the_port() {
    raise_descriptor_limit();
    let agent = AgentProcess::start();
    let of_network = |host: usize| Ipv4Addr::new(127, 0, 0, host as u8);
    let nodes: Vec<Ipv4Addr> = (2..42).map(of_network).collect();
    let addresses = nodes.iter().map(|node| (node.to_string().as_str().into(), SocketAddr::from((*node, 1)))).collect();
    let known = PeersUpdate { addresses, ..examples::peers() };
    let body = serde_json::to_vec(&known).unwrap();
    let (status, _) = client::request(&agent, Some(&agent.trust), "POST", PEERS, &body).unwrap();
    assert_eq!(status, 200);
    let poll = serde_json::to_vec(&PollRequest::HEALTH_ONLY).unwrap();
    // Connections that are under way when the flood begins: of a node, and of an address that is none of the job's.
    let under_way = |from: Ipv4Addr| -> Vec<TcpStream> {
        (0..4).map(|_| agent.wait("a place in the kernel's queue", || connect_soon(from, agent.address))).collect()
    };
    let (of_node, of_other) = (under_way(nodes[0]), under_way(of_network(45)));
    let (stop, flooded) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for first in [50, 150] {
            let (agent, stop, flooded) = (&agent, &stop, &flooded);
            scope.spawn(move || {
                // As many as may be open at once, again and again, and in total at most 10,000 a second and 80,000:
                // kernels keep a list of connections, also of closed ones, and what exceeds it never reaches the agent.
                let (mut open, mut next) = (VecDeque::new(), Instant::now());
                for (number, host) in (first..first + 100).cycle().take(40_000).enumerate() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    if number % 50 == 0 {
                        next = next.max(Instant::now()) + Duration::from_millis(10);
                        std::thread::sleep(next.saturating_duration_since(Instant::now()));
                    }
                    if let Some(socket) = connect_soon(of_network(host), agent.address) {
                        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
                        open.push_back(socket);
                        flooded.fetch_add(1, Ordering::Relaxed);
                    }
                    if open.len() > IN_TOTAL {
                        open.pop_front();
                    }
                }
            });
        }
        // Also if this fails, the others end.
        let _stop = StopAtEnd(&stop);
        agent.wait("the port is flooded", || (flooded.load(Ordering::Relaxed) > 2 * IN_TOTAL).then_some(()));
        for mut evicted in of_other.into_iter().take(3) {
            evicted.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            assert!(is_closed(&mut evicted), "the flood has not used up the places of its network");
        }
        for socket in of_node {
            let answer = client::request_on(&agent, socket, Some(&agent.trust), "POST", POLL, &poll);
            assert_eq!(answer.expect("a node was evicted").0, 200);
        }
        for _ in 0..2 {
            for node in &nodes {
                let socket = agent.wait("a place in the kernel's queue", || connect_soon(*node, agent.address));
                let answer = client::request_on(&agent, socket, Some(&agent.trust), "POST", POLL, &poll);
                assert_eq!(answer.expect("a node was refused").0, 200);
            }
            // The address from which the token was presented is that of the orchestrator.
            agent.poll();
        }
    });
    assert!(agent.poll().health.unauthenticated > IN_TOTAL as u64);
}

/// Ends the flood.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A connection, unless the kernel of a busy machine dropped the first packet.
fn connect_soon(from: Ipv4Addr, to: SocketAddr) -> Option<TcpStream> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
    bind(&socket, &SocketAddr::new(from.into(), 0)).unwrap();
    if connect(&socket, &to).is_err() {
        let within = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
        let connected = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&within)).unwrap();
        if connected == 0 {
            return None;
        }
    }
    let socket = TcpStream::from(socket);
    socket.set_nonblocking(false).unwrap();
    Some(socket)
}

fn connect_from(from: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    connect(&socket, &to)?;
    Ok(socket.into())
}

#[test]
fn slow_senders_are_closed_however_regularly_they_send() {
    let agent = AgentProcess::start();
    let mut handshake = client::tcp(&agent);
    let mut peer = client::tls(&agent, ALPN_PEER).unwrap();
    let mut channel = client::tls(&agent, ALPN_CHANNEL).unwrap();
    let mut http = client::tls(&agent, ALPN_HTTP).unwrap();
    let hello = client::frame(8 << 10, &[b' '; 8 << 10]);
    let head = format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(4000));
    // The beginning of a handshake message of 16,000 bytes.
    let tls = [&[0x16, 3, 1, 0x3e, 0x84, 1, 0, 0x3e, 0x80][..], &[0; 16_000]].concat();
    let (mut closed, mut at) = ([false; 4], 0);
    // Ends in any case: the bytes of each do not suffice for longer than four minutes, and nothing completes them.
    while closed != [true; 4] {
        assert!(at < 2400, "still open: {closed:?}");
        let sent = [
            handshake.write_all(&tls[at..=at]),
            peer.write_all(&hello[at..=at]),
            channel.write_all(&hello[at..=at]),
            http.write_all(&head.as_bytes()[at..=at]),
        ];
        for (closed, sent) in closed.iter_mut().zip(sent) {
            *closed |= sent.is_err();
        }
        at += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut nothing = Vec::new();
    let _ = peer.read_to_end(&mut nothing);
    assert!(nothing.is_empty());
    assert_eq!(agent.poll().health.unauthenticated, 4);
}
