//! Redundancy descriptors and inventories, between messages and what the core library decides on.

use crate::NodeName;
use crate::agent::{self, DescriptorFields};
use holdfast_core::kvtree::Tree;
use holdfast_core::redundancy::Descriptor;
use holdfast_core::redundancy::descriptor::DescriptorError;
use holdfast_core::redundancy::inventory::{Holding, Inventory};

/// As it travels.
pub fn to_wire(descriptor: &Descriptor) -> DescriptorFields {
    DescriptorFields {
        scheme: descriptor.scheme.to_string(),
        index: descriptor.index,
        interval: descriptor.interval,
        base: descriptor.base.clone(),
        directory: descriptor.directory.clone(),
        groups: descriptor.groups,
        group_id: descriptor.group_id,
        group_size: descriptor.group_size,
        group_rank: descriptor.group_rank,
        hop_distance: descriptor.hop_distance,
        set_size: descriptor.set_size,
        enabled: descriptor.enabled,
    }
}

/// As it lies in a filemap, parsed.
pub fn from_wire(fields: &DescriptorFields) -> Result<Descriptor, DescriptorError> {
    Ok(Descriptor {
        enabled: fields.enabled,
        index: fields.index,
        interval: fields.interval,
        base: fields.base.clone(),
        directory: fields.directory.clone(),
        scheme: fields.scheme.parse()?,
        groups: fields.groups,
        group_id: fields.group_id,
        group_size: fields.group_size,
        group_rank: fields.group_rank,
        hop_distance: fields.hop_distance,
        set_size: fields.set_size,
    })
}

/// As it is written for its owner.
pub fn to_tree(fields: &DescriptorFields) -> Result<Tree, DescriptorError> {
    Ok(from_wire(fields)?.to_tree())
}

/// As it lies in a filemap.
pub fn from_tree(tree: &Tree) -> Result<Descriptor, DescriptorError> {
    Descriptor::from_tree(tree)
}

/// What a node says that it holds, as the restart plan takes it. `node` is the node's index in the plan of the run.
pub fn inventory(held: &agent::Inventory, node: u32, name: &NodeName) -> Inventory {
    let holdings = held.holdings.iter().map(|holding| Holding {
        checkpoint: holding.checkpoint,
        rank: holding.rank,
        complete: holding.complete,
        files: u32::try_from(holding.files.len()).unwrap_or(u32::MAX),
        expected: holding.expected,
        ranks: Some(holding.ranks).filter(|ranks| *ranks > 0),
        copy_of: holding.partner_of.clone(),
        descriptor: holding.descriptor.as_ref().and_then(|fields| from_wire(fields).ok()),
    });
    Inventory { node, name: name.clone(), healthy: true, holdings: holdings.collect() }
}
