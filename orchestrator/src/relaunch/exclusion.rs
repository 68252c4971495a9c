//! The exclusion of a node by the user.

use serde::{Deserialize, Serialize};

/// The exclusion of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exclusion {
    pub reason: String,
    /// Ranks on the node are ended now, and relaunched without it.
    #[serde(default)]
    pub now: bool,
}
