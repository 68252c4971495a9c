//! Connections to peers that have served a step of a group and are kept for the next one.
//!
//! A checkpoint of a thousand ranks needs a thousand short links between members: to connect and to agree on keys would
//! cost more than the data. So both ends keep a link that ended without error, and a hello on it begins the next one.
//! It belongs to one generation, and is closed with it.

use std::collections::HashMap;

use holdfast_model::{Generation, NodeName};
use parking_lot::Mutex;

use super::bulk::OutgoingStream;

/// The most connections that are kept: what the ranks of a large node need at a time.
const MAXIMUM: usize = 256;

#[derive(Debug, Default)]
pub(super) struct IdleConnections {
    kept: Mutex<KeptConnections>,
}

#[derive(Debug, Default)]
struct KeptConnections {
    generation: Option<Generation>,
    by_node: HashMap<NodeName, Vec<OutgoingStream>>,
    count: usize,
}

impl IdleConnections {
    /// Keeps a connection of this generation, unless there are enough.
    pub(super) fn keep(&self, generation: Generation, stream: OutgoingStream) {
        let mut kept = self.kept.lock();
        kept.fence(generation);
        if kept.generation == Some(generation) && kept.count < MAXIMUM {
            kept.by_node.entry(stream.node.clone()).or_default().push(stream);
            kept.count += 1;
        }
    }

    pub(super) fn take(&self, generation: Generation, node: &NodeName) -> Option<OutgoingStream> {
        let mut kept = self.kept.lock();
        kept.fence(generation);
        if kept.generation != Some(generation) {
            return None;
        }
        let stream = kept.by_node.get_mut(node)?.pop()?;
        kept.count -= 1;
        Some(stream)
    }

    pub(super) fn fence(&self, generation: Generation) {
        self.kept.lock().fence(generation);
    }
}

impl KeptConnections {
    fn fence(&mut self, generation: Generation) {
        if Some(generation) > self.generation {
            *self = KeptConnections { generation: Some(generation), ..KeptConnections::default() };
        }
    }
}
