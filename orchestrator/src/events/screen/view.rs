//! What the live view shows.

use holdfast_model::{CheckpointId, Generation};

/// The contents of the live view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub phase: String,
    pub generation: Option<Generation>,
    /// Nodes with ranks.
    pub used: usize,
    /// Healthy nodes without ranks.
    pub spare: usize,
    /// Nodes without ranks that the user excluded.
    pub excluded: usize,
    /// Nodes that are down.
    pub down: usize,
    /// The newest complete checkpoint, and whether it survives the loss of a node.
    pub newest: Option<(CheckpointId, bool)>,
    /// In a job with pairs of main and replica, instead of generation and checkpoint.
    pub pairs: Option<PairsView>,
}

/// The pairs of main and replica in the live view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairsView {
    /// Pairs whose main is awake.
    pub mains: usize,
    /// Pairs whose replica is awake.
    pub replicas: usize,
    /// Pairs without a copy that is awake, other than those that are finished.
    pub asleep: usize,
    pub finished: usize,
    pub fail_overs: u64,
    /// Periods without a heartbeat.
    pub missed: u64,
}
