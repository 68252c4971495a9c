//! Which step of a job has which nodes, where steps run side by side.
//!
//! A step gets the nodes that its run uses when it begins; all others stay with the job, and are lent to steps that
//! lose one. A step that runs alone, and beside which none can run, has all nodes: its spares are up before it needs
//! them. A step that has too few nodes waits for those of the others, unless all of them wait.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::NodeName;

use crate::relaunch::placement::first_placement;

/// The position of a step in the spec.
pub(super) type StepAt = usize;

/// What a step needs, and what can run beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// The nodes that its run uses.
    pub(super) nodes: u32,
    pub(super) ranks: u32,
    pub(super) ranks_per_node: u32,
    /// The nodes of the smallest step that may run beside it; `None`: none ever does.
    pub(super) beside: Option<u32>,
}

/// The answer to a step that asks for nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lent {
    pub(super) nodes: Vec<NodeName>,
    /// Other steps may give nodes back.
    pub(super) more_later: bool,
}

/// The nodes of the job and of its steps. Pure.
#[derive(Clone, Debug)]
pub(super) struct Lending {
    /// In the order of the allocation.
    nodes: Vec<NodeName>,
    /// The failure domain of each.
    domains: Vec<u32>,
    held: BTreeMap<NodeName, StepAt>,
    /// Nodes that a step found to be down, or whose agent did not end.
    lost: BTreeSet<NodeName>,
    running: BTreeSet<StepAt>,
    /// Steps that wait, and how many nodes each wants.
    waiting: BTreeMap<StepAt, u32>,
}

impl Lending {
    pub(super) fn new(nodes: &[NodeName], domains: Vec<u32>) -> Self {
        let (held, waiting) = (BTreeMap::new(), BTreeMap::new());
        Lending { nodes: nodes.to_owned(), domains, held, lost: BTreeSet::new(), running: BTreeSet::new(), waiting }
    }

