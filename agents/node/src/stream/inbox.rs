//! Streams that have arrived and wait for the thread that carries out their order.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_model::{Generation, NodeName};
use holdfast_wire::peer::{Endpoint, Purpose};
use holdfast_wire::run::AgentStart;
use parking_lot::Mutex;
use rustls::ClientConfig;

use super::bulk::IncomingStream;
use super::error::StreamError;
use super::idle::IdleConnections;

#[derive(Debug)]
pub struct Streams {
    pub(super) own: AgentStart,
    /// The addresses of the run's agents.
    addresses: Mutex<BTreeMap<NodeName, Endpoint>>,
    /// Those of the machines on which they are, or were.
    hosts: Mutex<HashSet<IpAddr>>,
    state: Mutex<InboxState>,
    pub(super) idle: IdleConnections,
    /// Made at the first connection.
    pub(super) config: OnceLock<Arc<ClientConfig>>,
    /// In place of sockets.
    #[cfg(feature = "simulation")]
    pub(crate) network: OnceLock<Arc<crate::simulation::Network>>,
}

type Key = (Generation, Purpose);

#[derive(Debug, Default)]
struct InboxState {
    /// Streams of older generations are refused.
    generation: Option<Generation>,
    waiting: HashMap<Key, IncomingStream>,
    /// The threads that wait, by what they wait for.
    claims: HashMap<Key, SyncSender<Result<IncomingStream, StreamError>>>,
    /// Every open bulk connection, to be closed when its run or its order is over.
    open: Vec<OpenConnection>,
    /// The length of that list at which closed connections are removed from it.
    prune_at: usize,
    /// Cancelled orders, newest last.
    cancelled: VecDeque<u64>,
}

#[derive(Debug)]
struct OpenConnection {
    generation: Generation,
    order: Option<u64>,
    socket: TcpStream,
}

/// The part of a stream's time limit in which the peer must connect: it may have to be restarted first, but has no data
/// to read or compute before.
const CONNECTION_PART: u32 = 4;
/// How many cancelled orders are kept: those for which a thread may still begin to wait.
const CANCELLED: usize = 64;
/// Below this length, the list of open connections is not searched for closed ones.
const LEAST_PRUNED: usize = 64;

impl Streams {
    /// `own` identifies this agent to its peers.
    pub fn new(own: AgentStart) -> Self {
        Streams {
            own,
            addresses: Mutex::default(),
            hosts: Mutex::default(),
            state: Mutex::default(),
            idle: IdleConnections::default(),
            config: OnceLock::new(),
            #[cfg(feature = "simulation")]
            network: OnceLock::new(),
        }
    }

    /// Takes over addresses of agents, except those that are older than the known ones.
    pub fn update_addresses(&self, endpoints: impl IntoIterator<Item = (NodeName, Endpoint)>) {
        let (mut known, mut hosts) = (self.addresses.lock(), self.hosts.lock());
        for (node, endpoint) in endpoints {
            hosts.insert(endpoint.address.ip().to_canonical());
            let newest = known.entry(node).or_insert(endpoint);
            if endpoint.issued >= newest.issued {
                *newest = endpoint;
            }
        }
    }

    /// True if an agent of the job listens, or listened, at this address.
    pub(crate) fn is_node(&self, address: IpAddr) -> bool {
        self.hosts.lock().contains(&address.to_canonical())
    }

    /// The address of a node's agent.
    pub(crate) fn endpoint(&self, node: &NodeName) -> Option<Endpoint> {
        self.addresses.lock().get(node).copied()
    }

    pub(super) fn address(&self, node: &NodeName) -> Option<SocketAddr> {
        self.endpoint(node).map(|endpoint| endpoint.address)
    }

    /// Receives a stream from a peer, for the thread that waits for it or will.
    pub fn deposit(&self, generation: Generation, purpose: Purpose, incoming: IncomingStream) {
        let mut state = self.state.lock();
        if Some(generation) < state.generation {
            return;
        }
        if let Some(socket) = incoming.socket() {
            state.note_open(OpenConnection { generation, order: order_of(&purpose), socket });
        }
        let key = (generation, purpose);
        match state.claims.remove(&key) {
            // A thread whose time limit ends at this moment still finds it there.
            Some(claim) => drop(claim.send(Ok(incoming))),
            None => drop(state.waiting.insert(key, incoming)),
        }
    }

    /// Waits for the stream of this purpose, which then may carry no data for `timeout`. Blocks.
    pub fn claim(
        &self,
        generation: Generation,
        purpose: &Purpose,
        timeout: Duration,
    ) -> Result<IncomingStream, StreamError> {
        #[cfg(feature = "simulation")]
        if let Some(network) = self.network.get() {
            return network.claim(&self.own.node, purpose);
        }
        let incoming = self.wait_for(generation, purpose, timeout / CONNECTION_PART)?;
        let broken = |source| StreamError::Connection { node: incoming.node.clone(), source };
        incoming.set_timeout(timeout).map_err(broken)?;
        Ok(incoming)
    }

