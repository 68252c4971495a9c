//! The redundancy descriptor: where a checkpoint lies, how often, and what protects it (`SCR manual §7`, `FORMATS.md` §4).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::kvtree::Tree;
use holdfast_model::CheckpointId;

/// What protects the files of a rank against the loss of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Nothing: the files exist once.
    Local,
    /// A full copy on the node of the right neighbour.
    Partner,
    /// One XOR chunk a member; any one lost member of the set can be computed again.
    Xor,
}

impl Scheme {
    /// The word that stands in files and parameters.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Local => "LOCAL",
            Scheme::Partner => "PARTNER",
            Scheme::Xor => "XOR",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scheme {
    type Err = DescriptorError;

    /// Any case is accepted, as in the original's parameters.
    fn from_str(text: &str) -> Result<Self, DescriptorError> {
        [Scheme::Local, Scheme::Partner, Scheme::Xor]
            .into_iter()
            .find(|scheme| scheme.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| DescriptorError::UnknownType { found: text.to_owned() })
    }
}

/// Why a tree is not a redundancy descriptor.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DescriptorError {
    /// TYPE names a scheme that we do not have.
    #[error(
        "redundancy descriptor of unknown TYPE `{found}` (known are LOCAL, PARTNER and XOR); the checkpoint was written by another version"
    )]
    UnknownType {
        /// What TYPE says.
        found: String,
    },
    /// A key that every descriptor has is not there.
    #[error("redundancy descriptor without {key}; drop this checkpoint, or restore the file map from a copy")]
    Missing {
        /// The absent key.
        key: &'static str,
    },
    /// A key's value is not a number in range.
    #[error(
        "redundancy descriptor with {key} `{found}`, which is not a valid number; drop this checkpoint, or restore the file map from a copy"
    )]
    Invalid {
        /// The key.
        key: &'static str,
        /// Its value.
        found: String,
    },
}

/// A redundancy descriptor as one rank stores it: the rule, and the rank's own place in its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// False when the descriptor could not be set up; it is then never selected.
    pub enabled: bool,
    /// Its number, which is also in the directory name `index.N`.
    pub index: u32,
    /// Checkpoints whose id this divides may use it.
    pub interval: u64,
    /// Base directory of the cache.
    pub base: String,
    /// Directory for the checkpoints of this descriptor, as the node sees it.
    pub directory: String,
    /// The scheme.
    pub scheme: Scheme,
    /// Number of groups of the whole run.
    pub groups: u32,
    /// World rank of the group's first member.
    pub group_id: u32,
    /// Number of members of the own group.
    pub group_size: u32,
    /// The own place in the group, from 0.
    pub group_rank: u32,
    /// Distance between neighbours in the list of nodes.
    pub hop_distance: u32,
    /// Largest number of members that was asked for.
    pub set_size: u32,
}

impl Descriptor {
    /// The tree in the order in which the owner writes it into its file map.
    pub fn to_tree(&self) -> Tree {
        let mut tree = Tree::new();
        // Last written stands in front.
        tree.put("SET_SIZE", self.set_size);
        tree.put("HOP_DISTANCE", self.hop_distance);
        tree.put("GROUP_RANK", self.group_rank);
        tree.put("GROUP_SIZE", self.group_size);
        tree.put("GROUP_ID", self.group_id);
        tree.put("GROUPS", self.groups);
        tree.put("TYPE", self.scheme);
        tree.put("DIRECTORY", &self.directory);
        tree.put("BASE", &self.base);
        tree.put("INTERVAL", self.interval);
        tree.put("INDEX", self.index);
        tree.put("ENABLED", u8::from(self.enabled));
        tree
    }

    /// The tree as the right neighbour stores it: it arrived as a message, and so in reverse order.
    pub fn to_neighbour_tree(&self) -> Tree {
        let mut tree = Tree::new();
        tree.merge(&self.to_tree());
        tree
    }

    /// Reads a descriptor, in any order of its elements.
    pub fn from_tree(tree: &Tree) -> Result<Descriptor, DescriptorError> {
        let text = |key: &'static str| tree.value(key).ok_or(DescriptorError::Missing { key });
        let scheme = text("TYPE")?.parse()?;
        let descriptor = Descriptor {
            enabled: number::<u32>(tree, "ENABLED", Some(1))? != 0,
            index: number(tree, "INDEX", None)?,
            interval: number(tree, "INTERVAL", Some(1))?,
            base: text("BASE")?.to_owned(),
            directory: text("DIRECTORY")?.to_owned(),
            scheme,
            groups: number(tree, "GROUPS", None)?,
            group_id: number(tree, "GROUP_ID", None)?,
            group_size: number(tree, "GROUP_SIZE", None)?,
            group_rank: number(tree, "GROUP_RANK", None)?,
            hop_distance: number(tree, "HOP_DISTANCE", Some(1))?,
            set_size: number(tree, "SET_SIZE", Some(8))?,
        };
        if descriptor.group_rank >= descriptor.group_size {
            return Err(DescriptorError::Invalid { key: "GROUP_RANK", found: descriptor.group_rank.to_string() });
        }
        Ok(descriptor)
    }
}

fn number<T: FromStr>(tree: &Tree, key: &'static str, default: Option<T>) -> Result<T, DescriptorError> {
    match tree.value(key) {
        Some(found) => found.parse().map_err(|_| DescriptorError::Invalid { key, found: found.to_owned() }),
        None => default.ok_or(DescriptorError::Missing { key }),
    }
}

/// The descriptor for a checkpoint: of the enabled ones whose interval divides the id, the one with the largest
/// interval; of equals, the first (`FORMATS.md` §5.7).
pub fn select(id: CheckpointId, descriptors: &[Descriptor]) -> Option<&Descriptor> {
    let mut best: Option<&Descriptor> = None;
    for candidate in descriptors.iter().filter(|d| d.enabled && d.interval > 0 && id.0.is_multiple_of(d.interval)) {
        if best.is_none_or(|chosen| candidate.interval > chosen.interval) {
            best = Some(candidate);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(index: u32, interval: u64) -> Descriptor {
        Descriptor {
            enabled: true,
            index,
            interval,
            base: "/tmp".into(),
            directory: format!("/tmp/user1/scr.1/index.{index}"),
            scheme: Scheme::Xor,
            groups: 2,
            group_id: 4,
            group_size: 4,
            group_rank: 1,
            hop_distance: 1,
            set_size: 8,
        }
    }

    #[test]
    fn the_largest_interval_that_divides_the_id_is_selected() {
        let mut all = [descriptor(0, 1), descriptor(1, 2), descriptor(2, 4)];
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
        let mut tree = descriptor(0, 1).to_tree();
        tree.put("TYPE", "FILE");
        let error = Descriptor::from_tree(&tree).unwrap_err();
        assert!(error.to_string().contains("`FILE`"), "{error}");
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (key, value) in [("GROUPS", "-1"), ("SET_SIZE", "99999999999"), ("GROUP_RANK", "4"), ("INTERVAL", "x")] {
            let mut tree = descriptor(0, 1).to_tree();
            tree.put(key, value);
            assert!(Descriptor::from_tree(&tree).is_err(), "{key} {value}");
        }
    }

    #[test]
    fn both_orders_read_back_as_the_same_descriptor() {
        let written = descriptor(3, 7);
        assert_eq!(Descriptor::from_tree(&written.to_tree()), Ok(written.clone()));
        assert_eq!(Descriptor::from_tree(&written.to_neighbour_tree()), Ok(written));
    }
}
