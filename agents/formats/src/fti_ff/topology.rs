//! The groups of ranks, as FTI derives them from `node_size`, `group_size` and `head` of its configuration.

use holdfast_core::galois::rows::MAX_MEMBERS;

/// The part of FTI's configuration that determines the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    /// Number of processes, including heads.
    pub ranks: u32,
    /// Processes on each node.
    pub node_size: u32,
    /// Nodes in each group.
    pub group_size: u32,
    /// True if the first process of each node is a head, which writes no checkpoint.
    pub head: bool,
}

impl Topology {
    /// The ranks that write checkpoints.
    pub fn checkpointing(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.ranks).filter(|rank| self.group_of(*rank).is_some())
    }

    /// The group of a rank, in order: the ranks at the same position of their nodes, over the nodes of the sector.
    /// `None` for a head, and for a rank or group outside of the topology.
    pub fn group_of(&self, rank: u32) -> Option<Vec<u32>> {
        let place = rank.checked_rem(self.node_size)?;
        let sector = (rank / self.node_size).checked_div(self.group_size)?;
        if rank >= self.ranks || (self.head && place == 0) || self.group_size as usize > MAX_MEMBERS {
            return None;
        }
        (0..self.group_size)
            .map(|member| {
                let node = sector.checked_mul(self.group_size)?.checked_add(member)?;
                node.checked_mul(self.node_size)?.checked_add(place).filter(|rank| *rank < self.ranks)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_span_nodes_and_exclude_heads() {
        let two = Topology { ranks: 8, node_size: 2, group_size: 4, head: false };
        assert_eq!(two.group_of(3), Some(vec![1, 3, 5, 7]));
        assert_eq!(two.checkpointing().count(), 8);
        let head = Topology { head: true, ..two };
        assert_eq!((head.group_of(2), head.group_of(5)), (None, Some(vec![1, 3, 5, 7])));
        let sectors = Topology { ranks: 4, node_size: 1, group_size: 2, head: false };
        assert_eq!(sectors.group_of(3), Some(vec![2, 3]));
        for bad in
            [Topology { node_size: 0, ..two }, Topology { group_size: 0, ..two }, Topology { group_size: 5, ..two }]
        {
            assert_eq!(bad.group_of(1), None);
        }
    }
}
