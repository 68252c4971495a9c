//! Streams that have arrived and wait for the thread whose order they belong to.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_model::{Generation, NodeName};
use holdfast_wire::peer::{Endpoint, Purpose};
use holdfast_wire::run::AgentStart;
use parking_lot::Mutex;
use rustls::ClientConfig;

use super::bulk::Incoming;
use super::error::StreamError;
use super::idle::Idle;

/// Connections to and from peers.
#[derive(Debug)]
pub struct Streams {
    pub(super) own: AgentStart,
    /// Where the agents of the run listen.
    addresses: Mutex<BTreeMap<NodeName, Endpoint>>,
    state: Mutex<State>,
    /// Connections to peers that wait for the next step.
    pub(super) idle: Idle,
    /// Made at the first connection.
    pub(super) config: OnceLock<Arc<ClientConfig>>,
}

type Key = (Generation, Purpose);

#[derive(Debug, Default)]
struct State {
    /// The oldest generation that still counts.
    generation: Option<Generation>,
    waiting: HashMap<Key, Incoming>,
    /// Who waits for which stream.
    claims: HashMap<Key, SyncSender<Result<Incoming, StreamError>>>,
    /// Every open bulk connection, to be cut when its run or its order is over.
    open: Vec<Open>,
    /// How long that list may become before closed connections are looked for.
    prune_at: usize,
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
/// So many open connections are never looked through.
const LEAST_PRUNED: usize = 64;

impl Streams {
    /// None yet; `own` is what this agent connects as.
    pub fn new(own: AgentStart) -> Self {
        Streams {
            own,
            addresses: Mutex::default(),
            state: Mutex::default(),
            idle: Idle::default(),
            config: OnceLock::new(),
        }
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

    /// Takes in a stream from a peer: whoever waits for it gets it.
    pub fn deposit(&self, generation: Generation, purpose: Purpose, incoming: Incoming) {
        let mut state = self.state.lock();
        if Some(generation) < state.generation {
            return;
        }
        if let Some(socket) = incoming.socket() {
            state.note_open(Open { generation, order: order_of(&purpose), socket });
        }
        let key = (generation, purpose);
        match state.claims.remove(&key) {
            // Whoever gave up in this moment finds it there.
            Some(claim) => drop(claim.send(Ok(incoming))),
            None => drop(state.waiting.insert(key, incoming)),
        }
    }

    /// Waits for the stream of this purpose. Blocks.
    pub fn claim(
        &self,
        generation: Generation,
        purpose: &Purpose,
        patience: Duration,
    ) -> Result<Incoming, StreamError> {
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
        arrival.recv_timeout(patience).unwrap_or_else(|_| {
            self.state.lock().claims.remove(&key);
            let nobody = StreamError::NobodyCame { what: key.1, seconds: patience.as_secs() };
            arrival.try_recv().unwrap_or(Err(nobody))
        })
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
        state.note_open(Open { generation, order, socket });
        Ok(())
    }

    /// Everything before `generation` is over: its streams are cut, and the threads on them see an error.
    pub fn fence(&self, generation: Generation) {
        let mut state = self.state.lock();
        state.generation = state.generation.max(Some(generation));
        state.waiting.retain(|(of, _), _| *of >= generation);
        cut(&mut state.open, |open| open.generation < generation);
        state.refuse(|(of, _)| *of < generation, |(of, _)| StreamError::Over(*of));
        drop(state);
        self.idle.fence(generation);
    }

    /// The order was given up: its streams are cut, and nobody waits for it any more.
    pub fn cancel(&self, order: u64) {
        let mut state = self.state.lock();
        if state.cancelled.len() == CANCELLED {
            state.cancelled.pop_front();
        }
        state.cancelled.push_back(order);
        cut(&mut state.open, |open| open.order == Some(order));
        state.refuse(|(_, purpose)| order_of(purpose) == Some(order), |_| StreamError::Cancelled);
    }

    /// A transfer on this socket ended well: nothing is left to cut.
    pub fn settled(&self, order: u64) {
        self.state.lock().open.retain(|open| open.order != Some(order));
    }
}

impl State {
    fn note_open(&mut self, open: Open) {
        // What both sides have closed is forgotten now and then, so that the list stays about as long as what is open.
        if self.open.len() >= self.prune_at {
            self.open.retain(|open| open.socket.peer_addr().is_ok());
            self.prune_at = (self.open.len() * 2).max(LEAST_PRUNED);
        }
        self.open.push(open);
    }

    /// Ends the waiting for certain streams.
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
