//! Streams of an agent to itself, through its port.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{DataPlane, Generation, NodeName};
use holdfast_wire::peer::{Endpoint, GroupKey, Purpose};
use holdfast_wire::trust;

use super::{IncomingStream, OutgoingStream, StreamError, StreamSettings};
use crate::agent::Agent;
use crate::agent::fixtures::set_up;
use crate::collective::{Collectives, begin_run};
use crate::directories::paths::Paths;
use crate::fixtures::{fixture_request, fixture_start, lay_out};
use crate::server;

const TIMEOUT: Duration = Duration::from_secs(80);
const GENERATION: Generation = Generation(2);

struct Node {
    _root: tempfile::TempDir,
    agent: Arc<Agent>,
    collectives: Arc<Collectives>,
    name: NodeName,
}

async fn node() -> Node {
    let root = tempfile::tempdir().unwrap();
    lay_out(root.path(), "a-xor4/killed-before-flush", "node1");
    let mut start = fixture_start(root.path(), "node1");
    start.trust = trust::generate().unwrap();
    let paths = Paths::new(&start);
    let agent = Arc::new(set_up(start, paths).unwrap());
    let listener = server::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let collectives = Arc::new(Collectives::new(agent.clone()));
    begin_run(&collectives, fixture_request(GENERATION, "node1", &[1])).await.unwrap();
    tokio::spawn(server::serve(collectives.clone(), listener));
    let name = NodeName::from("node1");
    agent.streams.update_addresses([(name.clone(), Endpoint { address, issued: 1 })]);
    Node { _root: root, agent, collectives, name }
}

fn of_order(order: u64) -> Purpose {
    Purpose::Group(GroupKey { order, group_id: 0, from_member: 0, to_member: 1 })
}

impl Node {
    /// Both ends of the stream of an order, and the address of the sender.
    async fn stream(&self, generation: Generation, order: u64) -> (OutgoingStream, IncomingStream, SocketAddr) {
        self.stream_with(DataPlane::Encrypted, generation, order).await
    }

    async fn stream_with(
        &self,
        data_plane: DataPlane,
        generation: Generation,
        order: u64,
    ) -> (OutgoingStream, IncomingStream, SocketAddr) {
        let (agent, name) = (self.agent.clone(), self.name.clone());
        let settings = StreamSettings { timeout: TIMEOUT, data_plane };
        let both = move || {
            let mut outgoing = agent.streams.connect(generation, &name, of_order(order), settings).unwrap();
            let mut incoming = agent.streams.claim(generation, &of_order(order), TIMEOUT).unwrap();
            outgoing.write_all(&order.to_be_bytes()).unwrap();
            outgoing.flush().unwrap();
            let mut found = [0; 8];
            incoming.read_exact(&mut found).unwrap();
            assert_eq!(u64::from_be_bytes(found), order);
            let from = incoming.socket().unwrap().peer_addr().unwrap();
            (outgoing, incoming, from)
        };
        tokio::task::spawn_blocking(both).await.unwrap()
    }

    fn end_well(&self, outgoing: OutgoingStream, incoming: IncomingStream, generation: Generation) {
        incoming.give_back();
        self.agent.streams.keep(generation, outgoing);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_used_for_the_next_step_unless_it_broke() {
    let node = node().await;
    let (outgoing, incoming, first) = node.stream(GENERATION, 1).await;
    node.end_well(outgoing, incoming, GENERATION);
    let (outgoing, incoming, second) = node.stream(GENERATION, 2).await;
    assert_eq!(second, first, "another connection was made");
    node.end_well(outgoing, incoming, GENERATION);
    let (outgoing, incoming, third) = node.stream(GENERATION, 3).await;
    assert_eq!(third, first);
    // The receiver has closed its end; the sender detects that only when it uses the stream.
    drop(incoming);
    node.agent.streams.keep(GENERATION, outgoing);
    let (_outgoing, _incoming, fourth) = node.stream(GENERATION, 4).await;
    assert_ne!(fourth, first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_in_records_is_used_for_the_next_step() {
    let node = node().await;
    for data_plane in [DataPlane::Authenticated, DataPlane::Plain] {
        let (outgoing, incoming, first) = node.stream_with(data_plane, GENERATION, 1).await;
        node.end_well(outgoing, incoming, GENERATION);
        let (mut outgoing, incoming, second) = node.stream_with(data_plane, GENERATION, 2).await;
        assert_eq!(second, first, "another connection was made");
        // More than was read: the next hello would not be where it is expected.
        outgoing.write_all(b"surplus").unwrap();
        let (mut incoming, mut one) = (incoming, [0]);
        incoming.read_exact(&mut one).unwrap();
        node.end_well(outgoing, incoming, GENERATION);
        let (outgoing, incoming, third) = node.stream_with(data_plane, GENERATION, 3).await;
        assert_ne!(third, first);
        node.end_well(outgoing, incoming, GENERATION);
        let (outgoing, incoming, fourth) = node.stream(GENERATION, 4).await;
        assert_eq!(fourth, third);
        drop((outgoing, incoming));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_stream_ends_with_its_generation() {
    let node = node().await;
    let (outgoing, incoming, first) = node.stream(GENERATION, 1).await;
    node.end_well(outgoing, incoming, GENERATION);
    let next = Generation(GENERATION.0 + 1);
    begin_run(&node.collectives, fixture_request(next, "node1", &[1])).await.unwrap();
    let agent = node.agent.clone();
    let name = node.name.clone();
    let settings = StreamSettings { timeout: TIMEOUT, data_plane: DataPlane::Encrypted };
    let old = tokio::task::spawn_blocking(move || agent.streams.connect(GENERATION, &name, of_order(2), settings));
    assert!(matches!(old.await.unwrap(), Err(StreamError::Over(over)) if over == GENERATION));
    let (_outgoing, _incoming, second) = node.stream(next, 3).await;
    assert_ne!(second, first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_order_ends_the_waiting_for_its_stream() {
    let node = node().await;
    let agent = node.agent.clone();
    let waiting = tokio::task::spawn_blocking(move || agent.streams.claim(GENERATION, &of_order(7), TIMEOUT));
    node.agent.streams.cancel(7);
    assert!(matches!(waiting.await.unwrap(), Err(StreamError::Cancelled)));
    let agent = node.agent.clone();
    let waiting = tokio::task::spawn_blocking(move || agent.streams.claim(GENERATION, &of_order(8), TIMEOUT));
    node.agent.streams.fence(Generation(GENERATION.0 + 1));
    assert!(matches!(waiting.await.unwrap(), Err(StreamError::Over(over)) if over == GENERATION));
}
