//! The wait for lost agents that may be restarted in time.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_model::NodeName;

/// The nodes that are waited for, all together for a limited time.
#[derive(Clone, Debug)]
pub(super) struct Awaited {
    nodes: BTreeSet<NodeName>,
    patience: Duration,
    /// The end of the wait, once it has begun.
    until: Option<Duration>,
    expired: bool,
}

impl Awaited {
    pub(super) fn new(patience: Duration) -> Self {
        Awaited { nodes: BTreeSet::new(), patience, until: None, expired: false }
    }

    pub(super) fn add(&mut self, node: NodeName) {
        self.nodes.insert(node);
    }

    /// A node is up again, or down. False if it was not waited for.
    pub(super) fn remove(&mut self, node: &NodeName) -> bool {
        self.nodes.remove(node)
    }

    /// Begins the wait, if it has not begun.
    pub(super) fn begin(&mut self, now: Duration) {
        self.until.get_or_insert(now.saturating_add(self.patience));
        self.pass(now);
    }

    /// Checks the time.
    pub(super) fn pass(&mut self, now: Duration) {
        self.expired |= self.until.is_some_and(|until| now >= until);
    }

    /// True if no node is waited for any more. A node that comes up later can still be [removed](Self::remove).
    pub(super) fn is_over(&self) -> bool {
        self.expired || self.nodes.is_empty()
    }

    /// When the wait ends; `None` if no node is waited for.
    pub(super) fn deadline(&self) -> Option<Duration> {
        if self.is_over() { None } else { self.until }
    }
}
