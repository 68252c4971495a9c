//! Redundancy descriptors and inventories between the shared types and what this module decides on.

use holdfast_model::inventory as model;
use holdfast_model::{self as shared, NodeName, RankDescriptor};

use super::descriptor::DescriptorError;
use super::inventory::{Holding, Inventory};
use super::{Descriptor, Scheme};
use crate::kvtree::Tree;

/// As it travels.
pub fn to_model(descriptor: &Descriptor) -> RankDescriptor {
    RankDescriptor {
        descriptor: shared::Descriptor {
            index: descriptor.index,
            enabled: descriptor.enabled,
            interval: descriptor.interval,
            base: descriptor.base.clone(),
            scheme: scheme(descriptor.scheme),
            hop_distance: descriptor.hop_distance,
            set_size: descriptor.set_size,
        },
        directory: descriptor.directory.clone(),
        groups: descriptor.groups,
        group_id: descriptor.group_id,
        group_size: descriptor.group_size,
        group_rank: descriptor.group_rank,
    }
}

/// The scheme's name.
pub fn scheme(scheme: Scheme) -> shared::Scheme {
    match scheme {
        Scheme::Local => shared::Scheme::new("LOCAL"),
        Scheme::Partner => shared::Scheme::new("PARTNER"),
        Scheme::Xor => shared::Scheme::new("XOR"),
    }
}

/// As it lies in a filemap, parsed.
pub fn from_model(rank: &RankDescriptor) -> Result<Descriptor, DescriptorError> {
    let asked = &rank.descriptor;
    Ok(Descriptor {
        enabled: asked.enabled,
        index: asked.index,
        interval: asked.interval,
        base: asked.base.clone(),
        directory: rank.directory.clone(),
        scheme: asked.scheme.as_str().parse()?,
        groups: rank.groups,
        group_id: rank.group_id,
        group_size: rank.group_size,
        group_rank: rank.group_rank,
        hop_distance: asked.hop_distance,
        set_size: asked.set_size,
    })
}

/// As it is written for its owner.
pub fn to_tree(rank: &RankDescriptor) -> Result<Tree, DescriptorError> {
    Ok(from_model(rank)?.to_tree())
}

/// As it lies in a filemap.
pub fn from_tree(tree: &Tree) -> Result<RankDescriptor, DescriptorError> {
    Descriptor::from_tree(tree).map(|descriptor| to_model(&descriptor))
}

/// What a node says that it holds, as the restart plan takes it. `node` is the node's index in the plan of the run.
pub fn inventory(held: &model::Inventory, node: u32, name: &NodeName) -> Inventory {
    let holdings = held.holdings.iter().map(|holding| Holding {
        checkpoint: holding.checkpoint,
        rank: holding.rank,
        complete: holding.complete,
        files: u32::try_from(holding.files.len()).unwrap_or(u32::MAX),
        expected: holding.expected,
        ranks: holding.ranks,
        copy_of: holding.partner_of.clone(),
        descriptor: holding.descriptor.as_ref().and_then(|descriptor| from_model(descriptor).ok()),
    });
    Inventory { node, name: name.clone(), healthy: true, holdings: holdings.collect() }
}