    fn wait_for(
        &self,
        generation: Generation,
        purpose: &Purpose,
        limit: Duration,
    ) -> Result<IncomingStream, StreamError> {
        let key = (generation, purpose.clone());
        let arrival = {
            let mut state = self.state.lock();
            if Some(generation) < state.generation {
                return Err(StreamError::Over(generation));
            }
            if order_of(purpose).is_some_and(|order| state.cancelled.contains(&order)) {
                return Err(StreamError::Cancelled);
            }
            if let Some(incoming) = state.waiting.remove(&key) {
                return Ok(incoming);
            }
            let (claim, arrival) = sync_channel(1);
            state.claims.insert(key.clone(), claim);
            arrival
        };
        arrival.recv_timeout(limit).unwrap_or_else(|_| {
            self.state.lock().claims.remove(&key);
            let timeout = StreamError::NoPeer { what: key.1, seconds: limit.as_secs() };
            arrival.try_recv().unwrap_or(Err(timeout))
        })
    }

    /// Notes a stream to a peer, so that it can be closed.
    pub(super) fn note(&self, generation: Generation, purpose: &Purpose, socket: TcpStream) -> Result<(), StreamError> {
        let mut state = self.state.lock();
        if Some(generation) < state.generation {
            return Err(StreamError::Over(generation));
        }
        let order = order_of(purpose);
        if order.is_some_and(|order| state.cancelled.contains(&order)) {
            return Err(StreamError::Cancelled);
        }
        state.note_open(OpenConnection { generation, order, socket });
        Ok(())
    }

    /// Closes the streams of generations before this one; the threads on them get an error.
    pub fn fence(&self, generation: Generation) {
        let mut state = self.state.lock();
        state.generation = state.generation.max(Some(generation));
        state.waiting.retain(|(of, _), _| *of >= generation);
        close(&mut state.open, |open| open.generation < generation);
        state.refuse(|(of, _)| *of < generation, |(of, _)| StreamError::Over(*of));
        drop(state);
        self.idle.fence(generation);
    }

    /// Cancels an order: its streams are closed, and the threads that wait for one get an error.
    pub fn cancel(&self, order: u64) {
        let mut state = self.state.lock();
        if state.cancelled.len() == CANCELLED {
            state.cancelled.pop_front();
        }
        state.cancelled.push_back(order);
        close(&mut state.open, |open| open.order == Some(order));
        state.refuse(|(_, purpose)| order_of(purpose) == Some(order), |_| StreamError::Cancelled);
    }

    /// The order ended: its streams need not be closed any more.
    pub fn settled(&self, order: u64) {
        self.state.lock().open.retain(|open| open.order != Some(order));
    }
}

impl InboxState {
    fn note_open(&mut self, open: OpenConnection) {
        // Connections that both sides have closed are removed now and then, so that the list does not grow.
        if self.open.len() >= self.prune_at {
            self.open.retain(|open| open.socket.peer_addr().is_ok());
            self.prune_at = (self.open.len() * 2).max(LEAST_PRUNED);
        }
        self.open.push(open);
    }

    /// Ends the waiting for streams that are over.
    fn refuse(&mut self, is_over: impl Fn(&Key) -> bool, reason: impl Fn(&Key) -> StreamError) {
        self.claims.retain(|key, claim| {
            let over = is_over(key);
            if over {
                let _ = claim.send(Err(reason(key)));
            }
            !over
        });
    }
}

fn close(open: &mut Vec<OpenConnection>, over: impl Fn(&OpenConnection) -> bool) {
    open.retain(|open| {
        let over = over(open);
        if over {
            let _ = open.socket.shutdown(Shutdown::Both);
        }
        !over
    });
}

fn order_of(purpose: &Purpose) -> Option<u64> {
    match purpose {
        Purpose::Link | Purpose::Mirror => None,
        Purpose::Group(group) => Some(group.order),
        Purpose::Files(files) => Some(files.order),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::fixture_start;

    #[test]
    fn an_address_that_was_issued_earlier_does_not_replace_a_newer_one_whichever_arrives_first() {
        let streams = Streams::new(fixture_start(std::path::Path::new("/"), "node1"));
        let at = |port, issued| Endpoint { address: SocketAddr::from(([127, 0, 0, 1], port)), issued };
        let leader = NodeName::new("node0");
        for (endpoint, port) in [(at(1, 5), 1), (at(2, 9), 2), (at(1, 5), 2), (at(3, 9), 3)] {
            streams.update_addresses([(leader.clone(), endpoint)]);
            assert_eq!(streams.address(&leader).unwrap().port(), port, "{endpoint:?}");
        }
    }
}
