//! The PARTNER scheme: a rank's files are copied to the node of its right neighbour (`SCR manual §7.2`, §11.8.1).

use holdfast_model::{Level, RankDescriptor, Scheme};

use super::error::RedundancyError;
use super::groups::{
    DomainSizes, ForcedLocal, GroupRules, Groups, InconsistentDescriptors, NeighbourCopy, Ring, Site, by_domain,
    levels, or_by_nodes, spread,
};
use super::member::{GroupMember, MemberTask};
use super::scheme::RedundancyScheme;
use crate::workers;

pub const NAME: Scheme = Scheme::new("PARTNER");

#[derive(Debug)]
pub struct Partner;

/// A member's part in the copies of its ring.
enum Copy {
    To(u32),
    Of(u32),
}

impl RedundancyScheme for Partner {
    fn name(&self) -> Scheme {
        NAME
    }

    fn limit(&self) -> &'static str {
        "neither files nor partner copies are left"
    }

    fn levels(&self) -> &'static [Level] {
        &[Level::Partner]
    }

    fn form(&self, sites: &[Site], rules: GroupRules<'_>) -> Result<Groups, ForcedLocal> {
        let over = |sites: &[Site]| spread(NAME, sites, || rings(sites, rules), |sizes| vec![dealt_out(sites, sizes)]);
        or_by_nodes(NAME, sites, over)
    }

    /// Copies follow the ranks to their new nodes: the groups are those of the new placement.
    fn regroup(&self, sites: &[Site], descriptors: &mut [RankDescriptor]) -> Result<Groups, InconsistentDescriptors> {
        let Some(asked) = descriptors.first().map(|first| &first.descriptor) else {
            return Ok(Groups::alone(NAME, sites.len()));
        };
        match self.form(sites, GroupRules::of(asked)) {
            Ok(groups) => {
                groups.describe(descriptors);
                Ok(groups)
            }
            // One node holds everything now: there is nowhere to copy to, and the descriptors of the next checkpoint
            // are LOCAL.
            Err(_) => Ok(Groups::alone(NAME, sites.len())),
        }
    }

    fn copies(&self, groups: &Groups, sites: &[Site]) -> Vec<NeighbourCopy> {
        NeighbourCopy::of_groups(groups, sites)
    }

    fn is_between_neighbours(&self) -> bool {
        true
    }

    fn encode(&self, task: &MemberTask, node: &dyn GroupMember) -> Result<(), RedundancyError> {
        let sending = task.is_wanted(task.index).then_some(Copy::To(task.right));
        let keeping = task.is_wanted(task.left).then_some(Copy::Of(task.left));
        // At once: every member of the ring sends, and waits until its neighbour has kept what it sent.
        let copies: Vec<Copy> = keeping.into_iter().chain(sending).collect();
        let copy = |copy: &Copy| match *copy {
            Copy::To(member) => node.send_copy(member),
            Copy::Of(member) => node.keep_copy(member),
        };
        workers::map_at_once(&copies, copy, || ()).map_err(RedundancyError::Thread)?.into_iter().collect()
    }
}

/// Rings of one rank of each failure domain; `None` where a lone rank fits into none.
fn rings(sites: &[Site], rules: GroupRules<'_>) -> Option<Vec<Ring>> {
    let mut rings: Vec<Vec<usize>> = levels(sites);
    let lone: Vec<usize> = rings.iter().filter(|ring| ring.len() == 1).map(|ring| ring[0]).collect();
    rings.retain(|ring| ring.len() > 1);
    for rank in lone {
        let home = rings.iter_mut().find(|ring| ring.iter().all(|&other| sites[other].domain != sites[rank].domain))?;
        home.push(rank);
        home.sort_unstable();
    }
    Some(
        rings
            .into_iter()
            .map(|order| {
                // A hop of once around the ring would lead back to the rank itself; the original gives up there.
                let hop = (rules.hop_distance() as usize % order.len()).max(1);
                Ring { order, hop }
            })
            .collect(),
    )
}

/// One ring of all ranks, neighbours so far apart that no two of them are in one domain's stretch.
fn dealt_out(sites: &[Site], sizes: &DomainSizes) -> Ring {
    Ring { order: by_domain(sites), hop: sizes.values().copied().max().unwrap_or(1) }
}

#[cfg(test)]
mod tests {
    use holdfast_model::{Descriptor, SchemeNumbers};

    use super::*;
    use crate::redundancy::groups::NeighbourCopy;
    use crate::redundancy::numbers::HOP_DISTANCE;
    use crate::redundancy::registry::form;

    fn hop_distance(nodes: u32) -> SchemeNumbers {
        [(HOP_DISTANCE.name, nodes)].into_iter().collect()
    }

    #[test]
    fn files_go_to_the_node_of_the_rank_one_hop_to_the_right() {
        let sites: Vec<Site> = (0..4).map(Site::on_node).collect();
        let groups = form(&sites, GroupRules { scheme: NAME, numbers: &hop_distance(2) }).unwrap();
        let to: Vec<u32> = NeighbourCopy::of_groups(&groups, &sites).iter().map(|copy| copy.to_node).collect();
        assert_eq!(to, [2, 3, 0, 1]);
    }

    #[test]
    fn ranks_that_moved_to_nodes_of_one_rack_are_copied_to_other_nodes() {
        let asked = Descriptor { numbers: hop_distance(1), ..Descriptor::new(0, NAME, "/c") };
        let described = RankDescriptor::unplaced(asked, "/c/d");
        let sites: Vec<Site> = (0..4).map(|node| Site { node, domain: 0 }).collect();
        let groups = Partner.regroup(&sites, &mut [(); 4].map(|()| described.clone())).unwrap();
        assert_eq!(NeighbourCopy::of_groups(&groups, &sites).len(), 4);
        assert!(groups.shared.is_some());
    }

    #[test]
    fn local_groups_ask_for_no_copies() {
        let sites = [Site::on_node(0); 3];
        let groups = form(&sites, GroupRules { scheme: NAME, numbers: &hop_distance(1) }).unwrap();
        assert_eq!(NeighbourCopy::of_groups(&groups, &sites), []);
    }
}
