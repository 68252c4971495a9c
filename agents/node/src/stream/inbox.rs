//! Streams that have arrived and wait for the thread whose order they belong to.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use holdfast_model::{Generation, NodeName};
use holdfast_wire::peer::{Endpoint, Purpose};
use holdfast_wire::run::AgentStart;
use parking_lot::{Condvar, Mutex};

use super::bulk::Incoming;
use super::error::StreamError;

/// Connections to and from peers.
#[derive(Debug)]
pub struct Streams {
    pub(super) own: AgentStart,
    /// Where the agents of the run listen.
    addresses: Mutex<BTreeMap<NodeName, Endpoint>>,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The oldest generation that still counts.
    generation: Option<Generation>,
    waiting: HashMap<(Generation, Purpose), Incoming>,
    /// Every open bulk connection, to be cut when its run or its order is over.
    open: Vec<Open>,
    /// Orders that were given up, newest last.
    cancelled: VecDeque<u64>,
}

#[derive(Debug)]
struct Open {
    generation: Generation,
    order: Option<u64>,
    socket: TcpStream,
}

/// How many cancelled orders are remembered: those that may still be waited for.
const CANCELLED: usize = 64;

impl Streams {
    /// None yet; `own` is what this agent connects as.
    pub fn new(own: AgentStart) -> Self {
        Streams { own, addresses: Mutex::default(), state: Mutex::default(), arrived: Condvar::new() }
    }

    /// Takes over where agents of the run listen, unless something newer is known.
    pub fn learn(&self, endpoints: impl IntoIterator<Item = (NodeName, Endpoint)>) {
        let mut known = self.addresses.lock();
        for (node, endpoint) in endpoints {
            let newest = known.entry(node).or_insert(endpoint);
            if endpoint.issued >= newest.issued {
                *newest = endpoint;
            }
        }
    }

    /// Where the agent of this node listens.
    pub(crate) fn endpoint(&self, node: &NodeName) -> Option<Endpoint> {
        self.addresses.lock().get(node).copied()
    }

    /// Its address.
    pub(super) fn address(&self, node: &NodeName) -> Option<SocketAddr> {
        self.endpoint(node).map(|endpoint| endpoint.address)
    }

    /// Takes in a stream from a peer.
    pub fn deposit(&self, generation: Generation, purpose: Purpose, incoming: Incoming) {
        let mut state = self.state.lock();
        if Some(generation) < state.generation {
            return;
        }
        if let Some(socket) = incoming.socket() {
            state.open.push(Open { generation, order: order_of(&purpose), socket });
        }
        state.waiting.insert((generation, purpose), incoming);
        drop(state);
        self.arrived.notify_all();
    }

    /// Waits for the stream of this purpose. Blocks.
    pub fn claim(
        &self,
        generation: Generation,
        purpose: &Purpose,
        patience: Duration,
    ) -> Result<Incoming, StreamError> {
        let key = (generation, purpose.clone());
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        loop {
            if Some(generation) < state.generation {
                return Err(StreamError::Over(generation));
            }
            if order_of(purpose).is_some_and(|order| state.cancelled.contains(&order)) {
                return Err(StreamError::Cancelled);
            }
            if let Some(incoming) = state.waiting.remove(&key) {
                return Ok(incoming);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StreamError::NobodyCame { what: key.1, seconds: patience.as_secs() });
            }
            self.arrived.wait_for(&mut state, left);
        }
    }

    /// Remembers a stream to a peer, so that it can be cut.
    pub(super) fn remember(
        &self,
        generation: Generation,
        purpose: &Purpose,
        socket: TcpStream,
    ) -> Result<(), StreamError> {
        let mut state = self.state.lock();
        if Some(generation) < state.generation {
            return Err(StreamError::Over(generation));
        }
        let order = order_of(purpose);
        if order.is_some_and(|order| state.cancelled.contains(&order)) {
            return Err(StreamError::Cancelled);
        }
        // Forget what both sides have closed, so that the list stays as long as what is open.
        state.open.retain(|open| open.socket.peer_addr().is_ok());
        state.open.push(Open { generation, order, socket });
        Ok(())
    }

    /// Everything before `generation` is over: its streams are cut, and the threads on them see an error.
    pub fn fence(&self, generation: Generation) {
        let mut state = self.state.lock();
        state.generation = state.generation.max(Some(generation));
        state.waiting.retain(|(of, _), _| *of >= generation);
        cut(&mut state.open, |open| open.generation < generation);
        drop(state);
        self.arrived.notify_all();
    }

    /// The order was given up: its streams are cut, and nobody waits for it any more.
    pub fn cancel(&self, order: u64) {
        let mut state = self.state.lock();
        if state.cancelled.len() == CANCELLED {
            state.cancelled.pop_front();
        }
        state.cancelled.push_back(order);
        cut(&mut state.open, |open| open.order == Some(order));
        drop(state);
        self.arrived.notify_all();
    }

    /// A transfer on this socket ended well: nothing is left to cut.
    pub fn settled(&self, order: u64) {
        self.state.lock().open.retain(|open| open.order != Some(order));
    }
}

fn cut(open: &mut Vec<Open>, over: impl Fn(&Open) -> bool) {
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
        Purpose::Link => None,
        Purpose::Group(group) => Some(group.order),
        Purpose::Files(files) => Some(files.order),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixture_node::fixture_start;

    #[test]
    fn an_address_that_was_issued_earlier_does_not_replace_a_newer_one_whichever_arrives_first() {
        let streams = Streams::new(fixture_start(std::path::Path::new("/"), "node1"));
        let at = |port, issued| Endpoint { address: SocketAddr::from(([127, 0, 0, 1], port)), issued };
        let leader = NodeName::new("node0");
        for (endpoint, port) in [(at(1, 5), 1), (at(2, 9), 2), (at(1, 5), 2), (at(3, 9), 3)] {
            streams.learn([(leader.clone(), endpoint)]);
            assert_eq!(streams.address(&leader).unwrap().port(), port, "{endpoint:?}");
        }
    }
}
