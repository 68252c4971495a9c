//! Redundancy descriptors as hash trees in SCR's file maps (`SCR manual §7`, `docs/scr-files.md` §4), and which one a
//! checkpoint uses.

use std::str::FromStr;

use holdfast_model::{CheckpointId, Descriptor, RankDescriptor};
use thiserror::Error;

use super::numbers::SchemeNumber;
use super::registry;
use crate::kvtree::Tree;

/// Why a tree is not a redundancy descriptor.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DescriptorError {
    /// TYPE names a scheme that is not registered.
    #[error(
        "redundancy descriptor of unknown TYPE `{found}` (known are {known}); the checkpoint was written by another \
         version"
    )]
    UnknownType {
        /// The value of TYPE.
        found: String,
        known: String,
    },
    /// A key that every descriptor has is not there.
    #[error("redundancy descriptor without {key}; drop this checkpoint, or restore the file map from a copy")]
    Missing { key: &'static str },
    /// A key's value is not a number in range.
    #[error(
        "redundancy descriptor with {key} `{found}`, which is not a valid number; drop this checkpoint, or restore \
         the file map from a copy"
    )]
    Invalid { key: &'static str, found: String },
}

/// The tree in the order in which the owner writes it into its file map.
pub fn to_tree(of: &RankDescriptor) -> Tree {
    let asked = &of.descriptor;
    let mut tree = Tree::new();
    // The element that is written last is the first.
    for number in registry::numbers_of(asked.scheme) {
        tree.put(number.name.as_str(), number.of(&asked.numbers));
    }
    tree.put("GROUP_RANK", of.group_rank);
    tree.put("GROUP_SIZE", of.group_size);
    tree.put("GROUP_ID", of.group_id);
    tree.put("GROUPS", of.groups);
    tree.put("TYPE", asked.scheme);
    tree.put("DIRECTORY", &of.directory);
    tree.put("BASE", &asked.base);
    tree.put("INTERVAL", asked.interval);
    tree.put("INDEX", asked.index);
    tree.put("ENABLED", u8::from(asked.enabled));
    tree
}

/// The tree as the right neighbour stores it: it arrived as a message, and so in reverse order.
pub fn to_neighbour_tree(of: &RankDescriptor) -> Tree {
    let mut tree = Tree::new();
    tree.merge(&to_tree(of));
    tree
}

/// Reads a descriptor, in any order of its elements.
///
/// # Errors
/// The key that is missing or has an impossible value, or a scheme that is not registered.
pub fn from_tree(tree: &Tree) -> Result<RankDescriptor, DescriptorError> {
    let text = |key: &'static str| tree.value(key).ok_or(DescriptorError::Missing { key });
    let found = text("TYPE")?;
    let scheme = registry::named(found)
        .ok_or_else(|| DescriptorError::UnknownType { found: found.to_owned(), known: registry::names() })?;
    let in_tree = |declared: &'static SchemeNumber| {
        Ok::<_, DescriptorError>((declared.name, number(tree, declared.name.as_str(), Some(declared.default))?))
    };
    let descriptor = RankDescriptor {
        descriptor: Descriptor {
            enabled: number::<u32>(tree, "ENABLED", Some(1))? != 0,
            index: number(tree, "INDEX", None)?,
            interval: number(tree, "INTERVAL", Some(1))?,
            base: text("BASE")?.to_owned(),
            scheme,
            numbers: registry::numbers_of(scheme).into_iter().map(in_tree).collect::<Result<_, _>>()?,
        },
        directory: text("DIRECTORY")?.to_owned(),
        groups: number(tree, "GROUPS", None)?,
        group_id: number(tree, "GROUP_ID", None)?,
        group_size: number(tree, "GROUP_SIZE", None)?,
        group_rank: number(tree, "GROUP_RANK", None)?,
    };
    if descriptor.group_rank >= descriptor.group_size {
        return Err(DescriptorError::Invalid { key: "GROUP_RANK", found: descriptor.group_rank.to_string() });
    }
    Ok(descriptor)
}

fn number<T: FromStr>(tree: &Tree, key: &'static str, default: Option<T>) -> Result<T, DescriptorError> {
    match tree.value(key) {
        Some(found) => found.parse().map_err(|_| DescriptorError::Invalid { key, found: found.to_owned() }),
        None => default.ok_or(DescriptorError::Missing { key }),
    }
}

/// The descriptor for a checkpoint: of the enabled ones whose interval divides the id, the one with the largest
/// interval; of equals, the first (`docs/scr-files.md` §5.7).
pub fn select(id: CheckpointId, descriptors: &[Descriptor]) -> Option<&Descriptor> {
    let mut best: Option<&Descriptor> = None;
    for candidate in descriptors.iter().filter(|d| d.enabled && d.interval > 0 && id.0.is_multiple_of(d.interval)) {
        if best.is_none_or(|chosen| candidate.interval > chosen.interval) {
            best = Some(candidate);
        }
    }
    best
}

/// True if checkpoints are protected in several ways: each enabled descriptor is a level.
pub fn has_levels(descriptors: &[Descriptor]) -> bool {
    descriptors.iter().filter(|descriptor| descriptor.enabled).nth(1).is_some()
}

/// The number of the descriptor for a checkpoint, if there are several levels.
pub fn level(id: CheckpointId, descriptors: &[Descriptor]) -> Option<u32> {
    select(id, descriptors).filter(|_| has_levels(descriptors)).map(|descriptor| descriptor.index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::xor;

    fn requested(index: u32, interval: u64) -> Descriptor {
        let numbers = registry::numbers_of(xor::NAME).iter().map(|number| (number.name, number.default)).collect();
        Descriptor { interval, numbers, ..Descriptor::new(index, xor::NAME, "/tmp") }
    }

    fn of_rank() -> RankDescriptor {
        RankDescriptor {
            groups: 2,
            group_id: 4,
            group_size: 4,
            group_rank: 1,
            ..RankDescriptor::unplaced(requested(3, 7), "/tmp/user1/scr.1/index.3")
        }
    }

    #[test]
    fn the_largest_interval_that_divides_the_id_is_selected() {
        let mut all = [requested(0, 1), requested(1, 2), requested(2, 4)];
        let chosen = |id, all: &[Descriptor]| select(CheckpointId(id), all).map(|d| d.index);
        assert_eq!(chosen(5, &all), Some(0));
        assert_eq!(chosen(6, &all), Some(1));
        assert_eq!(chosen(8, &all), Some(2));
        all[2].enabled = false;
        assert_eq!(chosen(8, &all), Some(1));
        assert_eq!(chosen(3, &all[1..]), None);
    }

    #[test]
    fn an_unknown_type_is_an_error_that_names_it() {
        let mut tree = to_tree(&of_rank());
        tree.put("TYPE", "FILE");
        let error = from_tree(&tree).unwrap_err();
        assert!(error.to_string().contains("`FILE`"), "{error}");
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (key, value) in [("GROUPS", "-1"), ("SET_SIZE", "99999999999"), ("GROUP_RANK", "4"), ("INTERVAL", "x")] {
            let mut tree = to_tree(&of_rank());
            tree.put(key, value);
            assert!(from_tree(&tree).is_err(), "{key} {value}");
        }
    }

    #[test]
    fn both_orders_read_back_as_the_same_descriptor() {
        let written = of_rank();
        assert_eq!(from_tree(&to_tree(&written)), Ok(written.clone()));
        assert_eq!(from_tree(&to_neighbour_tree(&written)), Ok(written));
    }
}
