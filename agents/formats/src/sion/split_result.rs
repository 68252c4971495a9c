//! What was written when a container was split, or its files unpacked.

use super::anomaly::Warning;
use super::fault::Fault;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitFile {
    /// Its name in the destination.
    pub name: String,
    /// The task's index in the container.
    pub task: usize,
    /// The key, in a key-value container.
    pub key: Option<u64>,
    /// Its size in bytes.
    pub bytes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    /// The written files, by task, then in the order of the keys.
    pub files: Vec<SplitFile>,
    /// Anomalies of the container, and assumptions of the recovery.
    pub warnings: Vec<Warning>,
    /// Tasks with damaged records: left out, or truncated at the damage with `recover`. Of a dataset: the ranks of
    /// which files are left out.
    pub damaged: Vec<(usize, Fault)>,
}
