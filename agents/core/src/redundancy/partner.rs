//! The PARTNER scheme: a rank's files are copied to the node of its right neighbour (`SCR manual §7.2`, §11.8.1).

use super::groups::{Groups, Site};
use holdfast_model::Rank;

/// One rank's copy: made by its own node, kept on its right neighbour's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Copy {
    /// Whose files.
    pub rank: Rank,
    /// Index of the node where the rank runs.
    pub from_node: u32,
    /// The rank that takes the files over: it also stores the owner's descriptor and the name of the owner's node.
    pub holder: Rank,
    /// Index of the node where that rank runs.
    pub to_node: u32,
}

/// All copies that the groups ask for, by rank. `sites` are those that the groups were formed from.
pub fn copies(groups: &Groups, sites: &[Site]) -> Vec<Copy> {
    let mut copies = Vec::with_capacity(sites.len());
    for (rank, site) in (0u32..).map(Rank).zip(sites) {
        let Some(place) = groups.of(rank) else { continue };
        let Some(holder) = sites.get(place.right.index()) else { continue };
        if place.right != rank {
            copies.push(Copy { rank, from_node: site.node, holder: place.right, to_node: holder.node });
        }
    }
    copies
}

#[cfg(test)]
mod tests {
    use super::super::descriptor::Scheme;
    use super::super::groups::{Rules, form};
    use super::*;

    #[test]
    fn files_go_to_the_node_of_the_rank_one_hop_to_the_right() {
        let sites: Vec<Site> = (0..4).map(Site::on_node).collect();
        let groups = form(&sites, Rules { scheme: Scheme::Partner, hop_distance: 2, set_size: 8 }).unwrap();
        let to: Vec<u32> = copies(&groups, &sites).iter().map(|copy| copy.to_node).collect();
        assert_eq!(to, [2, 3, 0, 1]);
    }

    #[test]
    fn local_groups_ask_for_no_copies() {
        let sites = [Site::on_node(0); 3];
        let groups = form(&sites, Rules { scheme: Scheme::Partner, hop_distance: 1, set_size: 8 }).unwrap();
        assert_eq!(copies(&groups, &sites), []);
    }
}
