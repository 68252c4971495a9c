//! An allgather that is larger than a frame, and one that is larger than what may be gathered, through real agents,
//! links and sockets. Each agent runs on threads of this process; most ranks are plain connections, because their
//! number matters here, not their use of the result.

// A test reports by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cluster;

use std::os::unix::net::UnixStream;

use holdfast_model::{FailureKind, Rank};
use holdfast_wire::frame::{self, HELLO};
use holdfast_wire::payload::Payload;
use holdfast_wire::rank::{
    Call, Hello, Interface, LARGEST_CONTRIBUTION, LARGEST_GATHERED, Reply, TO_AGENT, TO_RANK, ToAgent, ToRank,
};
use holdfast_wire::{VERSION, socket};

use cluster::{Cluster, GENERATION};

/// The accepted connection of a rank.
fn connect(cluster: &Cluster, node: usize, rank: Rank) -> UnixStream {
    let mut stream = socket::connect(&cluster.nodes[node].0).unwrap();
    let job = cluster.job.clone();
    let hello = Hello {
        version: VERSION,
        job,
        generation: GENERATION,
        rank,
        ranks: cluster.ranks,
        interface: Interface::Files,
    };
    frame::send(&mut stream, &ToAgent::Hello(hello), HELLO).unwrap();
    let welcome: ToRank = frame::receive(&mut stream, HELLO).unwrap();
    assert!(matches!(welcome, ToRank::Welcome { .. }), "{welcome:?}");
    stream
}

/// The contribution of a rank: its number, then bytes that differ between ranks.
fn contribution(rank: Rank) -> Vec<u8> {
    let mut bytes = vec![rank.0 as u8 ^ 0x5a; LARGEST_CONTRIBUTION];
    bytes[..4].copy_from_slice(&rank.0.to_le_bytes());
    bytes
}

fn allgather(stream: &mut UnixStream, seq: u64, data: Payload) {
    frame::send(stream, &ToAgent::Call { seq, call: Call::Allgather { data } }, TO_AGENT).unwrap();
}

fn reply(stream: &mut UnixStream) -> Result<Reply, holdfast_model::Failure> {
    match frame::receive(stream, TO_RANK).unwrap() {
        ToRank::Reply { result, .. } => result,
        other => panic!("a reply was expected, not {other:?}"),
    }
}

#[test]
fn every_rank_gets_the_contributions_of_1024_ranks_which_are_larger_than_any_frame() {
    let cluster = Cluster::start("gather-large", 2, 512, "LOCAL");
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..cluster.nodes.len())
            .map(|node| {
                let (cluster, rank) = (&cluster, cluster.nodes[node].1[0]);
                scope.spawn(move || cluster.client(node, rank).allgather(&contribution(rank)).unwrap())
            })
            .collect();
        let mut connections = Vec::new();
        for (node, (_, ranks)) in cluster.nodes.iter().enumerate() {
            for rank in &ranks[1..] {
                let mut stream = connect(&cluster, node, *rank);
                frame::send(&mut stream, &ToAgent::Call { seq: 1, call: Call::Init }, TO_AGENT).unwrap();
                connections.push((*rank, stream));
            }
        }
        for (rank, stream) in &mut connections {
            assert!(matches!(reply(stream).unwrap(), Reply::Restart(_)));
            allgather(stream, 2, contribution(*rank).into());
        }
        // These do not wait for the result, as ranks that died after their call.
        drop(connections);
        for client in clients {
            let gathered = client.join().unwrap();
            assert_eq!(gathered.len(), 1024);
            assert!((0..).map(Rank).zip(&gathered).all(|(rank, part)| *part == contribution(rank)));
        }
    });
}

#[test]
fn contributions_over_the_limit_are_an_error_that_names_it() {
    let each = u32::try_from(LARGEST_GATHERED / LARGEST_CONTRIBUTION / 2).unwrap() + 1;
    let cluster = Cluster::start("gather-too-large", 2, each, "LOCAL");
    let data = Payload::from(vec![7; LARGEST_CONTRIBUTION]);
    let mut listening = Vec::new();
    for (node, (_, ranks)) in cluster.nodes.iter().enumerate() {
        for rank in ranks {
            let mut stream = connect(&cluster, node, *rank);
            allgather(&mut stream, 1, data.clone());
            if rank.0 % 64 == 0 {
                listening.push(stream);
            }
        }
    }
    assert!(listening.len() > 60);
    for stream in &mut listening {
        let failure = reply(stream).unwrap_err();
        assert_eq!((failure.kind, failure.retryable), (FailureKind::InvalidRequest, false));
        assert!(failure.message.contains("more than 268435456 bytes together"), "{failure}");
        assert!(failure.remedy.is_some());
    }
}
