//! Connections without the token: they cost little memory, few descriptors and little time, and do not lock others out.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use holdfast_model::Generation;
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
    let mut http = client::tls(&agent, ALPN_HTTP).unwrap();
    let hello = client::frame(8 << 10, &[b' '; 8 << 10]);
    let head = format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(4000));
    // The beginning of a handshake message of 16,000 bytes.
    let tls = [&[0x16, 3, 1, 0x3e, 0x84, 1, 0, 0x3e, 0x80][..], &[0; 16_000]].concat();
    let (mut closed, mut at) = ([false; 3], 0);
    // Ends in any case: the bytes of each do not suffice for longer than four minutes, and nothing completes them.
    while closed != [true; 3] {
        assert!(at < 2400, "still open: {closed:?}");
        let sent = [
            handshake.write_all(&tls[at..=at]),
            peer.write_all(&hello[at..=at]),
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
    assert_eq!(agent.poll().health.unauthenticated, 3);
}
