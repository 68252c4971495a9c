//! What the options of every mpirun depend on.

use std::collections::BTreeMap;

use holdfast_model::{NodeName, Rank};

/// The start parameters that the options of a dialect need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start<'a> {
    pub homes: &'a BTreeMap<Rank, NodeName>,
    pub host_file: &'a str,
    /// The path of the remote shell.
    pub shell: &'a str,
    /// Names of the variables to pass to the ranks.
    pub variables: &'a [String],
}
