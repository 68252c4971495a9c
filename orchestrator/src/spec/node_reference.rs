//! A node of the allocation as a spec names it.

use std::fmt;

use holdfast_model::NodeName;

/// A node of the allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeReference {
    /// Its position in the allocation, from 0.
    Position(u32),
    Name(NodeName),
}

impl NodeReference {
    pub(super) fn of(text: &str) -> Self {
        text.parse().map_or_else(|_| NodeReference::Name(NodeName::new(text)), NodeReference::Position)
    }

    /// Its name among the nodes of an allocation; `None` if it is not one of them.
    pub fn find<'a>(&self, nodes: &'a [NodeName]) -> Option<&'a NodeName> {
        match self {
            NodeReference::Position(position) => nodes.get(*position as usize),
            NodeReference::Name(name) => nodes.iter().find(|node| *node == name),
        }
    }

    /// `node 1 of the allocation`, or its name.
    pub fn in_allocation(&self) -> String {
        match self {
            NodeReference::Position(position) => format!("node {position} of the allocation"),
            NodeReference::Name(name) => name.to_string(),
        }
    }
}

impl fmt::Display for NodeReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeReference::Position(position) => position.fmt(f),
            NodeReference::Name(name) => name.fmt(f),
        }
    }
}