    /// A step has these nodes already: an orchestrator that died, or an earlier run, lent them.
    pub(super) fn has<'a>(&mut self, step: StepAt, nodes: impl Iterator<Item = &'a NodeName>) {
        self.running.insert(step);
        self.held.extend(nodes.map(|node| (node.clone(), step)));
    }

    /// The nodes with which a step begins; `None` while there are too few. `unusable` gets none: the user excludes
    /// them, or the resource manager reports them as down.
    pub(super) fn begin(
        &mut self,
        step: StepAt,
        need: &Need,
        unusable: &BTreeSet<NodeName>,
    ) -> Option<BTreeSet<NodeName>> {
        let usable: Vec<bool> = self.nodes.iter().map(|node| self.is_free(node, unusable)).collect();
        let free = u32::try_from(usable.iter().filter(|usable| **usable).count()).unwrap_or(u32::MAX);
        let alone = self.running.is_empty();
        // Alone, it gets what there is: if that is not enough, it ends for that reason.
        if !alone && free < need.nodes {
            return None;
        }
        let takes_all = alone && need.beside.is_none_or(|beside| need.nodes.saturating_add(beside) > free);
        let (ranks, per_node, nodes) = (need.ranks, need.ranks_per_node, need.nodes.min(free));
        let placed = match takes_all {
            true => None,
            false => first_placement(ranks, per_node, nodes, &usable, &self.domains),
        };
        let lent: BTreeSet<NodeName> = match placed {
            Some(placed) => placed.into_iter().filter_map(|at| self.nodes.get(at as usize).cloned()).collect(),
            // Those that are excluded too: the user may include them again while it runs.
            None => self.nodes.iter().filter(|node| self.is_free(node, &BTreeSet::new())).cloned().collect(),
        };
        if lent.is_empty() {
            return None;
        }
        self.has(step, lent.iter());
        Some(lent)
    }

    fn is_free(&self, node: &NodeName, unusable: &BTreeSet<NodeName>) -> bool {
        !self.held.contains_key(node) && !self.lost.contains(node) && !unusable.contains(node)
    }

    /// A step asks for more nodes. One that `waits` is answered again when there are some.
    pub(super) fn borrow(&mut self, step: StepAt, wanted: u32, waits: bool, unusable: &BTreeSet<NodeName>) -> Lent {
        if !self.running.contains(&step) {
            return Lent::default();
        }
        let free = self.nodes.iter().filter(|node| self.is_free(node, unusable));
        let nodes: Vec<NodeName> = free.take(wanted as usize).cloned().collect();
        self.held.extend(nodes.iter().map(|node| (node.clone(), step)));
        let lent = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        // Requests may arrive in another order than they were made: one that waits stays, until it is met.
        let open = if waits { Some(wanted) } else { self.waiting.get(&step).copied() };
        match open.map(|wanted| wanted.saturating_sub(lent)) {
            Some(missing) if missing > 0 => drop(self.waiting.insert(step, missing)),
            Some(_) | None => drop(self.waiting.remove(&step)),
        }
        let more_later = self.running.iter().any(|other| *other != step && !self.waiting.contains_key(other));
        if waits && !more_later {
            self.waiting.remove(&step);
        }
        Lent { nodes, more_later }
    }

    /// A step has ended and gives back `free`; its other nodes are lost. Those of a step that `keeps` its files stay
    /// with it. Returns the answers to steps that wait.
    pub(super) fn end(
        &mut self,
        step: StepAt,
        free: &BTreeSet<NodeName>,
        keeps: bool,
        unusable: &BTreeSet<NodeName>,
    ) -> Vec<(StepAt, Lent)> {
        self.running.remove(&step);
        self.waiting.remove(&step);
        if !keeps {
            let held: Vec<NodeName> =
                self.held.extract_if(.., |_, holder| *holder == step).map(|(node, _)| node).collect();
            self.lost.extend(held.into_iter().filter(|node| !free.contains(node)));
        }
        let waiting: Vec<(StepAt, u32)> = self.waiting.iter().map(|(step, wanted)| (*step, *wanted)).collect();
        let answers = waiting.into_iter().map(|(step, wanted)| (step, self.borrow(step, wanted, true, unusable)));
        answers.filter(|(_, lent)| !lent.nodes.is_empty() || !lent.more_later).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lending(nodes: usize) -> Lending {
        let names: Vec<NodeName> = (0..nodes).map(name).collect();
        Lending::new(&names, (0..).take(nodes).collect())
    }

    fn name(number: usize) -> NodeName {
        NodeName::new(format!("node{number}"))
    }

    fn names(numbers: &[usize]) -> BTreeSet<NodeName> {
        numbers.iter().map(|number| name(*number)).collect()
    }

    /// A step of so many nodes, beside which one of so many may run.
    fn need(nodes: u32, beside: Option<u32>) -> Need {
        Need { nodes, ranks: nodes * 2, ranks_per_node: 2, beside }
    }

    fn none() -> BTreeSet<NodeName> {
        BTreeSet::new()
    }

    #[test]
    fn steps_side_by_side_have_the_nodes_of_their_runs_and_the_rest_is_lent_to_those_that_lose_one() {
        let mut lending = lending(5);
        assert_eq!(lending.begin(0, &need(2, Some(2)), &none()), Some(names(&[0, 1])));
        assert_eq!(lending.begin(1, &need(2, Some(2)), &none()), Some(names(&[2, 3])));
        assert_eq!(lending.begin(2, &need(2, Some(2)), &none()), None, "one node is left");
        let lent = lending.borrow(1, 1, false, &none());
        assert_eq!(lent, Lent { nodes: vec![name(4)], more_later: true });
        assert_eq!(lending.borrow(0, 1, false, &none()).nodes, []);
        assert_eq!(lending.end(0, &names(&[0]), false, &none()), []);
        assert_eq!(lending.begin(2, &need(1, Some(2)), &none()), Some(names(&[0])), "node 1 was lost");
    }

    #[test]
    fn a_step_beside_which_none_can_run_has_all_nodes_as_spares() {
        assert_eq!(lending(3).begin(0, &need(2, None), &none()), Some(names(&[0, 1, 2])));
        assert_eq!(lending(3).begin(0, &need(2, Some(2)), &none()), Some(names(&[0, 1, 2])), "too few for both");
        assert_eq!(lending(4).begin(0, &need(2, Some(2)), &none()), Some(names(&[0, 1])));
        assert_eq!(lending(2).begin(0, &need(3, None), &none()), Some(names(&[0, 1])), "it ends: too few");
    }

    #[test]
    fn nodes_that_cannot_be_used_are_lent_to_none() {
        let mut lending = lending(4);
        assert_eq!(lending.begin(0, &need(1, Some(1)), &names(&[0])), Some(names(&[1])));
        assert_eq!(lending.begin(1, &need(1, Some(1)), &names(&[0, 2])), Some(names(&[3])));
        assert_eq!(lending.borrow(0, 1, false, &names(&[0, 2])).nodes, []);
        assert_eq!(lending.borrow(0, 1, false, &none()).nodes, [name(0)]);
    }

    #[test]
    fn a_step_waits_for_nodes_until_no_step_can_give_any() {
        let mut lending = lending(4);
        lending.begin(0, &need(2, Some(2)), &none());
        lending.begin(1, &need(2, Some(2)), &none());
        assert_eq!(lending.borrow(0, 1, true, &none()), Lent { nodes: vec![], more_later: true });
        let given = Lent { nodes: vec![name(2)], more_later: false };
        assert_eq!(lending.end(1, &names(&[2, 3]), false, &none()), [(0, given)]);
        assert_eq!(lending.borrow(0, 2, true, &none()), Lent { nodes: vec![name(3)], more_later: false });
    }

    #[test]
    fn of_steps_that_all_wait_the_last_one_is_refused_and_gives_its_nodes_to_the_others() {
        let mut lending = lending(4);
        lending.begin(0, &need(2, Some(2)), &none());
        lending.begin(1, &need(2, Some(2)), &none());
        assert!(lending.borrow(0, 1, true, &none()).more_later);
        assert!(!lending.borrow(1, 1, true, &none()).more_later, "it ends");
        let given = Lent { nodes: vec![name(2)], more_later: false };
        assert_eq!(lending.end(1, &names(&[2]), false, &none()), [(0, given)]);
    }

    #[test]
    fn a_request_that_waits_is_not_withdrawn_by_an_earlier_one_that_arrives_later() {
        let mut lending = lending(4);
        lending.begin(0, &need(2, Some(2)), &none());
        lending.begin(1, &need(2, Some(2)), &none());
        assert!(lending.borrow(0, 1, true, &none()).more_later);
        assert_eq!(lending.borrow(0, 1, false, &none()).nodes, []);
        assert!(!lending.borrow(1, 1, true, &none()).more_later, "both wait: it ends");
        assert_eq!(lending.end(1, &names(&[3]), false, &none())[0].1.nodes, [name(3)]);
        assert_eq!(lending.borrow(0, 1, false, &none()).nodes, [], "it does not wait any more");
    }

    #[test]
    fn the_nodes_of_a_step_that_keeps_its_files_are_not_lent() {
        let mut lending = lending(2);
        lending.has(0, [name(0)].iter());
        lending.has(1, [name(1)].iter());
        assert_eq!(lending.end(0, &none(), true, &none()), []);
        assert_eq!(lending.borrow(1, 1, true, &none()), Lent { nodes: vec![], more_later: false });
    }
}
