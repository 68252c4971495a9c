//! The leaf switches of nodes, as Slurm's topology plugins know them (`scontrol show topology`).

use std::collections::BTreeMap;

use holdfast_core::hostlist;
use holdfast_model::NodeName;

/// The leaf switch or block of each node. Lines of the tree plugin are `SwitchName=s1 Level=0 LinkSpeed=1
/// Nodes=n[1-3]`, those of the block plugin `BlockName=b1 BlockIndex=0 Nodes=n[1-3] BlockSize=3`.
pub(super) fn read(text: &str) -> BTreeMap<NodeName, String> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let fields: BTreeMap<&str, &str> = line.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        let is_leaf = fields.get("Level").is_none_or(|level| *level == "0");
        let name = fields.get("SwitchName").or_else(|| fields.get("BlockName"));
        let (Some(name), Some(nodes), true) = (name, fields.get("Nodes"), is_leaf) else { continue };
        for node in hostlist::expand(nodes).unwrap_or_default() {
            found.entry(node).or_insert_with(|| (*name).to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(String, String)> {
        read(text).into_iter().map(|(node, switch)| (node.to_string(), switch)).collect()
    }

    #[test]
    fn the_leaf_switch_of_each_node_is_read() {
        let tree = "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=s2 Level=0 LinkSpeed=1 Nodes=n3\n\
                    SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=s[1-2]\n";
        let expected = [("n1", "s1"), ("n2", "s1"), ("n3", "s2")];
        assert_eq!(of(tree), expected.map(|(node, switch)| (node.to_owned(), switch.to_owned())));
        // Slurm 26.05 adds nothing to lines of the tree.
        let recorded = "SwitchName=s3 Level=0 LinkSpeed=1 Nodes=n[5-6]\n\
                        SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-6] Switches=s[1-3]\n";
        assert_eq!(of(recorded), [("n5", "s3"), ("n6", "s3")].map(|(node, switch)| (node.into(), switch.into())));
        let block = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\n";
        assert_eq!(of(block).len(), 2);
        assert!(of("slurm_load_topo error\n\nSwitchName=s1 Level=0\n").is_empty());
    }
}
