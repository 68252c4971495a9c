//! The settings of a resource manager: the values of the keys that its own folder declares, and what the rest of a spec
//! depends on.

use std::any::Any;
use std::fmt::Debug;
use std::path::Path;

use holdfast_model::NodeName;

/// The values of the keys of `allocation:` that one manager declares.
pub trait ManagerSettings: Any + Debug + Send + Sync {
    /// The machines that the keys list: they are the nodes of the allocation.
    fn hosts(&self) -> Vec<NodeName> {
        Vec::new()
    }

    /// The path of `holdfast` on the nodes; `None` = the same as here.
    fn program(&self) -> Option<&Path> {
        None
    }

    /// What is wrong in an allocation with so many nodes: the path of the key in `allocation:`, message and help.
    fn mistakes(&self, _nodes: u32) -> Vec<(String, String, String)> {
        Vec::new()
    }
}

/// Of a manager without keys of its own.
impl ManagerSettings for () {}
