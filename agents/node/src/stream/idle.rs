//! Connections to peers that have served a group's step and wait for the next one.
//!
//! A checkpoint of a thousand ranks needs a thousand links between members, each for a moment: to connect and to agree on
//! keys would cost more than all that is sent. So a link that ended well is kept by both ends, and a hello on it
//! begins the next one. It is of one generation, and cut when that is over.

use std::collections::HashMap;

use holdfast_model::{Generation, NodeName};
use parking_lot::Mutex;

use super::bulk::Outgoing;

/// Kept connections of one node, at most: what the ranks of a large node need at a time.
const MOST: usize = 256;

/// The connections that are kept, by peer.
#[derive(Debug, Default)]
pub(super) struct Idle {
    state: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    generation: Option<Generation>,
    by_node: HashMap<NodeName, Vec<Outgoing>>,
    count: usize,
}

impl Idle {
    /// Keeps a connection of this generation, unless there are enough.
    pub(super) fn keep(&self, generation: Generation, stream: Outgoing) {
        let mut kept = self.state.lock();
        kept.fence(generation);
        if kept.generation == Some(generation) && kept.count < MOST {
            kept.by_node.entry(stream.node.clone()).or_default().push(stream);
            kept.count += 1;
        }
    }

    /// A connection to this node.
    pub(super) fn take(&self, generation: Generation, node: &NodeName) -> Option<Outgoing> {
        let mut kept = self.state.lock();
        kept.fence(generation);
        if kept.generation != Some(generation) {
            return None;
        }
        let stream = kept.by_node.get_mut(node)?.pop()?;
        kept.count -= 1;
        Some(stream)
    }

    /// Everything before `generation` is over.
    pub(super) fn fence(&self, generation: Generation) {
        self.state.lock().fence(generation);
    }
}

impl Kept {
    fn fence(&mut self, generation: Generation) {
        if Some(generation) > self.generation {
            *self = Kept { generation: Some(generation), ..Kept::default() };
        }
    }
}
